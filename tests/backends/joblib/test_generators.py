"""Results as a generator: in order or as they come, bounded by what the consumer takes, dropped at any time."""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import delayed

MODES = ("generator", "generator_unordered")

modes = pytest.mark.parametrize("mode", MODES)


def square(x: int) -> int:
    return x * x


def until(path: str) -> str:
    while not Path(path).exists():
        time.sleep(0.002)
    return path


def stay(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    try:
        time.sleep(60)
    finally:
        Path(path).unlink()


def fail_at(x: int, at: int) -> int:
    if x == at:
        raise LookupError(at)
    return x


@modes
def test_all_results_come_once(parallel: Callable[..., Any], mode: str) -> None:
    for batch_size in ("auto", 1, 7):
        found = list(parallel(return_as=mode, batch_size=batch_size)(delayed(square)(x) for x in range(200)))
        assert sorted(found) == [x * x for x in range(200)]
        assert mode == "generator_unordered" or found == sorted(found)


def test_unordered_results_pass_a_slow_one(parallel: Callable[..., Any], tmp_path: Path) -> None:
    path = str(tmp_path / "go")
    tasks = [delayed(until)(path)] + [delayed(square)(x) for x in range(20)]
    found = parallel(return_as="generator_unordered", batch_size=1)(tasks)
    assert sorted(next(found) for _ in range(20)) == [x * x for x in range(20)]
    Path(path).touch()
    assert list(found) == [path]


def test_ordered_results_wait_for_a_slow_one_while_others_run(parallel: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "go"
    tasks = [delayed(until)(str(path))] + [delayed(square)(x) for x in range(20)] + [delayed(path.touch)()]
    assert list(parallel(return_as="generator", batch_size=1)(tasks)) == [
        str(path),
        *(x * x for x in range(20)),
        None,
    ]


@modes
def test_work_begins_with_the_call(parallel: Callable[..., Any], mode: str, tmp_path: Path, eventually: Any) -> None:
    found = parallel(return_as=mode)(delayed((tmp_path / str(x)).touch)() for x in range(2))
    eventually(lambda: len(list(tmp_path.iterdir())) == 2)
    assert list(found) == [None, None]


@modes
def test_large_results_that_nobody_takes_stop_the_input(
    parallel: Callable[..., Any], mode: str, eventually: Any
) -> None:
    drawn = 0

    def source() -> Iterator[Any]:
        nonlocal drawn
        for _ in range(1000):
            drawn += 1
            yield delayed(np.ones)(125_000)

    found = parallel(return_as=mode, pre_dispatch=4)(source())
    next(found)
    before = -1

    def is_still() -> bool:
        nonlocal before
        before, last = drawn, before
        time.sleep(0.3)  # what goes on would draw more meanwhile
        return drawn == before == last

    eventually(is_still)
    assert drawn < 60, "8 MB may wait"
    with pytest.warns(UserWarning, match="cancelled"):
        found.close()


@modes
def test_small_results_run_ahead_of_a_slow_consumer(parallel: Callable[..., Any], mode: str, tmp_path: Path) -> None:
    """The consumer waits for the last task while it takes the first result."""
    path = tmp_path / "last"
    found = parallel(return_as=mode)([delayed(square)(x) for x in range(200)] + [delayed(path.touch)()])
    for _ in found:
        until(str(path))


@modes
def test_dropping_cancels_what_runs_and_what_waits(
    parallel: Callable[..., Any], mode: str, tmp_path: Path, eventually: Any
) -> None:
    found = parallel(return_as=mode, pre_dispatch="all")(delayed(stay)(str(tmp_path / str(x))) for x in range(10))
    eventually(lambda: len(list(tmp_path.iterdir())) == 2)
    with pytest.warns(UserWarning, match="10 tasks .* cancelled"):
        found.close()
    eventually(lambda: not list(tmp_path.iterdir()))
    assert parallel()(delayed(square)(x) for x in range(3)) == [0, 1, 4]
    assert not list(tmp_path.iterdir())


@modes
def test_dropping_in_another_thread(parallel: Callable[..., Any], mode: str, tmp_path: Path, eventually: Any) -> None:
    held = [parallel(return_as=mode)(delayed(stay)(str(tmp_path / str(x))) for x in range(4))]
    eventually(lambda: len(list(tmp_path.iterdir())) == 2)

    def drop() -> None:
        held.clear()
        gc.collect()

    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        thread = threading.Thread(target=drop)
        thread.start()
        thread.join(20)
        eventually(lambda: not list(tmp_path.iterdir()))
        eventually(lambda: not [t for t in threading.enumerate() if "Generator" in t.name])
    assert parallel()(delayed(square)(x) for x in range(3)) == [0, 1, 4]


@modes
def test_an_error_comes_where_its_result_would(parallel: Callable[..., Any], mode: str) -> None:
    found = parallel(return_as=mode, batch_size=1)(delayed(fail_at)(x, 30) for x in range(100))
    taken: list[int] = []
    with pytest.raises(LookupError, match="30"):
        taken.extend(found)
    assert 30 not in taken
    assert next(found, "end") == "end"
    assert parallel()(delayed(square)(x) for x in range(3)) == [0, 1, 4]


@modes
def test_many_generators_dropped_in_the_middle(parallel: Callable[..., Any], mode: str) -> None:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        for count in range(30):
            found = parallel(return_as=mode)(delayed(square)(x) for x in range(300))
            for _ in range(count):
                next(found)
            found.close()
    assert parallel()(delayed(square)(x) for x in range(3)) == [0, 1, 4]


@pytest.mark.parametrize("mode", MODES)
def test_a_generator_that_is_left_when_the_program_ends(run_program: Any, mode: str) -> None:
    text = f"""
    import time
    from joblib import Parallel, delayed
    import outboard.joblib
    found = Parallel(2, "dist", return_as="{mode}")(delayed(time.sleep)(0.01 * x * x) for x in range(100))
    next(found)
    print("end")
    """
    begin = time.monotonic()
    assert run_program(text, quiet=False) == "end\n"
    assert time.monotonic() - begin < 20

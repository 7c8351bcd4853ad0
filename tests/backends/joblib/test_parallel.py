"""What a program says to `Parallel`: the same results whatever it says, and from wherever."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from joblib import Parallel, delayed, parallel_backend, parallel_config

from outboard.joblib import DistBackend


def square(x: int) -> int:
    return x * x


def stay(_: object = None) -> None:
    time.sleep(60)


def until(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.002)


def where() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def squares(parallel: Any, count: int = 30) -> bool:
    return list(parallel(delayed(square)(x) for x in range(count))) == [x * x for x in range(count)]


@pytest.mark.parametrize("pre_dispatch", ["2 * n_jobs", "all", "n_jobs", 1, 2, "3*n_jobs-1", 1000])
@pytest.mark.parametrize("batch_size", ["auto", 1, 7, 100])
def test_results_are_those_of_the_input_in_its_order(
    parallel: Callable[..., Any], pre_dispatch: Any, batch_size: Any
) -> None:
    assert squares(parallel(pre_dispatch=pre_dispatch, batch_size=batch_size))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_inputs_of_any_length(parallel: Callable[..., Any], count: int) -> None:
    assert squares(parallel(), count)


def test_pre_dispatch_bounds_what_is_drawn_from_the_input(parallel: Callable[..., Any], tmp_path: Path) -> None:
    drawn = []

    def source() -> Iterator[Any]:
        for i in range(20):
            drawn.append(i)
            if len(drawn) == 5:  # one of the first four has ended
                path.touch()
            # Three end at once: for two of them joblib may only take what it has drawn already.
            yield delayed(until)(str(path)) if i == 3 else delayed(square)(i)

    path = tmp_path / "go"
    assert len(parallel(pre_dispatch=4, batch_size=1)(source())) == 20
    assert drawn == list(range(20))


def test_an_input_may_wait_for_tasks_that_it_gave_before(parallel: Callable[..., Any], tmp_path: Path) -> None:
    def source() -> Iterator[Any]:
        for i in range(40):
            if i >= 2:  # joblib draws for two workers at a time
                until(str(tmp_path / str(i - 2)))
            yield delayed((tmp_path / str(i)).touch)()

    assert len(parallel(batch_size=1)(source())) == 40


def test_a_generator_of_one_call_feeds_another(parallel: Callable[..., Any]) -> None:
    first = parallel(return_as="generator")(delayed(square)(x) for x in range(40))
    second = parallel(return_as="generator")(delayed(square)(x) for x in first)
    assert parallel()(delayed(square)(x) for x in second) == [x**8 for x in range(40)]


def test_one_instance_after_another_time_and_within_a_context(parallel: Callable[..., Any]) -> None:
    again = parallel()
    assert squares(again) and squares(again, 3) and squares(again, 100)
    with parallel() as managed:
        assert squares(managed) and squares(managed, 3)


def test_an_instance_that_is_running_refuses_another_call(parallel: Callable[..., Any]) -> None:
    busy = parallel(return_as="generator")
    results = busy(delayed(square)(x) for x in range(10))
    with pytest.raises(RuntimeError, match="already running"):
        busy(delayed(square)(x) for x in range(10))
    assert list(results) == [x * x for x in range(10)]


def test_a_managed_instance_goes_on_after_an_error(parallel: Callable[..., Any]) -> None:
    with parallel() as managed:
        with pytest.raises(ZeroDivisionError):
            managed(delayed(divmod)(1, x) for x in (1, 0, 2))
        assert squares(managed)


def test_one_backend_serves_several_calls_at_once_and_from_threads(cluster: None) -> None:
    backend = DistBackend()
    good: list[bool] = []

    def call() -> None:
        good.extend(squares(Parallel(n_jobs=2, backend=backend)) for _ in range(5))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert good == [True] * 20
    with parallel_config(backend=backend, n_jobs=2):
        one = Parallel(return_as="generator")(delayed(square)(x) for x in range(30))
        two = Parallel(return_as="generator")(delayed(square)(x) for x in range(30))
        assert list(zip(one, two, strict=True)) == [(x * x, x * x) for x in range(30)]


def test_workers_stay_from_call_to_call(cluster: None) -> None:
    pids: set[int] = set()
    for _ in range(5):
        pids.update(Parallel(n_jobs=2, backend="dist")(delayed(os.getpid)() for _ in range(10)))
    assert len(pids) <= 2


def test_a_task_that_takes_too_long_ends_the_call(parallel: Callable[..., Any]) -> None:
    begin = time.monotonic()
    for return_as in ("list", "generator", "generator_unordered"):
        with pytest.raises(multiprocessing.TimeoutError):
            list(parallel(timeout=0.3, return_as=return_as)(delayed(stay)() for _ in range(4)))
    assert time.monotonic() - begin < 30
    assert squares(parallel())


def test_a_timeout_that_is_kept_changes_nothing(parallel: Callable[..., Any]) -> None:
    assert squares(parallel(timeout=50))


def test_progress_is_printed_as_tasks_end(parallel: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert squares(parallel(verbose=11, batch_size=1), 8)
    lines = capsys.readouterr().err.splitlines()
    assert "Using backend DistBackend with 2 concurrent workers." in lines[0]
    assert sum("Done" in line for line in lines) >= 7 and "finished" in lines[-1]


def test_completion_is_told_for_each_task(parallel: Callable[..., Any]) -> None:
    """As the patches that draw progress bars expect."""
    told: list[int] = []

    class Counting(Parallel):  # type: ignore[misc]
        def print_progress(self) -> None:
            told.append(self.n_completed_tasks)

    assert squares(Counting(n_jobs=2, backend="dist", batch_size=1), 8)
    assert max(told) == 8 and len(set(told)) >= 4


def test_shared_memory_is_left_to_threads(cluster: None) -> None:
    with parallel_config("dist", n_jobs=2):
        found = Parallel(n_jobs=2, require="sharedmem")(delayed(where)() for _ in range(8))
    assert {pid for pid, _ in found} == {os.getpid()}
    with pytest.raises(ValueError, match="shared memory"):
        Parallel(n_jobs=2, backend="dist", require="sharedmem")


@pytest.mark.parametrize("prefer", ["threads", "processes"])
def test_a_preference_gives_way_to_a_backend_that_was_named(cluster: None, prefer: str) -> None:
    with parallel_backend("dist", n_jobs=2):
        found = Parallel(prefer=prefer)(delayed(where)() for _ in range(8))
    assert os.getpid() not in {pid for pid, _ in found}


def test_slow_tasks_behind_fast_ones_are_shared_out(parallel: Callable[..., Any]) -> None:
    """Batches learned from fast tasks are too large for slow ones."""

    def pid_after(i: int) -> int:
        time.sleep(0 if i < 400 else 0.25)
        return os.getpid()

    pids = parallel()(delayed(pid_after)(i) for i in range(408))
    assert max(Counter(pids[400:]).values()) <= 6

"""Programs that start from odd places, and tasks whose results are code."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import outboard as ob
from outboard import engine
from outboard.errors import TaskCancelledError
from outboard.interrupts import shield
from outboard.multiprocessing import Pool

pytestmark = pytest.mark.timeout(60)


@ob.remote
def add(x: int) -> int:
    return x + 1


@ob.remote(num_returns=2)
def by_child() -> Iterator[int]:
    yield ob.get(add.remote(1))
    yield 5


@ob.remote(num_returns=2)
def without_end() -> Iterator[int]:
    while True:
        yield 1


@ob.remote(num_returns=2)
def sleepy() -> Iterator[int]:
    yield 1
    time.sleep(300)
    yield 2


class PickledByChild:
    def __reduce__(self) -> Any:
        return int, (ob.get(add.remote(7)),)


@ob.remote
def pickled_by_child() -> PickledByChild:
    return PickledByChild()


@ob.remote
def stubborn(path: str) -> None:
    Path(path).touch()
    while True:
        try:
            time.sleep(300)
        except BaseException:
            continue


def test_results_that_are_made_while_they_are_read_or_pickled_belong_to_the_task(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)
    assert ob.get(by_child.remote(), timeout=20) == [2, 5]
    assert ob.get(pickled_by_child.remote(), timeout=20) == 8
    with pytest.raises(ValueError, match="without_end returned more than 2 values, but num_returns=2"):
        ob.get(without_end.remote()[0], timeout=20)
    first, _ = sleepy.remote()
    with pytest.raises(ob.errors.GetTimeoutError):
        ob.get(first, timeout=0.5)
    ob.cancel(first)
    assert ob.get(add.remote(1), timeout=20) == 2


def test_force_ends_a_task_that_ignores_an_earlier_cancel(
    cluster: Callable[..., Any], eventually: Callable[..., Any], tmp_path: Path
) -> None:
    cluster(num_cpus=1)
    ref = stubborn.remote(str(tmp_path / "begun"))
    eventually((tmp_path / "begun").exists)
    ob.cancel(ref)
    with pytest.raises(TaskCancelledError):
        ob.get(ref, timeout=20)
    ob.cancel(ref, force=True)
    assert ob.get(add.remote(1), timeout=20) == 2


def test_interrupt_between_dealing_items_out_and_sending_them_loses_none(
    cluster: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster(num_cpus=2)
    with Pool(2) as pool:
        assert pool.map(abs, range(10), chunksize=1) == list(range(10))
        client = engine.current().client  # type: ignore[attr-defined]  # the native one
        pump = client.pump

        def interrupted() -> Any:
            items = pump()
            if items and left:  # once a round: another thread may deal out more when the interrupt has been raised
                shield._pending = left.pop()  # as its handler leaves it within a shield
            return items

        for _ in range(100):  # more than the credit
            left = [KeyboardInterrupt]
            with monkeypatch.context() as patch:
                patch.setattr(client, "pump", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    pool.map(abs, range(60), chunksize=1)
        assert pool.map_async(abs, range(10), chunksize=1).get(20) == list(range(10))


def test_thread_that_was_torn_out_of_sending_sends_again(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=2)
    with Pool(2) as pool:
        pool.map(abs, range(10), chunksize=1)
        client = engine.current().client  # type: ignore[attr-defined]  # the native one
        client._engaged.add(threading.get_ident())  # as a handler leaves it that raises between two steps
        assert pool.map_async(abs, range(300), chunksize=1).get(20) == list(range(300))
        assert not client._engaged


PROGRAM = """
import outboard as ob
def double(x):
    return 2 * x
if __name__ == "__main__":
    values = ob.get([ob.remote(double).remote(n) for n in range(5)], timeout=20)
    open(RESULT, "w").write(repr(values))
"""


@pytest.mark.parametrize("closed", [">&- 2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(start_program: Any, tmp_path: Path, closed: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"RESULT = {str(tmp_path / 'result')!r}\n{PROGRAM}")
    program = start_program("", command=["sh", "-c", f"exec {sys.executable} {script} {closed}"])
    program.communicate(timeout=40)
    assert (program.returncode, (tmp_path / "result").read_text()) == (0, "[0, 2, 4, 6, 8]")


def test_working_folder_may_be_gone(start_program: Any, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = tmp_path / "script.py"
    script.write_text(f"RESULT = {str(tmp_path / 'result')!r}\n{PROGRAM}")
    command = f"cd {gone} && rmdir {gone} && exec {sys.executable} {script}"
    program = start_program("", command=["sh", "-c", command], env=dict(os.environ))
    _, err = program.communicate(timeout=40)
    assert (program.returncode, err) == (0, "")
    assert (tmp_path / "result").read_text() == "[0, 2, 4, 6, 8]"

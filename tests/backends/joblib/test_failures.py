"""Every batch ends in one callback, and every call in an error that says what happened; the next call works."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from pickle import PicklingError
from typing import Any

import pytest
from joblib import delayed

from outboard.errors import TaskCancelledError, WorkerLostError
from outboard.joblib import DistBackend
from tests.backends.joblib.conftest import Host

pytestmark = pytest.mark.usefixtures("cluster")

GOOD = [delayed(abs)(-1), delayed(abs)(-2)]


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("no way to say it")


class Unloadable:
    """Pickles, but raises where it is loaded."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def unpicklable(_: object = None) -> Any:
    return threading.Lock()


def unloadable(_: object = None) -> Any:
    return Unloadable()


def die(i: int = 5) -> int:
    if i == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return i


def leave(_: object = None) -> None:
    sys.exit(3)


def fail(i: int = 1) -> int:
    if i == 1:
        raise KeyError("early")
    return i


def fail_or_stay(i: int, path: str) -> None:
    """The second fails once the first is there, which then stays."""
    if i:
        while not Path(path).exists():
            time.sleep(0.002)
        raise ValueError("early")
    Path(path).touch()
    time.sleep(60)


def stay(path: str) -> None:
    Path(path).touch()
    time.sleep(60)


BAD = [
    (delayed(abs)(Unpicklable()), PicklingError, "no way to say it"),
    (delayed(abs)(Unloadable()), Exception, "no number"),
    (delayed(unpicklable)(), PicklingError, "lock"),
    (delayed(unloadable)(), Exception, "no number"),
    (delayed(fail)(), KeyError, "early"),
    (delayed(leave)(), Exception, "3"),
    (delayed(die)(), WorkerLostError, "SIGKILL"),
]


@pytest.mark.parametrize(("task", "error", "words"), BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("generator", [False, True])
def test_each_batch_gets_one_callback_whatever_is_wrong_with_one(
    task: Any, error: type[BaseException], words: str, generator: bool
) -> None:
    host = Host(generator=generator)
    batches = [host.submit(*GOOD), host.submit(delayed(abs)(-3), task, delayed(abs)(-4)), host.submit(*GOOD)]
    heard = host.wait(3)
    bad = batches[1]
    with pytest.raises(error, match=words):
        host.backend.retrieve_result_callback(bad)
    assert [list(host.backend.retrieve_result_callback(batch)) for batch in (batches[0], batches[2])] == [[1, 2]] * 2
    host.end()
    assert sorted(map(id, heard)) == sorted(map(id, batches))


def test_aborting_ends_every_batch_in_one_callback_and_running_tasks_too(tmp_path: Path, eventually: Any) -> None:
    host = Host()
    running = [tmp_path / "0", tmp_path / "1"]
    batches = [host.submit(delayed(stay)(str(path))) for path in running] + [host.submit(*GOOD) for _ in range(5)]
    eventually(lambda: all(path.exists() for path in running))
    host.backend.abort_everything(ensure_ready=False)
    host.wait(len(batches))
    late = host.submit(*GOOD)
    assert host.wait(len(batches) + 1)[-1] is late
    for batch in [batches[0], batches[1], late]:
        with pytest.raises(TaskCancelledError):
            host.backend.retrieve_result_callback(batch)
    host.end()
    assert sorted(map(id, host.heard)) == sorted(map(id, [*batches, late]))


def test_a_dead_worker_is_named_with_its_call_and_signal_and_the_next_call_works(parallel: Any) -> None:
    with pytest.raises(WorkerLostError, match=r"die\(5\).*SIGKILL"):
        parallel()(delayed(die)(i) for i in range(10))
    assert parallel()(delayed(abs)(-i) for i in range(3)) == [0, 1, 2]


def test_an_error_comes_at_once_and_frees_the_workers(parallel: Any, tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(ValueError, match="early"):
        parallel()(delayed(fail_or_stay)(i, str(tmp_path / "first")) for i in range(2))
    assert parallel()(delayed(abs)(-i) for i in range(3)) == [0, 1, 2]
    assert time.monotonic() - begin < 20


def test_an_error_has_the_remote_traceback_as_its_cause(parallel: Any) -> None:
    with pytest.raises(KeyError, match="early") as caught:
        parallel()(delayed(fail)(i) for i in range(3))
    assert "in fail" in str(caught.value.__cause__)


@pytest.mark.parametrize(("task", "error", "words"), BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("options", [{}, {"batch_size": 3}, {"return_as": "generator_unordered"}], ids=str)
def test_what_is_wrong_with_a_task_is_the_error_of_its_call(
    parallel: Callable[..., Any], task: Any, error: type[BaseException], words: str, options: dict[str, Any]
) -> None:
    with pytest.raises(error, match=words):
        list(parallel(**options)([*GOOD, task, *GOOD * 4]))
    assert parallel()(delayed(abs)(-i) for i in range(3)) == [0, 1, 2]


@pytest.mark.parametrize("at", [0, 1, 7, 40])
def test_an_input_that_raises_is_the_error_of_the_call(parallel: Any, at: int) -> None:
    def source() -> Iterator[Any]:
        for i in range(50):
            if i == at:
                raise LookupError("no more input")
            yield delayed(abs)(i)

    with pytest.raises(LookupError, match="no more input"):
        parallel()(source())
    assert parallel()(delayed(abs)(-i) for i in range(3)) == [0, 1, 2]


def test_what_does_not_pickle_within_the_input_s_thread_is_an_error_too(parallel: Any) -> None:
    """Later tasks are drawn in the backend's thread: an error there must not be lost."""
    with pytest.raises(PicklingError, match="no way to say it"):
        parallel(pre_dispatch=2)(delayed(abs)(Unpicklable() if i == 30 else i) for i in range(40))


def test_a_backend_serves_one_call_at_a_time_only() -> None:
    with pytest.raises(AssertionError, match="within a call"):
        DistBackend().submit(None, print)

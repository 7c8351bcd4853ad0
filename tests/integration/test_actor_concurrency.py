"""Calls of one actor at the same time: coroutines and threads."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import outboard
from outboard import errors
from tests.faults.conftest import eventually

__all__ = ["eventually"]


class Loop:
    """Has async methods, and one that is not."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.event = asyncio.Event()
        self.seen = 0

    async def nap(self, seconds: float) -> int:
        await asyncio.sleep(seconds)
        self.seen += 1
        return self.seen

    async def wait(self) -> str:
        try:
            await self.event.wait()
        except asyncio.CancelledError:
            self.seen = -1
            raise
        return "set"

    def set(self) -> int:
        self.event.set()
        return self.seen

    async def double(self, array: Any) -> Any:
        return array * 2

    async def of_ref(self, refs: list[Any]) -> int:
        return int(await refs[0])

    async def fail(self) -> None:
        raise KeyError("no such thing")

    async def leave(self) -> None:
        outboard.exit_actor()

    async def say(self, text: str) -> None:
        print(text)

    async def fork(self) -> int:
        return forked()


class Threads:
    """Waits for what its other calls do."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def wait(self) -> bool:
        return self.event.wait(20)

    def set(self) -> None:
        self.event.set()

    def child(self) -> int:
        return int(outboard.get(outboard.remote(abs).remote(-3)))

    def nap(self, seconds: float) -> int:
        time.sleep(seconds)
        return threading.get_ident()

    def pid(self) -> int:
        return os.getpid()

    def fork(self) -> int:
        return forked()


def forked() -> int:
    """Fork a child that comes back as well: what it returns must never be heard."""
    child = os.fork()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else -1


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    outboard.init(num_cpus=1)
    yield
    outboard.shutdown()


def test_many_coroutines_wait_together() -> None:
    loop = outboard.remote(Loop).remote()
    begun = time.monotonic()
    assert sorted(outboard.get([loop.nap.remote(0.3) for _ in range(500)], timeout=20)) == list(range(1, 501))
    assert time.monotonic() - begun < 500 * 0.3 / 10
    waiting = loop.wait.remote()
    assert outboard.get([loop.set.remote(), waiting], timeout=20) == [500, "set"]


@pytest.mark.parametrize("cls", [Loop, Threads])
def test_a_child_that_a_method_forks_ends_where_the_method_does(cls: type) -> None:
    actor = outboard.remote(cls).options(max_concurrency=2).remote()
    assert outboard.get([actor.fork.remote(), actor.fork.remote()], timeout=20) == [0, 0]


def test_results_errors_references_and_prints_come_as_from_any_call(capfd: pytest.CaptureFixture[str]) -> None:
    loop = outboard.remote(Loop).remote()
    arrays = outboard.get([loop.double.remote(np.full(100_000, i)) for i in range(5)], timeout=20)
    assert [float(array[0]) for array in arrays] == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert outboard.get(loop.of_ref.remote([outboard.put(4)]), timeout=20) == 4
    with pytest.raises(KeyError, match="no such thing"):
        outboard.get(loop.fail.remote(), timeout=20)
    with pytest.raises(TypeError, match="argument"):
        outboard.get(loop.nap.remote(), timeout=20)
    with pytest.raises(errors.SerializationError):
        outboard.get(loop.double.remote(threading.Lock()), timeout=20)
    outboard.get(loop.say.remote("loud and clear"), timeout=20)
    assert "loud and clear" in capfd.readouterr().out


def test_a_cancelled_coroutine_ends_where_it_waits(eventually: Any) -> None:
    loop = outboard.remote(Loop).remote()
    waiting = loop.wait.remote()
    assert outboard.get(loop.nap.remote(0), timeout=20) == 1
    outboard.cancel(waiting)
    with pytest.raises(errors.TaskCancelledError):
        outboard.get(waiting, timeout=20)
    eventually(lambda: outboard.get(loop.set.remote(), timeout=20) == -1, within=10)


def test_a_coroutine_may_end_the_actor() -> None:
    loop = outboard.remote(Loop).remote()
    naps = [loop.nap.remote(100) for _ in range(3)]
    assert outboard.get(loop.leave.remote(), timeout=20) is None
    for ref in naps:
        with pytest.raises(errors.ActorDiedError, match="has called exit_actor"):
            outboard.get(ref, timeout=20)


def test_threads_wait_for_each_other_and_for_tasks() -> None:
    threads = outboard.remote(max_concurrency=4, num_cpus=1)(Threads).remote()
    waiting = [threads.wait.remote() for _ in range(3)]
    threads.set.remote()
    assert outboard.get(waiting, timeout=20) == [True] * 3
    assert outboard.get([threads.child.remote() for _ in range(12)], timeout=20) == [3] * 12


def test_no_more_than_so_many_at_a_time_and_all_fail_with_the_process() -> None:
    threads = outboard.remote(max_concurrency=3)(Threads).remote()
    assert 1 < len(set(outboard.get([threads.nap.remote(0.1) for _ in range(6)], timeout=20))) <= 3
    pid = outboard.get(threads.pid.remote(), timeout=20)
    naps = [threads.nap.remote(100) for _ in range(5)]
    os.kill(pid, 9)
    for ref in naps:
        with pytest.raises(errors.ActorDiedError, match="SIGKILL"):
            outboard.get(ref, timeout=20)

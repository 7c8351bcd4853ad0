"""The shared queue: order, room, timeouts, and consumers that die while they wait."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import outboard
from outboard import errors
from outboard.util import Queue
from outboard.util.queue import Empty, Full
from tests.faults.conftest import eventually

__all__ = ["eventually"]


@outboard.remote(num_cpus=0, max_retries=0)
def produce(jobs: Queue, name: str, count: int) -> None:
    for number in range(count):
        jobs.put((name, number))


@outboard.remote(num_cpus=0, max_retries=0)
def consume(jobs: Queue, count: int) -> list[Any]:
    return [jobs.get() for _ in range(count)]


@outboard.remote(num_cpus=0, max_retries=0)
def die_waiting(jobs: Queue) -> None:
    threading.Timer(0.2, lambda: os._exit(1)).start()
    jobs.get()


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    outboard.init(num_cpus=1)
    yield
    outboard.shutdown()


def test_producers_and_consumers_share_it_in_order() -> None:
    jobs = Queue(maxsize=3)
    producing = [produce.remote(jobs, name, 30) for name in "ab"]
    got = [item for part in outboard.get([consume.remote(jobs, 20) for _ in range(3)], timeout=20) for item in part]
    outboard.get(producing, timeout=20)
    assert sorted(got) == [(name, number) for name in "ab" for number in range(30)]
    whole = Queue()
    outboard.get(produce.remote(whole, "c", 20), timeout=20)
    assert outboard.get(consume.remote(whole, 20), timeout=20) == [("c", number) for number in range(20)]


def test_room_and_time_are_those_of_the_standard_queue() -> None:
    jobs = Queue(maxsize=2)
    assert jobs.empty() and not jobs.full() and len(jobs) == 0
    for take in (jobs.get_nowait, lambda: jobs.get(timeout=0.05), lambda: jobs.get_nowait_batch(1)):
        with pytest.raises(Empty) as info:
            take()
        assert isinstance(info.value, queue.Empty)
    with pytest.raises(Full):
        jobs.put_nowait_batch([1, 2, 3])
    jobs.put_nowait_batch(iter([1, 2]))
    for put in (lambda: jobs.put_nowait(3), lambda: jobs.put(3, timeout=0.05)):
        with pytest.raises(queue.Full):
            put()
    assert jobs.full() and jobs.qsize() == jobs.size() == 2
    assert jobs.get_nowait_batch(2) == [1, 2] and jobs.get_nowait_batch(0) == []
    with pytest.raises(ValueError, match="timeout must be 0 or more"):
        jobs.get(timeout=-1)


def test_who_dies_or_is_cancelled_while_it_waits_takes_nothing(eventually: Callable[..., Any]) -> None:
    jobs = Queue()
    with pytest.raises(errors.WorkerLostError):
        outboard.get(die_waiting.remote(jobs), timeout=20)
    waiting = consume.remote(jobs, 1)
    assert outboard.wait([waiting], timeout=0.2)[0] == []
    outboard.cancel(waiting)
    with pytest.raises(errors.TaskCancelledError):
        outboard.get(waiting, timeout=20)
    # The call is told a moment later than the task: what is put before that may go to it yet.
    eventually(lambda: outboard.get(jobs.actor.waiting.remote(), timeout=20) == 0, within=10)
    jobs.put("kept")
    assert jobs.get(timeout=20) == "kept"


def test_event_loops_wait_for_it_without_blocking() -> None:
    jobs = Queue(maxsize=1)

    async def run() -> list[int]:
        taking = [asyncio.create_task(jobs.get_async(timeout=20)) for _ in range(3)]
        for number in range(3):
            await jobs.put_async(number)
        with pytest.raises(Empty):
            await jobs.get_async(timeout=0.05)
        return await asyncio.gather(*taking)

    assert sorted(asyncio.run(run())) == [0, 1, 2]


def test_shutdown_ends_who_waits() -> None:
    jobs = Queue(actor_options={"name": "jobs"})
    waiting = consume.remote(jobs, 1)
    assert outboard.wait([waiting], timeout=0.2)[0] == []
    jobs.shutdown()
    for use in (lambda: outboard.get(waiting, timeout=20), jobs.qsize):
        with pytest.raises(errors.ActorDiedError, match="QueueActor 'jobs' has ended"):
            use()

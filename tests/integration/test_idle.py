"""Tasks that wait in ways the engine does not see, and leave their CPUs to others meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import outboard as ob
from outboard.engine import current
from outboard.errors import TaskCancelledError
from outboard.options import TaskOptions

pytestmark = pytest.mark.timeout(30)

kept: Any = None  # in a worker: what a task left there


@pytest.fixture(autouse=True)
def cluster_of_one() -> Iterator[None]:
    ob.init(num_cpus=1)
    yield
    ob.shutdown()


def double(x: int) -> int:
    return 2 * x


def polls_for_its_children(fails: bool = False) -> Any:
    """The children's results are taken in another thread, which this one polls."""
    array = current().open_array(double, TaskOptions())
    array.extend(range(4))
    values: list[int] = []

    def take_all() -> None:
        while taken := array.take():
            values.extend(done.value for done in taken)

    thread = threading.Thread(target=take_all)
    thread.start()
    with current().idle(), current().idle():
        while thread.is_alive():
            time.sleep(0.001)
        if fails:
            raise ValueError("on the way out")
    return sorted(values)


def waits_as_usual_within() -> Any:
    with current().idle():
        first = ob.get(ob.remote(double).remote(1))
        second = ob.get([ob.remote(double).remote(n) for n in (2, 3)])
    return [first, *second, ob.get(ob.remote(double).remote(4))]


def idles_for_ever() -> None:
    with current().idle():
        time.sleep(60)


def keeps_its_context() -> int:
    context = current().idle()
    context.__enter__()
    global kept
    kept = context  # as a generator would that is not read to its end
    return double(3)


def waits_after_another_kept_its_context() -> list[int]:
    with current().idle():
        kept.__exit__(None, None, None)  # of no effect: it ended with its task
        values = ob.get([ob.remote(double).remote(n) for n in (1, 2)])
    return [*values, ob.get(ob.remote(double).remote(3))]


def enters_and_leaves() -> None:
    while True:
        with current().idle(), current().idle():
            pass


def child(n: int) -> int:
    value: int = ob.get(ob.remote(double).remote(n))
    return value


def waits_in_threads() -> list[int]:
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(child, range(6)))


def waits_in_threads_of_asyncio() -> list[int]:
    async def gather() -> list[int]:
        return await asyncio.gather(*(asyncio.to_thread(child, n) for n in range(6)))

    return asyncio.run(gather())


def leaves_a_thread_that_waits() -> int:
    """The thread waits for a task that cannot run before this one has ended."""
    begun = threading.Event()

    def wait() -> None:
        ref = ob.remote(time.sleep).remote(0.3)
        begun.set()
        ob.get(ref)

    threading.Thread(target=wait, daemon=True).start()
    begun.wait()
    return double(4)


def waits_aside() -> bool:
    """Whether a thread waits in vain, aside, for what can only run in this task's slot."""
    array = current().open_array(double, TaskOptions())
    array.extend([1])

    def take() -> None:
        with current().aside():
            array.take()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join(0.1)
    waits = thread.is_alive()
    array.cancel()
    thread.join()
    return waits


@pytest.mark.parametrize("task", [waits_in_threads, waits_in_threads_of_asyncio])
def test_children_run_while_other_threads_of_their_parents_wait(task: Any) -> None:
    remote = ob.remote(task)
    assert ob.get([remote.remote() for _ in range(3)], timeout=20) == [[0, 2, 4, 6, 8, 10]] * 3
    assert ob.available_resources()["CPU"] == 1


def test_a_thread_that_outlives_its_task_holds_and_lends_nothing() -> None:
    remote = ob.remote(leaves_a_thread_that_waits)
    assert ob.get([remote.remote() for _ in range(4)], timeout=20) == [8] * 4
    assert ob.get(ob.remote(polls_for_its_children).remote(), timeout=20) == [0, 2, 4, 6]


def test_waits_aside_lend_nothing() -> None:
    assert ob.get(ob.remote(waits_aside).remote(), timeout=20)


def test_children_run_while_their_parent_polls_in_the_only_slot() -> None:
    assert ob.get(ob.remote(polls_for_its_children).remote(), timeout=20) == [0, 2, 4, 6]


def test_the_slot_is_taken_back_after_an_exception_too() -> None:
    task = ob.remote(polls_for_its_children)
    with pytest.raises(ValueError, match="on the way out"):
        ob.get(task.remote(fails=True), timeout=20)
    assert ob.get([task.remote(), ob.remote(double).remote(5)], timeout=20) == [[0, 2, 4, 6], 10]
    assert ob.available_resources()["CPU"] == 1


def test_a_context_ends_with_its_task_at_the_latest() -> None:
    assert ob.get(ob.remote(keeps_its_context).remote(), timeout=20) == 6
    assert ob.get(ob.remote(waits_after_another_kept_its_context).remote(), timeout=20) == [2, 4, 6]
    assert ob.available_resources()["CPU"] == 1


def test_a_cancelled_task_leaves_nothing_behind_wherever_it_is_hit() -> None:
    task = ob.remote(enters_and_leaves)
    for _ in range(20):
        ref = task.remote()
        assert ob.get(ob.remote(double).remote(1), timeout=20) == 2
        ob.cancel(ref)
        with pytest.raises(TaskCancelledError):
            ob.get(ref, timeout=20)
    assert ob.get(ob.remote(polls_for_its_children).remote(), timeout=20) == [0, 2, 4, 6]
    assert ob.available_resources()["CPU"] == 1


def test_waits_that_the_engine_sees_may_lie_within() -> None:
    assert ob.get(ob.remote(waits_as_usual_within).remote(), timeout=20) == [2, 4, 6, 8]


def test_a_task_that_idles_can_be_cancelled_and_its_slot_is_free() -> None:
    ref = ob.remote(idles_for_ever).remote()
    assert ob.get(ob.remote(double).remote(1), timeout=20) == 2  # it has given its slot away
    ob.cancel(ref)
    with pytest.raises(TaskCancelledError):
        ob.get(ref, timeout=20)
    assert ob.get([ob.remote(double).remote(n) for n in range(5)], timeout=20) == [0, 2, 4, 6, 8]


def test_outside_of_tasks_it_does_nothing() -> None:
    with current().idle():
        assert ob.get(ob.remote(double).remote(3)) == 6

"""Tasks that wait in ways the engine does not see, and leave their CPUs to others meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
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

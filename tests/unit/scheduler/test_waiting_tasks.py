"""Tasks that wait and lend their CPUs, and how many tasks an owner may send: the node's machine event by event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from outboard.ids import Span
from outboard.scheduler.commands import (
    BindingSpec,
    Grant,
    KindSpec,
    Recall,
    Resume,
    Returned,
    StartWorker,
)
from tests.unit.scheduler.dispatching import ONE, ROOT, UNIT, Node, only, packets

pytestmark = pytest.mark.timeout(10)


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.dispatch.check()


# -- lent CPUs


def test_child_runs_on_the_cpu_that_its_parent_gives_back() -> None:
    node = Node(1)
    parent = packets(node.start(node.submit()))[0]
    node.on_client_joined(70, ROOT, 0.0, worker=1)
    node.on_kind(70, KindSpec(1, 0, ONE))
    assert node.submit(1, 1, 70) == []
    child = packets(node.start(node.on_blocked(1, 0.0)))[0]
    assert child.worker == 2
    assert node.on_unblock(1, 0.0) == []
    assert node.finish(child) == [Resume(1)]
    node.finish(parent)


def test_resuming_task_comes_before_anything_queued() -> None:
    node = Node(1)
    node.start(node.submit())
    node.on_blocked(1, 0.0)
    other = packets(node.start(node.submit(3)))[0]
    node.on_unblock(1, 0.0)
    assert node.finish(other) == [Resume(1)]


def test_blocked_worker_gives_back_what_it_has_not_begun() -> None:
    node = Node(1).measured(1e-3)
    sent = packets(node.submit(4))
    assert Recall(1, 4) in node.on_blocked(1, 0.0)
    commands = node.on_recalled(1, [p.packet for p in sent[1:]], 0.0)
    assert packets(commands) == [] and node.dispatch.snapshot().queued == 3
    assert [p.worker for p in packets(node.start([StartWorker(2, ROOT, 0, ())]))] == [2] * 3


def test_blocked_task_keeps_all_but_its_cpus() -> None:
    node = Node(2, disk=UNIT)
    node.on_kind(ROOT, KindSpec(2, 0, {"CPU": UNIT, "disk": UNIT}))
    node.start(node.submit(1, 2))
    node.on_blocked(1, 0.0)
    assert node.dispatch.snapshot().free == {"CPU": 2 * UNIT, "disk": 0}


def test_child_never_lies_behind_its_own_parent() -> None:
    node = Node(1).measured(1e-4)
    node.submit()
    node.on_client_joined(70, ROOT, 0.0, worker=1)
    node.on_kind(70, KindSpec(1, 0, ONE))
    assert node.submit(1, 1, 70) == []


def test_nothing_is_meant_for_a_worker_whose_initialiser_waits_until_it_goes_on() -> None:
    node = Node(1)
    node.on_binding(ROOT, BindingSpec(3, 1))
    node.on_kind(ROOT, KindSpec(2, 3, ONE))
    assert only(node.submit(1, 2), StartWorker).worker == 1  # with the only CPU
    node.on_client_joined(70, ROOT, 0.0, worker=1)
    node.on_kind(70, KindSpec(1, 0, ONE))
    assert node.submit(1, 1, 70) == []
    child = packets(node.start(node.on_blocked(1, 0.0)))[0]
    assert child.worker == 2
    assert node.on_unblock(1, 0.0) == [Resume(1)]  # it holds no CPU, and needs none
    node.finish(child)
    assert [p.worker for p in packets(node.on_worker_started(1, 0.0))] == [1]


@pytest.mark.parametrize(("event", "answer"), [("on_blocked", []), ("on_unblock", [Resume(1)])])
def test_idle_worker_does_not_block_and_nobody_waits_for_it(node: Node, event: str, answer: list[Any]) -> None:
    node.measured(0.1)
    assert getattr(node, event)(1, 0.0) == answer
    assert sum(node.dispatch.counts.values()) == 1


# -- credit


def test_credit_doubles_while_the_owner_wants_more() -> None:
    node = Node(2).measured(1e-5)
    assert node.on_want(ROOT, 1, 5000, 0.0) == [Grant(ROOT, 1, 128)]
    assert node.on_want(ROOT, 1, 5000, 0.0) == [Grant(ROOT, 1, 256)]
    for _ in range(5):
        node.on_want(ROOT, 1, 5000, 0.0)
    assert node.on_want(ROOT, 1, 5000, 0.0) == []


def test_unmeasured_kind_keeps_its_first_credit(node: Node) -> None:
    assert node.on_want(ROOT, 1, 5000, 0.0) == []


def test_tasks_that_wait_never_keep_out_the_one_that_they_may_wait_for() -> None:
    node = Node(1)
    node.on_client_joined(8, 8, 0.0, credit=2)
    node.on_kind(8, KindSpec(1, 0, ONE))
    first = packets(node.start(node.submit(2, 1, 8)))[0]
    assert node.on_want(8, 1, 5, 0.0) == []  # one of them may go on
    second = packets(node.start(node.on_blocked(first.worker, 0.0)))[0]
    assert node.on_blocked(second.worker, 0.0) == [Grant(8, 1, 3)]
    assert node.on_want(8, 1, 4, 0.0) == []
    third = packets(node.start(node.submit(1, 1, 8)))[0]
    assert node.on_blocked(third.worker, 0.0) == [Grant(8, 1, 4)]


def test_surplus_of_tasks_that_turn_out_long_is_given_back(node: Node) -> None:
    sent = packets(node.start(node.submit(64)))
    assert len(packets(node.finish(sent[0], 1.0))) == 1
    commands = node.finish(sent[1], 1.0)
    assert Grant(ROOT, 1, 4) in commands
    # 62 are left; 4 may stay, 1 of them has been sent.
    assert only(commands, Returned).spans == [Span(0, 7, 58, 0)]


def test_nested_client_gets_all_at_once() -> None:
    node = Node(1)
    node.start(node.submit())
    node.on_client_joined(70, ROOT, 0.0, worker=1)
    node.on_kind(70, KindSpec(1, 0, ONE))
    assert node.on_want(70, 1, 100, 0.0) == [Grant(70, 1, 1000)]

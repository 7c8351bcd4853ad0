"""The node's machine in a cluster: what runs elsewhere, and clients that live elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from outboard.ids import RESOURCE_UNIT as UNIT
from outboard.ids import Span
from outboard.scheduler.commands import (
    BindingSpec,
    Command,
    Grant,
    InvalidTransition,
    KindRefused,
    KindSpec,
    Lost,
    LostCause,
    Returned,
    SendPacket,
    StartWorker,
)
from outboard.scheduler.dispatch import Dispatch
from outboard.scheduler.intervals import Interval

pytestmark = pytest.mark.timeout(10)

ROOT = 7
CHILD = 71  # a worker of ROOT at another node
ONE = {"CPU": UNIT}


class Node:
    """A joined dispatch with one root and one kind; each call checks all invariants and returns the commands."""

    def __init__(self, cpus: int = 2, **options: Any) -> None:
        self.dispatch = Dispatch({"CPU": cpus * UNIT}, joined=True, **options)
        self.dispatch.on_client_joined(ROOT, ROOT, 0.0)
        self.dispatch.on_kind(ROOT, KindSpec(1, 0, ONE))
        self.dispatch.take_commands()
        self.next_index = 1

    def __getattr__(self, event: str) -> Any:
        def call(*args: object, **named: object) -> list[Command]:
            getattr(self.dispatch, event)(*args, **named)
            self.dispatch.check()
            return self.dispatch.take_commands()

        return call

    def submit(self, count: int = 1, kind: int = 1, client: int = ROOT, now: float = 0.0) -> list[Command]:
        first, self.next_index = self.next_index, self.next_index + count
        return self.on_submitted(client, Interval(client, 0, first, 0, 1, kind, [b"call"] * count), now)

    def finish(self, packet: SendPacket, seconds: float = 0.1, now: float = 0.0) -> list[Command]:
        """Report the whole packet; ``seconds`` is a task's."""
        done = [(i.owner, i.stream, i.first, len(i.calls), i.stride, i.attempt) for i in packet.intervals]
        count = sum(d[3] for d in done)
        return self.on_finished(packet.worker, packet.packet, done, seconds * count, True, now)

    def start(self, commands: list[Command], now: float = 0.0) -> list[Command]:
        """Let all workers that ``commands`` start report for work."""
        answers: list[Command] = []
        for command in commands:
            if isinstance(command, StartWorker):
                answers += self.on_worker_started(command.worker, now)
        return answers


def packets(commands: list[Command]) -> list[SendPacket]:
    return [c for c in commands if isinstance(c, SendPacket)]


def returned(commands: list[Command]) -> int:
    return sum(s.count for c in commands if isinstance(c, Returned) for s in c.spans)


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.dispatch.check()


# -- what this node can never run


def test_kind_beyond_the_totals_gets_no_credit_and_what_comes_of_it_is_given_back(node: Node) -> None:
    assert node.on_kind(ROOT, KindSpec(2, 0, {"CPU": 3 * UNIT})) == [Grant(ROOT, 2, 0)]
    assert node.on_want(ROOT, 2, 100, 0.0) == []
    assert node.submit(3, kind=2) == [Returned(ROOT, [Span(0, 1, 3, 0)])]
    assert node.dispatch.snapshot().queued == 0


@pytest.mark.parametrize("demand", [ONE, {}, {"GPU": UNIT}])
@pytest.mark.parametrize("totals", [{}, {"CPU": 0}])
def test_node_without_slots_runs_nothing(totals: dict[str, int], demand: dict[str, int]) -> None:
    dispatch = Dispatch(totals, joined=True)
    dispatch.on_client_joined(ROOT, ROOT, 0.0)
    dispatch.on_kind(ROOT, KindSpec(1, 0, demand))
    dispatch.on_want(ROOT, 1, 9, 0.0)
    dispatch.on_submitted(ROOT, Interval(ROOT, 0, 1, 0, 1, 1, [b"call"]), 0.0)
    dispatch.check()
    assert dispatch.take_commands() == [Grant(ROOT, 1, 0), Returned(ROOT, [Span(0, 1, 1, 0)])]


def test_what_an_ordered_worker_cannot_run_is_refused_since_it_can_run_nowhere_else(node: Node) -> None:
    node.on_binding(ROOT, BindingSpec(5, ordered=True, eager=True))
    refused = node.on_kind(ROOT, KindSpec(2, 5, {"CPU": 3 * UNIT}))
    assert refused == [KindRefused(ROOT, 2, {"CPU": 3 * UNIT}, {"CPU": 2 * UNIT})]
    assert node.submit(1, kind=2) == [Lost(ROOT, LostCause.BINDING, [Span(0, 1, 1, 0)])]


def test_ordered_binding_that_is_nowhere_yet_may_be_elsewhere(node: Node) -> None:
    node.on_binding(ROOT, BindingSpec(5, ordered=True))
    assert node.on_kind(ROOT, KindSpec(2, 5, {"CPU": 3 * UNIT})) == [Grant(ROOT, 2, 0)]
    assert node.on_kind(ROOT, KindSpec(3, 5, ONE)) == []
    assert [type(c) for c in node.on_kind(ROOT, KindSpec(4, 5, {"CPU": 4 * UNIT}))] == [KindRefused]


def test_nested_client_gets_no_credit_for_what_can_never_run(node: Node) -> None:
    node.start(node.submit())
    node.on_client_joined(70, ROOT, 0.0, worker=1)
    assert node.on_kind(70, KindSpec(1, 0, {"CPU": 3 * UNIT})) == [Grant(70, 1, 0)]
    assert node.on_want(70, 1, 100, 0.0) == []


def test_binding_does_not_wait_for_what_it_will_never_take(node: Node) -> None:
    node.on_binding(ROOT, BindingSpec(5))
    node.on_kind(ROOT, KindSpec(2, 5, {"CPU": 3 * UNIT}))
    node.on_want(ROOT, 2, 100, 0.0)
    assert [type(c).__name__ for c in node.on_unbind(ROOT, 5, False)] == ["Unbound"]


# -- clients of other nodes


def test_worker_of_another_node_shares_its_roots_rotation_and_workers(node: Node) -> None:
    assert node.on_client_joined(CHILD, ROOT, 0.0) == []
    node.on_kind(CHILD, KindSpec(1, 0, ONE))
    assert node.submit(1, client=CHILD) == [StartWorker(1, ROOT, 0, ())]
    sent = packets(node.on_worker_started(1, 0.0))[0]
    assert sent.intervals[0].owner == CHILD
    node.finish(sent)
    # The root's own task finds that worker warm.
    assert [c.worker for c in packets(node.submit())] == [1]


def test_credit_of_a_worker_of_another_node_follows_the_run_time(node: Node) -> None:
    node.on_client_joined(CHILD, ROOT, 0.0)
    node.on_kind(CHILD, KindSpec(1, 0, ONE))
    node.finish(packets(node.start(node.submit(1, client=CHILD)))[0], 1e-5)
    assert node.on_want(CHILD, 1, 5000, 0.0) == [Grant(CHILD, 1, 128)]


def test_worker_of_another_node_leaves_with_its_work_and_its_root_stays(node: Node) -> None:
    node.on_client_joined(CHILD, ROOT, 0.0)
    node.on_kind(CHILD, KindSpec(1, 0, ONE))
    node.submit(5, client=CHILD)
    node.submit(3)
    node.on_client_left(CHILD, 0.0)
    assert node.dispatch.snapshot().queued == 3
    assert node.on_client_joined(CHILD, ROOT, 1.0) == []


def test_root_takes_its_workers_of_other_nodes_along(node: Node) -> None:
    node.on_client_joined(CHILD, ROOT, 0.0)
    node.on_kind(CHILD, KindSpec(1, 0, ONE))
    node.on_client_left(ROOT, 0.0)
    assert node.submit(1, client=CHILD) == [] and node.dispatch.counts["late_submitted"] == 1


def test_worker_of_another_node_whose_root_has_gone_is_late(node: Node) -> None:
    assert node.on_client_joined(CHILD, 99, 0.0) == []
    assert node.dispatch.counts["late_client_joined"] == 1


def test_only_roots_are_roots(node: Node) -> None:
    node.on_client_joined(CHILD, ROOT, 0.0)
    with pytest.raises(InvalidTransition):
        node.on_client_joined(72, CHILD, 0.0)
    with pytest.raises(InvalidTransition):
        node.on_binding(CHILD, BindingSpec(0))


def test_far_client_begins_with_its_own_credit(node: Node) -> None:
    node.on_client_joined(8, 8, 0.0, credit=4)
    node.on_kind(8, KindSpec(1, 0, ONE))
    node.finish(packets(node.start(node.submit(1, client=8)))[0], 1e-5)
    assert node.on_want(8, 1, 5000, 0.0) == [Grant(8, 1, 8)]


def test_nobody_begins_without_credit(node: Node) -> None:
    with pytest.raises(InvalidTransition):
        node.on_client_joined(8, 8, 0.0, credit=0)

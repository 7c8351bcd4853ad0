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
    KillWorker,
    KindRefused,
    KindSpec,
    Lost,
    LostCause,
    Recall,
    Returned,
    SendPacket,
    StartWorker,
    Unbound,
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
                answers += self.start(self.on_worker_forked(command.worker, now))
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


def test_client_that_begins_without_credit_is_granted_some_for_what_can_run(node: Node) -> None:
    node.on_client_joined(8, 8, 0.0, credit=0)
    assert node.on_kind(8, KindSpec(1, 0, ONE)) == [Grant(8, 1, 1)]
    assert node.on_kind(8, KindSpec(2, 0, {"CPU": 3 * UNIT})) == []
    assert [type(c) for c in node.submit(1, kind=2, client=8)] == [Returned]
    with pytest.raises(InvalidTransition):
        node.on_client_joined(9, 9, 0.0, credit=-1)


# -- draining


def test_draining_node_gives_back_what_has_not_begun_and_finishes_what_has(node: Node) -> None:
    sent = packets(node.start(node.submit(10)))
    node.on_client_joined(CHILD, ROOT, 0.0)
    node.on_kind(CHILD, KindSpec(1, 0, ONE))
    commands = node.on_drain(0.0)
    assert commands[:2] == [Grant(ROOT, 1, 0), Returned(ROOT, [Span(0, 3, 8, 0)])]
    assert Grant(CHILD, 1, 0) in commands and not node.dispatch.is_idle
    node.finish(sent[0])
    assert not node.dispatch.is_idle
    assert node.finish(sent[1]) == [] and node.dispatch.is_idle


def test_draining_node_takes_nothing_from_anybody(node: Node) -> None:
    node.on_drain(0.0)
    assert node.submit(3) == [Returned(ROOT, [Span(0, 1, 3, 0)])]
    node.on_client_joined(8, 8, 0.0)
    assert node.on_kind(8, KindSpec(1, 0, ONE)) == [Grant(8, 1, 0)]
    assert node.on_kind(8, KindSpec(2, 0, {"CPU": 3 * UNIT})) == [Grant(8, 2, 0)]
    assert node.on_want(8, 1, 100, 0.0) == []
    assert node.on_binding(8, BindingSpec(3, ordered=True, eager=True)) == []
    assert node.on_kind(8, KindSpec(3, 3, ONE)) == [Grant(8, 3, 0)]
    assert node.on_drain(1.0) == [] and node.dispatch.is_idle


def test_draining_node_runs_what_its_own_tasks_wait_for() -> None:
    node = Node(1)
    outer = packets(node.start(node.submit()))[0]
    node.on_client_joined(CHILD, ROOT, 0.0, worker=outer.worker)
    node.on_kind(CHILD, KindSpec(1, 0, ONE))
    node.submit(1, client=CHILD)
    assert node.on_drain(0.0) == [Grant(ROOT, 1, 0)] and node.dispatch.takes(CHILD, 1)
    node.on_kind(CHILD, KindSpec(2, 0, ONE))
    node.submit(2, kind=2, client=CHILD)
    inner = packets(node.start(node.on_blocked(outer.worker, 0.0)))
    assert [interval.owner for interval in inner[0].intervals] == [CHILD] and not node.dispatch.is_idle
    assert not node.dispatch.takes(ROOT, 1)
    commands = node.on_drain_due(0.0)
    assert Grant(CHILD, 2, 0) in commands and returned(commands) == 2, "nothing begins any more"


def test_draining_node_gives_back_what_its_workers_have_not_begun() -> None:
    node = Node(1)
    node.finish(packets(node.start(node.submit()))[0], 1e-3)
    sent = packets(node.submit(4))
    assert len(sent) == 4
    assert Recall(1, 4) in node.on_drain(0.0)
    assert node.on_recalled(1, [p.packet for p in sent[1:]], 0.0) == [
        Returned(ROOT, [Span(0, index, 1, 0)]) for index in (5, 4, 3)
    ]
    assert node.finish(sent[0]) == [] and node.dispatch.is_idle


def test_draining_node_gives_back_what_a_dead_worker_had_not_begun() -> None:
    node = Node(1)
    sent = packets(node.start(node.submit()))[0]
    node.on_drain(0.0)
    assert node.on_worker_died(1, [sent.packet], None, False, 0.0) == [Returned(ROOT, [Span(0, 1, 1, 0)])]
    assert node.dispatch.is_idle


def test_ordered_worker_of_a_draining_node_goes_on(node: Node) -> None:
    node.on_binding(ROOT, BindingSpec(5, ordered=True, eager=True))
    node.on_kind(ROOT, KindSpec(2, 5, {}))
    node.on_worker_started(1, 0.0)
    assert node.on_drain(0.0) == [Grant(ROOT, 1, 0)]
    sent = packets(node.submit(1, kind=2))
    assert len(sent) == 1 and node.dispatch.is_idle
    assert [type(c) for c in node.on_kind(ROOT, KindSpec(3, 5, {"CPU": 3 * UNIT}))] == [KindRefused]
    node.finish(sent[0])


def test_ordered_binding_that_has_not_begun_leaves_a_draining_node(node: Node) -> None:
    node.on_binding(ROOT, BindingSpec(5, ordered=True))
    node.on_kind(ROOT, KindSpec(2, 5, ONE))
    assert node.on_drain(0.0) == [Grant(ROOT, 1, 0), Grant(ROOT, 2, 0)]


def test_dropped_binding_ends_when_a_draining_node_has_given_back_its_tasks(node: Node) -> None:
    node.on_binding(ROOT, BindingSpec(5))
    node.on_kind(ROOT, KindSpec(2, 5, ONE))
    node.submit(2)
    node.submit(3, kind=2)
    node.on_unbind(ROOT, 5, False)
    commands = node.on_drain(0.0)
    assert returned(commands) == 5 and Unbound(ROOT, 5) in commands


def test_what_runs_when_the_grace_ends_is_lost_with_the_machine(node: Node) -> None:
    node.start(node.submit(5))
    node.on_drain(0.0)
    assert node.on_drain_due(1.0) == [KillWorker(1), KillWorker(2)]
    assert node.on_worker_died(1, [], (ROOT, 0, 1), False, 1.0) == [
        Lost(ROOT, LostCause.MACHINE, [Span(0, 1, 1, 0)], 1)
    ]
    assert not node.dispatch.is_idle
    node.on_worker_died(2, [], (ROOT, 0, 2), False, 1.0)
    assert node.dispatch.is_idle


# -- long tasks of which nothing has finished


def every_look(begin: float, end: float) -> list[float]:
    return [begin + 0.02 * i for i in range(int((end - begin) / 0.02 + 0.5))]


def look(node: Node, *times: float) -> list[Command]:
    return [command for now in times for command in node.on_timer(now)]


def test_what_waits_behind_long_tasks_is_given_back_before_any_has_finished(node: Node) -> None:
    assert node.dispatch.due is None
    node.start(node.submit(64, now=5.0), 5.0)
    assert node.dispatch.due is not None and node.dispatch.due <= 5.02
    assert look(node, 5.0, 5.01) == []
    # Nothing in 20 ms: one spare a slot; nothing in 80 ms: one in all.
    assert node.on_timer(5.02) == [Grant(ROOT, 1, 4), Returned(ROOT, [Span(0, 5, 60, 0)])]
    assert look(node, 5.04, 5.06) == []
    assert node.on_timer(5.09) == [Grant(ROOT, 1, 3), Returned(ROOT, [Span(0, 4, 1, 0)])]
    # Nothing in a second: none at all is kept ready.
    assert look(node, *every_look(5.09, 6.0)) == []
    assert node.on_timer(6.02) == [Grant(ROOT, 1, 2), Returned(ROOT, [Span(0, 3, 1, 0)])]
    assert node.dispatch.due is None


def test_a_new_arrival_is_looked_at(node: Node) -> None:
    node.start(node.submit(3))
    assert returned(look(node, *every_look(0.0, 1.05))) == 1
    assert node.dispatch.due is None
    node.submit(7, now=3.0)
    assert node.dispatch.due is not None
    # What was sent before the cut was known there goes back at once: the silence lasts.
    assert returned(look(node, 3.0, 3.02)) == 7


def test_finished_tasks_say_more_than_the_time_that_passes(node: Node) -> None:
    sent = packets(node.start(node.submit(64)))
    now = 0.0
    for _ in range(20):
        now += 0.015
        assert look(node, now) == []
        sent = [*sent[1:], *packets(node.finish(sent[0], 0.001, now))]
        assert node.dispatch.due is not None


def test_starting_workers_prove_nothing(node: Node) -> None:
    commands = node.submit(64)
    assert look(node, 0.0, 0.03, 0.06, 0.09, 0.5) == []
    node.start(commands, 0.5)
    assert look(node, 0.505) == [] and returned(look(node, 0.53)) == 60


@pytest.mark.parametrize(("seconds", "credit"), [(0.5, 3), (1.0, 2)])
def test_measured_long_tasks_leave_one_spare_and_very_long_ones_none(node: Node, seconds: float, credit: int) -> None:
    sent = packets(node.start(node.submit(5)))
    sent += packets(node.finish(sent[0], seconds, seconds))
    assert node.finish(sent[1], seconds, seconds)[0] == Grant(ROOT, 1, credit)
    node.on_want(ROOT, 1, 50, seconds)
    assert look(node, *(seconds + at for at in (0.0, 0.02, 0.04, 0.1))) == []


def test_looks_that_come_late_begin_anew(node: Node) -> None:
    node.start(node.submit(64))
    assert look(node, 0.0, 1.0) == [] and returned(look(node, 1.02)) == 60


def test_tasks_put_back_are_looked_at_again() -> None:
    node = Node(1)
    node.finish(packets(node.start(node.submit()))[0], 1e-3)
    sent = packets(node.submit(4))
    node.on_client_joined(8, 8, 0.0)
    node.on_kind(8, KindSpec(1, 0, ONE))
    node.submit(1, client=8)
    look(node, 0.0, 0.02, 0.04, 0.06, 0.08, 0.10)
    assert node.dispatch.due is None or node.dispatch.due > 0.1
    node.on_blocked(1, 0.2)
    node.on_recalled(1, [p.packet for p in sent[1:]], 0.2)
    assert node.dispatch.due is not None


def test_ordered_tasks_stay(node: Node) -> None:
    node.on_binding(ROOT, BindingSpec(5, ordered=True))
    node.on_kind(ROOT, KindSpec(2, 5, ONE))
    node.start(node.submit(40, kind=2))
    assert look(node, 0.0, 0.03, 0.06, 0.09) == [] and node.dispatch.due is None


def test_children_of_a_task_go_where_there_is_room_too() -> None:
    node = Node(1)
    node.start(node.submit())
    node.on_client_joined(70, ROOT, 0.0, worker=1)
    node.on_kind(70, KindSpec(1, 0, ONE))
    assert node.on_want(70, 1, 100, 0.0) == []
    node.start(node.submit(64, client=70))
    assert returned(look(node, 0.0, 0.03)) == 62
    assert [type(c) for c in node.on_blocked(1, 0.1)] == [StartWorker]


def test_node_of_its_own_has_nothing_to_look_at() -> None:
    dispatch = Dispatch({"CPU": UNIT})
    dispatch.on_client_joined(ROOT, ROOT, 0.0)
    dispatch.on_kind(ROOT, KindSpec(1, 0, ONE))
    dispatch.on_submitted(ROOT, Interval(ROOT, 0, 1, 0, 1, 1, [b"call"] * 64), 0.0)
    assert dispatch.due is None


def test_tasks_kept_out_by_long_ones_of_another_kind_go_where_there_is_room(node: Node) -> None:
    node.on_kind(ROOT, KindSpec(2, 0, ONE))
    node.start(node.submit(2))
    node.submit(4, kind=2)
    early = look(node, *every_look(0.0, 0.2))
    assert Grant(ROOT, 2, 1) in early and returned(early) == 3
    assert returned(look(node, *every_look(0.2, 1.1))) == 1


def test_last_task_of_a_kind_kept_out_is_given_back_twice_as_late_each_time(node: Node) -> None:
    node.on_kind(ROOT, KindSpec(2, 0, ONE))
    node.start(node.submit(2))
    now = 0.0
    waits = []
    while len(waits) < 4:
        begun = now
        node.submit(1, kind=2, now=now)
        while not returned(node.on_timer(now)):
            now += 0.02
        waits.append(now - begun)
    assert waits == [pytest.approx(seconds, abs=0.1) for seconds in (1.0, 2.0, 4.0, 8.0)]


def test_kind_kept_out_gets_no_more_credit_until_one_has_finished(node: Node) -> None:
    node.on_kind(ROOT, KindSpec(2, 0, ONE))
    sent = packets(node.start(node.submit(1, kind=2)))
    node.finish(sent[0], 0.05, 0.05)
    sent = packets([*node.submit(1, now=0.05), *node.start(node.submit(1, now=0.05), 0.05)])
    look(node, *every_look(0.05, 0.1))
    node.submit(1, kind=2, now=0.1)
    look(node, *every_look(0.1, 0.3))
    assert node.on_want(ROOT, 2, 9, 0.3) == []
    sent = packets(node.finish(sent[0], 0.3, 0.35))
    assert Grant(ROOT, 2, 2) in node.finish(sent[0], 0.05, 0.4)

"""The node's machine event by event: exactly these commands, and every invariant after each event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from outboard.ids import Span
from outboard.scheduler.commands import (
    BindingFailed,
    BindingSpec,
    InvalidTransition,
    KillLater,
    KillWorker,
    KindRefused,
    KindSpec,
    Lost,
    LostCause,
    Recall,
    SendPacket,
    SignalCancel,
    StartWorker,
    StopWorker,
    Unbound,
)
from outboard.scheduler.intervals import Interval
from tests.unit.scheduler.dispatching import ONE, ROOT, UNIT, Node, indices, lost, only, packets, size

pytestmark = pytest.mark.timeout(10)


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.dispatch.check()


# -- the straight path


def test_first_task_starts_a_worker_and_is_sent_when_it_is_ready(node: Node) -> None:
    assert node.submit() == [StartWorker(1, ROOT, 0, ())]
    sent = only(node.on_worker_started(1, 0.0), SendPacket)
    assert (sent.worker, sent.packet, indices(sent)) == (1, 1, [1])
    assert node.finish(sent) == []
    assert node.dispatch.snapshot().free == {"CPU": 2 * UNIT}


def test_warm_worker_gets_the_next_task_at_once(node: Node) -> None:
    node.finish(packets(node.start(node.submit()))[0])
    assert [type(c) for c in node.submit()] == [SendPacket]


def test_no_more_workers_than_tasks_and_resources(node: Node) -> None:
    assert len(node.submit(10)) == 2
    assert node.dispatch.snapshot().queued == 10


def test_unmeasured_tasks_go_one_at_a_time(node: Node) -> None:
    sent = packets(node.start(node.submit(10)))
    assert [indices(p) for p in sent] == [[1], [2]]


def test_long_tasks_have_nothing_behind_them(node: Node) -> None:
    node.measured(0.05)
    assert [size(p) for p in packets(node.submit(10))] == [1, 1]


def test_tiny_tasks_come_in_packets_of_a_millisecond_and_ranges_of_ten(node: Node) -> None:
    node.measured(1e-5)
    sent = packets(node.submit(10_000))
    assert all(80 <= size(p) <= 101 for p in sent)
    assert 900 <= sum(size(p) for p in sent if p.worker == 1) <= 1000


def test_few_tasks_are_split_evenly(node: Node) -> None:
    node.measured(1e-5)
    assert sorted((p.worker, size(p)) for p in packets(node.submit(8))) == [(1, 4), (2, 4)]


def test_packets_are_limited_by_bytes() -> None:
    node = Node(1).measured(1e-6)
    calls = [b"x" * 30_000] * 5 + [b"x" * 100_000, b"y"]
    sent = packets(node.on_submitted(ROOT, Interval(ROOT, 0, 100, 0, 1, 1, calls), 0.0))
    assert [size(p) for p in sent] == [2, 2, 1, 1, 1]


def test_kinds_of_one_shape_share_a_workers_range() -> None:
    node = Node(1)
    node.on_kind(ROOT, KindSpec(2, 0, ONE))
    for kind in (1, 2):
        sent = packets(node.submit(1, kind)) or packets(node.on_worker_started(1, 0.0))
        node.finish(sent[0], 1e-4)
    node.submit(10, 1)
    assert [p.intervals[0].kind for p in packets(node.submit(10, 2))] == [2]


# -- recall


def stacked(node: Node, seconds: float = 1e-3) -> list[SendPacket]:
    """Worker 1 with packets behind the one it runs, worker 2 with one that it is about to finish."""
    node.measured(seconds)
    return packets(node.submit(12))


def test_idle_worker_gets_half_of_what_another_has_not_begun(node: Node) -> None:
    sent = stacked(node)
    for packet in [p for p in sent if p.worker == 2][:-1]:
        node.finish(packet, 1e-3)
    recall = only(node.finish(next(p for p in reversed(sent) if p.worker == 2), 1e-3), Recall)
    theirs = [p for p in sent if p.worker == 1]
    assert recall == Recall(1, len(theirs) // 2)
    back = [p.packet for p in theirs[1 : 1 + recall.at_most]]
    again = packets(node.on_recalled(1, back, 0.0))
    assert {p.worker for p in again if p.worker == 2} == {2}
    assert {i for p in again for i in indices(p)} == {i for p in theirs[1 : 1 + recall.at_most] for i in indices(p)}


def test_recall_that_brought_nothing_is_not_repeated_until_something_changes(node: Node) -> None:
    sent = stacked(node)
    mine = [p for p in sent if p.worker == 2]
    theirs = [p for p in sent if p.worker == 1]
    for packet in mine:
        commands = node.finish(packet, 1e-3)
    assert only(commands, Recall).worker == 1
    assert node.on_recalled(1, [], 0.0) == []
    assert node.on_want(ROOT, 1, 0, 0.0) == []
    assert only(node.finish(theirs[0], 1e-3), Recall).worker == 1


def test_answer_without_a_recall_is_refused(node: Node) -> None:
    sent = packets(node.start(node.submit()))
    with pytest.raises(InvalidTransition):
        node.on_recalled(1, [sent[0].packet], 0.0)
    node.dispatch.check()


def test_tasks_behind_a_slow_one_run_elsewhere(node: Node) -> None:
    node.measured(1e-5)
    slow, other = sorted(packets(node.submit(8)), key=lambda p: p.worker)
    node.finish(other, 1e-5)
    first = slow.intervals[0]
    node.on_finished(1, slow.packet, [(ROOT, first.stream, first.first, 1, 1, 0)], 1e-5, False, 0.0)
    again = packets(node.on_given_back(1, slow.packet, 2, 0.0))
    assert [(p.worker, indices(p)) for p in again] == [(2, indices(slow)[2:])]
    assert node.dispatch.snapshot().running == 2
    node.finish(again[0], 1e-5)
    node.on_finished(1, slow.packet, [(ROOT, first.stream, first.first + 1, 1, 1, 0)], 9.0, True, 9.0)
    assert node.dispatch.snapshot().free == {"CPU": 2 * UNIT}


def test_cancelled_tasks_that_are_given_back_are_lost(node: Node) -> None:
    node.measured(1e-5)
    slow, _ = sorted(packets(node.submit(8)), key=lambda p: p.worker)
    node.on_cancel(ROOT, Span(0, slow.intervals[0].first, 8, 0), None, False, 0.0)
    node.on_recalled(1, [], 0.0)
    assert lost(node.on_given_back(1, slow.packet, 3, 0.0)) == [(LostCause.CANCELLED, indices(slow)[1:])]


def test_dead_workers_word_of_tasks_given_back_is_late(node: Node) -> None:
    node.measured(1e-5)
    slow, _ = sorted(packets(node.submit(8)), key=lambda p: p.worker)
    node.on_worker_died(1, [], (ROOT, 0, indices(slow)[0]), False, 0.0)
    assert node.on_given_back(1, slow.packet, 2, 0.0) == []


# -- bindings


def test_eager_binding_starts_its_workers_at_once(node: Node) -> None:
    assert node.on_binding(ROOT, BindingSpec(3, 2, eager=True)) == [
        StartWorker(1, ROOT, 3, ()),
        StartWorker(2, ROOT, 3, ()),
    ]


def test_binding_keeps_to_its_number_of_processes() -> None:
    node = Node(4)
    node.on_binding(ROOT, BindingSpec(3, 2))
    node.on_kind(ROOT, KindSpec(2, 3, ONE))
    assert len(node.submit(10, 2)) == 2


def test_more_processes_than_slots_run_when_their_share_is_a_fraction() -> None:
    node = Node(1)
    node.on_binding(ROOT, BindingSpec(3, 4))
    node.on_kind(ROOT, KindSpec(2, 3, {"CPU": UNIT // 4}))
    assert len(packets(node.start(node.submit(10, 2)))) == 4


def test_tasks_without_cpus_are_limited_all_the_same(node: Node) -> None:
    node.on_kind(ROOT, KindSpec(2, 0, {}))
    assert len(packets(node.start(node.submit(50, 2)))) == 8


def test_worker_ends_after_its_last_task_and_is_replaced_while_work_waits() -> None:
    node = Node(1)
    node.on_binding(ROOT, BindingSpec(3, 1, max_tasks=2))
    node.on_kind(ROOT, KindSpec(2, 3, ONE))
    sent = packets(node.start(node.submit(3, 2)))
    second = packets(node.finish(sent[0], 1e-5))
    assert [size(p) for p in second] == [1]
    assert [type(c) for c in node.finish(second[0], 1e-5)] == [StopWorker, StartWorker]
    assert node.on_worker_died(1, [], None, False, 0.0) == []


def test_tasks_given_back_do_not_count_against_a_workers_number() -> None:
    node = Node(1)
    node.on_binding(ROOT, BindingSpec(3, 1, max_tasks=6))
    node.on_kind(ROOT, KindSpec(2, 3, ONE))
    node.finish(packets(node.start(node.submit(1, 2)))[0], 1e-5)
    slow = only(node.submit(5, 2), SendPacket)
    again = only(node.on_given_back(1, slow.packet, 3, 0.0), SendPacket)
    assert (again.worker, indices(again)) == (1, indices(slow)[2:])
    assert node.on_finished(1, slow.packet, [(ROOT, 0, indices(slow)[0], 2, 1, 0)], 2e-5, True, 0.0) == []
    assert node.finish(again, 1e-5) == [StopWorker(1)]


def test_idle_workers_of_other_bindings_end_when_there_are_too_many() -> None:
    node = Node(1)
    for binding in (3, 4, 5):
        node.on_binding(ROOT, BindingSpec(binding, 1))
        node.on_kind(ROOT, KindSpec(binding, binding, ONE))
    for binding in (3, 4):
        node.finish(packets(node.start(node.submit(1, binding)))[0])
    assert node.submit(1, 5) == [StopWorker(1), StartWorker(3, ROOT, 5, ())]


def test_failed_initialiser_is_told_once_and_loses_what_is_queued(node: Node) -> None:
    node.on_binding(ROOT, BindingSpec(3, 2, has_initializer=True))
    node.on_kind(ROOT, KindSpec(2, 3, ONE))
    node.submit(4, 2)
    commands = node.on_worker_init_failed(1, b"why", 0.0)
    assert commands[:2] == [
        BindingFailed(ROOT, 3, b"why", 1),
        Lost(ROOT, LostCause.BINDING, [Span(0, 1, 4, 0)], None, b"why"),
    ]
    assert commands[2:] == [StopWorker(2)]
    assert node.on_worker_died(1, [], None, False, 0.0) == []
    assert node.on_worker_init_failed(2, b"why", 0.0) == []
    assert lost(node.submit(1, 2)) == [(LostCause.BINDING, [5])]


def test_worker_that_keeps_dying_before_it_starts_fails_its_binding(node: Node) -> None:
    node.on_binding(ROOT, BindingSpec(3, 1, has_initializer=True))
    node.on_kind(ROOT, KindSpec(2, 3, ONE))
    commands = node.submit(1, 2)
    for _ in range(2):
        commands = node.on_worker_died(only(commands, StartWorker).worker, [], None, False, 0.0)
    commands = node.on_worker_died(only(commands, StartWorker).worker, [], None, False, 0.0)
    assert [type(c) for c in commands] == [BindingFailed, Lost]


def test_lost_template_is_not_held_against_a_binding(node: Node) -> None:
    commands = node.submit()
    for _ in range(5):
        commands = node.on_worker_died(only(commands, StartWorker).worker, [], None, True, 0.0)
    assert only(commands, StartWorker)


def bound(node: Node, **spec: Any) -> None:
    node.on_binding(ROOT, BindingSpec(3, 1, **spec))
    node.on_kind(ROOT, KindSpec(2, 3, ONE))


def test_dropped_binding_finishes_what_it_has(node: Node) -> None:
    bound(node)
    sent = packets(node.start(node.submit(2, 2)))
    assert node.on_unbind(ROOT, 3, False) == []
    sent = packets(node.finish(sent[0]))
    assert only(node.finish(sent[0]), StopWorker) == StopWorker(1)
    assert node.on_worker_died(1, [], None, False, 0.0) == [Unbound(ROOT, 3)]


def test_binding_dropped_by_force_loses_all_and_kills(node: Node) -> None:
    bound(node)
    node.start(node.submit(3, 2))
    commands = node.on_unbind(ROOT, 3, True)
    assert lost(commands) == [(LostCause.BINDING, [2, 3])] and commands[-1] == KillWorker(1)
    commands = node.on_worker_died(1, [], (ROOT, 0, 1), False, 0.0)
    assert lost(commands) == [(LostCause.BINDING, [1])] and commands[-1] == Unbound(ROOT, 3)


def test_binding_without_workers_is_unbound_at_once(node: Node) -> None:
    bound(node)
    assert node.on_unbind(ROOT, 3, False) == [Unbound(ROOT, 3)]


def test_binding_waits_for_what_its_owner_still_wants_to_send(node: Node) -> None:
    bound(node)
    node.finish(packets(node.start(node.submit(1, 2)))[0])
    node.on_want(ROOT, 2, 5, 0.0)
    assert node.on_unbind(ROOT, 3, False) == []
    assert node.on_want(ROOT, 2, 0, 0.0) == [StopWorker(1)]


def test_ordered_binding_is_one_worker_in_order_of_arrival() -> None:
    node = Node(4)
    node.on_binding(ROOT, BindingSpec(3, ordered=True))
    node.on_kind(ROOT, KindSpec(2, 3, ONE))
    node.on_kind(ROOT, KindSpec(4, 3, {"CPU": 2 * UNIT}))
    sent = []
    for kind in (2, 4, 2, 2):
        sent += packets(node.start(node.submit(1, kind)))
    ran = []
    while sent:
        ran += indices(sent[0])
        sent = sent[1:] + packets(node.finish(sent[0], 1e-4))
    assert ran == [1, 2, 3, 4] and len(node.dispatch.snapshot().workers) == 1


def test_death_of_an_ordered_worker_fails_all_that_waits_for_it() -> None:
    node = Node(2)
    bound(node, ordered=True)
    node.finish(packets(node.start(node.submit(1, 2)))[0], 1e-3)
    sent = packets(node.submit(4, 2))
    commands = node.on_worker_died(1, [p.packet for p in sent[1:]], (ROOT, 0, 2), False, 0.0)
    first, *rest = lost(commands)
    assert first == (LostCause.PROCESS, [2])
    assert {cause for cause, _ in rest} == {LostCause.BINDING}
    assert sorted(i for _, indices_ in rest for i in indices_) == [3, 4, 5]
    assert not packets(node.start(commands))


# -- GPUs


def test_gpu_tasks_run_on_workers_with_devices_and_others_never_do() -> None:
    node = Node(4, GPU=2 * UNIT)
    node.on_kind(ROOT, KindSpec(2, 0, {"CPU": UNIT, "GPU": UNIT}))
    started = [c for c in node.submit(3, 2) if isinstance(c, StartWorker)]
    assert sorted(c.gpu_ids for c in started) == [(0,), (1,)]
    sent = packets(node.start(started))
    commands = node.submit(1)
    assert only(commands, StartWorker).gpu_ids == ()
    assert [p.worker for p in packets(node.finish(sent[0]))] == [sent[0].worker]


def test_demand_beyond_the_totals_is_refused_and_its_tasks_are_lost(node: Node) -> None:
    assert node.on_kind(ROOT, KindSpec(2, 0, {"CPU": UNIT, "GPU": UNIT})) == [
        KindRefused(ROOT, 2, {"CPU": UNIT, "GPU": UNIT}, {"CPU": 2 * UNIT})
    ]
    assert lost(node.submit(1, 2)) == [(LostCause.BINDING, [1])]


def test_other_devices_than_an_ordered_worker_has_are_refused() -> None:
    node = Node(2, GPU=UNIT)
    node.on_binding(ROOT, BindingSpec(3, ordered=True, eager=True))
    assert only(node.on_kind(ROOT, KindSpec(2, 3, {"GPU": UNIT})), KindRefused).kind == 2


# -- deaths


def test_suspect_comes_first_then_what_ran_and_the_rest_runs_elsewhere() -> None:
    node = Node(1).measured(1e-4)
    sent = packets(node.submit(30))
    assert size(sent[0]) == 10 and sum(map(size, sent)) == 30
    first = indices(sent[0])
    commands = node.on_worker_died(1, [p.packet for p in sent[1:]], (ROOT, 0, first[2]), False, 0.0)
    assert lost(commands) == [(LostCause.PROCESS, [first[2]]), (LostCause.PROCESS, first[:2])]
    again = packets(node.start(commands))
    assert [i for p in again for i in indices(p)] == list(range(first[3], first[0] + 30))


def test_lost_machine_makes_nobody_a_suspect(node: Node) -> None:
    node.start(node.submit())
    assert lost(node.on_worker_died(1, [], (ROOT, 0, 1), True, 0.0)) == [(LostCause.MACHINE, [1])]


def test_task_that_had_not_begun_costs_nothing_and_goes_first(node: Node) -> None:
    node.start(node.submit(5))
    commands = node.on_worker_died(1, [], None, False, 0.0)
    assert lost(commands) == []
    assert indices(packets(node.start(commands))[0]) == [1]


def test_children_of_a_dead_task_are_cancelled_wherever_they_are() -> None:
    node = Node(2)
    node.start(node.submit())
    node.on_client_joined(70, ROOT, 0.0, worker=1)
    node.on_kind(70, KindSpec(1, 0, ONE))
    child = packets(node.start(node.submit(1, 1, 70)))[0]
    node.submit(1, 1, 70)
    commands = node.on_worker_died(1, [], (ROOT, 0, 1), False, 0.0)
    assert lost(commands) == [(LostCause.PROCESS, [1])] and only(commands, Recall) == Recall(child.worker, 1)
    assert node.on_recalled(child.worker, [], 0.0) == [
        SignalCancel(child.worker, 70, [Span(0, 2, 1, 0)]),
        KillLater(child.worker, 1.0),
    ]
    assert node.dispatch.snapshot().queued == 0
    assert node.on_client_left(70, 0.0) == [] and node.dispatch.counts["late_client_left"] == 1


def test_late_words_of_a_dead_worker_are_counted(node: Node) -> None:
    sent = packets(node.start(node.submit()))[0]
    node.on_worker_died(1, [], (ROOT, 0, 1), False, 0.0)
    assert node.finish(sent) == []
    for event in ("on_blocked", "on_unblock", "on_worker_started"):
        assert getattr(node, event)(1, 0.0) == []
    assert node.on_recalled(1, [], 0.0) == node.on_kill_due(1, None, 0.0) == []
    assert node.on_worker_died(1, [], None, False, 0.0) == []
    assert node.dispatch.counts["late_finished"] == 1 and node.dispatch.counts.total() == 7


def test_words_of_a_worker_that_never_was_are_refused(node: Node) -> None:
    with pytest.raises(InvalidTransition):
        node.on_worker_started(99, 0.0)
    with pytest.raises(InvalidTransition):
        node.on_finished(99, 1, [], 0.0, True, 0.0)


# -- clients


def test_client_that_leaves_takes_its_work_and_workers_with_it(node: Node) -> None:
    node.start(node.submit(5))
    commands = node.on_client_left(ROOT, 0.0)
    assert {c.worker for c in commands if isinstance(c, KillWorker)} == {1, 2} and lost(commands) == []
    assert node.on_worker_died(1, [], (ROOT, 0, 1), False, 0.0) == []
    assert node.on_worker_died(2, [], None, False, 0.0) == []
    snapshot = node.dispatch.snapshot()
    assert (snapshot.workers, snapshot.queued, snapshot.free) == ([], 0, {"CPU": 2 * UNIT})
    assert node.submit() == [] and node.dispatch.counts["late_submitted"] == 1


def test_unknown_kind_and_foreign_owner_are_refused(node: Node) -> None:
    with pytest.raises(InvalidTransition):
        node.submit(1, 9)
    with pytest.raises(InvalidTransition):
        node.on_submitted(ROOT, Interval(8, 0, 1, 0, 1, 1, [b"c"]), 0.0)
    assert node.dispatch.snapshot().queued == 0


def test_names_are_given_once(node: Node) -> None:
    with pytest.raises(InvalidTransition):
        node.on_client_joined(ROOT, ROOT, 0.0)
    with pytest.raises(InvalidTransition):
        node.on_kind(ROOT, KindSpec(1, 0, ONE))
    with pytest.raises(InvalidTransition):
        node.on_binding(ROOT, BindingSpec(0))
    with pytest.raises(InvalidTransition):
        node.on_kind(ROOT, KindSpec(5, 9, ONE))
    with pytest.raises(InvalidTransition):
        node.on_unbind(ROOT, 9, False)


# -- cancelling


def test_queued_task_is_taken_back(node: Node) -> None:
    node.submit(5)
    assert lost(node.on_cancel(ROOT, Span(0, 2, 3, 0), None, False, 0.0)) == [(LostCause.CANCELLED, [2, 3, 4])]
    assert node.dispatch.snapshot().queued == 2


def test_sent_task_that_has_not_begun_is_taken_back_and_its_neighbours_run() -> None:
    node = Node(1).measured(1e-3)
    sent = packets(node.submit(4))
    assert node.on_cancel(ROOT, Span(0, 4, 1, 0), None, False, 0.0) == [Recall(1, 4)]
    commands = node.on_recalled(1, [p.packet for p in sent[1:]], 0.0)
    assert lost(commands) == [(LostCause.CANCELLED, [4])]
    assert [i for p in packets(commands) for i in indices(p)] == [3, 5]


def test_running_task_is_signalled_and_its_worker_killed_later(node: Node) -> None:
    node.start(node.submit())
    assert node.on_cancel(ROOT, Span(0, 1, 1, 0), 1.0, False, 0.0) == [Recall(1, 1)]
    assert node.on_recalled(1, [], 0.0) == [SignalCancel(1, ROOT, [Span(0, 1, 1, 0)]), KillLater(1, 1.0)]
    assert node.on_kill_due(1, (ROOT, 0, 1), 1.0) == [KillWorker(1)]
    assert lost(node.on_worker_died(1, [], (ROOT, 0, 1), False, 1.0)) == [(LostCause.CANCELLED, [1])]


def test_force_looks_at_the_board_at_once(node: Node) -> None:
    node.start(node.submit())
    node.on_cancel(ROOT, Span(0, 1, 1, 0), 1.0, True, 0.0)
    assert node.on_recalled(1, [], 0.0)[-1] == KillLater(1, 0.0)


def test_worker_that_has_gone_on_is_not_killed(node: Node) -> None:
    sent = packets(node.start(node.submit()))[0]
    node.on_cancel(ROOT, Span(0, 1, 1, 0), 1.0, False, 0.0)
    node.on_recalled(1, [], 0.0)
    node.finish(sent)
    node.submit()
    assert node.on_kill_due(1, (ROOT, 0, 2), 1.0) == []


def test_innocent_task_before_a_doomed_one_is_not_killed() -> None:
    node = Node(1).measured(1e-4)
    assert [size(p) for p in packets(node.submit(3))] == [3]
    node.on_cancel(ROOT, Span(0, 3, 1, 0), 1.0, False, 0.0)
    node.on_recalled(1, [], 0.0)
    assert [type(c) for c in node.on_kill_due(1, (ROOT, 0, 2), 1.0)] == [KillLater]
    assert node.on_kill_due(1, (ROOT, 0, 3), 1.0) == [KillWorker(1)]
    commands = node.on_worker_died(1, [], (ROOT, 0, 3), False, 1.0)
    assert lost(commands) == [(LostCause.CANCELLED, [3]), (LostCause.MACHINE, [2])]
    assert indices(packets(node.start(commands))[0]) == [4]


def test_cancel_of_another_attempt_hits_nothing(node: Node) -> None:
    node.start(node.submit(3))
    assert node.on_cancel(ROOT, Span(0, 1, 3, 1), 1.0, False, 0.0) == []

"""Tasks in bundles: admitted to what their gang holds, whatever the node is short of, and ended with it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from outboard.ids import RESOURCE_UNIT as UNIT
from outboard.scheduler.bundles import GATHER_SECONDS, Confirmed, Declined, Prepared
from outboard.scheduler.commands import (
    BindingFailed,
    BindingSpec,
    Command,
    KillWorker,
    KindRefused,
    KindSpec,
    LostCause,
    Resume,
    SendPacket,
    StartWorker,
    StopWorker,
    Unbound,
)
from outboard.scheduler.intervals import Interval
from outboard.scheduler.resources import Demand

from .dispatching import ONE, ROOT, Node, indices, lost, only, packets

pytestmark = pytest.mark.timeout(10)

GANG = 0xA
CPU = Demand(UNIT, 0, ())

#: Kind and binding of tasks that run in any bundle, and in the second one.
ANY, SECOND = 2, 3


def ganged(node: Node, bundles: Mapping[int, Demand], resources: Mapping[str, int] = ONE) -> Node:
    """Give a gang these bundles, and the client a kind for any of them and one for number 1."""
    assert node.on_prepare_bundles(GANG, 1, bundles, 0.0)[-1] == Prepared(GANG, 1)
    assert node.on_confirm_bundles(GANG, 1, 0.0)[-1] == Confirmed(GANG, 1)
    for kind, bundle in (ANY, -1), (SECOND, 1):
        node.on_binding(ROOT, BindingSpec(kind, gang=GANG, bundle=bundle))
        node.on_kind(ROOT, KindSpec(kind, kind, resources))
    return node


def submitted(node: Node, count: int, kind: int) -> list[SendPacket]:
    """Submit tasks and let the workers start that are made for them."""
    return packets(node.start(node.submit(count, kind)))


def started(commands: list[Command]) -> list[StartWorker]:
    return [c for c in commands if isinstance(c, StartWorker)]


def die(node: Node, commands: list[Command]) -> list[Command]:
    """Let the workers end that are killed."""
    ends: list[Command] = []
    for command in commands:
        if isinstance(command, KillWorker):
            ends += node.on_worker_died(command.worker, (), None, False, 1.0)
    return ends


def test_tasks_of_a_gang_take_from_its_bundles_only() -> None:
    node = ganged(Node(4), {0: CPU, 1: Demand(2 * UNIT, 0, ())})
    assert node.dispatch.snapshot().free == {"CPU": UNIT}
    assert len(submitted(node, 5, ANY)) == 3
    assert node.dispatch.snapshot().free == {"CPU": UNIT}
    assert len(submitted(node, 2, 1)) == 1


def test_a_bundle_that_is_named_is_the_only_one_used() -> None:
    node = ganged(Node(4), {0: Demand(3 * UNIT, 0, ()), 1: CPU})
    assert len(submitted(node, 3, SECOND)) == 1
    assert len(submitted(node, 3, ANY)) == 3


def test_a_full_node_runs_what_has_a_bundle() -> None:
    node = Node(3)
    node.on_prepare_bundles(GANG, 1, {0: CPU}, 0.0)
    assert len(submitted(node, 4, 1)) == 2
    node.on_confirm_bundles(GANG, 1, 0.0)
    node.on_binding(ROOT, BindingSpec(ANY, gang=GANG))
    node.on_kind(ROOT, KindSpec(ANY, ANY, ONE))
    assert len(submitted(node, 1, ANY)) == 1


def test_what_becomes_free_goes_to_a_gang_before_tasks_that_wait() -> None:
    node = Node(1)
    [first] = submitted(node, 3, 1)
    assert node.on_prepare_bundles(GANG, 1, {0: CPU}, 0.0) == []
    said = node.finish(first)
    assert Prepared(GANG, 1) in said and not packets(said)
    assert node.dispatch.due is not None
    said = node.on_release_bundles(GANG, 1, 1.0)
    assert indices(only(said, SendPacket)) == [2]


def test_what_cannot_be_gathered_is_declined_when_due_and_tasks_go_on() -> None:
    node = Node(2)
    one, other = submitted(node, 3, 1)
    node.on_prepare_bundles(GANG, 1, {0: CPU, 1: CPU}, 0.0)
    assert packets(node.finish(one)) == []
    assert node.dispatch.due == GATHER_SECONDS
    said = node.on_timer(GATHER_SECONDS)
    assert Declined(GANG, 1) in said and indices(only(said, SendPacket)) == [3]
    assert indices(other) == [2]


def test_the_end_of_a_gang_kills_what_runs_in_it_and_loses_what_waits() -> None:
    node = ganged(Node(3), {0: CPU, 1: CPU})
    plain = submitted(node, 1, 1)
    running = submitted(node, 4, ANY)
    said = node.on_release_bundles(GANG, 1, 1.0)
    assert {c.worker for c in said if isinstance(c, KillWorker)} == {p.worker for p in running}
    said += die(node, said)
    assert sorted(i for cause, found in lost(said) for i in found if cause == LostCause.BINDING) == [2, 3, 4, 5]
    assert {c.binding for c in said if isinstance(c, Unbound)} == {ANY, SECOND}
    node.finish(plain[0])
    assert node.dispatch.snapshot().free == {"CPU": 3 * UNIT}


def test_a_blocked_task_lends_its_bundle_and_gets_it_back_before_others() -> None:
    node = ganged(Node(2), {0: CPU})
    [parent] = submitted(node, 1, ANY)
    [child] = packets(node.start(node.on_blocked(parent.worker, 0.0) + node.submit(1, ANY)))
    assert child.worker != parent.worker
    assert node.on_unblock(parent.worker, 0.0) == []
    node.submit(1, ANY)
    said = node.finish(child)
    assert only(said, Resume).worker == parent.worker and not packets(said)


def test_who_waits_for_a_bundle_again_keeps_nobody_from_the_rest_of_the_node() -> None:
    node = ganged(Node(2), {0: CPU})
    [parent] = submitted(node, 1, ANY)
    node.start(node.on_blocked(parent.worker, 0.0) + node.submit(1, ANY))
    node.on_unblock(parent.worker, 0.0)
    assert len(submitted(node, 1, 1)) == 1


def test_what_a_blocked_task_has_lent_is_no_gangs() -> None:
    node = Node(1)
    [parent] = submitted(node, 1, 1)
    [child] = packets(node.start(node.on_blocked(parent.worker, 0.0) + node.submit(1)))
    assert node.on_prepare_bundles(GANG, 1, {0: CPU}, 0.0) == []
    assert not [c for c in node.finish(child) if c == Prepared(GANG, 1)]
    assert only(node.on_unblock(parent.worker, 0.1), Resume).worker == parent.worker
    assert Prepared(GANG, 1) in node.finish(parent)


def test_short_tasks_that_never_end_leave_their_cpu_to_a_gang() -> None:
    node = Node(1).measured(0.001)
    waiting = packets(node.submit(2000))
    assert node.on_prepare_bundles(GANG, 1, {0: CPU}, 0.0) == []
    said: list[Command] = []
    for _ in range(len(waiting)):
        said = node.finish(waiting.pop(0), 0.001)
        assert not packets(said), "it was topped up"
    assert said[-1] == Prepared(GANG, 1)


@pytest.mark.parametrize("with_gang", [False, True])
def test_roots_take_turns_whether_or_not_there_is_a_gang(with_gang: bool) -> None:
    node = Node(3)
    if with_gang:
        ganged(node, {0: CPU})
        [parent] = submitted(node, 1, ANY)
        node.on_blocked(parent.worker, 0.0)
    else:
        node.dispatch = Node(2).dispatch
    other = ROOT + 1
    node.on_client_joined(other, other, 0.0)
    node.on_kind(other, KindSpec(1, 0, ONE))
    running = packets(node.start(node.on_submitted(ROOT, Interval(ROOT, 0, 100, 0, 1, 1, [b"call"] * 12), 0.0)))
    node.on_submitted(other, Interval(other, 0, 100, 0, 1, 1, [b"call"] * 12), 0.0)
    order: list[int] = []
    now = 0.0
    while running and len(order) < 16:
        packet, now = running.pop(0), now + 0.5
        order.append(packet.intervals[0].owner)
        done = [(i.owner, i.stream, i.first, len(i.calls), i.stride, i.attempt) for i in packet.intervals]
        said = node.on_finished(packet.worker, packet.packet, done, 1.0, True, now)
        said += [c for stopped in said if isinstance(stopped, StopWorker)
                 for c in node.on_worker_died(stopped.worker, (), None, False, now)]  # fmt: skip
        running += packets(said + node.start(said))
    assert min(order[4:].count(ROOT), order[4:].count(other)) >= 4, order


def test_tasks_held_back_for_a_wide_one_do_not_hold_back_a_gang() -> None:
    node = ganged(Node(3), {0: CPU})
    node.on_kind(ROOT, KindSpec(9, 0, {"CPU": 2 * UNIT}))
    [running] = submitted(node, 1, 1)
    node.submit(1, 9)
    assert not started(node.on_submitted(ROOT, Interval(ROOT, 0, 10, 0, 1, 1, [b"call"]), 2.0))
    assert started(node.on_submitted(ROOT, Interval(ROOT, 0, 11, 0, 1, ANY, [b"call"]), 2.0))
    assert indices(running) == [1]


def test_devices_of_a_bundle_are_those_of_the_node() -> None:
    device = Demand(UNIT, UNIT, ())
    node = ganged(Node(3, GPU=2 * UNIT), {0: device, 1: device}, {"CPU": UNIT, "GPU": UNIT})
    assert sorted(c.gpu_ids for c in started(node.submit(2, ANY))) == [(0,), (1,)]
    assert node.dispatch.snapshot().free == {"CPU": UNIT, "GPU": 0}


def test_a_binding_of_a_gang_that_is_not_here_fails_at_once() -> None:
    node = Node(2)
    said = node.on_binding(ROOT, BindingSpec(ANY, gang=GANG))
    assert only(said, BindingFailed).binding == ANY
    node.on_kind(ROOT, KindSpec(ANY, ANY, ONE))
    assert lost(node.submit(1, ANY)) == [(LostCause.BINDING, [1])]


def test_what_no_bundle_can_meet_is_refused() -> None:
    node = ganged(Node(4), {0: CPU, 1: CPU})
    assert only(node.on_kind(ROOT, KindSpec(9, ANY, {"CPU": 2 * UNIT})), KindRefused).kind == 9


def test_an_actor_keeps_to_its_bundle_and_ends_with_the_gang() -> None:
    node = ganged(Node(2), {0: CPU})
    node.on_binding(ROOT, BindingSpec(7, processes=1, ordered=True, has_initializer=True, gang=GANG, max_restarts=-1))
    node.on_kind(ROOT, KindSpec(7, 7, ONE))
    [call] = submitted(node, 1, 7)
    assert node.dispatch.snapshot().free == {"CPU": UNIT}
    said = node.on_release_bundles(GANG, 1, 1.0)
    assert only(said, KillWorker).worker == call.worker
    said = die(node, said)
    assert lost(said) == [(LostCause.BINDING, [1])] and not started(said)

"""The node's machine and actors: calls of others, restarts, calls at the same time."""

from __future__ import annotations

import pytest

from outboard.ids import Span
from outboard.scheduler.commands import (
    BindingFailed,
    BindingGone,
    BindingSpec,
    Command,
    KindSpec,
    LostCause,
    Recall,
    SendPacket,
    SignalCancel,
    StartWorker,
    StopWorker,
    Unbound,
)
from outboard.scheduler.intervals import Interval

from .dispatching import ROOT, Node, indices, lost, only, packets

OTHER, ACTOR = 9, 5


class ActorNode(Node):
    """A client with an actor, and another one that calls it. Kinds 10 and 20 are the first one's, 30 the other's."""

    def __init__(
        self, *, restarts: int = 0, retries: int = 0, concurrency: int = 0, has_initializer: bool = False
    ) -> None:
        super().__init__()
        self.dispatch.on_client_joined(OTHER, OTHER, 0.0)
        spec = BindingSpec(ACTOR, 1, has_initializer, ordered=True, eager=True, max_restarts=restarts,
                           max_concurrency=concurrency)  # fmt: skip
        started = self.on_binding(ROOT, spec)
        self.worker = only(started, StartWorker).worker
        for client, kind in ((ROOT, 10), (ROOT, 20), (OTHER, 30)):
            owner = ROOT if client == OTHER else 0
            self.on_kind(client, KindSpec(kind, ACTOR, {}, binding_owner=owner, process_retries=retries))
        if not has_initializer:
            self.start(started)

    def call(self, count: int = 1, kind: int = 10) -> list[Command]:
        return self.submit(count, kind, OTHER if kind == 30 else ROOT)

    def die(self, *, running: int | None = None, client: int = ROOT, returned: tuple[int, ...] = ()) -> list[Command]:
        key = None if running is None else (client, 0, running)
        return self.on_worker_died(self.worker, returned, key, False, 0.0)


def test_calls_of_two_clients_run_in_order_of_arrival() -> None:
    node = ActorNode()
    first = only(node.call(), SendPacket)
    for kind in (30, 20, 30, 10):
        assert not packets(node.call(1, kind))
    order = []
    while True:
        order += [(i.owner, i.first) for i in first.intervals]
        following = packets(node.finish(first, 1.0))
        if not following:
            break
        first = following[0]
    assert order == [(ROOT, 1), (OTHER, 2), (ROOT, 3), (OTHER, 4), (ROOT, 5)]


def test_calls_of_a_caller_that_has_ended_do_not_end_the_actor() -> None:
    node = ActorNode()
    running = only(node.call(1, 30), SendPacket)
    node.call(1, 30)
    after = node.on_client_left(OTHER, 0.0)
    assert not [c for c in after if isinstance(c, (Recall, SignalCancel))], "what runs goes on"
    node.finish(running)
    assert indices(only(node.call(), SendPacket)) == [3]


def test_a_kind_for_an_actor_that_is_not_here_is_told_so() -> None:
    node = ActorNode()
    assert node.on_kind(OTHER, KindSpec(31, 77, {}, binding_owner=ROOT)) == [BindingGone(OTHER, 31)]
    assert node.on_kind(OTHER, KindSpec(32, ACTOR, {}, binding_owner=12345)) == [BindingGone(OTHER, 32)]
    assert lost(node.submit(1, 31, OTHER)) == [(LostCause.BINDING, [1])]


def test_callers_hear_of_the_end() -> None:
    node = ActorNode()
    running = only(node.call(1, 30), SendPacket)
    node.call(1, 30)
    ended = node.on_unbind(ROOT, ACTOR, True)
    assert lost(ended) == [(LostCause.BINDING, [2])]
    ended = node.die(running=1, client=OTHER)
    assert lost(ended) == [(LostCause.BINDING, [1])] and only(ended, Unbound).client == ROOT
    assert running.worker == node.worker
    assert lost(node.call(1, 30)) == [(LostCause.BINDING, [3])]


def test_without_restarts_the_death_is_the_end_for_everybody() -> None:
    node = ActorNode()
    node.call()
    node.call(1, 30)
    ended = node.die(running=1)
    assert only(ended, BindingFailed).worker == node.worker
    assert sorted(lost(ended)) == [(LostCause.PROCESS, [1]), (LostCause.BINDING, [2])]
    assert lost(node.call()) == [(LostCause.BINDING, [3])]


@pytest.mark.parametrize("retries", [0, 1])
def test_another_process_follows_and_runs_what_had_not_begun(retries: int) -> None:
    node = ActorNode(restarts=1, retries=retries)
    node.call()
    node.call(1, 20)
    node.call(1, 30)
    ended = node.die(running=1)
    if retries:
        assert lost(ended) == []
    else:
        assert lost(ended) == [(LostCause.PROCESS, [1])]
        assert [c.is_restarting for c in ended if type(c).__name__ == "Lost"] == [True]
    node.worker = only(ended, StartWorker).worker
    order: list[int] = []
    following = packets(node.start(ended))
    while following:
        order += indices(following[0])
        following = packets(node.finish(following[0], 1.0))
    assert order == [1, 2, 3][1 - retries :]


def test_restarts_and_runs_of_a_call_are_counted() -> None:
    node = ActorNode(restarts=2, retries=1)
    node.call()
    for _ in range(2):
        ended = node.die(running=1)
        node.worker = only(ended, StartWorker).worker
        node.start(ended)
    assert lost(ended) == [(LostCause.PROCESS, [1])], "its second run was its last"
    node.call()
    assert only(node.die(running=2), BindingFailed)


def test_a_constructor_that_raises_is_the_end_whatever_the_restarts() -> None:
    node = ActorNode(restarts=5, has_initializer=True)
    node.call()
    ended = node.on_worker_init_failed(node.worker, b"why", 0.0)
    assert only(ended, BindingFailed).outcome == b"why" and lost(ended) == [(LostCause.BINDING, [1])]
    assert not [c for c in node.die() if isinstance(c, StartWorker)]


def test_calls_at_the_same_time_go_out_at_once_up_to_their_number() -> None:
    node = ActorNode(concurrency=3)
    sent = packets(node.call(2)) + packets(node.call(4, 30))
    assert sorted(i for packet in sent for i in indices(packet)) == [1, 2, 3]
    first = next(packet for packet in sent if 2 in indices(packet))
    answer = node.on_finished(first.worker, first.packet, [(ROOT, 0, 2, 1, 1, 0)], 0.1, False, 0.0)
    assert [i for packet in packets(answer) for i in indices(packet)] == [4], "in any order, one by one"


def test_a_waiting_call_does_not_keep_others_out() -> None:
    node = ActorNode(concurrency=2)
    node.call()
    node.on_blocked(node.worker, 0.0)
    assert indices(only(node.call(), SendPacket)) == [2]
    node.on_unblock(node.worker, 0.0)


def test_all_that_were_taken_are_suspects() -> None:
    node = ActorNode(concurrency=3)
    sent = packets(node.call()) + packets(node.call()) + packets(node.call())
    ended = node.die(returned=(sent[2].packet,))
    assert sorted(lost(ended)) == [(LostCause.PROCESS, [1]), (LostCause.PROCESS, [2]), (LostCause.BINDING, [3])]


def test_cancelled_calls_that_run_are_told() -> None:
    node = ActorNode(concurrency=3)
    node.call(2)
    asked = node.on_cancel(ROOT, Span(0, 2, 1, 0), None, False, 0.0)
    recall = only(asked, Recall)
    told = node.on_recalled(recall.worker, (), 0.0)
    assert only(told, SignalCancel).spans == [Span(0, 2, 1, 0)]


def test_intervals_of_one_kind_do_not_overtake_those_of_others() -> None:
    node = ActorNode()
    running = only(node.call(), SendPacket)
    for kind in (10, 20, 10):
        node.on_submitted(ROOT, Interval(ROOT, 0, node.next_index, 0, 1, kind, [b"call"] * 2), 0.0)
        node.next_index += 2
    order: list[int] = []
    following = packets(node.finish(running, 0.0001))
    while following:
        order += indices(following[0])
        following = following[1:] + packets(node.finish(following[0], 0.0001))
    assert order == [2, 3, 4, 5, 6, 7]


def test_tasks_without_cpu_that_wait_for_others_to_end_keep_no_call_out() -> None:
    node = ActorNode(concurrency=9)
    node.on_kind(ROOT, KindSpec(40, 0, {}))
    node.call()
    while packets(node.start(node.submit(1, 40))):
        pass  # until there are as many as may be
    node.on_timer(5.0)
    assert indices(only(node.call(1, 30), SendPacket)) == [node.next_index - 1]
    node.on_kind(ROOT, KindSpec(41, 0, {"CPU": 1}))
    assert packets(node.start(node.submit(1, 41))), "nor anything else"


def test_a_worker_whose_task_has_made_an_actor_does_not_make_room_for_others() -> None:
    node = Node(cpus=1)
    packet = only(node.start(node.submit()), SendPacket)
    maker = 77
    node.on_client_joined(maker, ROOT, 0.0, worker=packet.worker)
    node.start(node.on_binding(maker, BindingSpec(1, 1, ordered=True, eager=True)))
    node.finish(packet)
    others = BindingSpec(2, 5, eager=True)
    assert not [c for c in node.on_binding(ROOT, others) if isinstance(c, StopWorker)]

"""Words that come too late, and workers that come to nothing: the node's machine counts them and goes on."""

from __future__ import annotations

import pytest

from outboard.ids import RESOURCE_UNIT as UNIT
from outboard.scheduler.commands import (
    BindingFailed,
    BindingSpec,
    Command,
    InvalidTransition,
    KindSpec,
    Lost,
    LostCause,
    Resume,
    SendPacket,
    StartWorker,
    Unbound,
)
from outboard.scheduler.dispatch import START_DEATHS, Dispatch
from outboard.scheduler.intervals import Interval

pytestmark = pytest.mark.timeout(10)

ROOT = 7
ONE = {"CPU": UNIT}


@pytest.fixture
def dispatch() -> Dispatch:
    """A node of one CPU with one client, a pool's binding 3 and a kind for each binding: 1 and 2."""
    made = Dispatch(ONE)
    made.on_client_joined(ROOT, ROOT, 0.0)
    made.on_binding(ROOT, BindingSpec(3, 1))
    made.on_kind(ROOT, KindSpec(1, 0, ONE))
    made.on_kind(ROOT, KindSpec(2, 3, ONE))
    return made


def submit(dispatch: Dispatch, index: int, kind: int = 1) -> None:
    dispatch.on_submitted(ROOT, Interval(ROOT, 0, index, 1, 1, kind, [b"call"]), 0.0)


def finish(dispatch: Dispatch, packet: SendPacket) -> None:
    done = [(i.owner, i.stream, i.first, len(i.calls), i.stride, i.attempt) for i in packet.intervals]
    dispatch.on_finished(packet.worker, packet.packet, done, 0.1, True, 0.0)


def run(dispatch: Dispatch) -> SendPacket:
    """Start what is to be started; returns the packet that is dealt."""
    for command in dispatch.take_commands():
        if isinstance(command, StartWorker):
            dispatch.on_worker_started(command.worker, 0.0)
        elif isinstance(command, SendPacket):
            return command
    return run(dispatch)


def die_unbegun(dispatch: Dispatch, at_most: int = 100, *, machine_lost: bool = False) -> tuple[int, list[Command]]:
    """Let each worker die with its packet unread; returns how many did, and what else was commanded."""
    deaths, others = 0, []
    while deaths < at_most and (commands := dispatch.take_commands()):
        for command in commands:
            if isinstance(command, StartWorker):
                dispatch.on_worker_started(command.worker, 0.0)
            elif isinstance(command, SendPacket):
                deaths += 1
                dispatch.on_worker_died(command.worker, [command.packet], None, machine_lost, 0.0)
            else:
                others.append(command)
        dispatch.check()
    return deaths, others


def test_second_unbind_is_counted(dispatch: Dispatch) -> None:
    dispatch.on_unbind(ROOT, 3, False)
    assert dispatch.take_commands() == [Unbound(ROOT, 3)]
    dispatch.on_unbind(ROOT, 3, True)
    assert dispatch.counts["late_unbind"] == 1
    assert dispatch.take_commands() == []
    with pytest.raises(InvalidTransition):
        dispatch.on_unbind(ROOT, 4, True)


def test_tasks_of_a_kind_that_came_after_its_binding_are_lost(dispatch: Dispatch) -> None:
    dispatch.on_unbind(ROOT, 3, True)
    dispatch.take_commands()
    dispatch.on_kind(ROOT, KindSpec(9, 3, ONE))
    submit(dispatch, 1, kind=9)
    assert [(type(c), c.cause) for c in dispatch.take_commands() if isinstance(c, Lost)] == [(Lost, LostCause.BINDING)]


def test_thread_that_asks_for_cpus_when_its_task_is_over_is_answered(dispatch: Dispatch) -> None:
    submit(dispatch, 1)
    packet = run(dispatch)
    dispatch.on_blocked(packet.worker, 0.0)
    finish(dispatch, packet)
    dispatch.on_unblock(packet.worker, 0.0)
    assert Resume(packet.worker) in dispatch.take_commands()


def test_thread_that_waits_for_cpus_when_its_task_ends_is_answered(dispatch: Dispatch) -> None:
    submit(dispatch, 1)
    parent = run(dispatch)
    dispatch.on_blocked(parent.worker, 0.0)
    submit(dispatch, 2)
    run(dispatch)
    dispatch.on_unblock(parent.worker, 0.0)
    assert Resume(parent.worker) not in dispatch.take_commands()
    finish(dispatch, parent)
    assert Resume(parent.worker) in dispatch.take_commands()
    dispatch.check()


@pytest.mark.parametrize(("kind", "told"), [(1, [Lost]), (2, [BindingFailed, Lost])])
def test_workers_that_die_with_their_first_packet_unread_are_given_up(
    dispatch: Dispatch, kind: int, told: list[type]
) -> None:
    submit(dispatch, 1, kind)
    deaths, others = die_unbegun(dispatch)
    assert deaths == START_DEATHS
    assert [type(command) for command in others] == told


def test_default_binding_is_tried_again_with_the_next_task(dispatch: Dispatch) -> None:
    submit(dispatch, 1)
    die_unbegun(dispatch)
    submit(dispatch, 2)
    finish(dispatch, run(dispatch))
    assert dispatch.snapshot().queued == 0


def test_result_between_two_deaths_clears_the_count(dispatch: Dispatch) -> None:
    for index in range(1, 10, 2):
        submit(dispatch, index)
        die_unbegun(dispatch, START_DEATHS - 1)
        finish(dispatch, run(dispatch))
        worker = dispatch.snapshot().workers[0].worker
        dispatch.on_worker_died(worker, [], None, False, 0.0)
        assert not any(isinstance(command, Lost) for command in dispatch.take_commands())


def test_task_that_ends_its_worker_is_not_held_against_the_binding(dispatch: Dispatch) -> None:
    for index in range(1, 8):
        submit(dispatch, index)
        packet = run(dispatch)
        dispatch.on_worker_died(packet.worker, [], (ROOT, 0, index), False, 0.0)
        causes = [command.cause for command in dispatch.take_commands() if isinstance(command, Lost)]
        assert causes == [LostCause.PROCESS]


def test_lost_template_is_not_held_against_workers_with_packets(dispatch: Dispatch) -> None:
    submit(dispatch, 1)
    deaths, others = die_unbegun(dispatch, 7, machine_lost=True)
    assert (deaths, others) == (7, [])

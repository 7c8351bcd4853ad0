"""Bugs of the machines that the simulator and random walks found, each as a short course of events."""

from __future__ import annotations

from typing import Any

import pytest

from outboard.ids import PLAIN_STREAM, item_object
from outboard.ids import RESOURCE_UNIT as UNIT
from outboard.scheduler.commands import KindSpec, SendPacket, StartWorker, StopWorker
from outboard.scheduler.dispatch import Dispatch
from outboard.scheduler.intervals import Interval
from outboard.scheduler.notices import Free
from outboard.scheduler.outcomes import LostCause
from outboard.scheduler.owner import Extra, Want

pytestmark = pytest.mark.timeout(10)

ME, OTHER = 7, 8
VALUE = b"\x80value"


def test_lone_task_waits_for_a_worker_of_its_devices_which_is_not_let_go_as_surplus() -> None:
    dispatch = Dispatch({"CPU": UNIT, "GPU": 2 * UNIT})
    dispatch.on_client_joined(ME, ME, 0.0)
    dispatch.on_kind(ME, KindSpec(1, 0, {"GPU": UNIT}))
    dispatch.on_kind(ME, KindSpec(2, 0, {"CPU": UNIT}))
    for index in (1, 2):
        dispatch.on_submitted(ME, Interval(ME, PLAIN_STREAM, index, 1, 1, 1, [b"call"]), 0.0)
    workers = [c.worker for c in dispatch.take_commands() if type(c) is StartWorker]
    for worker in workers:
        dispatch.on_worker_started(worker, 0.0)
    for packet in [c for c in dispatch.take_commands() if type(c) is SendPacket]:
        done = (ME, PLAIN_STREAM, packet.intervals[0].first, 1, 1, 1)
        dispatch.on_finished(packet.worker, packet.packet, [done], 0.1, True, 0.0)
    dispatch.on_submitted(ME, Interval(ME, PLAIN_STREAM, 3, 1, 1, 2, [b"call"]), 0.0)
    ordered = dispatch.take_commands()
    assert not any(type(c) is SendPacket for c in ordered)  # not yet: idle ones have other devices
    started = next(c.worker for c in ordered if type(c) is StartWorker)
    dispatch.on_worker_started(started, 0.0)
    dispatch.check()
    commands = dispatch.take_commands()
    assert [c.worker for c in commands if type(c) is SendPacket] == [started]
    assert [c.worker for c in commands if type(c) is StopWorker] == workers[:1]  # idle for longest


def test_cancelled_task_that_was_released_still_gives_its_credit_back(program: Any) -> None:
    index = program.sent()
    program.cancel(index)
    program.drop(index)
    assert program.kind.outstanding == 1
    program.lose(index, LostCause.CANCELLED)
    assert program.kind.outstanding == 0 and not program.refs.owned


def test_stored_result_of_an_item_is_freed_when_it_was_taken_and_not_before(program: Any) -> None:
    array = program.array(1)
    program.commands()
    oid = item_object(ME, array.stream, 0)
    program.finish_items(array, 0, [b"\x0avalue"], extras={0: Extra(1, ())})
    program.refs.hold(oid)  # a view
    program.take_extra(array, 0, array.extras.pop(0))
    assert program.take_commands() == []
    program.refs.drop(oid)
    assert program.take_commands() == [Free(oid, 1)]


def test_refused_kind_waits_for_nothing_any_more(program: Any) -> None:
    kind = program.add_kind(credit=1)
    program.submit(kind=kind)
    program.submit(kind=kind)
    assert Want(kind, 1) in program.commands()
    program.on_refused(kind.id, "refused")
    assert program.commands() == [Want(kind, 0)] and kind.wanted == 0

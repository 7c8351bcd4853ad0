"""Bytes that travel with plain calls count against what a kind may have outstanding."""

from __future__ import annotations

from outboard.ids import ObjectId
from outboard.scheduler.kinds import COUNTED_NBYTES
from outboard.scheduler.owner import Owner

VALUE = b"\x80" + b"v" * 9_999


def test_large_calls_count_from_when_they_are_sent_until_they_are_answered() -> None:
    owner = Owner(7, initial_credit=64)
    kind = owner.add_kind("f", process_retries=0, machine_retries=0, stride=1)
    first = owner.submit(kind, b"c" * COUNTED_NBYTES)
    second = owner.submit(kind, b"c" * (COUNTED_NBYTES - 1))
    owner.plan_sends()
    assert kind.nbytes == COUNTED_NBYTES
    owner.on_finished(0, first, 1, 1, [VALUE])
    owner.on_finished(0, second, 1, 1, [VALUE])
    assert (kind.nbytes, kind.outstanding) == (0, 0)


def test_values_of_inputs_count_whenever_they_come() -> None:
    owner = Owner(7, initial_credit=64)
    kind = owner.add_kind("f", process_retries=0, machine_retries=0, stride=1)
    there = owner.new_seq()
    owner.put(there, VALUE, None)
    maker = owner.submit(kind, b"call")
    owner.submit(kind, b"call", (ObjectId(7, there), ObjectId(7, maker)))
    owner.plan_sends()
    assert kind.nbytes == 0
    owner.on_finished(0, maker, 1, 1, [VALUE])
    owner.plan_sends()
    assert kind.nbytes == 2 * len(VALUE)

"""Lanes: calls of one actor keep their order over kinds, inputs, losses and nodes."""

from __future__ import annotations

from typing import Any

import pytest

from outboard.ids import ObjectId, Span
from outboard.scheduler.lanes import LANE_WINDOW
from outboard.scheduler.owner import Lane, LostCause, Owner, Send, Want

ME, HOME, FAR = 7, 70, 71


class Caller:
    """An owner with two kinds in one lane."""

    def __init__(self, *, in_order: bool = True, node: int | None = 0, retries: int = 0, joined: bool = False) -> None:
        self.owner = Owner(ME, 4, HOME, joined=joined)
        self.lane = Lane(in_order=in_order)
        self.lane.place(node, is_seeking=False)
        self.one, self.two = (
            self.owner.add_kind(name, process_retries=0, machine_retries=retries, stride=1, lane=self.lane)
            for name in ("one", "two")
        )

    def call(self, kind: Any, *inputs: int) -> int:
        return self.owner.submit(kind, b"\x80", tuple(ObjectId(ME, seq) for seq in inputs))

    def sent(self) -> list[tuple[int, int]]:
        """What is sent now, as (index, node), in order."""
        self.owner.plan_sends()
        commands = self.owner.take_commands()
        self.owner.check()
        return [(t.index, c.node) for c in commands if isinstance(c, Send) for t in c.tasks]

    def finish(self, index: int, node: int = 0) -> None:
        self.owner.on_finished(0, index, 1, 1, [b"\x80."], None, node)


def test_calls_of_different_kinds_keep_their_order() -> None:
    caller = Caller()
    indices = [caller.call(caller.two if i % 3 == 1 else caller.one) for i in range(200)]
    assert caller.sent() == [(index, 0) for index in indices]


def test_a_call_whose_input_is_missing_holds_back_those_behind_it() -> None:
    caller = Caller()
    maker = caller.owner.submit(caller.owner.add_kind("maker", process_retries=0, machine_retries=0, stride=1), b"\x80")
    held, behind = caller.call(caller.one, maker), caller.call(caller.two)
    assert caller.sent() == [(maker, 0)]
    caller.finish(maker)
    assert caller.sent() == [(held, 0), (behind, 0)]


def test_without_order_it_waits_aside() -> None:
    caller = Caller(in_order=False)
    maker = caller.owner.submit(caller.owner.add_kind("maker", process_retries=0, machine_retries=0, stride=1), b"\x80")
    held, behind = caller.call(caller.one, maker), caller.call(caller.two)
    assert sorted(caller.sent()) == [(maker, 0), (behind, 0)]
    caller.finish(maker)
    assert caller.sent() == [(held, 0)]


def test_a_cancelled_call_holds_nobody_back() -> None:
    caller = Caller()
    maker = caller.owner.submit(caller.owner.add_kind("maker", process_retries=0, machine_retries=0, stride=1), b"\x80")
    held, behind = caller.call(caller.one, maker), caller.call(caller.two)
    caller.owner.cancel(held)
    assert caller.sent() == [(maker, 0), (behind, 0)]


def test_the_window_takes_the_place_of_credit() -> None:
    caller = Caller()
    indices = [caller.call(caller.one) for _ in range(LANE_WINDOW + 10)]
    assert len(caller.sent()) == LANE_WINDOW
    caller.finish(indices[0])
    assert caller.sent() == [(indices[LANE_WINDOW], 0)]


def test_calls_wait_while_nobody_knows_where_the_actor_is() -> None:
    caller = Caller(node=None, joined=True)
    first, second = caller.call(caller.one), caller.call(caller.two)
    assert caller.sent() == []
    caller.owner.on_node_joined(FAR, 4, 2)
    caller.owner.confine(caller.one, [FAR])
    assert caller.sent() == [(first, FAR), (second, FAR)]


def test_the_own_node_is_asked_to_look_for_one() -> None:
    caller = Caller(node=None, joined=True)
    caller.lane.seeker = caller.two
    caller.owner.confine(caller.one, [], is_seeking=True)
    caller.owner.stir(caller.lane)
    caller.owner.plan_sends()
    assert caller.owner.take_commands() == [Want(caller.two, 1, 0)], "others may call it"
    first = caller.call(caller.one)
    caller.owner.on_node_joined(FAR, 4, 2)
    caller.owner.confine(caller.one, [FAR])
    caller.owner.plan_sends()
    commands = caller.owner.take_commands()
    assert Want(caller.two, 0, 0) in commands
    assert [(c.first, c.node) for c in commands if isinstance(c, Send)] == [(first, FAR)]


@pytest.mark.parametrize("retries", [0, 1])
def test_calls_at_a_lost_node_go_again_before_later_ones_or_fail(retries: int) -> None:
    caller = Caller(node=None, retries=retries, joined=True)
    caller.owner.on_node_joined(FAR, 4, 2)
    caller.owner.confine(caller.one, [FAR])
    first, second = caller.call(caller.one), caller.call(caller.two)
    caller.sent()
    caller.owner.on_session_lost(FAR, "gone")
    third = caller.call(caller.one)
    assert caller.sent() == []
    caller.owner.confine(caller.one, [0])
    again = [(first, 0), (second, 0)] if retries else []
    assert caller.sent() == [*again, (third, 0)]


def test_returned_calls_go_before_those_that_wait() -> None:
    caller = Caller()
    first, second = caller.call(caller.one), caller.call(caller.two)
    caller.sent()
    third = caller.call(caller.one)
    caller.owner.on_returned([Span(0, first, 1, 1), Span(0, second, 1, 1)])
    assert caller.sent() == [(first, 0), (second, 0), (third, 0)]


def test_lost_with_the_binding_they_fail() -> None:
    caller = Caller()
    first = caller.call(caller.one)
    caller.sent()
    caller.owner.on_lost(LostCause.BINDING, [Span(0, first, 1, 1)], None, "mark")
    assert caller.owner.refs.owned[first].value == "mark"


def test_no_grant_narrows_the_window() -> None:
    caller = Caller()
    caller.owner.on_grant(caller.one.id, 1)
    indices = [caller.call(caller.one) for _ in range(5)]
    assert caller.sent() == [(index, 0) for index in indices]

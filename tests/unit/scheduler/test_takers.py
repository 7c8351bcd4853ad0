"""Who may take an object: four at a time, the others go to those that have it, and nobody is sent on twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outboard.scheduler import takers as module
from outboard.scheduler.takers import MOST_NAMED, MOST_TAKERS, SendOn, Serve, Takers

KEY = (100, 7, 1)


@pytest.fixture
def takers() -> Iterator[Takers]:
    takers = Takers()
    yield takers
    takers.check()


def fill(takers: Takers) -> list[int]:
    """Let as many nodes take the object as may; they are numbered from 1."""
    turns = [takers.on_asked(KEY, node) for node in range(1, MOST_TAKERS + 1)]
    assert takers.take_commands() == [Serve(turn) for turn in turns]
    return turns


def test_first_ones_are_served_and_the_next_waits(takers: Takers) -> None:
    turns = fill(takers)
    late = takers.on_asked(KEY, 50)
    assert takers.take_commands() == []
    takers.on_ended(turns[0], is_whole=False)
    assert takers.take_commands() == [Serve(late)]


def test_other_objects_have_turns_of_their_own(takers: Takers) -> None:
    fill(takers)
    turn = takers.on_asked((100, 8, 1), 50)
    assert takers.take_commands() == [Serve(turn)]


def test_those_who_wait_go_on_to_whom_was_served(takers: Takers) -> None:
    turns = fill(takers)
    late = [takers.on_asked(KEY, node) for node in (50, 51)]
    takers.on_ended(turns[0], is_whole=True)
    assert takers.take_commands() == [Serve(late[0]), SendOn(late[1], (1,))]


def test_named_nodes_take_turns(takers: Takers) -> None:
    for turn in fill(takers):
        takers.on_ended(turn, is_whole=True)
    fill(takers)
    for node in (50, 51):
        takers.on_asked(KEY, node)
    first, second = takers.take_commands()
    assert isinstance(first, SendOn) and isinstance(second, SendOn)
    assert first.nodes == (1, 2, 3) and second.nodes == (2, 3, 4)
    assert len(first.nodes) == MOST_NAMED


def test_who_was_sent_on_and_comes_back_waits_for_its_turn(takers: Takers) -> None:
    for turn in fill(takers)[:1]:
        takers.on_ended(turn, is_whole=True)
    one = takers.on_asked(KEY, 49)
    sent = takers.on_asked(KEY, 50)
    assert takers.take_commands() == [Serve(one), SendOn(sent, (1,))]
    back = takers.on_asked(KEY, 50)
    assert takers.take_commands() == []
    takers.on_ended(one, is_whole=False)
    assert takers.take_commands() == [Serve(back)]
    takers.on_ended(sent, is_whole=False)  # of the turn that was over already
    takers.check()


def test_taker_that_leaves_the_queue_is_forgotten(takers: Takers) -> None:
    turns = fill(takers)
    late = takers.on_asked(KEY, 50)
    takers.on_ended(late, is_whole=False)
    takers.on_ended(turns[0], is_whole=False)
    assert takers.take_commands() == []


def test_nobody_is_sent_on_to_a_node_that_has_gone_or_to_itself(takers: Takers) -> None:
    turns = fill(takers)
    takers.on_ended(turns[0], is_whole=True)
    takers.on_ended(turns[1], is_whole=True)
    takers.on_node_gone(1)
    for node in (60, 61):
        takers.on_asked(KEY, node)
    takers.take_commands()
    takers.on_asked(KEY, 2)
    other = takers.on_asked(KEY, 50)
    assert takers.take_commands() == [SendOn(other, (2,))]


def test_memory_of_objects_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OBJECTS", 2)
    takers = Takers()
    for seq in range(10):
        takers.on_ended(takers.on_asked((1, seq, 0), 5), is_whole=True)
    assert len(takers._wanted) <= 2
    takers.check()

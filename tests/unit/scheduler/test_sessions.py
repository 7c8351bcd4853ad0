from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from outboard.scheduler import sessions as module
from outboard.scheduler.commands import InvalidTransition
from outboard.scheduler.session_words import (
    Dial,
    Header,
    Role,
    SendFrame,
    SessionEnd,
    SessionLost,
    SessionName,
    SessionOpened,
    SetTimer,
    Word,
)
from outboard.scheduler.sessions import Sessions

OWNER, NODE = 100, 200
NAME = SessionName(OWNER, NODE, 1)
NOW = 50.0


@pytest.fixture
def node() -> Iterator[Sessions]:
    node = Sessions(Role.NODE, NODE)
    yield node
    node.check(NOW)


@pytest.fixture
def owner() -> Iterator[Sessions]:
    owner = Sessions(Role.OWNER, OWNER)
    yield owner
    owner.check(NOW)


def hear(node: Sessions, word: Word, name: SessionName = NAME, dial: int = 1) -> list[Any]:
    """Bring one frame; returns the words that are said to it and the other commands, timers apart."""
    node.on_frame(5, Header(name, word, dial, 1, 1), 1, b"", NOW)
    return taken(node)


def taken(machine: Sessions) -> list[Any]:
    commands = [command for command in machine.take_commands() if not isinstance(command, SetTimer)]
    return [Word(c.header.word) if isinstance(c, SendFrame) else c for c in commands]


def close(node: Sessions, name: SessionName) -> None:
    node.give_up(name, NOW)
    node.take_commands()


def test_sessions_are_found_by_name_and_by_peer(node: Sessions, owner: Sessions) -> None:
    assert hear(node, Word.OPEN) == [SessionOpened(NAME), Word.BEAT]
    session = owner.open(NODE, NOW)
    assert session.name == NAME and owner.find(NAME) is owner.with_peer(NODE) is session
    assert node.find(NAME) is node.with_peer(OWNER) is not None
    assert len(node) == len(owner) == 1
    assert repr(node) == "<Sessions of node c8 open=1 known=1>"


def test_later_session_of_an_owner_ends_the_one_before(node: Sessions) -> None:
    hear(node, Word.OPEN)
    later = NAME._replace(number=2)
    lost = SessionLost(NAME, SessionEnd.SUPERSEDED, ())
    assert hear(node, Word.OPEN, later) == [Word.CLOSED, lost, SessionOpened(later), Word.BEAT]
    assert hear(node, Word.DATA) == [Word.CLOSED]


def test_peer_that_was_struck_off_is_lost_and_not_taken_again(node: Sessions, owner: Sessions) -> None:
    owner.open(NODE, NOW)
    owner.on_peer_lost(NODE, NOW)
    assert taken(owner) == [Dial(NAME, 1), SessionLost(NAME, SessionEnd.PEER_LOST, ())]
    with pytest.raises(InvalidTransition, match="cannot open"):
        owner.open(NODE, NOW)
    hear(node, Word.OPEN)
    node.on_peer_lost(OWNER, NOW)
    assert taken(node) == [Word.CLOSED, SessionLost(NAME, SessionEnd.PEER_LOST, ())]
    assert hear(node, Word.OPEN, NAME._replace(number=9)) == [Word.CLOSED]


def test_second_session_with_a_node_is_not_opened(node: Sessions, owner: Sessions) -> None:
    owner.open(NODE, NOW)
    with pytest.raises(InvalidTransition, match="cannot open"):
        owner.open(NODE, NOW)
    with pytest.raises(InvalidTransition, match="cannot open"):
        node.open(OWNER, NOW)


def test_word_of_a_closing_opens_nothing(node: Sessions) -> None:
    assert hear(node, Word.CLOSED) == [] and len(node) == 0


def test_closed_numbers_are_refused_and_later_ones_are_not(node: Sessions) -> None:
    hear(node, Word.OPEN, NAME._replace(number=5))
    close(node, NAME._replace(number=5))
    for number in (1, 4, 5):
        assert hear(node, Word.OPEN, NAME._replace(number=number)) == [Word.CLOSED]
    assert SessionOpened(NAME._replace(number=6)) in hear(node, Word.DATA, NAME._replace(number=6), dial=3)


def test_memory_of_closed_sessions_is_bounded_and_stays_right(node: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 2)
    for peer in (1, 2, 3):
        hear(node, Word.OPEN, SessionName(peer, NODE, 1))
        close(node, SessionName(peer, NODE, 1))
    forgotten, known, unknown = (SessionName(peer, NODE, 1) for peer in (1, 3, 4))
    for word, dial in ((Word.DATA, 1), (Word.OPEN, 2), (Word.BEAT, 3)):
        assert hear(node, word, forgotten, dial) == [Word.CLOSED]
    assert hear(node, Word.OPEN, known) == [Word.CLOSED]
    assert SessionOpened(known._replace(number=2)) in hear(node, Word.DATA, known._replace(number=2), dial=4)
    assert SessionOpened(unknown) in hear(node, Word.OPEN, unknown)
    assert repr(node) == "<Sessions of node c8 open=2 known=3>"


def test_events_of_closed_sessions_change_nothing(owner: Sessions) -> None:
    owner.open(NODE, NOW)
    close(owner, NAME)
    owner.on_path_up(NAME, 1, 3, NOW)
    owner.on_dial_failed(NAME, 1, NOW)
    owner.on_dial_refused(NAME, 1, NOW)
    owner.on_no_path(1, NAME, NOW)
    owner.on_path_down(1, NOW)
    owner.give_up(NAME, NOW)
    owner.on_timer(NOW)
    assert owner.take_commands() == []

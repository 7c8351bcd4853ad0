"""The network's world finds bugs in the machines between machines: sessions, the head's, that of seeking room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outboard import headgangs
from outboard.scheduler import (
    gangs,
    membership,
    naming,
    room,
    roster,
    seeking,
    session,
    session_books,
    session_window,
    sessions,
)
from outboard.scheduler.session_words import Header, Role, SessionEnd, Unsent, Word
from tests.simulation.planting import Plant, assert_is_found, nothing

SEEDS = 600


# -- sessions


def send_nothing_again_after_a_break(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session_window.Outgoing, "rewind", nothing)


def change_numbers(patch: pytest.MonkeyPatch, is_wrong: Callable[[int, int], bool]) -> None:
    on_frame = session.Session.on_frame

    def planted(self: Any, path: int, header: Header, frame_type: int, body: bytes, now: float) -> None:
        if header.word < Word.OPEN and is_wrong(header.seq, self.come.expects):
            header = header._replace(seq=self.come.expects)
        on_frame(self, path, header, frame_type, body, now)

    patch.setattr(session.Session, "on_frame", planted)


def take_what_comes_behind_a_gap(patch: pytest.MonkeyPatch) -> None:
    change_numbers(patch, lambda seq, expects: seq > expects)


def never_ask_for_what_is_missing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session.Session, "_miss", nothing)


def wait_for_ever_for_the_silent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session_books, "SILENCE_SECONDS", dict.fromkeys(Role, 1e9))


def open_what_was_closed_once_more(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sessions.Sessions, "_is_new", lambda self, header: self.role is Role.NODE)


def never_dial_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session.Session, "_dial_soon", nothing)
    patch.setattr(session.Session, "_dial_due", lambda self: float("inf"))


def agree_to_close_while_tasks_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session.Session, "set_in_use", nothing)


def forget_what_was_never_sent(patch: pytest.MonkeyPatch) -> None:
    clear = session_window.Outgoing.clear

    def planted(self: Any) -> tuple[Unsent, ...]:
        clear(self)
        return ()

    patch.setattr(session_window.Outgoing, "clear", planted)


def call_unsent_what_was_sent(patch: pytest.MonkeyPatch) -> None:
    clear = session_window.Outgoing.clear

    def planted(self: Any) -> tuple[Unsent, ...]:
        kept = [*self.flight, *self.waiting]
        clear(self)
        return tuple(Unsent(*held[1:]) for held in kept if held[0] == Word.DATA)

    patch.setattr(session_window.Outgoing, "clear", planted)


def forget_the_path_of_a_break(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session.Session, "_drop_path", lambda self: setattr(self, "path", None))


def say_nothing_of_a_session_given_up(patch: pytest.MonkeyPatch) -> None:
    lose = session.Session.lose

    def planted(self: Any, end: SessionEnd, now: float) -> None:
        self.path = None
        self.is_joined = False
        lose(self, end, now)

    patch.setattr(session.Session, "lose", planted)
    patch.setattr(sessions.Sessions, "_admit", nothing)


# -- the head


def welcome_before_it_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership.Membership, "has_changed", property(lambda self: False))


def take_back_who_was_struck_off(patch: pytest.MonkeyPatch) -> None:
    register = roster.Roster.register

    def planted(self: Any, *args: Any, is_return: bool) -> None:
        self._gone.clear()
        register(self, *args, is_return=False)

    patch.setattr(roster.Roster, "register", planted)


def promise_room_at_nodes_that_drain(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(room.Room, "remove_host", nothing)


def never_strike_off_the_silent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(roster.Roster, "judge", nothing)


def never_settle_after_a_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(roster.Roster, "_note_back", nothing)


def give_a_name_twice(patch: pytest.MonkeyPatch) -> None:
    file = naming.Naming._file

    def planted(self: Any, node: int, claim: Any) -> str:
        held = self._entries.get((claim.namespace, claim.name))
        return "" if held is not None and held.node != node else file(self, node, claim)

    patch.setattr(naming.Naming, "_file", planted)


def tell_differences_to_those_that_need_the_list(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership.Membership, "want_full", nothing)


# -- seeking room


def ask_a_head_that_is_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(seeking.Seeking, "on_head_up", nothing)


def never_take_a_figure_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(seeking.Seeking, "_drop_want", nothing)


# -- gangs


def keep_halves_of_an_attempt_that_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gangs.Gangs, "_let_go", nothing)


def forget_what_is_asked_when_a_head_comes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(headgangs.HeadGangs, "wishes", lambda self: [])


def forget_what_is_held_when_a_head_comes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(headgangs.HeadGangs, "held", lambda self: [])


PLANTS: list[Plant] = [
    keep_halves_of_an_attempt_that_failed,
    forget_what_is_asked_when_a_head_comes,
    forget_what_is_held_when_a_head_comes,
    send_nothing_again_after_a_break,
    take_what_comes_behind_a_gap,
    never_ask_for_what_is_missing,
    wait_for_ever_for_the_silent,
    open_what_was_closed_once_more,
    never_dial_again,
    agree_to_close_while_tasks_run,
    forget_what_was_never_sent,
    call_unsent_what_was_sent,
    forget_the_path_of_a_break,
    say_nothing_of_a_session_given_up,
    welcome_before_it_is_kept,
    take_back_who_was_struck_off,
    promise_room_at_nodes_that_drain,
    never_strike_off_the_silent,
    never_settle_after_a_start,
    give_a_name_twice,
    tell_differences_to_those_that_need_the_list,
    ask_a_head_that_is_away,
    never_take_a_figure_back,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_is_found(plant, monkeypatch, "network", SEEDS)

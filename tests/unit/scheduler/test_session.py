from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from outboard.scheduler import session_window as window
from outboard.scheduler.session import Session
from outboard.scheduler.session_books import IDLE_SECONDS, MISSED_SECONDS
from outboard.scheduler.session_words import (
    Deliver,
    Dial,
    Header,
    Role,
    SendFrame,
    SessionClosed,
    SessionEnd,
    SessionLost,
    SessionName,
    SessionOpened,
    SetTimer,
    Unsent,
    Word,
)  # fmt: skip
from outboard.scheduler.sessions import Sessions

OWNER, NODE = 100, 200
NAME = SessionName(OWNER, NODE, 1)


class End:
    """One machine with its driver: what it put on paths waits in ``wire``, all else is in ``heard``."""

    def __init__(self, role: Role, me: int) -> None:
        self.machine = Sessions(role, me)
        self.wire: list[SendFrame] = []
        self.heard: list[Any] = []
        self.timer = 0.0

    def obey(self, now: float) -> None:
        self.machine.check(now)
        for command in self.machine.take_commands():
            if isinstance(command, SendFrame):
                self.wire.append(command)
            elif isinstance(command, SetTimer):
                self.timer = command.due
            else:
                self.heard.append(command)

    def hear(self, frame: Header, now: float, path: int = 1, body: bytes = b"") -> None:
        """Take one frame that nobody sent just now."""
        self.machine.on_frame(path, frame, 1, body, now)
        self.obey(now)

    def take_heard(self) -> list[Any]:
        heard, self.heard = self.heard, []
        return heard

    def words(self) -> list[Word]:
        return [Word(command.header.word) for command in self.wire]


class Pair:
    """An owner and a node; ``now`` is theirs in common."""

    def __init__(self) -> None:
        self.now = 50.0
        self.owner = End(Role.OWNER, OWNER)
        self.node = End(Role.NODE, NODE)

    def open(self) -> Session:
        """Open a session, with a path and all said that there is to say."""
        session = self.owner.machine.open(NODE, self.now)
        session.set_in_use(True, self.now)
        self.path_up()
        self.talk()
        self.owner.take_heard()
        self.node.take_heard()
        return session

    def path_up(self, path: int | None = None) -> None:
        self.owner.obey(self.now)
        dial = self.owner.heard.pop()
        assert isinstance(dial, Dial)
        self.owner.machine.on_path_up(dial.name, dial.dial, path or dial.dial, self.now)
        self.obey()

    def break_path(self) -> None:
        """End the owner's path, long enough after the last dial that the next one goes at once."""
        self.now += 0.5
        session = self.owner.machine.with_peer(NODE)
        assert session is not None and session.path is not None
        self.owner.machine.on_path_down(session.path, self.now)

    def obey(self) -> None:
        self.owner.obey(self.now)
        self.node.obey(self.now)

    def carry(self, source: End, count: int = 10_000) -> None:
        """Bring what one end has put on paths to the other one."""
        self.obey()
        target = self.node if source is self.owner else self.owner
        moved, source.wire = source.wire[:count], source.wire[count:]
        for path, header, frame_type, body in moved:
            target.machine.on_frame(path, header, frame_type, body, self.now)
            target.obey(self.now)

    def talk(self) -> None:
        """Bring everything until nobody has anything to say."""
        self.obey()
        while self.owner.wire or self.node.wire:
            self.carry(self.owner)
            self.carry(self.node)

    def wait(self, seconds: float, who: End | None = None) -> None:
        """Let time pass, timers punctual; what is said stays on the wire."""
        until = self.now + seconds
        while True:
            end = min([who] if who else [self.owner, self.node], key=lambda end: end.timer or until + 1)
            if not end.timer or end.timer > until:
                break
            self.now, end.timer = max(self.now, end.timer), 0.0
            end.machine.on_timer(self.now)
            end.obey(self.now)
        self.now = until

    def live(self, seconds: float) -> None:
        """Let time pass while everything arrives."""
        until = self.now + seconds
        while self.now < until:
            self.wait(0.05)
            self.talk()

    def bodies(self, end: End) -> list[bytes]:
        return [command.body for command in end.take_heard() if isinstance(command, Deliver)]

    @property
    def session(self) -> Session:
        """The session at the node's end."""
        session = self.node.machine.find(NAME)
        assert session is not None
        return session


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.obey()


def header(word: Word, *, name: SessionName = NAME, dial: int = 1, seq: int = 1, expects: int = 1) -> Header:
    return Header(name, word, dial, seq, expects)


# -- opening and sending


def test_messages_go_out_with_the_first_path_and_not_before(pair: Pair) -> None:
    session = pair.owner.machine.open(NODE, pair.now)
    assert session.send(13, b"one", pair.now)
    pair.owner.obey(pair.now)
    assert pair.owner.heard == [Dial(NAME, 1)] and pair.owner.wire == []
    pair.path_up(path=9)
    assert pair.owner.words() == [Word.OPEN, Word.DATA]
    assert {command.path for command in pair.owner.wire} == {9}
    pair.carry(pair.owner)
    assert pair.node.take_heard() == [SessionOpened(NAME), Deliver(NAME, 13, b"one")]


def test_frames_are_numbered_and_acknowledge_by_riding(pair: Pair) -> None:
    session = pair.open()
    session.send(1, b"a", pair.now)
    session.send(1, b"b", pair.now)
    pair.carry(pair.owner)
    pair.session.send(2, b"c", pair.now)
    pair.node.obey(pair.now)
    (frame,) = pair.node.wire
    assert (frame.header.seq, frame.header.expects) == (1, 3)
    assert len(session.out.flight) == 2
    pair.carry(pair.node)
    assert session.out.base == 3 and not session.out.flight


def test_lone_acknowledgement_waits_for_a_ride_and_then_goes_alone(pair: Pair) -> None:
    session = pair.open()
    session.send(1, b"a", pair.now)
    pair.carry(pair.owner)
    assert pair.node.wire == []
    pair.wait(0.11, pair.node)
    assert pair.node.words() == [Word.BEAT] and pair.node.wire[0].header.expects == 2
    pair.carry(pair.node)
    assert not session.out.flight


def test_acknowledgement_does_not_wait_when_much_is_owed(pair: Pair) -> None:
    session = pair.open()
    for _ in range(window.ACK_FRAMES):
        session.send(1, b"", pair.now)
    pair.carry(pair.owner)
    assert pair.node.words() == [Word.BEAT]
    pair.carry(pair.node)
    session.send(1, bytes(window.ACK_NBYTES), pair.now)
    pair.carry(pair.owner)
    assert pair.node.words() == [Word.BEAT]


@pytest.mark.parametrize(("count", "nbytes"), [(window.WINDOW_FRAMES + 5, 1), (30, 1 << 20)])
def test_window_holds_back_what_it_has_no_room_for(pair: Pair, count: int, nbytes: int) -> None:
    session = pair.open()
    for _ in range(count):
        session.send(1, bytes(nbytes), pair.now)
    sent = min(window.WINDOW_FRAMES, window.WINDOW_NBYTES // nbytes)
    pair.owner.obey(pair.now)
    assert len(pair.owner.wire) == sent and session.out.room <= 0
    pair.talk()
    pair.live(0.2)
    assert len(pair.bodies(pair.node)) == count and session.out.room == window.WINDOW_NBYTES


def test_silent_owner_is_given_up_sooner_when_too_much_waits_for_it(pair: Pair) -> None:
    pair.open()
    node, nbytes, ends = pair.session, window.WINDOW_NBYTES, []

    def live(seconds: float) -> None:
        for _ in range(int(seconds / 0.5)):
            pair.now += 0.5
            pair.node.machine.on_timer(pair.now)
            ends.extend(c.end for c in pair.node.machine.take_commands() if isinstance(c, SessionLost))

    pair.node.machine.on_path_down(1, pair.now)
    for _ in range(window.MOST_WAITING_NBYTES // nbytes):
        node.send(15, bytes(nbytes), pair.now)
    live(MISSED_SECONDS + 1.0)
    assert ends == [], "what is allowed may wait as long as an owner is waited for"
    node.send(15, b"one more", pair.now)
    live(0.5)
    assert ends == [SessionEnd.SILENT] and node.is_closed and node.out.waiting_nbytes == 0


# -- paths


def test_after_a_break_the_rest_is_resent_from_what_the_receiver_expects(pair: Pair) -> None:
    session = pair.open()
    for body in (b"a", b"b", b"c"):
        session.send(1, body, pair.now)
    pair.carry(pair.owner, 1)
    pair.owner.wire.clear()
    pair.break_path()
    session.send(1, b"d", pair.now)
    pair.path_up()
    assert pair.owner.words() == [Word.OPEN]
    pair.carry(pair.owner)
    pair.carry(pair.node)
    assert [command.header.seq for command in pair.owner.wire] == [2, 3, 4]
    pair.talk()
    assert pair.bodies(pair.node) == [b"a", b"b", b"c", b"d"]


def test_what_the_node_sent_into_the_break_is_resent_too(pair: Pair) -> None:
    pair.open()
    pair.session.send(1, b"a", pair.now)
    pair.obey()
    pair.node.wire.clear()
    pair.node.machine.on_path_down(1, pair.now)
    pair.session.send(1, b"b", pair.now)
    pair.break_path()
    pair.path_up()
    pair.talk()
    assert pair.bodies(pair.owner) == [b"a", b"b"]


def test_late_frames_of_an_older_path_are_taken_once(pair: Pair) -> None:
    session = pair.open()
    for body in (b"a", b"b", b"c"):
        session.send(1, body, pair.now)
    pair.obey()
    late, pair.owner.wire = pair.owner.wire, []
    pair.break_path()
    pair.path_up()
    pair.carry(pair.owner)
    path, first, frame_type, body = late[0]
    pair.node.machine.on_frame(path, first, frame_type, body, pair.now)
    pair.talk()
    for path, old, frame_type, body in late:
        pair.node.machine.on_frame(path, old, frame_type, body, pair.now)
    pair.talk()
    assert pair.bodies(pair.node) == [b"a", b"b", b"c"]
    assert pair.session.path == 2 and pair.node.machine.ignored["repeat"] == 4


def test_new_path_makes_a_node_resend_unasked(pair: Pair) -> None:
    pair.open()
    pair.session.send(1, b"a", pair.now)
    pair.obey()
    pair.node.wire.clear()
    pair.break_path()
    pair.path_up()
    pair.carry(pair.owner)
    pair.carry(pair.node)
    assert pair.bodies(pair.owner) == [b"a"] and pair.owner.words() == []


def test_late_frame_of_an_older_path_joins_nobody(pair: Pair) -> None:
    session = pair.open()
    session.send(1, b"a", pair.now)
    pair.session.send(2, b"b", pair.now)
    pair.obey()
    from_owner, pair.owner.wire = pair.owner.wire, []
    from_node, pair.node.wire = pair.node.wire, []
    pair.break_path()
    pair.path_up()
    pair.owner.machine.on_frame(*from_node[0], pair.now)
    pair.owner.obey(pair.now)
    assert pair.owner.words() == [Word.OPEN] and not session.is_joined
    pair.talk()
    pair.node.machine.on_path_down(2, pair.now)
    pair.node.machine.on_frame(*from_owner[0], pair.now)
    pair.node.obey(pair.now)
    assert pair.session.path is None and pair.session.dial == 2


def test_what_was_sent_once_is_never_called_unsent() -> None:
    out = window.Outgoing()
    for body in (b"a", b"b", b"c"):
        out.add((Word.DATA, 1, body))
    out.take()
    out.take()
    out.rewind()
    out.take()
    out.check()
    assert out.clear() == (Unsent(1, b"c"),)


def test_gap_of_an_older_path_asks_for_nothing(pair: Pair) -> None:
    session = pair.open()
    session.send(1, b"a", pair.now)
    session.send(1, b"b", pair.now)
    pair.obey()
    late, pair.owner.wire = pair.owner.wire, []
    pair.break_path()
    pair.path_up()
    pair.carry(pair.owner)
    pair.node.wire.clear()
    pair.node.machine.on_frame(*late[1], pair.now)
    pair.node.obey(pair.now)
    assert pair.node.wire == []


def test_gap_is_asked_for_once(pair: Pair) -> None:
    session = pair.open()
    for body in (b"a", b"b", b"c"):
        session.send(1, body, pair.now)
    pair.obey()
    del pair.owner.wire[0]
    pair.carry(pair.owner)
    assert pair.node.words() == [Word.RESUME] and pair.node.wire[0].header.expects == 1
    pair.talk()
    assert pair.bodies(pair.node) == [b"a", b"b", b"c"]


def test_question_for_a_gap_that_is_lost_is_asked_again(pair: Pair) -> None:
    session = pair.open()
    for at in range(5):
        session.send(1, bytes([at]), pair.now)
        pair.obey()
        if not at:
            pair.owner.wire.clear()
        pair.carry(pair.owner)
        if at == 1:
            assert pair.node.words() == [Word.RESUME]
            pair.node.wire.clear()
        pair.now += 0.3
    assert pair.node.words() == [], "within a second of the first"
    pair.now += 0.3
    session.send(1, b"\5", pair.now)
    pair.talk()
    assert pair.bodies(pair.node) == [bytes([at]) for at in range(6)]


def test_last_frame_that_a_relay_lost_is_missed_with_the_next_heartbeat(pair: Pair) -> None:
    session = pair.open()
    session.send(1, b"a", pair.now)
    pair.obey()
    pair.owner.wire.clear()
    pair.live(1.2)
    assert pair.bodies(pair.node) == [b"a"]


def test_first_frame_that_a_relay_lost_does_not_cost_the_session(pair: Pair) -> None:
    session = pair.owner.machine.open(NODE, pair.now)
    session.send(1, b"a", pair.now)
    session.send(1, b"b", pair.now)
    pair.path_up()
    assert pair.owner.words() == [Word.OPEN, Word.DATA, Word.DATA]
    del pair.owner.wire[:2]
    pair.talk()
    assert pair.bodies(pair.node) == [b"a", b"b"]


def test_no_path_dials_again_but_not_at_once_each_time(pair: Pair) -> None:
    pair.open()
    pair.now += 1
    pair.owner.machine.on_no_path(7, NAME, pair.now)
    pair.owner.obey(pair.now)
    assert pair.owner.heard == [] and pair.owner.machine.ignored["no path"] == 1
    pair.owner.machine.on_no_path(1, NAME, pair.now)
    pair.owner.obey(pair.now)
    assert pair.owner.heard == [Dial(NAME, 2)]
    pair.path_up()
    pair.owner.machine.on_no_path(2, NAME, pair.now)
    pair.owner.machine.on_no_path(2, NAME, pair.now)
    pair.owner.obey(pair.now)
    assert pair.owner.heard == []
    pair.wait(0.21, pair.owner)
    assert pair.owner.heard == [Dial(NAME, 3)]


def test_failed_dial_is_tried_again_and_a_path_of_an_older_dial_is_not_used(pair: Pair) -> None:
    pair.owner.machine.open(NODE, pair.now)
    pair.owner.machine.on_dial_failed(NAME, 1, pair.now)
    pair.obey()
    pair.wait(0.21, pair.owner)
    assert pair.owner.take_heard() == [Dial(NAME, 1), Dial(NAME, 2)]
    pair.owner.machine.on_path_up(NAME, 1, 9, pair.now)
    pair.owner.obey(pair.now)
    pair.owner.machine.on_dial_failed(NAME, 1, pair.now)
    pair.owner.machine.on_path_down(9, pair.now)
    pair.wait(1, pair.owner)
    assert pair.owner.wire == pair.owner.heard == []
    assert pair.owner.machine.ignored["path of an older dial"] == 1


def test_silent_path_is_given_up_before_the_node_is(pair: Pair) -> None:
    session = pair.open()
    pair.wait(2.05, pair.owner)
    assert Dial(NAME, 2) in pair.owner.heard and session.path is None
    pair.owner.wire.clear()
    pair.path_up()
    pair.talk()
    assert session.is_joined and not session.is_closed


# -- deadlines


def test_heartbeats_keep_a_session_that_says_nothing(pair: Pair) -> None:
    session = pair.open()
    pair.live(40)
    assert not session.is_closed and session.path == 1


def test_owner_gives_a_silent_node_up_after_five_seconds(pair: Pair) -> None:
    session = pair.open()
    session.send(1, b"sent", pair.now)
    pair.wait(2.5, pair.owner)
    session.send(1, b"never sent", pair.now)
    pair.wait(2.4, pair.owner)
    assert not session.is_closed
    pair.wait(0.3, pair.owner)
    lost = pair.owner.take_heard()[-1]
    assert lost == SessionLost(NAME, SessionEnd.SILENT, (Unsent(1, b"never sent"),))
    assert not session.send(1, b"", pair.now) and len(pair.owner.machine) == 0


def test_node_waits_thirty_seconds_for_an_owner_whose_path_is_gone(pair: Pair) -> None:
    pair.open()
    pair.node.machine.on_path_down(1, pair.now)
    pair.wait(29.9, pair.node)
    assert pair.node.take_heard() == []
    pair.wait(0.3, pair.node)
    assert pair.node.take_heard() == [SessionLost(NAME, SessionEnd.SILENT, ())]


def test_refused_dial_loses_the_session_at_once_and_an_older_one_does_not(pair: Pair) -> None:
    session = pair.open()
    pair.owner.machine.on_path_down(1, pair.now + 1)
    pair.owner.machine.on_dial_refused(NAME, 1, pair.now)
    assert not session.is_closed
    pair.owner.machine.on_dial_refused(NAME, 2, pair.now)
    pair.owner.obey(pair.now)
    assert pair.owner.take_heard() == [Dial(NAME, 2), SessionLost(NAME, SessionEnd.REFUSED, ())]


@pytest.mark.parametrize("is_input_first", [False, True])
def test_who_slept_does_not_judge_others_by_it(pair: Pair, is_input_first: bool) -> None:
    session = pair.open()
    pair.now += 3600
    if is_input_first:
        pair.owner.machine.on_path_down(1, pair.now)
    pair.owner.machine.on_timer(pair.now)
    pair.owner.obey(pair.now)
    assert not session.is_closed and pair.owner.machine.ignored["asleep"] == 1
    if not is_input_first:
        pair.owner.machine.on_path_down(1, pair.now)
    pair.wait(3.9, pair.owner)
    assert not session.is_closed, "of its five seconds one had gone when this end fell asleep"
    pair.wait(0.3, pair.owner)
    assert session.is_closed


def test_who_slept_and_then_heard_of_the_node_misses_it_as_soon_as_ever(pair: Pair) -> None:
    session = pair.open()
    pair.now += 3600
    pair.owner.machine.on_frame(1, header(Word.BEAT), 0, b"", pair.now)
    pair.owner.machine.on_timer(pair.now)
    pair.owner.obey(pair.now)
    pair.wait(5.2, pair.owner)
    assert session.is_closed


def test_timer_that_is_a_little_late_judges(pair: Pair) -> None:
    session = pair.open()
    pair.wait(4.9, pair.owner)
    pair.now += 0.9
    pair.owner.machine.on_timer(pair.now)
    assert session.is_closed
    pair.owner.obey(pair.now)


# -- the end


@pytest.mark.parametrize("gives_up", ["owner", "node"])
def test_either_end_gives_up_and_the_other_is_told_once(pair: Pair, gives_up: str) -> None:
    pair.open().send(1, b"a", pair.now)
    first, second = (pair.owner, pair.node) if gives_up == "owner" else (pair.node, pair.owner)
    first.machine.give_up(NAME, pair.now)
    first.machine.give_up(NAME, pair.now)
    pair.talk()
    pair.live(2)
    lost = [[c.end for c in end.take_heard() if isinstance(c, SessionLost)] for end in (first, second)]
    assert lost == [[SessionEnd.GIVEN_UP], [SessionEnd.REFUSED]]


def test_frames_of_a_closed_session_are_refused_for_ever(pair: Pair) -> None:
    session = pair.open()
    pair.node.machine.give_up(NAME, pair.now)
    pair.node.obey(pair.now)
    pair.node.wire.clear()
    session.send(1, b"late", pair.now)
    pair.carry(pair.owner)
    assert pair.node.words() == [Word.CLOSED]
    assert pair.bodies(pair.node) == []
    pair.carry(pair.node)
    assert pair.owner.wire == [], "a refusal is not answered"
    pair.node.hear(header(Word.OPEN, dial=7), pair.now, path=8)
    assert pair.node.words() == [Word.CLOSED]


def test_frames_for_another_incarnation_are_refused(pair: Pair) -> None:
    session = pair.open()
    pair.node = End(Role.NODE, NODE + 1)
    session.send(1, b"zombie", pair.now)
    pair.talk()
    assert pair.owner.take_heard() == [SessionLost(NAME, SessionEnd.REFUSED, ())]
    assert pair.node.take_heard() == []


def test_node_of_a_restarted_owner_is_told(pair: Pair) -> None:
    pair.open()
    pair.owner = End(Role.OWNER, OWNER + 1)
    pair.live(1.2)
    assert pair.node.take_heard() == [SessionLost(NAME, SessionEnd.REFUSED, ())]


@pytest.mark.parametrize(
    "breach",
    [
        header(Word.BEAT, expects=2),  # acknowledges what was never sent
        header(Word.BEAT, dial=2),  # names a dial that was never made
        header(Word.END),  # only owners ask to close
    ],
)
def test_peer_that_breaks_the_rules_is_given_up(pair: Pair, breach: Header) -> None:
    pair.open()
    pair.owner.hear(breach, pair.now, path=1)
    assert pair.owner.take_heard() == [SessionLost(NAME, SessionEnd.BREACH, ())]
    assert pair.owner.words() == [Word.CLOSED]


# -- idle


def test_idle_session_is_closed_when_both_ends_agree(pair: Pair) -> None:
    session = pair.open()
    pair.live(2 * IDLE_SECONDS)
    assert not session.is_closed, "in use"
    session.set_in_use(False, pair.now)
    pair.live(IDLE_SECONDS - 0.5)
    assert not session.is_closed
    pair.live(1.5)
    assert pair.owner.take_heard() == [SessionClosed(NAME, ())] == pair.node.take_heard()
    assert len(pair.owner.machine) == len(pair.node.machine) == 0
    pair.wait(5)
    assert not pair.owner.timer and not pair.node.timer
    assert pair.owner.machine.open(NODE, pair.now).name.number == 2


def test_node_that_has_something_outstanding_keeps_the_session(pair: Pair) -> None:
    session = pair.open()
    session.set_in_use(False, pair.now)
    pair.session.set_in_use(True, pair.now)
    pair.live(IDLE_SECONDS + 1)
    assert session.out.limit == window.NO_LIMIT and session.come.expects == 2
    session.send(1, b"goes on", pair.now)
    pair.talk()
    assert pair.bodies(pair.node) == [b"goes on"]


def test_node_with_a_message_on_its_way_keeps_the_session(pair: Pair) -> None:
    session = ask_to_close(pair)
    pair.session.send(1, b"crosses", pair.now)
    pair.talk()
    assert pair.bodies(pair.owner) == [b"crosses"]
    assert not session.is_closed and session.out.limit == window.NO_LIMIT


def ask_to_close(pair: Pair) -> Session:
    session = pair.open()
    session.set_in_use(False, pair.now)
    for _ in range(int(IDLE_SECONDS * 20) + 40):
        pair.wait(0.05)
        if Word.END in pair.owner.words():
            return session
        pair.talk()
    raise AssertionError("never asked")


def test_message_behind_the_question_to_close_is_given_back(pair: Pair) -> None:
    session = ask_to_close(pair)
    session.send(1, b"late", pair.now)
    assert pair.owner.words()[-1] is Word.END
    pair.talk()
    assert pair.owner.take_heard() == [SessionClosed(NAME, (Unsent(1, b"late"),))]
    assert pair.node.take_heard() == [SessionClosed(NAME, ())]


@pytest.mark.parametrize("lost", ["question", "answer"])
def test_question_to_close_survives_a_break(pair: Pair, lost: str) -> None:
    session = ask_to_close(pair)
    if lost == "answer":
        pair.carry(pair.owner)
    pair.owner.wire.clear()
    pair.node.wire.clear()
    pair.break_path()
    pair.path_up()
    pair.talk()
    assert session.is_closed
    assert pair.owner.take_heard() == [SessionClosed(NAME, ())] == pair.node.take_heard()


def test_node_without_a_path_agrees_in_silence(pair: Pair) -> None:
    session = ask_to_close(pair)
    question = pair.owner.wire.pop()
    pair.break_path()
    pair.path_up()
    pair.carry(pair.owner)
    pair.node.machine.on_path_down(2, pair.now)
    pair.node.wire.clear()
    pair.node.hear(question.header, pair.now)
    assert pair.node.take_heard() == [SessionClosed(NAME, ())] and pair.node.wire == []
    pair.live(6)
    assert session.is_closed


def test_reprs_show_state_and_counts(pair: Pair) -> None:
    session = pair.open()
    assert repr(session) == "<Session 1 with c8 path=1 dial=1 joined=True expects=1 flight=0 waiting=0>"

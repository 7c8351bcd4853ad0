"""What a node brings in: one pull an object, sources in order, room first, and an answer for everybody who waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from outboard.scheduler.pulls import (
    MOST_ATTEMPTS,
    MOST_TRANSFERS,
    PAUSES,
    Cause,
    Discard,
    Fetch,
    Give,
    Keep,
    Pulls,
    Refuse,
    Reserve,
    Stop,
)

ME, SOURCE, OTHER, THIRD = 1, 2, 3, 4
ROOT, ONE, TWO = 100, 101, 102
KEY = (ROOT, 7, 1)


@pytest.fixture
def pulls() -> Iterator[Pulls]:
    pulls = Pulls(ME)
    yield pulls
    pulls.check()


def begin(pulls: Pulls, key: tuple[int, int, int] = KEY, waiter: int | None = ONE) -> None:
    pulls.on_wanted(key, 10, SOURCE, waiter, ROOT)
    pulls.on_room(key)


def test_object_comes_once_however_many_wait(pulls: Pulls) -> None:
    pulls.on_wanted(KEY, 10, SOURCE, ONE, ROOT)
    pulls.on_wanted(KEY, 10, SOURCE, TWO, ROOT)
    assert pulls.take_commands() == [Reserve(KEY, 10, False)]
    pulls.on_room(KEY)
    pulls.on_wanted(KEY, 10, SOURCE, ONE, ROOT)
    assert pulls.take_commands() == [Fetch(KEY, SOURCE, 0.0)]
    pulls.on_arrived(KEY)
    assert pulls.take_commands() == [Keep(KEY, ROOT), Give(KEY, ONE), Give(KEY, TWO), Give(KEY, ONE)]
    assert KEY not in pulls


def test_no_room_is_told_to_all(pulls: Pulls) -> None:
    pulls.on_wanted(KEY, 10, SOURCE, ONE, ROOT)
    pulls.on_wanted(KEY, 10, SOURCE, TWO, ROOT)
    pulls.take_commands()
    pulls.on_no_room(KEY, "full")
    refused = [Refuse(KEY, waiter, Cause.FULL, "full") for waiter in (ONE, TWO)]
    assert pulls.take_commands() == [Discard(KEY), *refused]


def test_source_that_breaks_is_tried_again_after_pauses(pulls: Pulls) -> None:
    begin(pulls)
    fetches = []
    for _ in range(MOST_ATTEMPTS):
        fetches += [command for command in pulls.take_commands() if isinstance(command, Fetch)]
        pulls.on_failed(KEY, "broken", is_final=False)
    assert fetches == [Fetch(KEY, SOURCE, pause) for pause in PAUSES]
    assert pulls.take_commands() == [Discard(KEY), Refuse(KEY, ONE, Cause.LOST, "broken")]


def test_source_that_was_given_up_gets_one_attempt_until_it_is_heard_of(pulls: Pulls) -> None:
    second, third = (ROOT, 8, 1), (ROOT, 9, 1)
    begin(pulls)
    for _ in range(MOST_ATTEMPTS):
        pulls.on_failed(KEY, "broken", is_final=False)
    pulls.take_commands()
    begin(pulls, second)
    pulls.on_failed(second, "broken", is_final=False)
    assert Refuse(second, ONE, Cause.LOST, "broken") in pulls.take_commands()
    begin(pulls, second)
    pulls.on_arrived(second)
    begin(pulls, third)
    pulls.on_failed(third, "broken", is_final=False)
    assert pulls.take_commands()[-1] == Fetch(third, SOURCE, PAUSES[1])


def test_source_that_gives_something_each_time_is_not_given_up(pulls: Pulls) -> None:
    begin(pulls)
    for _ in range(3 * MOST_ATTEMPTS):
        pulls.on_progress(KEY)
        pulls.on_failed(KEY, "broken", is_final=False)
    assert KEY in pulls


def test_source_without_the_object_is_not_asked_again(pulls: Pulls) -> None:
    begin(pulls)
    pulls.take_commands()
    pulls.on_failed(KEY, "no copy", is_final=True)
    assert pulls.take_commands() == [Discard(KEY), Refuse(KEY, ONE, Cause.LOST, "no copy")]


def test_busy_source_is_asked_again_when_those_it_names_fail(pulls: Pulls) -> None:
    begin(pulls)
    pulls.on_sent_on(KEY, (OTHER, ME, THIRD))
    pulls.on_failed(KEY, "dropped it", is_final=True)
    pulls.on_failed(KEY, "dropped it", is_final=True)
    pulls.on_sent_on(KEY, (OTHER,))
    asked = [command.source for command in pulls.take_commands() if isinstance(command, Fetch)]
    assert asked == [SOURCE, OTHER, THIRD, SOURCE, SOURCE]


def test_source_that_has_gone_is_left_for_the_next(pulls: Pulls) -> None:
    begin(pulls)
    pulls.on_sent_on(KEY, (OTHER, THIRD))
    pulls.take_commands()
    pulls.on_source_gone(SOURCE)
    assert pulls.take_commands() == []
    pulls.on_source_gone(OTHER)
    assert pulls.take_commands() == [Stop(KEY), Fetch(KEY, THIRD, 0.0)]
    pulls.on_source_gone(THIRD)
    assert pulls.take_commands() == [Stop(KEY), Discard(KEY),
                                     Refuse(KEY, ONE, Cause.LOST, "the node that had it has gone")]  # fmt: skip


def test_what_a_client_had_at_a_node_goes_with_its_session(pulls: Pulls) -> None:
    waits, elsewhere, of_another = (ROOT, 8, 1), (ROOT, 9, 1), (2, 1, 1)
    begin(pulls)
    pulls.on_wanted(waits, 10, SOURCE, TWO, ROOT)
    begin(pulls, elsewhere)
    pulls.on_sent_on(elsewhere, (OTHER,))
    pulls.on_wanted(of_another, 10, SOURCE, ONE, 2)
    pulls.on_room(of_another)
    pulls.take_commands()
    pulls.on_session_lost(SOURCE, ROOT)
    lost = "the session with the node that had it was lost"
    assert pulls.take_commands() == [
        Discard(waits), Refuse(waits, TWO, Cause.LOST, lost),
        Stop(KEY), Discard(KEY), Refuse(KEY, ONE, Cause.LOST, lost),
    ]  # fmt: skip
    pulls.on_failed(elsewhere, "dropped it", is_final=True)
    assert pulls.take_commands() == [Discard(elsewhere), Refuse(elsewhere, ONE, Cause.LOST, "dropped it")]
    assert of_another in pulls


def test_node_that_may_have_a_copy_is_asked_when_the_maker_fails(pulls: Pulls) -> None:
    pulls.on_wanted(KEY, 10, SOURCE, ONE, ROOT, OTHER)
    pulls.on_wanted((ROOT, 8, 0), 10, SOURCE, ONE, ROOT, ME)
    for key in (KEY, (ROOT, 8, 0)):
        pulls.on_room(key)
        pulls.on_failed(key, "no copy", is_final=True)
    asked = [(command.key, command.source) for command in pulls.take_commands() if isinstance(command, Fetch)]
    assert asked == [(KEY, SOURCE), (KEY, OTHER), ((ROOT, 8, 0), SOURCE)]


def test_thousands_that_wait_for_a_node_that_has_gone_are_refused(pulls: Pulls) -> None:
    for seq in range(5000):
        begin(pulls, (ROOT, seq, 0))
    pulls.take_commands()
    pulls.on_source_gone(SOURCE)
    refused = [command for command in pulls.take_commands() if isinstance(command, Refuse)]
    assert len(refused) == 5000


def test_what_somebody_waits_for_goes_before_what_is_ahead(pulls: Pulls) -> None:
    keys = [(ROOT, seq, 0) for seq in range(MOST_TRANSFERS + 3)]
    for key in keys[:-1]:
        begin(pulls, key, waiter=None)
    begin(pulls, keys[-1])
    pulls.on_wanted(keys[-2], 10, SOURCE, TWO, ROOT)
    assert len([c for c in pulls.take_commands() if isinstance(c, Fetch)]) == MOST_TRANSFERS
    pulls.on_arrived(keys[0])
    pulls.on_arrived(keys[1])
    begun = [c.key for c in pulls.take_commands() if isinstance(c, Fetch)]
    assert begun == [keys[-1], keys[-2]]


def test_pull_ahead_without_room_ends_quietly(pulls: Pulls) -> None:
    pulls.on_wanted(KEY, 10, SOURCE, None, ROOT)
    assert pulls.take_commands() == [Reserve(KEY, 10, True)]
    pulls.on_no_room(KEY, "full")
    assert pulls.take_commands() == [Discard(KEY)]


def test_waiter_that_ended_gets_nothing_and_the_rest_goes_on(pulls: Pulls) -> None:
    begin(pulls)
    pulls.on_waiter_gone(ONE)
    assert KEY in pulls
    pulls.take_commands()
    pulls.on_arrived(KEY)
    assert pulls.take_commands() == [Keep(KEY, ROOT)]


def test_what_only_one_that_ended_wanted_is_not_begun(pulls: Pulls) -> None:
    pulls.on_wanted(KEY, 10, SOURCE, ONE, ROOT)
    pulls.take_commands()
    pulls.on_waiter_gone(ONE)
    assert pulls.take_commands() == [Discard(KEY)]


@pytest.mark.parametrize("event", ["freed", "root"])
def test_nobody_gets_what_was_let_go(pulls: Pulls, event: str) -> None:
    begin(pulls)
    pulls.take_commands()
    if event == "freed":
        pulls.on_freed(KEY)
    else:
        pulls.on_root_gone(ROOT)
    stop, discard, refuse = pulls.take_commands()
    assert (stop, discard) == (Stop(KEY), Discard(KEY))
    assert isinstance(refuse, Refuse) and refuse.cause is Cause.LOST


SEQS = st.integers(1, 12)
NODES = st.integers(2, 6)
WAITERS = st.integers(200, 203)


class PullsWalk(RuleBasedStateMachine):
    """Whatever happens, each question is answered exactly once, unless its asker has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.pulls = Pulls(ME)
        self.questions: list[tuple[tuple[int, int, int], int]] = []
        self.reserving: set[tuple[int, int, int]] = set()
        self.rooms: set[tuple[int, int, int]] = set()
        self.moving: dict[tuple[int, int, int], int] = {}

    def settle(self) -> None:
        for command in self.pulls.take_commands():
            match command:
                case Reserve(key):
                    self.reserving.add(key)
                case Fetch(key, source):
                    assert key in self.rooms and key not in self.moving and source != ME
                    self.moving[key] = source
                case Stop(key):
                    del self.moving[key]
                case Discard(key) | Keep(key):
                    assert key not in self.moving
                    self.reserving.discard(key)
                    self.rooms.discard(key)
                case Give(key, waiter) | Refuse(key, waiter):
                    self.questions.remove((key, waiter))

    @rule(seq=SEQS, source=NODES, waiter=WAITERS | st.none())
    def want(self, seq: int, source: int, waiter: int | None) -> None:
        key = (ROOT, seq, 0)
        if waiter is not None:
            self.questions.append((key, waiter))
        self.pulls.on_wanted(key, 10, source, waiter, ROOT)
        self.settle()

    @rule(choice=st.integers(0, 20), found=st.booleans())
    def reserve(self, choice: int, found: bool) -> None:
        if self.reserving:
            key = sorted(self.reserving)[choice % len(self.reserving)]
            self.reserving.remove(key)
            if found:
                self.rooms.add(key)
                self.pulls.on_room(key)
            else:
                self.pulls.on_no_room(key, "full")
            self.settle()

    @rule(choice=st.integers(0, 20), how=st.integers(0, 5), named=st.lists(st.integers(1, 6), min_size=1, max_size=3))
    def move(self, choice: int, how: int, named: list[int]) -> None:
        if not self.moving:
            return
        key = sorted(self.moving)[choice % len(self.moving)]
        if how == 5:
            self.pulls.on_progress(key)
            return
        del self.moving[key]
        if how == 0:
            self.pulls.on_sent_on(key, tuple(named))
        elif how == 1:
            self.pulls.on_arrived(key)
        else:
            self.pulls.on_failed(key, "broken", is_final=how == 2)
        self.settle()

    @rule(waiter=WAITERS)
    def die(self, waiter: int) -> None:
        self.questions = [question for question in self.questions if question[1] != waiter]
        self.pulls.on_waiter_gone(waiter)
        self.settle()

    @rule(node=NODES)
    def lose_session(self, node: int) -> None:
        self.pulls.on_session_lost(node, ROOT + 1)
        assert not self.pulls.take_commands(), "what another client waits for was touched"
        self.pulls.on_session_lost(node, ROOT)
        self.settle()
        assert node not in self.moving.values()

    @rule(node=NODES)
    def lose_node(self, node: int) -> None:
        self.pulls.on_source_gone(node)
        self.settle()
        assert node not in self.moving.values()

    @rule(seq=SEQS)
    def free(self, seq: int) -> None:
        self.pulls.on_freed((ROOT, seq, 0))
        self.settle()
        assert all(key[1] != seq for key, _ in self.questions)

    @invariant()
    def holds(self) -> None:
        self.pulls.check()
        assert all(key in self.pulls for key, _ in self.questions)

    def teardown(self) -> None:
        self.pulls.on_root_gone(ROOT)
        self.settle()
        assert not self.questions and not self.rooms and not self.moving and not self.reserving


PullsWalk.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestPullsWalk = PullsWalk.TestCase

"""When a task lends its CPUs, asks for them, and has them again."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import integers

from outboard.lending import Lending, State


def test_one_wait_lends_and_its_end_asks_back() -> None:
    lending = Lending()
    assert lending.begin("a") and lending.state is State.LENT
    assert lending.end("a") and lending.state is State.ASKED
    assert not lending.on_resumed() and lending.state is State.HELD and not lending.is_lent


def test_the_last_of_several_waits_asks_back() -> None:
    lending = Lending()
    assert lending.begin("a") and not lending.begin("b")
    assert not lending.end("a") and lending.state is State.LENT
    assert lending.end("b")


def test_wait_that_begins_while_the_cpus_are_asked_for_lends_them_again() -> None:
    lending = Lending()
    assert lending.begin("a") and lending.end("a")
    assert not lending.begin("b")
    assert lending.on_resumed() and lending.state is State.LENT
    assert lending.end("b") and not lending.on_resumed()


def test_waits_of_a_task_that_has_ended_mean_nothing() -> None:
    lending = Lending()
    assert lending.begin("old") and lending.end_all() and not lending.on_resumed()
    assert not lending.end("old")
    assert lending.begin("new") and not lending.end("old") and lending.state is State.LENT


class AnyOrder(RuleBasedStateMachine):
    """What is told to the node alternates, and says whether anything waits as soon as nothing is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.lending = Lending()
        self.waits: set[int] = set()
        self.told: list[str] = []

    def tell(self, is_due: bool, word: str) -> None:
        if is_due:
            self.told.append(word)

    @rule(wait=integers(0, 3))
    def begin(self, wait: int) -> None:
        self.waits.add(wait)
        self.tell(self.lending.begin(wait), "blocked")

    @rule(wait=integers(0, 3))
    def end(self, wait: int) -> None:
        self.waits.discard(wait)
        self.tell(self.lending.end(wait), "unblock")

    @rule()
    def end_all(self) -> None:
        self.waits.clear()
        self.tell(self.lending.end_all(), "unblock")

    @precondition(lambda self: self.told[-1:] == ["unblock"])
    @rule()
    def resume(self) -> None:
        self.told.append("resume")
        self.tell(self.lending.on_resumed(), "blocked")

    @invariant()
    def words_follow_each_other(self) -> None:
        cycle = ("blocked", "unblock", "resume")
        assert all(word == cycle[at % 3] for at, word in enumerate(self.told))
        state = self.lending.state
        assert state is {"blocked": State.LENT, "unblock": State.ASKED}.get((self.told or ["resume"])[-1], State.HELD)
        assert self.lending.is_lent == (state is not State.HELD)
        assert state is State.ASKED or (state is State.LENT) == bool(self.waits)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=100, deadline=None)

"""Names of actors: which of two claims stands, what is remembered, what is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from outboard.scheduler import naming as module
from outboard.scheduler.cluster_commands import (
    KillActor,
    NameAnswer,
    NameClaim,
    NameEntry,
    NameGranted,
    NameRefused,
    TryLater,
)
from outboard.scheduler.naming import Naming

pytestmark = pytest.mark.timeout(10)

A, B = 0xA, 0xB


class Names:
    """The table; each call returns what it ordered, and the invariants hold after it."""

    def __init__(self) -> None:
        self.commands: list[Any] = []
        self.counts: Counter[str] = Counter()
        self.naming = Naming(self.commands, self.counts)

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> list[Any]:
            getattr(self.naming, name)(*args)
            self.naming.check()
            commands = self.commands[:]
            self.commands.clear()
            return commands

        return call

    def find(self, name: str = "counter") -> NameEntry | None:
        [answer] = self.look_up(A, 99, "default", name)
        assert isinstance(answer, NameAnswer)
        return answer.entry


def claim(name: str = "counter", incarnation: int = 1, **changes: Any) -> NameClaim:
    return NameClaim("default", name, 77, incarnation, b"record")._replace(**changes)


@pytest.fixture
def starting() -> Names:
    return Names()


@pytest.fixture
def names(starting: Names) -> Iterator[Names]:
    starting.start_answering()
    yield starting
    starting.naming.check()


def test_name_is_granted_once(names: Names) -> None:
    assert names.claim(A, 1, claim()) == names.claim(A, 1, claim()) == [NameGranted(A, 1)]
    entry = NameEntry(claim(), A)
    assert names.claim(B, 1, claim(owner=78)) == [NameRefused(B, 1, "the name is taken", entry)]
    assert names.claim(B, 2, claim()) == [NameRefused(B, 2, "the name is taken", entry)]
    assert names.look_up(B, 3, "default", "counter") == [NameAnswer(B, 3, entry)]
    assert names.look_up(B, 4, "other", "counter") == [NameAnswer(B, 4, None)]


def test_of_two_claims_the_higher_incarnation_stays(names: Names) -> None:
    names.claim(A, 1, claim(incarnation=2))
    assert names.claim(B, 1, claim(incarnation=1))[0].reason == "the name is taken"
    assert names.claim(B, 2, claim(incarnation=3)) == [KillActor(A, "default", "counter", 77, 2), NameGranted(B, 2)]
    assert names.find() == NameEntry(claim(incarnation=3), B)


def test_reported_actor_whose_name_is_taken_is_killed(names: Names) -> None:
    names.report(A, [claim(incarnation=5)])
    other = claim("other")
    assert names.report(B, [claim(incarnation=4, owner=78), other]) == [KillActor(B, "default", "counter", 78, 4)]
    assert names.find("other") == NameEntry(other, B)


def test_two_actors_of_one_node_with_one_name_do_not_both_live(names: Names) -> None:
    reported = names.report(A, [claim(incarnation=1), claim(owner=78, incarnation=2)])
    assert reported == [KillActor(A, "default", "counter", 77, 1)]


def test_name_that_is_not_reported_any_more_is_free(names: Names) -> None:
    names.claim(A, 1, claim())
    names.claim(A, 2, claim("other"))
    assert names.report(A, [claim("other")]) == []
    assert names.find() is None and names.find("other") is not None


def test_late_release_frees_nothing(names: Names) -> None:
    names.claim(A, 1, claim(incarnation=1))
    names.claim(B, 1, claim(incarnation=2))
    for late in ((A, 77, 1), (A, 77, 2), (B, 78, 2), (B, 77, 1)):
        names.release(late[0], "default", "counter", *late[1:])
    assert names.counts["late_released"] == 4 and names.find() == NameEntry(claim(incarnation=2), B)
    names.release(B, "default", "counter", 77, 2)
    assert names.find() is None


def test_detached_actor_is_remembered_without_its_node(names: Names) -> None:
    detached = claim("kept", is_detached=True)
    names.claim(B, 1, claim())
    names.claim(B, 2, detached)
    names.drop_node(B)
    assert names.find() is None and names.find("kept") == NameEntry(detached, 0)
    assert isinstance(names.claim(A, 3, detached)[0], NameRefused)
    assert names.claim(A, 4, detached._replace(incarnation=2)) == [NameGranted(A, 4)]


def test_detached_actor_without_a_node_is_given_up_by_anybody(names: Names) -> None:
    names.claim(B, 1, claim(is_detached=True))
    names.drop_node(B)
    names.release(A, "default", "counter", 77, 1)
    assert names.find() is None


def test_nobody_is_answered_before_the_nodes_are_back(starting: Names) -> None:
    assert starting.look_up(A, 1, "default", "counter") == []
    assert starting.claim(B, 1, claim()) == []
    assert starting.look_up(A, 2, "default", "counter") == []
    starting.report(A, [claim("other")])
    assert starting.look_up(A, 3, "default", "other") == []  # a higher incarnation may still be reported
    entry = NameEntry(claim(), B)
    assert starting.start_answering() == [
        NameAnswer(A, 1, None),
        NameGranted(B, 1),
        NameAnswer(A, 2, entry),
        NameAnswer(A, 3, NameEntry(claim("other"), A)),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "x" * 256},
        {"namespace": "x" * 256},
        {"record": bytes(module.RECORD_NBYTES + 1)},
        {"owner": 0},
        {"incarnation": 1 << 64},
    ],
)
def test_malformed_claim_is_refused(names: Names, changes: dict[str, Any]) -> None:
    [refused] = names.claim(A, 1, claim()._replace(**changes))
    assert isinstance(refused, NameRefused) and refused.holder is None
    assert names.report(A, [claim()._replace(**changes)]) == []
    assert names.counts["unfiled_report"] == 1


def test_names_and_records_are_bounded(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMES", 2)
    monkeypatch.setattr(module, "RECORDS_NBYTES", 20)
    full = "the table of names is full"
    assert names.claim(A, 1, claim("a")) == [NameGranted(A, 1)]
    assert names.claim(A, 2, claim("b", record=bytes(15))) == [NameRefused(A, 2, full, None)]
    killed, granted = names.claim(A, 3, claim("a", 2, record=bytes(20)))
    assert killed == KillActor(A, "default", "a", 77, 1) and granted == NameGranted(A, 3)
    assert names.claim(A, 4, claim("b", record=b"")) == [NameGranted(A, 4)]
    assert names.claim(A, 5, claim("c", record=b"")) == [NameRefused(A, 5, full, None)]
    assert names.report(B, [claim("c")]) == [] and names.counts["unfiled_report"] == 1


def test_requests_that_wait_are_bounded(starting: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING", 2)
    monkeypatch.setattr(module, "RECORDS_NBYTES", 20)
    assert starting.claim(A, 1, claim(record=bytes(15))) == []
    assert starting.claim(A, 2, claim("b", record=bytes(6))) == [TryLater(A, 2)]
    assert starting.look_up(A, 3, "default", "b") == starting.look_up(A, 3, "default", "b") == []
    assert starting.look_up(A, 4, "default", "b") == [TryLater(A, 4)]
    starting.forget_requests(A)
    assert starting.naming.waiting == 0 and starting.look_up(A, 5, "default", "b") == []

"""Gangs and the head's machine as a whole: hosts, lost nodes, starts."""

from __future__ import annotations

import pytest

from outboard.ids import RESOURCE_UNIT as UNIT
from outboard.scheduler.gang_placing import Strategy
from outboard.scheduler.gang_words import (
    ConfirmBundles,
    GangBroken,
    GangReady,
    GangRefused,
    GangsTold,
    PrepareBundles,
    ReleaseBundles,
    Report,
    Wish,
)
from outboard.scheduler.resources import Demand

from .test_cluster import PYTHON, A, B, Head, info

pytestmark = pytest.mark.timeout(10)

TWO = Demand(2 * UNIT, 0, ())
GANG = Wish(7, (TWO, TWO), Strategy.PACK, PYTHON)


@pytest.fixture
def head() -> Head:
    return Head()


def prepare_gang(head: Head) -> int:
    """Let a gang be ready on nodes A and B; return its attempt."""
    head.join(A, B)
    [to_a, to_b] = head.say("gang_wanted", A, GANG)
    attempt: int = to_a.attempt
    assert [to_a, to_b] == [PrepareBundles(A, 7, attempt, {0: TWO}), PrepareBundles(B, 7, attempt, {1: TWO})]
    assert head.say("bundles_prepared", A, 7, attempt) == []
    assert head.say("bundles_prepared", B, 7, attempt) == [ConfirmBundles(n, 7, attempt) for n in (A, B)]
    assert head.say("bundles_confirmed", B, 7, attempt) == []
    assert head.say("bundles_confirmed", A, 7, attempt) == [GangReady(A, 7, (A, B))]
    return attempt


def test_gang_is_prepared_on_hosts_and_breaks_with_one(head: Head) -> None:
    attempt = prepare_gang(head)
    assert GangBroken(A, 7, B) in head.say("link_refused", B)
    assert head.say("gang_released", A, 7) == [ReleaseBundles(A, 7, attempt)]


def test_gang_that_no_host_could_have_is_refused(head: Head) -> None:
    head.join(A, info(B, python="3.12"))
    assert head.say("gang_wanted", A, GANG) == [GangRefused(A, 7, ({"CPU": 2 * UNIT},))]


def test_gang_that_is_short_of_a_host_is_looked_at_again_in_time(head: Head) -> None:
    prepare_gang(head)
    assert head.say("gang_wanted", A, GANG._replace(gang=8)) == []
    assert not any(isinstance(c, PrepareBundles) for c in head.run(3.0, beating=(A, B)))
    prepared = head.say("gang_released", A, 7)
    assert [c.node for c in prepared if isinstance(c, PrepareBundles)] == [A, B]


def test_restarted_head_takes_up_a_gang_whose_bundles_are_all_there(head: Head) -> None:
    attempt = prepare_gang(head)
    later = head.restart()
    of_a = GangsTold((Report(7, attempt, frozenset({0})),), (GANG._replace(was_ready=True),))
    assert not any(isinstance(c, ConfirmBundles) for c in later.register(A, is_return=True, epoch=1, gangs=of_a))
    of_b = GangsTold((Report(7, attempt, frozenset({1})),))
    again = later.register(B, is_return=True, epoch=1, gangs=of_b)
    assert [c for c in again if isinstance(c, ConfirmBundles)] == [ConfirmBundles(n, 7, attempt) for n in (A, B)]

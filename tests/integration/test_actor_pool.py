"""Pools of actors: calls in turn, results in order or as they come."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

import outboard
from outboard.util import ActorPool


class Doubler:
    """Doubles, after a while if need be."""

    def double(self, x: int) -> int:
        return 2 * x

    def later(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    def invert(self, x: int) -> float:
        return 1 / x


def double(actor: Any, x: int) -> Any:
    return actor.double.remote(x)


def later(actor: Any, seconds: float) -> Any:
    return actor.later.remote(seconds)


def invert(actor: Any, x: int) -> Any:
    return actor.invert.remote(x)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    outboard.init(num_cpus=2)
    yield
    outboard.shutdown()


@pytest.fixture
def pool() -> ActorPool:
    """Two actors."""
    return ActorPool([outboard.remote(Doubler).remote() for _ in range(2)])


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_map_gives_results_in_order(pool: ActorPool, count: int) -> None:
    assert list(pool.map(double, range(count))) == [2 * x for x in range(count)]
    assert sorted(pool.map_unordered(double, range(count))) == [2 * x for x in range(count)]
    assert not pool.has_next() and pool.has_free()


def test_values_are_drawn_as_actors_become_free(pool: ActorPool) -> None:
    drawn = itertools.count()
    assert list(itertools.islice(pool.map(double, drawn), 5)) == [0, 2, 4, 6, 8]
    assert next(drawn) <= 8
    assert list(pool.map(double, range(3))) == [0, 2, 4]  # what is left of the first is thrown away


def test_unordered_results_come_as_they_end(pool: ActorPool) -> None:
    assert list(pool.map_unordered(later, [0.4, 0.0, 0.01])) == [0.0, 0.01, 0.4]


def test_submitted_calls_wait_for_a_free_actor(pool: ActorPool) -> None:
    for x in range(4):
        pool.submit(double, x)
    assert pool.has_next() and not pool.has_free() and pool.pop_idle() is None
    assert [pool.get_next() for _ in range(4)] == [0, 2, 4, 6]
    with pytest.raises(StopIteration):
        pool.get_next()


def test_both_orders_do_not_mix(pool: ActorPool) -> None:
    for x in range(3):
        pool.submit(double, x)
    pool.get_next_unordered()
    with pytest.raises(ValueError, match="cannot follow get_next_unordered"):
        pool.get_next()
    for _ in range(2):
        pool.get_next_unordered()
    pool.submit(double, 7)
    assert pool.get_next() == 14


@pytest.mark.parametrize("take", [ActorPool.get_next, ActorPool.get_next_unordered])
def test_a_result_that_takes_too_long_can_be_given_up(pool: ActorPool, take: Any) -> None:
    pool.submit(later, 0.3)
    for impatient in (ActorPool.get_next_unordered, ActorPool.get_next):
        with pytest.raises(TimeoutError, match="no result within"):
            impatient(pool, timeout=0.01)
    assert pool.has_next()
    with pytest.raises(TimeoutError, match="given up"):
        take(pool, timeout=0.01, ignore_if_timedout=True)
    assert not pool.has_next()
    pool.submit(double, 4)
    assert take(pool) == 8


def test_a_call_that_raises_frees_its_actor(pool: ActorPool) -> None:
    with pytest.raises(ZeroDivisionError):
        list(pool.map(invert, [1, 0, 2]))
    assert list(pool.map(invert, [1, 2, 4])) == [1.0, 0.5, 0.25]


def test_what_makes_no_call_fails_in_its_place(pool: ActorPool) -> None:
    with pytest.raises(TypeError, match="must return the reference of a call"):
        pool.submit(lambda actor, x: x, 1)
    for x in range(2):
        pool.submit(double, x)
    pool.submit(lambda actor, x: x, 2)
    pool.submit(double, 3)
    assert [pool.get_next() for _ in range(2)] == [0, 2]
    with pytest.raises(TypeError):
        pool.get_next()
    assert pool.get_next() == 6


def test_actors_come_and_go(pool: ActorPool) -> None:
    actor = pool.pop_idle()
    with pytest.raises(ValueError, match="belongs to the pool already"):
        pool.push(pool._idle[0])
    pool.submit(later, 0.2)
    pool.submit(double, 1)  # waits
    pool.push(actor)
    assert pool.get_next_unordered() == 2
    assert pool.get_next_unordered() == 0.2

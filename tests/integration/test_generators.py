"""Generators as tasks and methods: references in order, as they are made, and no further ahead than agreed."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import outboard
from outboard import errors
from outboard.generators import AHEAD
from tests.faults.conftest import eventually

__all__ = ["eventually"]


@outboard.remote
def count(most: int, fails_at: int = -1) -> Iterator[int]:
    for number in range(most):
        if number == fails_at:
            raise KeyError(number)
        yield number


@outboard.remote
def show(path: Any) -> Iterator[int]:
    """Goes on for ever, and says how far it is."""
    number = 0
    while True:
        path.write_text(f"{os.getpid()} {number}")
        yield number
        number += 1


class Source:
    """Has generators, and other methods."""

    def __init__(self) -> None:
        self.at = -1

    def upto(self, most: int) -> Iterator[int]:
        for self.at in range(most):
            yield self.at

    def where(self) -> int:
        return self.at


class AsyncSource:
    """The same in an event loop."""

    async def upto(self, most: int) -> Any:
        for number in range(most):
            await asyncio.sleep(0.001)
            yield number


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    outboard.init(num_cpus=1)
    yield
    outboard.shutdown()


def values(refs: Any) -> list[Any]:
    return [outboard.get(ref, timeout=20) for ref in refs]


def test_references_come_in_order_and_the_last_one_may_be_an_error() -> None:
    made = count.remote(20)
    assert outboard.get(made) is made
    assert values(made) == list(range(20)) and list(made) == []
    refs = list(count.remote(5, fails_at=3))
    assert values(refs[:3]) == [0, 1, 2] and len(refs) == 4
    with pytest.raises(KeyError):
        outboard.get(refs[3], timeout=20)
    with pytest.raises(TypeError):
        values(count.remote("no number"))
    with pytest.raises(errors.SerializationError, match="pass the references"):
        outboard.put(count.remote(1))


def test_the_first_comes_before_the_last_is_made_and_none_far_ahead(
    tmp_path: Any, eventually: Callable[..., Any]
) -> None:
    path = tmp_path / "at"
    made = show.remote(path)
    assert values([next(made) for _ in range(3)]) == [0, 1, 2]
    eventually(lambda: path.read_text().endswith(str(2 + AHEAD)), within=10)
    pid = int(path.read_text().split()[0])
    del made
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), within=10)
    assert path.read_text() == f"{pid} {2 + AHEAD}"


def test_a_closed_or_cancelled_generator_is_over() -> None:
    made = count.remote(10**9)
    kept = next(made)
    outboard.cancel(made)
    assert list(made) == [] and outboard.get(kept, timeout=20) == 0


def test_who_waits_for_several_hears_of_the_generator_that_has_something(tmp_path: Path) -> None:
    @outboard.remote(num_cpus=0)
    def numbers(gate: Path, count: int) -> Iterator[int]:
        for number in range(count):
            while not gate.exists():
                time.sleep(0.01)
            yield number

    (tmp_path / "open").touch()
    shut, opened = numbers.remote(tmp_path / "shut", 1), numbers.remote(tmp_path / "open", 1)
    ref = outboard.put(0)
    assert outboard.wait([shut, opened], timeout=20) == ([opened], [shut])
    assert outboard.wait([shut, ref]) == ([ref], [shut])
    assert outboard.get(next(opened)) == 0, "what was waited for is still the next one"
    assert outboard.wait([shut, opened], timeout=20) == ([opened], [shut]), "its end is ready, too"
    assert list(opened) == [] and outboard.wait([opened, shut]) == ([opened], [shut])
    assert outboard.wait([shut], timeout=0.05) == ([], [shut])
    with pytest.raises(ValueError, match="once"):
        outboard.wait([shut, shut])
    (tmp_path / "shut").touch()
    assert outboard.wait([shut], timeout=20) == ([shut], [])


def test_a_method_yields_between_the_other_calls() -> None:
    source = outboard.remote(Source).remote()
    made = source.upto.remote(1000)
    assert outboard.get(next(made), timeout=20) == 0
    assert 0 <= outboard.get(source.where.remote(), timeout=20) <= AHEAD + 1
    other = source.upto.remote(3)
    assert values(other) == [0, 1, 2] and values(made) == list(range(1, 1000))
    begun = source.upto.options(num_returns="streaming").remote(10)
    begun.close()
    assert list(begun) == []
    with pytest.raises(ValueError, match='"dynamic" is for tasks'):
        source.upto.options(num_returns="dynamic")


def test_event_loops_on_both_sides() -> None:
    source = outboard.remote(AsyncSource).remote()
    assert values(source.upto.remote(5)) == [0, 1, 2, 3, 4]

    async def take(refs: Any) -> list[int]:
        return [await ref async for ref in refs]

    async def both() -> list[list[int]]:
        return await asyncio.gather(take(source.upto.remote(5)), take(count.remote(5)))

    assert asyncio.run(both()) == [[0, 1, 2, 3, 4]] * 2


def test_all_at_the_end_as_one_list() -> None:
    refs = outboard.get(count.options(num_returns="dynamic").remote(4), timeout=20)
    assert values(refs) == [0, 1, 2, 3]

    @outboard.remote(num_returns="dynamic")
    def parts() -> Any:
        yield from (b"x" * 200_000, "small")

    assert list(map(len, values(outboard.get(parts.remote(), timeout=20)))) == [200_000, 5]


def test_a_producer_that_dies_ends_its_stream_with_the_reason() -> None:
    @outboard.remote
    def die() -> Iterator[int]:
        yield 1
        time.sleep(0.1)
        os._exit(3)

    refs = list(die.remote())
    assert outboard.get(refs[0], timeout=20) == 1 and len(refs) == 2
    with pytest.raises(errors.ActorDiedError, match="exit code 3"):
        outboard.get(refs[1], timeout=20)


def test_tasks_take_from_generators() -> None:
    @outboard.remote
    def total() -> int:
        return sum(values(count.remote(10)))

    assert outboard.get(total.remote(), timeout=20) == 45


def test_arguments_that_do_not_pickle_are_told_at_the_call() -> None:
    with pytest.raises(errors.SerializationError, match=r"generator .*count: its function or its arguments cannot"):
        count.remote(threading.Lock())

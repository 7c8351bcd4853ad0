"""Parallel iterators: order, state, sharing, errors at their place, and no actor left behind."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import outboard
from outboard import errors
from outboard.util import iter as it
from tests.faults.conftest import eventually

__all__ = ["eventually"]


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    outboard.init(num_cpus=2)
    yield
    outboard.shutdown()


class CumulativeSum:
    """Remembers what it has seen."""

    def __init__(self) -> None:
        self.total = 0

    def __call__(self, number: int) -> tuple[int, int]:
        self.total += number
        return self.total, number


def test_items_are_dealt_and_ranges_cut_into_blocks() -> None:
    assert list(it.from_items([1, 2, 3, 4, 5], num_shards=2).gather_sync()) == [1, 2, 3, 4, 5]
    assert [list(shard) for shard in it.from_range(7, num_shards=3).shards()] == [[0, 1], [2, 3], [4, 5, 6]]
    both = it.from_iterators([range(3), lambda: iter("ab")])
    assert list(both.batch_across_shards()) == [[0, "a"], [1, "b"], [2]]
    assert it.from_range(3, 1, repeat=True).take(7) == [0, 1, 2, 0, 1, 2, 0]
    assert list(it.from_items([], 2, repeat=True).gather_async()) == []
    assert it.from_range(9, 4).num_shards() == 4 and "from_range[9, shards=4]" in repr(it.from_range(9, 4))


def test_transformations_run_in_the_shards_in_order() -> None:
    numbers = it.from_range(100, num_shards=1)
    assert numbers.for_each(lambda x: x**2).filter(lambda x: x % 2 == 0).batch(3).take(2) == [[0, 4, 16], [36, 64, 100]]
    assert numbers.batch(40).flatten().take(3) == [0, 1, 2]
    assert numbers.combine(lambda x: [x] * 2).take(4) == [0, 0, 1, 1]
    assert numbers.transform(lambda items: (x + 1 for x in items)).take(2) == [1, 2]
    assert numbers.for_each(lambda x: x + 1, max_concurrency=2, resources={"num_cpus": 1}).take(3) == [1, 2, 3]
    shuffled = list(numbers.local_shuffle(10, seed=1).gather_sync())
    assert shuffled != list(range(100)) and sorted(shuffled) == list(range(100))
    sums = it.from_range(5, 1).for_each(CumulativeSum())
    for _ in range(2):
        assert list(sums.gather_sync()) == [(0, 0), (1, 1), (3, 2), (6, 3), (10, 4)], "each reading has its own state"


def test_gathering_in_turn_and_as_they_come() -> None:
    numbers = it.from_range(1000, num_shards=4)
    assert numbers.gather_sync().take(5) == [0, 250, 500, 750, 1]
    assert sorted(numbers.gather_async(batch_ms=1, num_async=2)) == list(range(1000))
    local = it.from_range(50, 1).gather_sync()
    assert local.take(5) == [0, 1, 2, 3, 4] and local.take(2) == [5, 6], "it goes on where it was"
    assert local.filter(lambda x: x % 2 == 0).take(3) == [0, 2, 4], "what is made from it begins anew"
    one, two = it.from_items(list(range(4)), 2).gather_sync().duplicate(2)
    assert list(one) == list(two) == [0, 1, 2, 3]
    pairs = it.from_items(list("ab"), 2).gather_sync().zip_with_source_actor().take(2)
    assert [item for _, item in pairs] == ["a", "b"] and pairs[0][0] != pairs[1][0]
    tens = numbers.gather_sync().for_each(lambda x: -x)
    assert it.from_range(4, 1).gather_sync().union(tens, round_robin_weights=[2, 1]).take(6) == [0, 1, 0, 2, 3, -250]


def test_shards_are_chosen_joined_and_dealt_anew() -> None:
    items = it.from_items(list(range(6)), 2)
    assert items.select_shards([1]).take(9) == [1, 3, 5]
    joined = items.union(items.for_each(lambda x: -x))
    assert joined.num_shards() == 4 and sorted(joined.gather_async()) == [-5, -4, -3, -2, -1, 0, 0, 1, 2, 3, 4, 5]
    parts = [list(shard) for shard in items.repartition(3).shards()]
    assert len(parts) == 3 and sorted(item for part in parts for item in part) == list(range(6))


def test_shards_and_whole_iterators_are_read_by_tasks() -> None:
    numbers = it.from_range(1000, num_shards=3)

    @outboard.remote
    def total(items: Any) -> int:
        return sum(items)

    assert sum(outboard.get([total.remote(shard) for shard in numbers.shards()], timeout=20)) == sum(range(1000))
    assert outboard.get(total.remote(numbers.batch(10).flatten().gather_async()), timeout=20) == sum(range(1000))


def test_an_error_comes_at_its_place() -> None:
    def picky(number: int) -> int:
        if number == 3:
            raise KeyError(number)
        return number

    seen = []
    with pytest.raises(KeyError):
        for number in it.from_range(9, 1).for_each(picky).gather_sync():
            seen.append(number)
    assert seen == [0, 1, 2]


def test_a_function_that_raises_stop_iteration_does_not_end_the_items() -> None:
    def ends(number: int) -> int:
        return next(iter([])) if number == 3 else number

    for items in (it.from_range(9, 1).for_each(ends), it.from_range(9, 1).filter(ends)):
        with pytest.raises(RuntimeError, match="StopIteration"):
            list(items.gather_sync())


def test_an_error_that_does_not_pickle_leaves_the_items_before_it() -> None:
    class Locked(Exception):
        def __init__(self, number: int) -> None:
            super().__init__(number, threading.Lock())

    def picky(number: int) -> int:
        if number == 3:
            raise Locked(number)
        return number

    seen = []
    with pytest.raises(errors.RemoteError, match="Locked"):
        for number in it.from_range(9, 1).for_each(picky).gather_sync():
            seen.append(number)
    assert seen == [0, 1, 2]


def test_every_reading_begins_at_the_beginning() -> None:
    parts = it.from_items(list(range(6)), 2).repartition(2)
    for _ in range(2):
        assert sorted(parts.gather_async()) == list(range(6))
    one = it.from_range(3, 1).gather_sync()
    twice = one.union(one)
    assert list(twice) == [0, 0, 1, 1, 2, 2]
    assert list(twice.for_each(lambda x: x)) == [0, 0, 1, 1, 2, 2]


def test_a_source_forgets_the_readings_of_its_parts_when_all_are_at_their_end() -> None:
    class Source(it.ParallelIteratorWorker):
        def readings(self) -> int:
            return len(self._readings)

    source = outboard.remote(Source).remote(range(2500), False)
    parts = it.from_actors([source]).repartition(3)
    for _ in range(2):
        assert sorted(parts.gather_async()) == list(range(2500))
    assert outboard.get(source.readings.remote(), timeout=20) == 0


def test_the_package_has_it_by_its_name() -> None:
    assert outboard.util.iter is it


def test_actors_of_a_class_of_ones_own_are_shards() -> None:
    class Letters(it.ParallelIteratorWorker):
        def __init__(self, letters: str) -> None:
            super().__init__(letters, repeat=False)

        def length(self) -> int:
            return len(self.item_generator)

    actors = [outboard.remote(Letters).remote(letters) for letters in ("abc", "de")]
    assert list(it.from_actors(actors).gather_sync()) == ["a", "d", "b", "e", "c"]
    assert outboard.get(actors[0].length.remote(), timeout=20) == 3
    with pytest.raises(TypeError, match="no actor of a subclass of ParallelIteratorWorker"):
        it.from_actors([object()])


def test_what_makes_no_sense_is_refused_where_it_is_written() -> None:
    items = it.from_items([1], 1)
    with pytest.raises(TypeError, match="gather_sync"):
        iter(items)
    for refused in (lambda: items.batch(0), lambda: items.get_shard(1), lambda: it.from_range(3, 0),
                    lambda: items.for_each(str, max_concurrency=0), lambda: items.repartition(0)):  # fmt: skip
        with pytest.raises(ValueError, match="not"):
            refused()


def test_nothing_is_left_of_an_iterator_that_was_dropped_half_way(eventually: Callable[..., Any]) -> None:
    def actors() -> int:
        return sum(worker["binding"] != 0 for worker in outboard.nodes()[0]["workers"])

    gc.collect()
    eventually(lambda: actors() == 0, within=10)
    endless = it.from_range(10, 2, repeat=True).gather_async()
    assert len(endless.take(100)) == 100 and actors() == 2
    del endless
    eventually(lambda: actors() == 0, within=10)

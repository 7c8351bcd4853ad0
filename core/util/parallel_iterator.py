"""Parallel iterators: shards, the transformations that run in them, and the ways of bringing items together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import getrandbits
from typing import Any, NoReturn

from .. import api
from .local_iterator import LocalIterator
from .shards import ParallelIteratorWorker, ShardReader
from .transforms import Chained, Shuffle, Transform

#: An actor, and the transformations of its items.
Shard = tuple[Any, tuple[Transform, ...]]


class ParallelIterator(Chained):
    """Items in shards. Transformations are sent to the actors and run there; nothing runs before items are taken.

    It may be passed to tasks. Its actors end with the last iterator that has them.
    """

    def __init__(self, shards: Sequence[Shard], name: str) -> None:
        self.name = name
        self._shards = list(shards)

    def __repr__(self) -> str:
        return f"ParallelIterator[{self.name}]"

    def __iter__(self) -> NoReturn:
        raise TypeError("a parallel iterator has no one order: iterate over it.gather_sync() or it.gather_async()")

    def _with(self, transform: Transform, name: str) -> ParallelIterator:
        shards = [(actor, (*transforms, transform)) for actor, transforms in self._shards]
        return ParallelIterator(shards, f"{self.name}.{name}" if name else self.name)

    def local_shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> ParallelIterator:
        """Give the items of each shard in random order, each from a buffer of so many."""
        return self._with(Shuffle(shuffle_buffer_size, seed), f"local_shuffle({shuffle_buffer_size})")

    def repartition(self, num_partitions: int, batch_ms: int = 0) -> ParallelIterator:
        """Deal the items of each shard to so many new shards in turn. Each item is made once, for all of them."""
        if num_partitions < 1:
            raise ValueError(f"num_partitions must be 1 or more, not {num_partitions}")
        worker, first = api.remote(ParallelIteratorWorker), getrandbits(62)
        parts = [_Part(self._shards, first, start, num_partitions, batch_ms) for start in range(num_partitions)]
        actors = [worker.remote(part, False) for part in parts]
        name = f"{self.name}.repartition({num_partitions})"
        return ParallelIterator([(actor, ()) for actor in actors], name)

    def union(self, *others: ParallelIterator) -> ParallelIterator:
        """Return an iterator with the shards of all, each with its own transformations."""
        for other in others:
            if not isinstance(other, ParallelIterator):
                raise TypeError(f"union() takes parallel iterators, not {type(other).__name__}")
        shards = [shard for it in (self, *others) for shard in it._shards]
        return ParallelIterator(shards, f"{self.name}.union({', '.join(other.name for other in others)})")

    def select_shards(self, shards_to_keep: Sequence[int]) -> ParallelIterator:
        """Return an iterator over some of the shards, by number."""
        kept = [self._shard(number) for number in shards_to_keep]
        return ParallelIterator(kept, f"{self.name}.select_shards({len(kept)} of {len(self._shards)})")

    def num_shards(self) -> int:
        """How many shards there are."""
        return len(self._shards)

    def _shard(self, number: int) -> Shard:
        if not 0 <= number < len(self._shards):
            raise ValueError(f"there are shards 0 to {len(self._shards) - 1}, not {number}")
        return self._shards[number]

    # -- bringing items together ---------------------------------------------------------------------------------------

    def gather_sync(self) -> LocalIterator:
        """Give one item of each shard in turn, always in the same order."""
        return LocalIterator(_Turns(self._shards), f"{self.name}.gather_sync()")

    def gather_async(self, batch_ms: int = 0, num_async: int = 1) -> LocalIterator:
        """Give items as they come; those of one shard in its order.

        Args:
            batch_ms: milliseconds that a batch may gather before it is sent; 0 for the usual 10.
            num_async: batches that are asked of each shard ahead.
        """
        if num_async < 1:
            raise ValueError(f"num_async must be 1 or more, not {num_async}")
        return LocalIterator(_Arrivals(self._shards, batch_ms, num_async), f"{self.name}.gather_async()")

    def batch_across_shards(self) -> LocalIterator:
        """Give lists with one item of each shard that has any left."""
        return LocalIterator(_Rows(self._shards), f"{self.name}.batch_across_shards()")

    def shards(self) -> list[LocalIterator]:
        """Return the shards as iterators of their own, for tasks and actors to read."""
        return [self.get_shard(number) for number in range(len(self._shards))]

    def get_shard(self, shard_index: int, batch_ms: int = 0, num_async: int = 1) -> LocalIterator:
        """Return one shard as an iterator of its own; `batch_ms`, `num_async`: as in `gather_async`."""
        shard = self._shard(shard_index)
        return LocalIterator(_Arrivals([shard], batch_ms, num_async), f"{self.name}.shard[{shard_index}]")

    def take(self, n: int) -> list[Any]:
        """Return the first n items of `gather_sync`."""
        return self.gather_sync().take(n)

    def show(self, n: int = 20) -> None:
        """Print the first n items of `gather_sync`."""
        self.gather_sync().show(n)


class _Part:
    """Items of one shard of `repartition`. Its n-th reading shares the n-th readings of the others."""

    def __init__(self, shards: Sequence[Shard], first: int, start: int, step: int, batch_ms: float) -> None:
        self._shards = list(shards)
        self._next = first
        self._start, self._step = start, step
        self._batch_ms = batch_ms

    def __call__(self) -> Iterator[Any]:
        slice_of = (self._next, self._start, self._step)
        self._next += 1
        readers = [ShardReader(actor, transforms, batch_ms=self._batch_ms, slice_of=slice_of)
                   for actor, transforms in self._shards]  # fmt: skip
        return _as_they_come(readers, [None])


class _Turns:
    """Items of `gather_sync`."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards

    def __call__(self, source: list[Any]) -> Iterator[Any]:
        for row in _rows(self._shards, source):
            yield from row


class _Rows:
    """Items of `batch_across_shards`."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards

    def __call__(self, source: list[Any]) -> Iterator[Any]:
        for row in _rows(self._shards, source):
            items = list(row)
            if items:
                yield items


class _Arrivals:
    """Items of `gather_async`."""

    def __init__(self, shards: Sequence[Shard], batch_ms: float, num_async: int) -> None:
        self._shards = shards
        self._batch_ms = batch_ms
        self._num_async = num_async

    def __call__(self, source: list[Any]) -> Iterator[Any]:
        readers = [ShardReader(actor, transforms, batch_ms=self._batch_ms, ahead=1 + self._num_async)
                   for actor, transforms in self._shards]  # fmt: skip
        return _as_they_come(readers, source)


def _rows(shards: Sequence[Shard], source: list[Any]) -> Iterator[Iterator[Any]]:
    """Give the next item of every shard that has one, again and again, until none has."""
    readers = [ShardReader(actor, transforms) for actor, transforms in shards]

    def row() -> Iterator[Any]:
        for reader in list(readers):
            found, item = reader.take()
            if found:
                source[0] = reader.actor
                yield item
            else:
                readers.remove(reader)

    try:
        while readers:
            yield row()
    finally:
        for reader in readers:
            reader.close()


def _as_they_come(readers: list[ShardReader], source: list[Any]) -> Iterator[Any]:
    """Give items of whichever shard has some."""
    try:
        while readers:
            waiting = {reader.waits_for: reader for reader in readers if reader.waits_for is not None}
            if len(waiting) == len(readers):
                api.wait(list(waiting))
            ready = set(api.wait(list(waiting), num_returns=len(waiting), timeout=0)[0]) if waiting else set()
            for reader in [r for r in readers if r.waits_for is None or r.waits_for in ready]:
                found, item = reader.take()
                while found:
                    source[0] = reader.actor
                    yield item
                    if reader.waits_for is not None:
                        break
                    found, item = reader.take()
                if not found:
                    readers.remove(reader)
    finally:
        for reader in readers:
            reader.close()

"""Parallel iterators: streams of items in shards, one actor each, with transformations that run there.

Made by `from_items`, `from_range`, `from_iterators` or `from_actors`; nothing runs before items are taken. What holds:

- the items of a shard come in its order, through whatever transformations;
- a callable object's state is kept for each shard that is read, from its first item to its last;
- who reads a shard reads it from its beginning, apart from others who do;
- actors work no further ahead than a few batches of what was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import api
from .local_iterator import LocalIterator
from .parallel_iterator import ParallelIterator
from .shards import ParallelIteratorWorker

__all__ = [
    "LocalIterator",
    "ParallelIterator",
    "ParallelIteratorWorker",
    "from_actors",
    "from_items",
    "from_iterators",
    "from_range",
]


def from_items(items: Sequence[Any], num_shards: int = 2, repeat: bool = False) -> ParallelIterator:
    """Make an iterator over items, dealt to the shards one by one.

    `repeat`: for ever, each shard from its beginning.
    """
    _check(num_shards)
    shards = [list(items[shard::num_shards]) for shard in range(num_shards)]
    return from_iterators(shards, repeat=repeat, name=f"from_items[{len(items)}, shards={num_shards}]")


def from_range(n: int, num_shards: int = 2, repeat: bool = False) -> ParallelIterator:
    """Make an iterator over the numbers from 0 to n - 1, in blocks of equal size; the last one takes the rest."""
    _check(num_shards)
    size = n // num_shards
    ends = [*(shard * size for shard in range(1, num_shards)), n]
    blocks = [range(shard * size, end) for shard, end in enumerate(ends)]
    return from_iterators(blocks, repeat=repeat, name=f"from_range[{n}, shards={num_shards}]")


def from_iterators(generators: Sequence[Iterable[Any] | Callable[[], Iterable[Any]]], repeat: bool = False,
                   name: str | None = None) -> ParallelIterator:  # fmt: skip
    """Make an iterator with a shard for each iterable, or function that makes one; they are sent to the actors."""
    worker = api.remote(ParallelIteratorWorker)
    actors = [worker.remote(generator, repeat) for generator in generators]
    return from_actors(actors, name=name or f"from_iterators[shards={len(actors)}]")


def from_actors(actors: Sequence[Any], name: str | None = None) -> ParallelIterator:
    """Make an iterator with a shard for each actor, of classes that are made from `ParallelIteratorWorker`.

    Raises:
        TypeError: the methods of one of them are not there.
    """
    for actor in actors:
        if not hasattr(actor, "par_iter_next_batch"):
            raise TypeError(f"{actor!r} is no actor of a subclass of ParallelIteratorWorker")
    return ParallelIterator([(actor, ()) for actor in actors], name or f"from_actors[shards={len(actors)}]")


def _check(num_shards: int) -> None:
    if num_shards < 1:
        raise ValueError(f"num_shards must be 1 or more, not {num_shards}")

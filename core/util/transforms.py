"""Transformations of iterators, the same for shards and in the program's own process. Each is a picklable object."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .. import api

Items = Iterator[Any]

#: Makes items from an iterator; what is chained to an iterator is a tuple of these.
Transform = Callable[[Items], Iterable[Any]]


@dataclass(frozen=True)
class ForEach:
    """Applies a function; with `max_concurrency` > 1 in so many tasks at a time, in order."""

    function: Callable[[Any], Any]
    max_concurrency: int = 1
    resources: Mapping[str, Any] | None = None

    def __call__(self, items: Items) -> Items:
        """Transform."""
        return self._here(items) if self.max_concurrency == 1 else self._in_tasks(items)

    def _here(self, items: Items) -> Items:
        for item in items:  # not map(): it would take a StopIteration of the function for the end of the items
            yield self.function(item)

    def _in_tasks(self, items: Items) -> Items:
        task = api.remote(self.function).options(**dict(self.resources or {}))
        running: deque[Any] = deque()
        for item in items:
            running.append(task.remote(item))
            if len(running) >= self.max_concurrency:
                yield api.get(running.popleft())
        while running:
            yield api.get(running.popleft())


@dataclass(frozen=True)
class Filter:
    """Keeps the items for which a function says so."""

    function: Callable[[Any], Any]

    def __call__(self, items: Items) -> Items:
        """Transform."""
        for item in items:  # not filter(), as above
            if self.function(item):
                yield item


@dataclass(frozen=True)
class Batched:
    """Makes lists of n items, the last one perhaps of fewer."""

    n: int

    def __call__(self, items: Items) -> Items:
        """Transform."""
        while batch := list(itertools.islice(items, self.n)):
            yield batch


@dataclass(frozen=True)
class Flatten:
    """Gives the items of the items."""

    def __call__(self, items: Items) -> Items:
        """Transform."""
        return itertools.chain.from_iterable(items)


@dataclass(frozen=True)
class Shuffle:
    """Gives items in random order, each from a buffer of so many."""

    size: int
    seed: int | None

    def __call__(self, items: Items) -> Items:
        """Transform."""
        chance = random.Random(self.seed)
        buffer: list[Any] = []
        for item in items:
            buffer.append(item)
            if len(buffer) >= self.size:
                yield buffer.pop(chance.randrange(len(buffer)))
        while buffer:
            yield buffer.pop(chance.randrange(len(buffer)))


class Chained:
    """What shard iterators and local ones have in common: a copy of themselves with one transformation more."""

    def _with(self, transform: Transform, name: str) -> Any:
        raise NotImplementedError

    def for_each(self, fn: Callable[[Any], Any], max_concurrency: int = 1,
                 resources: Mapping[str, Any] | None = None) -> Any:  # fmt: skip
        """Apply a function to every item.

        With `max_concurrency` above 1 as so many tasks at a time, with `resources` as their options; in order.
        """
        if max_concurrency < 1:
            raise ValueError(f"max_concurrency must be 1 or more, not {max_concurrency}")
        return self._with(ForEach(fn, max_concurrency, resources), "for_each()")

    def filter(self, filter_fn: Callable[[Any], Any]) -> Any:
        """Keep the items for which a function says so."""
        return self._with(Filter(filter_fn), "filter()")

    def batch(self, n: int) -> Any:
        """Make lists of n items, the last one perhaps of fewer."""
        if n < 1:
            raise ValueError(f"a batch must have 1 item or more, not {n}")
        return self._with(Batched(n), f"batch({n})")

    def flatten(self) -> Any:
        """Give the items of the items."""
        return self._with(Flatten(), "flatten()")

    def combine(self, fn: Callable[[Any], Iterable[Any]]) -> Any:
        """Give the items of what a function makes of each item."""
        return self._with(ForEach(fn), "combine()")._with(Flatten(), "")

    def transform(self, fn: Transform) -> Any:
        """Apply a function that makes an iterator from the iterator."""
        return self._with(fn, "transform()")

"""Local iterators: what comes together from shards, or one shard; further transformations run in this process."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from .shards import chained
from .transforms import Chained, Shuffle, Transform

#: Makes the items of a local iterator, and notes in the list which actor the last one came from.
Base = Callable[[list[Any]], Iterable[Any]]


class LocalIterator(Chained):
    """A Python iterator over items of shards. It may be passed to tasks, where it begins anew.

    Every iterator made from it begins anew as well; it goes on itself where `take` or a loop has stopped.
    """

    def __init__(self, base: Base, name: str, transforms: tuple[Transform, ...] = ()) -> None:
        self.name = name
        self._base = base
        self._transforms = transforms
        self._source: list[Any] = [None]
        self._items: Iterator[Any] | None = None

    def __repr__(self) -> str:
        return f"LocalIterator[{self.name}]"

    def __iter__(self) -> LocalIterator:
        return self

    def __next__(self) -> Any:
        """Return the next item."""
        if self._items is None:
            self._items = chained(self._base(self._source), self._transforms)
        return next(self._items)

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalIterator, (self._base, self.name, self._transforms)

    def _with(self, transform: Transform, name: str) -> LocalIterator:
        return LocalIterator(self._base, f"{self.name}.{name}" if name else self.name, (*self._transforms, transform))

    def shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> LocalIterator:
        """Give items in random order, each from a buffer of so many."""
        return self._with(Shuffle(shuffle_buffer_size, seed), f"shuffle({shuffle_buffer_size})")

    def zip_with_source_actor(self) -> LocalIterator:
        """Give pairs of the actor that an item came from, and the item; of a batch it is that of its last one."""
        source, transforms, base = self._source, self._transforms, self._base

        def pairs(_: list[Any]) -> Iterator[tuple[Any, Any]]:
            for item in chained(base(source), transforms):
                yield source[0], item

        return LocalIterator(pairs, f"{self.name}.zip_with_source_actor()")

    def take(self, n: int) -> list[Any]:
        """Return the next n items, or as many as there are."""
        return list(itertools.islice(self, n))

    def show(self, n: int = 20) -> None:
        """Print the next n items."""
        for item in itertools.islice(self, n):
            print(item)

    def duplicate(self, n: int) -> list[LocalIterator]:
        """Return n iterators over the same items, which are made once; what one is behind the others is kept."""
        if n < 1:
            raise ValueError(f"an iterator can be duplicated into 1 or more, not {n}")
        queues: list[deque[Any]] = [deque() for _ in range(n)]

        def items(mine: deque[Any], _: list[Any]) -> Iterator[Any]:
            while True:
                if not mine:
                    try:
                        item = next(self)
                    except StopIteration:
                        return
                    for queue in queues:
                        queue.append(item)
                yield mine.popleft()

        return [LocalIterator(partial(items, queue), f"{self.name}.duplicate[{at}]") for at, queue in enumerate(queues)]

    def union(self, *others: LocalIterator, deterministic: bool = False,
              round_robin_weights: Sequence[float | str] | None = None) -> LocalIterator:  # fmt: skip
        """Give the items of several iterators, in turn.

        Args:
            deterministic: no difference here: turns are always in order.
            round_robin_weights: items of each iterator in a turn; ``"*"``: all it has, once the others have had theirs.
        """
        iterators = (self, *others)
        for other in iterators:
            if not isinstance(other, LocalIterator):
                raise TypeError(f"union() takes local iterators, not {type(other).__name__}")
        weights = tuple(round_robin_weights or [1] * len(iterators))
        if len(weights) != len(iterators):
            raise ValueError(f"there are {len(iterators)} iterators and {len(weights)} weights")

        def items(_: list[Any]) -> Iterator[Any]:
            fresh = (LocalIterator(other._base, other.name, other._transforms) for other in iterators)
            live = dict(zip(fresh, weights, strict=True))
            while live:
                for iterator, weight in list(live.items()):
                    for _turn in itertools.repeat(None) if weight == "*" else range(max(1, int(weight))):
                        try:
                            yield next(iterator)
                        except StopIteration:
                            del live[iterator]
                            break

        return LocalIterator(items, f"{self.name}.union({', '.join(other.name for other in others)})")

"""Shards of parallel iterators: the actor that makes items, and who takes them from it."""

from __future__ import annotations

import itertools
import pickle
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from random import getrandbits
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]  # it has no types of its own

from .. import api
from ..errors import OutboardError, RemoteError
from .transforms import Transform

#: Items of one batch at most, and seconds after which one goes out with what there is.
BATCH_ITEMS, BATCH_SECONDS = 1000, 0.01

#: Batches that are asked for and not taken. One is made while the other is used.
AHEAD = 2


class Batch(NamedTuple):
    """What a shard has given. `is_over`: nothing follows; `error`: and why, where that is an exception."""

    items: list[Any]
    is_over: bool
    error: BaseException | None = None


class _Reading:
    """One reader's way through a shard; of several that share it each has a queue of its own."""

    def __init__(self, items: Iterator[Any]) -> None:
        self.items = items
        self.queues: dict[int, deque[Any]] = {}
        self.dealt = 0
        self.end: Batch | None = None
        self.heard: set[int] = set()  # of those that share it: who knows that it is over

    def take(self, most: int, seconds: float) -> Batch:
        """Collect a batch."""
        found: list[Any] = []
        deadline = time.perf_counter() + seconds
        while self.end is None and len(found) < most and (not found or time.perf_counter() < deadline):
            try:
                found.append(next(self.items))
            except StopIteration:
                self.end = Batch([], is_over=True)
            except Exception as error:
                self.end = Batch([], is_over=True, error=_portable(error))
        return Batch(found, self.end is not None, self.end.error if self.end is not None else None)

    def take_slice(self, start: int, step: int, most: int, seconds: float) -> Batch:
        """Collect a batch for one of `step` readers: items go to them in turn."""
        mine = self.queues.setdefault(start, deque())
        batch = Batch([], is_over=False)
        while not mine and not batch.is_over:
            batch = self.take(most, seconds)
            for item in batch.items:
                self.queues.setdefault(self.dealt % step, deque()).append(item)
                self.dealt += 1
        items = [mine.popleft() for _ in range(min(most, len(mine)))]
        return Batch(items, self.end is not None and not mine, self.end.error if self.end is not None else None)


class ParallelIteratorWorker:
    """Base of actors that are shards.

    Args:
        item_generator: an iterable, or a function that makes one: each reading begins with it anew.
        repeat: begin again at its end, for ever.
    """

    def __init__(self, item_generator: Any, repeat: bool) -> None:
        self.item_generator = item_generator
        self.repeat = repeat
        self._readings: dict[int, _Reading] = {}

    def _items(self) -> Iterator[Any]:
        make = self.item_generator
        while True:
            count = 0
            for item in make() if callable(make) else make:
                count += 1
                yield item
            if not self.repeat or not count:
                return

    def par_iter_init(self, reading: int, transforms: tuple[Transform, ...]) -> None:
        """Begin a reading, unless it has begun."""
        if reading not in self._readings:
            self._readings[reading] = _Reading(chained(self._items(), transforms))

    def par_iter_next_batch(self, reading: int, most: int, seconds: float, start: int = 0, step: int = 1) -> Batch:
        """Give the next items of a reading; with `step` > 1 every so many-th from `start` on."""
        way = self._readings.get(reading)
        if way is None:
            return Batch([], is_over=True)
        batch = way.take_slice(start, step, most, seconds) if step > 1 else way.take(most, seconds)
        if batch.is_over:
            way.heard.add(start)
            if len(way.heard) == step:
                del self._readings[reading]
        return batch

    def par_iter_end(self, reading: int) -> None:
        """Nobody reads on."""
        self._readings.pop(reading, None)


class ShardReader:
    """Takes the items of one shard; asks `ahead` batches ahead. Dropped or closed it ends its reading.

    Args:
        batch_ms: milliseconds that a batch may gather; 0 for the usual.
        slice_of: (reading, start, step) of a reading that is shared.
    """

    def __init__(self, actor: Any, transforms: tuple[Transform, ...], *, ahead: int = AHEAD, batch_ms: float = 0,
                 slice_of: tuple[int, int, int] | None = None) -> None:  # fmt: skip
        self.actor = actor
        self._seconds = batch_ms / 1000 or BATCH_SECONDS
        self._reading, self._start, self._step = slice_of or (getrandbits(63), 0, 1)
        self._asked: deque[Any] = deque()
        self._items: deque[Any] = deque()
        self._error: BaseException | None = None
        self._is_over = False
        self._most = itertools.chain((1, 4, 16, 64, 256), itertools.repeat(BATCH_ITEMS))
        actor.par_iter_init.remote(self._reading, transforms)
        for _ in range(ahead):
            self._ask()

    @property
    def waits_for(self) -> Any:
        """The reference whose coming lets `take` go on at once; None: it does anyway."""
        return None if self._items or self._is_over else self._asked[0]

    def take(self) -> tuple[bool, Any]:
        """Return (True, the next item), or (False, None) at the end; raises what the shard's own code has raised."""
        while not self._items and not self._is_over:
            batch = api.get(self._asked.popleft())
            self._items.extend(batch.items)
            self._is_over, self._error = batch.is_over, batch.error
            if not batch.is_over:
                self._ask()
        if self._items:
            return True, self._items.popleft()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return False, None

    def _ask(self) -> None:
        most = next(self._most)
        self._asked.append(
            self.actor.par_iter_next_batch.remote(self._reading, most, self._seconds, self._start, self._step)
        )

    def __iter__(self) -> Iterator[Any]:
        try:
            while True:
                found, item = self.take()
                if not found:
                    return
                yield item
        finally:
            self.close()

    def close(self) -> None:
        """Let the shard forget this reading."""
        if not self._is_over:
            self._is_over = True
            if self._step == 1:
                with suppress(OutboardError):  # the program may have shut down
                    self.actor.par_iter_end.remote(self._reading)


def _portable(error: Exception) -> BaseException:
    """The exception, or what stands for one that cannot travel: it must not take the items before it along."""
    try:
        pickle.loads(cloudpickle.dumps(error))
    except Exception:
        return RemoteError(type_name=type(error).__name__, text=str(error), traceback=traceback.format_exc())
    return error


def chained(items: Iterable[Any], transforms: tuple[Transform, ...]) -> Iterator[Any]:
    """Apply transformations here."""
    found = iter(items)
    for transform in transforms:
        found = iter(transform(found))
    return found

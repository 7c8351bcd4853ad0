"""A fixed set of actors that take calls in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from .. import api
from ..refs import ObjectRef

#: Makes a call: takes an actor and a value, returns the reference of the result.
Call = Callable[[Any, Any], ObjectRef]


class _Running(NamedTuple):
    number: int
    actor: Any


class ActorPool:
    """Hands calls to whichever of its actors is free. To be used by one thread.

    An actor is busy from its call on until somebody takes the result; what is submitted meanwhile waits in the pool.
    Results are taken in the order of submission (`get_next`, `map`) or as they come (`get_next_unordered`,
    `map_unordered`); of what lies in the pool at a time, one way or the other.
    """

    def __init__(self, actors: Iterable[Any]) -> None:
        self._idle: deque[Any] = deque(actors)
        self._waiting: deque[tuple[int, Call, Any]] = deque()  # numbered in the order of submission
        self._running: dict[ObjectRef, _Running] = {}
        self._refs: dict[int, ObjectRef] = {}  # by number
        self._broken: dict[int, Exception] = {}  # by number: what making a waiting call has raised
        self._count = 0
        self._next = 0  # the number of the next result in order
        self._is_unordered = False

    def __repr__(self) -> str:
        return f"<ActorPool {len(self._idle)} idle, {len(self._running)} busy, {len(self._waiting)} calls wait>"

    def submit(self, fn: Call, value: Any) -> None:
        """Call ``fn(actor, value)`` with the first actor that is free; now, or when a result is taken."""
        if self._idle:
            self._start(self._count, fn, value)
        else:
            self._waiting.append((self._count, fn, value))
        self._count += 1

    def map(self, fn: Call, values: Iterable[Any]) -> Iterator[Any]:
        """Return an iterator over the results in the order of the values.

        Values are drawn as actors become free. Results that lie in the pool are thrown away. What a call raises is
        raised where its result would be; the iterator is over then.
        """
        return self._map(fn, values, self.get_next)

    def map_unordered(self, fn: Call, values: Iterable[Any]) -> Iterator[Any]:
        """Return an iterator over the results as they come; else as `map`."""
        return self._map(fn, values, self.get_next_unordered)

    def has_next(self) -> bool:
        """Whether there are results to take, finished or not."""
        return bool(self._running or self._broken)

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """Take the next result in the order of submission; its actor is free then, also when the call has failed.

        Raises:
            StopIteration: there is none. TimeoutError: it did not come in so many seconds; with `ignore_if_timedout` it
                is given up, and its actor takes further calls behind that one.
            ValueError: a later result was taken with `get_next_unordered`. What the call raised.
        """
        if not self.has_next():
            raise StopIteration("no more results to take")
        if self._is_unordered:
            raise ValueError("get_next() cannot follow get_next_unordered() while its results are in the pool")
        number = self._next
        if number in self._broken:
            raise self._take_broken(number)
        ref = self._refs[number]
        is_there = bool(api.wait([ref], timeout=timeout)[0])
        return self._take(ref, is_there, timeout, ignore_if_timedout)

    def get_next_unordered(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """Take the result that comes first, of all that were submitted. See `get_next` for what it raises."""
        if not self.has_next():
            raise StopIteration("no more results to take")
        if self._broken:
            self._is_unordered = True
            raise self._take_broken(next(iter(self._broken)))
        ready, others = api.wait(list(self._running), timeout=timeout)
        if ready or ignore_if_timedout:
            self._is_unordered = True
        return self._take((ready or others)[0], bool(ready), timeout, ignore_if_timedout)

    def has_free(self) -> bool:
        """Whether a call that is submitted now would begin at once."""
        return bool(self._idle) and not self._waiting

    def pop_idle(self) -> Any:
        """Take an idle actor out of the pool and return it; None when there is none."""
        return self._idle.popleft() if self.has_free() else None

    def push(self, actor: Any) -> None:
        """Put a further actor into the pool. ValueError: it is there already."""
        if any(actor is known for known in (*self._idle, *(running.actor for running in self._running.values()))):
            raise ValueError(f"{actor!r} belongs to the pool already")
        self._add(actor)

    def _start(self, number: int, fn: Call, value: Any) -> None:
        actor = self._idle[0]
        ref = fn(actor, value)
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"fn(actor, value) must return the reference of a call, not {type(ref).__name__}")
        self._idle.popleft()
        self._running[ref] = _Running(number, actor)
        self._refs[number] = ref

    def _take(self, ref: ObjectRef, is_there: bool, timeout: float | None, may_give_up: bool) -> Any:
        late = f"no result within {timeout} s"
        if not (is_there or may_give_up):
            raise TimeoutError(late)
        running = self._running.pop(ref)
        del self._refs[running.number]
        self._add(running.actor)
        self._note_taken(running.number)
        if not is_there:
            raise TimeoutError(f"{late}: {ref} is given up")
        return api.get(ref)

    def _take_broken(self, number: int) -> Exception:
        error = self._broken.pop(number)
        self._note_taken(number)
        return error

    def _note_taken(self, number: int) -> None:
        self._next = number + 1
        if not self.has_next():  # nothing waits either: the next results may be taken in either way
            self._next, self._is_unordered = self._count, False

    def _add(self, actor: Any) -> None:
        self._idle.append(actor)
        while self._waiting and self._idle:
            number, fn, value = self._waiting.popleft()
            try:
                self._start(number, fn, value)
            except Exception as error:  # told in its place
                self._broken[number] = error

    def _map(self, fn: Call, values: Iterable[Any], take: Callable[[], Any]) -> Iterator[Any]:
        while self.has_next():
            try:
                self.get_next_unordered(timeout=0, ignore_if_timedout=True)
            except Exception:  # of a call whose result nobody has asked for
                pass
        drawn = iter(values)
        for value in drawn:
            self.submit(fn, value)
            if not self._idle:
                break
        return self._results(fn, drawn, take)

    def _results(self, fn: Call, drawn: Iterator[Any], take: Callable[[], Any]) -> Iterator[Any]:
        for value in drawn:
            result = take()
            self.submit(fn, value)
            yield result
        while self.has_next():
            yield take()

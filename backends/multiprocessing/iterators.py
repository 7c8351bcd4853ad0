"""What `imap` and `imap_unordered` return."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import TimeoutError
from typing import TYPE_CHECKING, Any

from outboard.engine import TaskArray
from outboard.errors import GetTimeoutError, WorkerLostError

from .faults import describe_item, translated
from .feed import Feed
from .results import KILL_AFTER, name_chunk

if TYPE_CHECKING:
    from .pool import Pool


class IMapIterator:
    """Results in the order of the input; each comes as soon as it is there.

    An exception of a task is raised by the `next` that would have given its result, and iteration may go on after it.
    An exception of the input comes after the results of what was drawn before it. Thread-safe. Dropping the iterator
    or closing it ends the drawing of the input.
    """

    def __init__(self, pool: Pool, function: Callable[..., Any], array: TaskArray, feed: Feed, chunksize: int) -> None:
        # The pool lives while its results are awaited, and no longer.
        self._pool: Pool | None = pool
        self._function = function
        self._array = array
        self._feed = feed
        self._chunksize = chunksize
        self._received = 0
        self._turn = threading.Lock()
        self._init_store()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self, timeout: float | None = None) -> Any:
        """Return the next result or raise its exception.

        Raises:
            multiprocessing.TimeoutError: it did not come within so many seconds; a later `next` gives it.
            StopIteration: the input has ended and all results were taken.
        """
        deadline = None if timeout is None else time.monotonic() + max(0, timeout)
        if not self._turn.acquire(timeout=-1 if timeout is None else max(0, timeout)):
            raise TimeoutError
        try:
            ok, value = self._next(deadline)
        except KeyboardInterrupt:
            self.close()
            raise
        finally:
            self._turn.release()
        if ok:
            return value
        if isinstance(value, StopIteration):
            raise RuntimeError("a task raised StopIteration") from value
        raise value

    def close(self) -> None:
        """Draw no more input and cancel what has not finished. Repeatable."""
        self._feed.end()
        self._array.cancel(kill_after=KILL_AFTER)

    def __del__(self) -> None:
        feed = getattr(self, "_feed", None)
        if feed is not None:
            feed.stop()

    def _next(self, deadline: float | None) -> tuple[bool, Any]:
        feed = self._feed
        while (found := self._pop()) is None:
            remaining = None if deadline is None else max(0, deadline - time.monotonic())
            if feed.drawn > self._received:
                self._receive(remaining)
            elif feed.ended and feed.drawn <= self._received:
                self._pool = None
                error, feed.error = feed.error, None
                if error is None:
                    raise StopIteration
                return False, error
            elif not feed.wait_for_items(self._received, remaining):
                raise TimeoutError
        feed.consumed(feed.drawn - self._received)
        return found

    def _receive(self, timeout: float | None) -> None:
        try:
            taken = self._array.take(timeout)
        except GetTimeoutError:
            raise TimeoutError from None
        self._received += len(taken)
        pending = self._feed.pending
        for index, ok, value in taken:
            item = pending.pop(index, None)
            self._store(index, (True, value) if ok else (False, self._translated(value, index, item)))
        if taken:
            self._feed.received(self._received)

    def _translated(self, error: BaseException, index: int, item: Any) -> BaseException:
        return translated(error, (lambda: self._name_call(index, item)) if isinstance(error, WorkerLostError) else None)

    def _name_call(self, index: int, item: Any) -> tuple[str, int | None]:
        if self._chunksize == 1:
            return describe_item(self._function, item, is_spread=False), index
        return name_chunk(self._function, item, index * self._chunksize, False), None

    def _init_store(self) -> None:
        self._ready: dict[int, tuple[bool, Any]] = {}
        self._index = 0

    def _store(self, index: int, outcome: tuple[bool, Any]) -> None:
        self._ready[index] = outcome

    def _pop(self) -> tuple[bool, Any] | None:
        found = self._ready.pop(self._index, None)
        if found is not None:
            self._index += 1
        return found


class IMapUnorderedIterator(IMapIterator):
    """Results in the order of completion."""

    def _init_store(self) -> None:
        self._queue: deque[tuple[bool, Any]] = deque()

    def _store(self, index: int, outcome: tuple[bool, Any]) -> None:
        self._queue.append(outcome)

    def _pop(self) -> tuple[bool, Any] | None:
        return self._queue.popleft() if self._queue else None


def flattened(chunks: Iterator[list[Any]]) -> Iterator[Any]:
    """Yield the items of chunks one by one; the first exception ends it, as in the standard pool."""
    for chunk in chunks:
        yield from chunk

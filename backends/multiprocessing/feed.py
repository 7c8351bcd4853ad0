"""How `imap` draws its input: a bounded distance ahead of consumption.

A `Feed` joins one iterable to one task array. `drawn` counts the tasks appended, `taken` those whose results the
program has consumed; drawing goes on while they differ by less than the window, so neither input nor results pile up.
The window is a number of tasks that follows their pace, and at most as many as have results for a share of the store.

    iterable ──draw──▶ array ──▶ workers ──▶ array ──take──▶ iterator ──▶ program
        ▲                                                        │
        └──────────────── room in the window ◀───────────────────┘

Containers are drawn by whoever consumes. Any other iterable may block, or even wait for earlier results, so a thread
draws it and appends each item before it asks for the next. The thread ends with the input, with an error, or with
`stop()`, which the iterator's finaliser calls: it takes no lock. Waking goes through `SimpleQueue`, whose `put` may be
called from finalisers.

`join` lifts a feed: then the rest is drawn whether or not anybody consumes, a window ahead of what has finished. When
the array has failed one more item is drawn, to bring the error, and no other.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import Any

from outboard.engine import TaskArray

#: Tasks ahead of consumption per worker at first: one that runs, one that is ready, and as many finished ones.
WINDOW_PER_WORKER = 4

#: Most tasks ahead of consumption while they take a millisecond or more. Larger rides over longer hiccups of the
#: program or of one slow task, smaller holds fewer inputs and results in memory.
SLOW_WINDOW_MAX = 48

#: Most tasks ahead of consumption when they are short, so that they travel by hundreds.
WINDOW_MAX = 1000

#: The part of the store (one over this) that results of one feed may fill, those expected of unfinished tasks included.
#: Smaller leaves less to inputs and other feeds; larger holds up tasks with large results more.
STORE_SHARE = 3

#: Seconds of work per task below which the window grows beyond `SLOW_WINDOW_MAX`.
SHORT_TASK = 1e-3

#: Consumed tasks between two looks at their pace. Larger follows a change of pace later, smaller reads the clock more.
REVIEW_EVERY = 32

#: Types whose iteration never waits for anything.
_NEVER_BLOCKS = frozenset(
    {list, tuple, range, str, bytes, bytearray, dict, set, frozenset, deque, itertools.count}
    | {type(iter(()))}
    | {type(iter([])), type(iter(range(0))), type(iter("")), type(iter(b""))}
)


#: Types whose iteration never ends, so that `join` need not try; and so does that of a `repeat` without a number.
_NEVER_ENDS = frozenset({itertools.count, itertools.cycle})


class Feed:
    """Draws one iterable into a task array; see the head of this file.

    Attributes:
        drawn, taken: see there; only the drawing side writes `drawn`, only the consumer `taken`.
        pending: inputs of the tasks whose results have not been received, by index, to name them in errors.
        ended: nothing more will be drawn. error: why, when the input raised or the pool was terminated.
    """

    def __init__(
        self,
        iterable: Iterable[Any],
        chunksize: int,
        processes: int,
        buffersize: int | None,
        store_nbytes: int,
        on_end: Callable[[], None],
    ) -> None:
        self.drawn = 0
        self.taken = 0
        self.pending: dict[int, Any] = {}
        self.ended = False
        self.error: BaseException | None = None
        self._on_end = on_end
        self._processes = processes
        self._is_fixed = buffersize is not None
        self._slow_max = max(SLOW_WINDOW_MAX, 2 * processes)
        if buffersize is None:
            self._window = min(WINDOW_PER_WORKER * processes, self._slow_max)
        else:
            self._window = max(1, buffersize // chunksize)
        self._store_share = 0 if self._is_fixed else store_nbytes // STORE_SHARE
        self._most = processes if self._store_share else sys.maxsize  # tasks whose results fit; a guess at first
        self._measured = (0, 0)  # results received and their bytes at the last look
        self._is_lifted = False
        self._is_endless = _is_endless(iterable)
        self._source = self._open(iterable, chunksize)
        self._is_threaded = type(iterable) not in _NEVER_BLOCKS and not self.ended
        self._drawing = threading.Lock()
        self._room: SimpleQueue[None] = SimpleQueue()
        self._arrived: SimpleQueue[None] = SimpleQueue()
        self._wants_room = False
        self._wants_items = False
        self._review_at = REVIEW_EVERY
        self._reviewed = 0
        self._reviewed_time = time.monotonic()

    def start(self, array: TaskArray) -> None:
        """Begin to draw into the array."""
        self._array = array
        if self._is_threaded:
            thread = threading.Thread(target=_draw_all, args=(self,), name="outboard-imap-input", daemon=True)
            thread.start()
        elif not self.ended:
            self.refill()
        else:
            self._conclude()

    def received(self, count: int) -> None:
        """Learn how large results are, of which so many have been received, and draw if that makes room."""
        if self._store_share:
            before, nbytes_before = self._measured
            nbytes = self._array.taken_nbytes
            self._measured = count, nbytes
            size = max(nbytes / count, (nbytes - nbytes_before) / (count - before))
            self._most = max(1, int(self._store_share // max(size, 1)))
            self._draw_if_room()

    def consumed(self, outstanding: int) -> None:
        """Count one more result consumed, and draw when there is enough room; `outstanding` tasks are unfinished."""
        self.taken += 1
        if not self._is_fixed:
            self._adapt(outstanding)
        self._draw_if_room()

    def _draw_if_room(self) -> None:
        limit = self._limit()
        if self.ended or self._ahead() > limit - max(1, limit >> 2):
            return
        if not self._is_threaded:
            self.refill()
        elif self._wants_room:
            self._wants_room = False
            self._room.put(None)

    def refill(self) -> None:
        """Draw as much as the window has room for, in the calling thread."""
        array = self._array
        with self._drawing:
            room = self._limit() - self._ahead()
            if array.has_failed:
                room = min(room, 1)
            batch = []
            failure: BaseException | None = None
            try:
                for item in itertools.islice(self._source, max(0, room)):
                    batch.append(item)  # one by one: what came before an exception counts
            except BaseException as error:
                failure = error
            if self.ended:
                return
            if batch:
                self._append(batch)
            if failure is not None or len(batch) < room or (batch and array.has_failed):
                self.end(failure)
        if isinstance(failure, KeyboardInterrupt):
            raise failure

    def lift(self) -> None:
        """Draw the rest of the input whether or not results are consumed, as they finish; for `join`.

        Of an input that is known to have no end, and for workers that have gone, nothing more is drawn.
        """
        if self._is_endless:
            self.end()
        elif self._is_threaded and self._array.has_failed:  # its source may block for ever
            self.end(None if self.drawn > self.taken else RuntimeError("the pool failed before the input had ended"))
        self._is_fixed = True
        self._window = max(self._window, self._slow_max)
        self._is_lifted = True
        self._room.put(None)
        while not self.ended and not self._is_threaded:
            if not self._has_room():
                self._await_finished()
            self.refill()

    def end(self, error: BaseException | None = None) -> None:
        """Draw no more; the results of what was drawn still come, then the error."""
        if self.ended:
            return
        self.error = error
        self._conclude()

    def stop(self) -> None:
        """Draw no more; safe in finalisers."""
        self.ended = True
        self._room.put(None)

    def wait_for_items(self, received: int, timeout: float | None) -> bool:
        """Wait until more than `received` tasks were drawn or the input ended; False after so many seconds."""
        self._wants_items = True
        if self.drawn > received or self.ended:
            return True
        try:
            self._arrived.get(timeout=timeout)
        except Empty:
            return False
        return True

    def _open(self, iterable: Iterable[Any], chunksize: int) -> Iterator[Any]:
        try:
            source = iter(iterable)
        except BaseException as error:
            # As in the standard pool the first `next` raises it, not the call.
            self.ended, self.error = True, error
            return iter(())
        return source if chunksize == 1 else iter(lambda: tuple(itertools.islice(source, chunksize)), ())

    def _append(self, batch: list[Any]) -> None:
        # Inputs are noted before they are sent: their results may be received before `extend` returns.
        self.pending.update(enumerate(batch, self.drawn))
        try:
            self._array.extend(batch)
        except BaseException as error:
            self.end(error)
            return
        self.drawn += len(batch)
        if self._wants_items:
            self._wants_items = False
            self._arrived.put(None)

    def _ahead(self) -> int:
        return self.drawn - (self._array.finished if self._is_lifted else self.taken)

    def _limit(self) -> int:
        return self._window if self._is_lifted else min(self._window, self._most)

    def _has_room(self) -> bool:
        return self._ahead() < self._limit()

    def _await_finished(self) -> None:
        """Wait until a part of the window has finished; for a feed that was lifted."""
        self._array.wait_finished(self.drawn - self._window + max(1, self._window >> 2))

    def _conclude(self) -> None:
        self.ended = True
        self._source = iter(())
        self._array.close()
        self._room.put(None)
        self._arrived.put(None)
        self._on_end()

    def _adapt(self, outstanding: int) -> None:
        """Widen the window for short tasks and while one slow task holds back finished ones; narrow it otherwise."""
        if self._window < self._slow_max and outstanding < 2 * self._processes:
            self._window = min(2 * self._window, self._slow_max)
        if self.taken < self._review_at:
            return
        now = time.monotonic()
        seconds = (now - self._reviewed_time) * self._processes / (self.taken - self._reviewed)
        if seconds < SHORT_TASK:
            self._window = min(2 * self._window, max(WINDOW_MAX, self._slow_max))
        else:
            self._window = min(self._window, self._slow_max)
        self._reviewed, self._reviewed_time = self.taken, now
        self._review_at = self.taken + REVIEW_EVERY


def _draw_all(feed: Feed) -> None:
    """Draw in a thread of its own until the input or the feed ends."""
    try:
        while not feed.ended:
            if not feed._has_room():
                if feed._is_lifted:
                    feed._await_finished()
                    continue
                feed._wants_room = True
                if not feed._has_room() and not feed.ended:
                    feed._room.get()
                continue
            try:
                item = next(feed._source)
            except StopIteration:
                feed.end()
                return
            except BaseException as error:
                feed.end(error)
                return
            if not feed.ended:
                feed._append([item])
            if feed._array.has_failed:
                return
    finally:
        feed.end()
        feed._array.close()
        feed._on_end()


def _is_endless(iterable: Iterable[Any]) -> bool:
    if type(iterable) is itertools.repeat:
        try:
            iterable.__length_hint__()
        except TypeError:
            return True
    return type(iterable) in _NEVER_ENDS


def call_weakly(method: Callable[[], None]) -> Callable[[], None]:
    """Wrap a bound method so that it neither keeps its object alive nor is called after the object has gone."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        alive = reference()
        if alive is not None:
            alive()

    return call

"""Task arrays of the native engine: what the program appends and takes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from . import errors
from .engine import Completion
from .interrupts import shield
from .pulling import Ahead
from .rpc.protos import outboard_pb2 as pb
from .scheduler.arrays import Completed

if TYPE_CHECKING:
    from .native import NativeEngine
    from .scheduler.arrays import Array

#: A deadline that has passed: only what is here counts.
NOW = 0.0

#: Seconds that items may be gathered. Longer holds up what a thread has appended that waits where the client cannot see
#: it; in shorter time less is gathered.
GATHER_SECONDS = 0.001

#: How the value bytes begin of a result that is no plain pickle.
STORED = b"\x0a"


class NativeArray:
    """See `TaskArray`."""

    def __init__(self, engine: NativeEngine, record: Array, *, writable: bool = False) -> None:
        self._engine = engine
        self._writable = writable
        self._record = record
        self._items = engine.client.array_items[record.stream]
        self._closed = False
        self.taken_nbytes = 0
        self._delivering = threading.Lock()
        self.callback: Callable[[list[Completion]], None] | None = None

    def __repr__(self) -> str:
        return repr(self._record)

    def __del__(self) -> None:
        self._engine.array_ended(self._record)

    @property
    def count(self) -> int:
        """See `TaskArray.count`."""
        return self._record.count

    @property
    def finished(self) -> int:
        """See `TaskArray.finished`."""
        return self._record.finished

    @property
    def run_seconds(self) -> float:
        """See `TaskArray.run_seconds`."""
        return self._record.seconds

    @property
    def has_failed(self) -> bool:
        """See `TaskArray.has_failed`."""
        record = self._record
        return record.cancelled or record.kind.refused is not None or self._engine.client.closed_mark is not None

    def extend(self, items: Iterable[Any], *, gather: bool = False) -> int:
        """See `TaskArray.extend`."""
        if self._closed:
            raise ValueError("the array was closed")
        items = items if isinstance(items, (list, tuple, range)) else list(items)
        client = self._engine.client
        with shield, client.lock:
            self._items.extend(items)
            is_first = client.count_unsent()
            if client.closed_mark is None:
                client.owner.extend(self._record, len(items))
            else:
                self._fail_all(len(items))
        if self._record.cancelled or self._record.kind.refused is not None:
            self._engine._items_arrived(self._record.stream)
        if not gather:
            client.flush()
        elif is_first:
            client.background.flush_within(GATHER_SECONDS)
        return len(items)

    def _fail_all(self, count: int) -> None:
        record = self._record
        first = record.count
        record.append(count)
        record.take_unsent()
        record.fail(first, count, self._engine.client.closed_mark)

    def close(self) -> None:
        """See `TaskArray.close`."""
        self._closed = True
        with shield, self._engine.client.lock:
            self.end_sharing_if_over()

    def end_sharing_if_over(self) -> None:
        """Let go of stored arguments that no further item can use. Under the client's lock."""
        record = self._record
        if record.cancelled or (self._closed and record.finished >= record.count):
            self._engine.client.end_sharing(record.stream)

    def take(self, timeout: float | None = None) -> list[Completion]:
        """See `TaskArray.take`."""
        record = self._record
        deadline = None if timeout is None else time.monotonic() + timeout
        if not record.completions:
            if record.finished == record.count:
                return []
            if not self._engine.client.turns.wait(lambda: bool(record.completions), deadline):
                raise errors.GetTimeoutError(f"no item finished within {timeout} s")
        return self._take(deadline)

    def wait_finished(self, count: int) -> None:
        """See `TaskArray.wait_finished`."""
        record = self._record
        self._engine.client.turns.wait(lambda: record.finished >= count)

    def take_nowait(self) -> list[Completion]:
        """See `TaskArray.take_nowait`."""
        try:
            return self._take(NOW)
        except errors.GetTimeoutError:
            return []

    def _take(self, deadline: float | None) -> list[Completion]:
        """Take what is here; if all that has finished lies at other nodes, wait for the first of it.

        Raises:
            GetTimeoutError: nothing came until the deadline.
        """
        completions = self._record.completions
        while True:
            taken: list[Completion] = []
            left: deque[tuple[int, bytes]] = deque()
            try:
                self._take_here(taken, left)
                if not taken and left:
                    found = self._take_large(*left[0], deadline)
                    if found is None and not completions:  # nothing else would make room
                        found = self._take_large(*left[0], deadline, is_last=True)
                    if found is not None:
                        left.popleft()
                        taken.append(found)
            finally:
                for index, value in reversed(left):
                    completions.appendleft(Completed(index, 1, [value]))
            if taken or not completions:
                return taken

    def _take_here(self, taken: list[Completion], left: deque[tuple[int, bytes]]) -> None:
        """Take all that can be had at once; what must be waited for, or has no room now, is left."""
        record, engine = self._record, self._engine
        decode = engine.decode
        ahead: Ahead | None = None
        place = 0
        while record.completions:
            try:
                first, count, values = record.completions.popleft()
            except IndexError:
                break  # another thread took it
            if not isinstance(values, list):
                for index in range(first, first + count):
                    self._items[index] = None
                    taken.append(engine._completion(index, values))
                continue
            for index, value in enumerate(values, first):
                if value[0] == 0x80:
                    self._items[index] = None
                    self.taken_nbytes += len(value)
                    try:
                        taken.append(Completion(index, True, decode(value)))
                    except Exception as error:
                        taken.append(Completion(index, False, error))
                    continue
                at = place + index - first
                if ahead is None:
                    ahead = Ahead(engine.client, self._following(values[index - first :]), at)
                ahead.go_on(at)
                found = self._take_large_now(index, value)
                if found is None:
                    left.append((index, value))
                else:
                    taken.append(found)
            place += len(values)

    def _following(self, values: list[bytes]) -> Iterator[bytes]:
        yield from values
        for _, _, more in list(self._record.completions):
            if isinstance(more, list):
                yield from more

    def _take_large_now(self, index: int, value: bytes) -> Completion | None:
        try:
            return self._take_large(index, value, NOW)
        except errors.GetTimeoutError:
            return None

    def _take_large(self, index: int, value: bytes, deadline: float | None, *,
                    is_last: bool = False) -> Completion | None:  # fmt: skip
        """Take a result that may lie at another node; None, unless it `is_last`: there is no room for it here now."""
        completion = self._engine._completion(index, value, self._writable, deadline)
        if not is_last and value[:1] == STORED and isinstance(completion.value, errors.StoreFullError):
            return None
        self._items[index] = None
        self.taken_nbytes += len(value)
        client = self._engine.client
        with shield, client.lock:
            extra = self._record.extras.pop(index, None)
            if extra is not None:
                self.taken_nbytes += pb.Outcome.FromString(value).value.stored.nbytes
                client.owner.take_extra(self._record, index, extra)
        return completion

    def cancel(self, *, kill_after: float | None = 1.0) -> None:
        """See `TaskArray.cancel`."""
        client = self._engine.client
        with shield, client.lock:
            if client.closed_mark is None:
                client.owner.cancel_array(self._record, kill_after=kill_after)
        self._engine._items_arrived(self._record.stream)
        client.flush()

    def set_done_callback(self, callback: Callable[[list[Completion]], None]) -> None:
        """See `TaskArray.set_done_callback`."""
        self.callback = callback
        self._engine.client.background.start()
        self._engine._callbacks.call(self.deliver)

    def deliver(self) -> None:
        """Give what is there to the callback; in the callback thread."""
        with self._delivering:
            completions = self._take(None)
            if completions and self.callback is not None:
                self.callback(completions)

"""What the `_async` methods return.

Without callbacks a result is *pulled*: nothing happens in this process until somebody asks, and the thread that asks
reads the link to the node itself. With callbacks it is *pushed*: the engine's callback thread delivers, runs the
callback, and then marks the result ready.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import TimeoutError
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from outboard.calls import describe_call
from outboard.engine import Completion, TaskArray
from outboard.errors import GetTimeoutError, RemoteTraceback

from .faults import describe_item, run_callback, translated

if TYPE_CHECKING:
    from outboard import ObjectRef

    from .pool import Pool

Callback = Callable[[Any], object]

#: Seconds that an interrupted task has to end by itself before its process is killed.
KILL_AFTER = 1.0

#: Arguments of these types are kept until the result is there, to name the call in errors: they hold little memory.
_SMALL = frozenset({int, float, bool, type(None), complex})


class ApplyResult:
    """Result of one call; `multiprocessing.pool.ApplyResult` says what its methods do.

    Pulled: `_ref` is the call's reference until the value is here. `get` interrupted by Ctrl-C cancels the call.
    """

    __slots__ = (
        "__weakref__",
        "_callback",
        "_call",
        "_error_callback",
        "_event",
        "_pool",
        "_ref",
        "_success",
        "_value",
    )

    __class_getitem__: Any = classmethod(GenericAlias)

    def __init__(self, pool: Pool, callback: Callback | None = None, error_callback: Callback | None = None) -> None:
        # The pool lives while its results are awaited, and no longer.
        self._pool: Pool | None = pool
        self._callback = callback
        self._error_callback = error_callback
        self._event = None if callback is None and error_callback is None else threading.Event()
        self._ref: ObjectRef | None = None
        self._call: tuple[Any, tuple[Any, ...]] | None = None
        self._success: bool | None = None
        self._value: Any = None

    def ready(self) -> bool:
        """Tell whether the call has completed. Never raises."""
        return self._success is not None or self._collect(0)

    def successful(self) -> bool:
        """Tell whether the call has completed without an exception; ValueError when it has not completed."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return bool(self._success)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the call has completed or so many seconds have passed. Never raises for either."""
        if self._success is None:
            self._collect(timeout)

    def get(self, timeout: float | None = None) -> Any:
        """Return the value or raise the call's exception; may be called again.

        Raises:
            multiprocessing.TimeoutError: it has not completed within so many seconds.
        """
        if self._success is None:
            try:
                completed = self._collect(timeout)
            except KeyboardInterrupt:
                self._cancel()
                raise
            if not completed:
                raise TimeoutError
        if self._success:
            return self._value
        raise self._value

    def _start(self, ref: ObjectRef, function: Callable[..., Any], args: Sequence[Any]) -> None:
        """Take over the call's reference; with callbacks, have it delivered."""
        if type(args) is tuple and _SMALL.issuperset(map(type, args)):
            self._call = (function, args)
        if self._event is None:
            self._ref = ref
        elif self._pool is not None:
            with self._pool._awaiting_callback(self):
                self._pool._engine.add_done_callback(ref, self._deliver)

    def _cancel(self) -> None:
        if self._pool is not None and self._ref is not None:
            self._pool._engine.cancel(self._ref, kill_after=KILL_AFTER)

    def _collect(self, timeout: float | None) -> bool:
        """Wait for completion in the calling thread; False when it did not come in time."""
        if self._event is not None:
            return self._event.wait(None if timeout is None else max(0, timeout))
        pool, ref = self._pool, self._ref
        if pool is None or ref is None:  # another thread has just collected it
            return True
        try:
            value = pool._engine.get(ref, timeout)
        except KeyboardInterrupt:
            raise
        except GetTimeoutError as error:
            # It may also be what the task itself raised: that has a cause.
            if timeout is not None and not isinstance(error.__cause__, RemoteTraceback):
                return False
            self._settle(False, translated(error, self._name_call))
        except BaseException as error:
            self._settle(False, translated(error, self._name_call))
        else:
            self._settle(True, value)
        return True

    def _settle(self, success: bool, value: Any) -> None:
        self._value = value
        self._success = success
        self._pool = self._ref = self._call = None

    def _deliver(self, completion: Completion) -> None:
        """Run the callback, then mark the result ready; in the engine's callback thread."""
        value = completion.value if completion.ok else translated(completion.value, self._name_call)
        self._finish(completion.ok, value)

    def _finish(self, success: bool, value: Any) -> None:
        pool, event = self._pool, self._event
        assert pool is not None and event is not None
        callback = self._callback if success else self._error_callback
        try:
            if callback is not None and pool._state != "TERMINATE":
                pool._enter_callback()
                run_callback(callback, value)
        finally:
            self._callback = self._error_callback = None
            self._settle(success, value)
            event.set()
            pool._callback_done(self)

    def _name_call(self) -> tuple[str, int | None]:
        return (describe_call(*self._call), None) if self._call else ("", None)


AsyncResult = ApplyResult


class MapResult(ApplyResult):
    """Result of a map: the whole list, or the first exception to arrive once all chunks have completed."""

    __slots__ = ("_array", "_chunksize", "_failure", "_function", "_is_spread", "_items", "_left", "_turn")

    def __init__(
        self,
        pool: Pool,
        function: Callable[..., Any],
        items: Sequence[Any],
        chunksize: int,
        *,
        is_spread: bool = False,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> None:
        super().__init__(pool, callback, error_callback)
        self._function = function
        self._items: Sequence[Any] = items
        self._chunksize = chunksize
        self._is_spread = is_spread
        self._left = -(-len(items) // chunksize) if items else 0
        self._array: TaskArray | None = None
        self._failure: tuple[int, BaseException] | None = None
        self._turn = threading.Lock()
        self._value = [None] * len(items)
        if not items:
            self._success = True
            self._pool = None

    def _begin(self, pool: Pool, array: TaskArray) -> None:
        """Send the chunks off; to be called once, unless there are none."""
        self._array = array
        if self._event is not None:
            with pool._awaiting_callback(self):
                array.set_done_callback(self._deliver_many)
        if self._chunksize == 1:
            array.extend(self._items)
        else:
            array.extend(_chunks(self._items, self._chunksize))
        array.close()

    def _cancel(self) -> None:
        if self._array is not None:
            self._array.cancel(kill_after=KILL_AFTER)

    def _collect(self, timeout: float | None) -> bool:
        if self._event is not None:
            return self._event.wait(None if timeout is None else max(0, timeout))
        deadline = None if timeout is None else time.monotonic() + timeout
        # Whoever has the turn takes from the array; others that wait have what it took.
        if not self._turn.acquire(timeout=-1 if timeout is None else max(0, timeout)):
            return self._success is not None
        try:
            while self._success is None:
                if not self._take(deadline):
                    return False
            return True
        finally:
            self._turn.release()

    def _take(self, deadline: float | None) -> bool:
        array = self._array
        assert array is not None
        remaining = None if deadline is None else deadline - time.monotonic()
        if remaining is not None and remaining <= 0:
            taken = array.take_nowait()
            if not taken:
                return False
        else:
            try:
                taken = array.take(remaining)
            except GetTimeoutError:
                return False
        if self._absorb(taken):
            self._settle(*self._outcome())
        return True

    def _absorb(self, taken: list[Completion]) -> bool:
        """Book completions; True when they were the last ones."""
        values, chunksize = self._value, self._chunksize
        if chunksize == 1:
            for index, ok, value in taken:
                if ok:
                    values[index] = value
                elif self._failure is None:
                    self._failure = (index, value)
        else:
            for index, ok, value in taken:
                if ok:
                    values[index * chunksize : (index + 1) * chunksize] = value
                elif self._failure is None:
                    self._failure = (index, value)
        self._left -= len(taken)
        return self._left <= 0

    def _outcome(self) -> tuple[bool, Any]:
        if self._failure is None:
            return True, self._value
        return False, translated(self._failure[1], self._name_call)

    def _settle(self, success: bool, value: Any) -> None:
        super()._settle(success, value)
        self._array = self._failure = None
        self._items = ()

    def _deliver_many(self, taken: list[Completion]) -> None:
        if self._absorb(taken):
            self._finish(*self._outcome())

    def _name_call(self) -> tuple[str, int | None]:
        assert self._failure is not None
        index = self._failure[0]
        if self._chunksize == 1:
            return describe_item(self._function, self._items[index], is_spread=self._is_spread), index
        first = index * self._chunksize
        return name_chunk(self._function, self._items[first : first + self._chunksize], first, self._is_spread), None


def name_chunk(function: Callable[..., Any], items: Sequence[Any], first: int, is_spread: bool) -> str:
    """Write for people which items a chunk holds: only one of them was running."""
    begin = describe_item(function, items[0], is_spread=is_spread)
    end = describe_item(function, items[-1], is_spread=is_spread)
    return f"a chunk of items {first} to {first + len(items) - 1}, {begin} to {end},"


def _chunks(items: Sequence[Any], chunksize: int) -> Iterator[tuple[Any, ...]]:
    for first in range(0, len(items), chunksize):
        yield tuple(items[first : first + chunksize])

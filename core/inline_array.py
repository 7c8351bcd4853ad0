"""Calls that run in the process that makes them: the running itself, and task arrays of it."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .engine import Binding, Completion
from .errors import RemoteTraceback, TaskCancelledError, TaskExitError

if TYPE_CHECKING:
    from .inline import InlineEngine


def run_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], index: int = 0
) -> Completion:
    """Run one call and catch what it raises, as a worker would."""
    try:
        return Completion(index, True, function(*args, **kwargs))
    except KeyboardInterrupt:
        raise
    except SystemExit as error:
        failure: BaseException = TaskExitError(f"the task called sys.exit({error.code!r})", code=error.code)
        failure.__cause__ = _remote_traceback(error)
    except BaseException as error:
        failure = error
        failure.__cause__ = _remote_traceback(error)
    return Completion(index, False, failure)


def _remote_traceback(error: BaseException) -> RemoteTraceback:
    return RemoteTraceback.of("".join(traceback.format_exception(error)))


class InlineArray:
    """A `TaskArray` whose items run in the thread that takes them."""

    def __init__(self, engine: InlineEngine, function: Callable[[Any], Any], binding: Binding | None) -> None:
        self._engine = engine
        self._function = function
        self._refused = engine.refusal(binding)
        self._items: deque[Any] = deque()
        self._done: deque[Completion] = deque()
        self._callback: Callable[[list[Completion]], None] | None = None
        self._turn = threading.RLock()
        self._is_closed = False
        self._is_cancelled = False
        self.count = 0
        self.finished = 0
        self.run_seconds = 0.0
        self.taken_nbytes = 0  # nothing is copied, so nothing is counted

    @property
    def has_failed(self) -> bool:
        """Whether nothing more will run."""
        return self._is_cancelled or self._refused is not None or self._engine.is_shut

    def extend(self, items: Iterable[Any], *, gather: bool = False) -> int:
        """Append items, which are never sent anywhere; see `TaskArray`."""
        if self._is_closed:
            raise ValueError("the array was closed")
        fresh = list(items)
        self.count += len(fresh)
        self._items.extend(fresh)
        if self._callback is not None:
            self._engine.post(self._deliver)
        return len(fresh)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to run and nothing can be appended."""
        return self._is_closed and not self._items

    def close(self) -> None:
        """Promise that no more items come."""
        self._is_closed = True

    def take(self, timeout: float | None = None) -> list[Completion]:
        """Run the next item and return it with what is there already; an empty list when there is nothing."""
        return self.take_nowait()

    def take_nowait(self) -> list[Completion]:
        """The same as `take`: without it nothing would ever run."""
        with self._turn:
            if not self._done:
                self.run_next()
            taken = list(self._done)
            self._done.clear()
            return taken

    def run_next(self) -> bool:
        """Run one item and keep its completion; False when none is left."""
        with self._turn:
            try:
                item = self._items.popleft()
            except IndexError:
                return False
            index = self.finished
            refused = TaskCancelledError("the call was cancelled") if self._is_cancelled else self._refused
            since = time.perf_counter()
            done = Completion(index, False, refused) if refused else run_call(self._function, (item,), {}, index)
            self.run_seconds += time.perf_counter() - since
            self.finished += 1
            self._done.append(done)
            return True

    def wait_finished(self, count: int) -> None:
        """Run so many items."""
        while self.finished < count:
            self.run_next()

    def cancel(self, *, kill_after: float | None = 1.0) -> None:
        """Complete what has not run as cancelled; what runs is not interrupted."""
        self._is_cancelled = True

    def set_done_callback(self, callback: Callable[[list[Completion]], None]) -> None:
        """Run the items in the callback thread and deliver each there."""
        self._callback = callback
        self._engine.post(self._deliver)

    def _deliver(self) -> None:
        """Run one item, then queue again: callbacks of others have their turn in between."""
        taken = self.take_nowait()
        if taken and self._callback is not None:
            self._engine.post(self._deliver)
            self._callback(taken)

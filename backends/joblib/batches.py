"""Batches of tasks as joblib hands them over, and how they come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .failures import explained

TaskTuple = tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]

NOTHING = range(0)


class Batch:
    """Some tasks that joblib handed over together; what its callbacks get, and what it keeps as the job.

    With `on_consumed` the results can be taken once, one by one, and it is called with the batch's number for each.
    """

    __slots__ = ("_callback", "_on_consumed", "error", "left", "number", "results", "tasks")

    def __init__(
        self,
        number: int,
        tasks: Sequence[TaskTuple],
        callback: Callable[[Any], object],
        on_consumed: Callable[[int], None] | None = None,
    ) -> None:
        self._on_consumed = on_consumed
        self.number = number
        self.tasks: Sequence[TaskTuple] | None = tasks  # until joblib hears of it
        self._callback: Callable[[Any], object] | None = callback
        self.results: list[Any] = [None] * len(tasks)
        self.left = len(tasks)
        self.error: BaseException | None = None

    def __len__(self) -> int:
        return len(self.results)

    def settle(self, part: range, ok: bool, value: Any) -> range:
        """Take the outcome of some tasks; returns those that their worker has not begun."""
        if self.is_settled:
            return NOTHING
        if not ok:
            assert self.tasks is not None
            self.fail(explained(value, self.tasks[part.start], len(part)))
            return NOTHING
        results = value if len(part) > 1 else (value,)
        end = part.start + len(results)
        self.results[part.start : end] = results
        self.left -= len(results)
        return range(end, part.stop)

    @property
    def is_settled(self) -> bool:
        """Whether joblib may hear of it."""
        return not self.left

    def fail(self, error: BaseException) -> None:
        """End with this error; what the other tasks return is of no interest any more."""
        self.error = error
        self.left = 0
        self.results.clear()

    def tell(self) -> None:
        """Call back, once. What joblib holds of the batch then ends with the call, without a cycle."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(self)

    def outcome(self) -> Any:
        """Return the results, or raise what the first failing task raised; to be called once."""
        error, self.error = self.error, None  # its traceback leads here, and to what the program's functions hold
        if error is not None:
            try:
                raise error
            finally:
                del error
        return self.results if self._on_consumed is None else self._consumed(self._on_consumed)

    def _consumed(self, on_consumed: Callable[[int], None]) -> Iterator[Any]:
        """Give the results one by one and forget each: the consumer of a generator may keep fewer than there are."""
        results, self.results = self.results, []
        results.reverse()
        while results:
            yield results.pop()
            on_consumed(self.number)

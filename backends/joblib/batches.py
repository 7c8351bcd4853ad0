"""Batches of tasks as joblib hands them over, and how they come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from .failures import explained

TaskTuple = tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]

NOTHING = range(0)

#: Bytes of an argument whose task travels alone: it lies in the store, which many at once would fill.
LARGE_NBYTES = 64 << 10

_args_of, _kwargs_of = itemgetter(1), itemgetter(2)


def have_large(tasks: Sequence[TaskTuple]) -> bool:
    """Whether some argument of these tasks says of itself that it is large: it lies in the store."""
    keywords = [kwargs.values() for kwargs in filter(None, map(_kwargs_of, tasks))]

    def values() -> Iterator[Any]:
        return chain(chain.from_iterable(map(_args_of, tasks)), chain.from_iterable(keywords))

    # By type first: most tasks have arguments of few types, and this takes a tenth of a microsecond a task.
    sized = tuple(filter(_has_size, set(map(type, values()))))
    return bool(sized) and any(_is_large(value) for value in values() if isinstance(value, sized))


def _has_size(kind: type) -> bool:
    try:
        return hasattr(kind, "nbytes")
    except Exception:  # of the type's own
        return True


def _is_large(value: Any) -> bool:
    try:
        return bool(value.nbytes > LARGE_NBYTES)
    except Exception:  # of a property of the argument's own
        return True


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

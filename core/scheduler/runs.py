"""Sets of indices that are mostly consecutive, kept as runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator


class Runs:
    """Runs of indices, sorted and apart: [first, end) each."""

    __slots__ = ("_ends", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def __repr__(self) -> str:
        return f"<Runs {list(self)}>"

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._firsts, self._ends, strict=True)))

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def covers(self, first: int, end: int) -> bool:
        """Whether all indices from `first` to before `end`, at least one, are in one of the runs."""
        at = bisect_right(self._firsts, first) - 1
        return at >= 0 and end <= self._ends[at]

    def add(self, first: int, end: int) -> None:
        """Add indices none of which is in it."""
        firsts, ends = self._firsts, self._ends
        at = bisect_right(firsts, first)
        joins_left = at > 0 and ends[at - 1] == first
        joins_right = at < len(firsts) and firsts[at] == end
        if joins_left and joins_right:
            ends[at - 1] = ends[at]
            del firsts[at], ends[at]
        elif joins_left:
            ends[at - 1] = end
        elif joins_right:
            firsts[at] = first
        else:
            firsts.insert(at, first)
            ends.insert(at, end)

    def remove(self, first: int, end: int) -> None:
        """Take out indices that `covers` says are in it."""
        firsts, ends = self._firsts, self._ends
        at = bisect_right(firsts, first) - 1
        start, stop = firsts[at], ends[at]
        if start == first and stop == end:
            del firsts[at], ends[at]
        elif start == first:
            firsts[at] = end
        else:
            ends[at] = first
            if end < stop:
                firsts.insert(at + 1, end)
                ends.insert(at + 1, stop)

"""Runs of consecutive tasks: what arrives, lies in queues and travels in packets. There is no object per task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..ids import Span


class Interval:
    """Consecutive tasks of one stream, kind and attempt: indices first, first + stride, …

    ``calls`` holds one opaque entry of bytes a task. ``holds`` maps a position in ``calls`` to the stored objects
    which that call refers to; they are opaque too. ``order`` is the arrival number and ``since`` the time that the
    node gives. Treated as immutable once it is queued; parts share the entries of ``calls``.
    """

    __slots__ = ("owner", "stream", "first", "attempt", "stride", "kind", "calls", "holds", "array", "order", "since")

    def __init__(
        self,
        owner: int,
        stream: int,
        first: int,
        attempt: int,
        stride: int,
        kind: int,
        calls: list[bytes],
        holds: dict[int, tuple[object, ...]] | None = None,
        array: bool = False,
        order: int = 0,
        since: float = 0.0,
    ) -> None:
        self.owner = owner
        self.stream = stream
        self.first = first
        self.attempt = attempt
        self.stride = stride
        self.kind = kind
        self.calls = calls
        self.holds = holds or {}
        self.array = array
        self.order = order
        self.since = since

    def __repr__(self) -> str:
        return f"<Interval {self.owner:x}/{self.stream}/{self.first} x{len(self.calls)} attempt {self.attempt}>"

    def part(self, start: int, stop: int) -> Interval:
        """The tasks at positions ``start`` to ``stop`` - 1 as an interval of their own."""
        holds = self.holds
        if holds:
            holds = {at - start: objects for at, objects in holds.items() if start <= at < stop}
        return Interval(
            self.owner,
            self.stream,
            self.first + start * self.stride,
            self.attempt,
            self.stride,
            self.kind,
            self.calls[start:stop],
            holds,
            self.array,
            self.order,
            self.since,
        )

    def span(self, start: int = 0, stop: int | None = None) -> Span:
        """Name the tasks at positions ``start`` to ``stop`` - 1 (default: all)."""
        stop = len(self.calls) if stop is None else stop
        return Span(self.stream, self.first + start * self.stride, stop - start, self.attempt, self.stride)

    def position(self, stream: int, index: int) -> int:
        """Where in ``calls`` the task with this index lies, or -1."""
        if stream != self.stream or index < self.first:
            return -1
        at = (index - self.first) // self.stride
        return at if at < len(self.calls) else -1

    def overlap(self, span: Span) -> tuple[int, int]:
        """Positions (start, stop) of the tasks that ``span`` names too; start >= stop when there are none."""
        if span.stream != self.stream or span.attempt != self.attempt:
            return 0, 0
        start = max(0, -((self.first - span.first) // self.stride))
        stop = min(len(self.calls), -((self.first - span.end) // self.stride))
        return start, stop


def cut(intervals: Iterable[Interval], spans: Sequence[Span]) -> tuple[list[Interval], list[Span]]:
    """Part ``intervals`` into what ``spans`` do not name, in order, and the names of what they do."""
    kept = list(intervals)
    taken: list[Span] = []
    for span in spans:
        rest: list[Interval] = []
        for interval in kept:
            start, stop = interval.overlap(span)
            if start >= stop:
                rest.append(interval)
                continue
            taken.append(interval.span(start, stop))
            if start:
                rest.append(interval.part(0, start))
            if stop < len(interval.calls):
                rest.append(interval.part(stop, len(interval.calls)))
        kept = rest
    return kept, taken

"""Queued tasks by kind, and shapes: the kinds among which a worker may pass without new resources.

A task that is here is queued exactly once; ``Kind.queued``, ``Shape.queued``, ``Shape.waiting`` and the root's set of
ready shapes always agree, since only the methods of ``Kind`` change them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING

from ..ids import Span
from .intervals import Interval, cut
from .pace import PACKET_NBYTES, Pace
from .resources import Demand, Resources

if TYPE_CHECKING:
    from .fairness import Root
    from .tables import Binding, Client, Worker


class Shape:
    """One binding and demand. A worker leases a shape while it has anything outstanding.

    ``waiting`` holds the kinds with queued tasks, ``leased`` the workers that hold its resources, ``coming`` counts
    those of them that are still starting. ``pools`` is what its tasks take their resources from, one of them for each:
    the node's, or bundles of a gang; ``capacity`` is how many fit there at once when nothing else does, ``part`` what
    of the node one of them holds. ``is_shared``: other nodes could run its tasks too.
    """

    __slots__ = ("binding", "demand", "pools", "root", "capacity", "part", "is_shared", "waiting", "queued", "leased",
                 "coming")  # fmt: skip

    def __init__(
        self, binding: Binding, demand: Demand, pools: tuple[Resources, ...], capacity: int, part: int, *,
        is_shared: bool,
    ) -> None:  # fmt: skip
        self.binding = binding
        self.demand = demand
        self.pools = pools
        self.root: Root = binding.client.root
        self.capacity = capacity
        self.part = part
        self.is_shared = is_shared
        self.waiting: dict[Kind, None] = {}
        self.queued = 0
        self.leased: dict[int, Worker] = {}
        self.coming = 0

    def count(self, kind: Kind, tasks: int) -> None:
        """Add to the number of a kind's queued tasks; negative numbers subtract."""
        was = self.queued
        kind.queued += tasks
        self.queued = was + tasks
        if kind.queued:
            self.waiting[kind] = None
        else:
            self.waiting.pop(kind, None)
        if not was and self.queued:
            self.root.add(self)
        elif was and not self.queued:
            self.root.discard(self)


class Kind:
    """Tasks of one client and function: their queue, pace and credit.

    ``offset`` counts tasks of the first queued interval that have gone already. ``outstanding`` counts queued and
    dealt ones. ``wanted`` is how many more its owner would send, ``credit`` what it was granted last: 0 when nothing of
    it is taken, because no node can run it (``is_refused``) or because only others can or should. At the last look,
    ``looked_at``, nothing had finished since ``silent_since`` and there were ``seen_samples`` measurements;
    ``patience`` is how long at least its last task waits here. ``process_retries`` is that of `KindSpec`.
    """

    __slots__ = ("client", "id", "shape", "pace", "queue", "offset", "queued", "outstanding", "credit", "wanted",
                 "is_refused", "process_retries", "seen_samples", "silent_since", "looked_at",
                 "patience")  # fmt: skip

    def __init__(self, client: Client, kind_id: int, shape: Shape, credit: int, process_retries: int = 0) -> None:
        self.client = client
        self.id = kind_id
        self.shape = shape
        self.pace = Pace()
        self.queue: deque[Interval] = deque()
        self.offset = 0
        self.queued = 0
        self.outstanding = 0
        self.credit = credit
        self.wanted = 0
        self.is_refused = False
        self.process_retries = process_retries
        self.seen_samples = 0
        self.silent_since = 0.0
        self.looked_at = float("-inf")
        self.patience = 0.0

    @property
    def is_kept_out(self) -> bool:
        """Whether none of what is here runs: the tasks of others are in its way."""
        return 0 < self.queued == self.outstanding

    def push(self, interval: Interval) -> None:
        """Queue what has arrived behind everything else."""
        self.queue.append(interval)
        self.outstanding += len(interval.calls)
        self.shape.count(self, len(interval.calls))

    def requeue(self, intervals: Sequence[Interval]) -> None:
        """Put dealt tasks that have not begun back in front."""
        self._drop_gone()
        self.queue.extendleft(reversed(intervals))
        self.shape.count(self, sum(len(i.calls) for i in intervals))

    def take(self, count: int, before: float = inf) -> tuple[list[Interval], int]:
        """Take the next tasks for one packet: at most ``count``, and at most a packet's bytes but at least one task.

        Of those that arrived after ``before`` none. Returns them and their number.
        """
        taken: list[Interval] = []
        total = 0
        room = PACKET_NBYTES
        queue = self.queue
        while total < count and queue and queue[0].order < before:
            head = queue[0]
            start = self.offset
            stop = min(len(head.calls), start + count - total)
            calls = head.calls if stop - start == len(head.calls) else head.calls[start:stop]
            nbytes = sum(map(len, calls))
            if nbytes > room:
                fitting = sum(1 for size in accumulate(map(len, calls)) if size <= room)
                stop = start + (fitting if fitting or total else 1)
            if stop == start:
                break
            taken.append(head if stop - start == len(head.calls) else head.part(start, stop))
            total += stop - start
            room -= nbytes
            if stop == len(head.calls):
                queue.popleft()
                self.offset = 0
            else:
                self.offset = stop
            if room <= 0:
                break
        self.shape.count(self, -total)
        return taken, total

    def take_last(self, count: int) -> list[Span]:
        """Drop up to so many of the newest tasks and name them."""
        self._drop_gone()
        dropped: list[Span] = []
        left = count
        while left and self.queue:
            last = self.queue.pop()
            stay = max(0, len(last.calls) - left)
            if stay:
                self.queue.append(last.part(0, stay))
            dropped.append(last.span(stay))
            left -= len(last.calls) - stay
        self._forget(count - left)
        return dropped

    def take_named(self, span: Span) -> list[Span]:
        """Drop the tasks that ``span`` names and name those that were here."""
        self._drop_gone()
        kept, dropped = cut(self.queue, [span])
        if dropped:
            self.queue = deque(kept)
            self._forget(sum(s.count for s in dropped))
        return dropped

    def take_all(self) -> list[Span]:
        """Drop everything queued and name it."""
        return self.take_last(self.queued)

    def _forget(self, tasks: int) -> None:
        self.outstanding -= tasks
        self.shape.count(self, -tasks)

    def _drop_gone(self) -> None:
        if self.offset:
            head = self.queue.popleft()
            self.queue.appendleft(head.part(self.offset, len(head.calls)))
            self.offset = 0

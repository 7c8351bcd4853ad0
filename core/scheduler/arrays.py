"""Task arrays at their owner: one record for many calls of one function.

Each item has one byte of state; an attempt other than the first is kept only for the few items that have one. Items are
dealt from `cursor` upwards; what must go again waits in `requeued` and goes before anything new. Where each outstanding
item is, is kept by node as runs of indices, and only once something of the array went to a further node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..ids import ObjectId, Span
from .entries import Extra
from .kinds import NO_LOSSES, Kind, Losses
from .outcomes import LostCause
from .runs import Runs
from .shares import OWN_NODE

UNSENT, SENT, DONE, OWED = 0, 1, 2, 3  # OWED: settled by the owner, the node has not answered for it yet


class Completed(NamedTuple):
    """So many consecutive items settled together, with a list of value bytes or with one mark for all of them."""

    first: int
    length: int
    values: Any


class Array:
    """One task array; `Items` calls the methods, the driver takes `completions`."""

    __slots__ = ("attempts", "cancelled", "completions", "count", "cursor", "disposed", "extras", "finished", "kind",
                 "loads", "losses", "owed", "places", "requeued", "seconds", "sent", "state", "stream")  # fmt: skip

    def __init__(self, stream: int, kind: Kind) -> None:
        self.stream = stream
        self.kind = kind
        self.count = 0  # items appended
        self.cursor = 0  # first item never sent
        self.finished = 0  # items settled
        self.sent = 0  # items in SENT
        self.owed = 0  # items in OWED
        self.seconds = 0.0  # run time of what has finished, as it was measured where it ran
        self.cancelled = False  # nothing more will be sent
        self.disposed = False  # nobody will take completions
        self.state = bytearray()
        self.attempts: dict[int, int] = {}  # of the items whose run is not the first
        self.losses: dict[int, Losses] = {}  # of the items that were lost and have not settled
        self.places: dict[int, Runs] | None = None  # what is outstanding, by node; None: all of it at the own one
        self.requeued: deque[tuple[int, int, int]] = deque()  # (first, count, attempt), oldest first
        self.loads: dict[int, tuple[int, tuple[ObjectId, ...]]] = {}  # bytes and objects of what is outstanding
        self.extras: dict[int, Extra] = {}  # of results that were not taken yet; each has an entry in `refs.owned`
        self.completions: deque[Completed] = deque()

    def __repr__(self) -> str:
        return f"<Array {self.stream} {self.kind.name} {self.finished}/{self.count} finished, {self.sent} sent>"

    def append(self, count: int) -> None:
        """Add items at the end."""
        self.count += count
        self.state.extend(bytes(count))

    def unsent(self) -> int:
        """Items that wait to be sent."""
        return self.count - self.cursor + sum(count for _, count, _ in self.requeued)

    def outstanding(self) -> int:
        """Items that the node has not answered for."""
        return self.sent + self.owed

    def attempt_of(self, index: int) -> int:
        """The run that an item is at, or settled with; the first is 1."""
        return self.attempts.get(index, 1) if self.attempts else 1

    def next_span(self, room: int, node: int) -> tuple[int, int, int] | None:
        """Take up to `room` items to send to a node now: (first, count, attempt), or None when none wait."""
        if self.requeued:
            first, count, attempt = self.requeued.popleft()
            if count > room:
                self.requeued.appendleft((first + room, count - room, attempt))
                count = room
        elif self.cursor < self.count:
            first, attempt = self.cursor, 1
            count = min(room, self.count - first)
            self.cursor = first + count
        else:
            return None
        if node or self.places is not None:
            self._place(first, first + count, node)
        self.state[first : first + count] = bytes([SENT]) * count
        self.sent += count
        return first, count, attempt

    def _place(self, first: int, end: int, node: int) -> None:
        """Note where items are that are about to be sent."""
        if not self.outstanding():
            self.places = None  # of what was, nothing is left
            if not node:
                return
        if self.places is None:
            at_home = Runs()
            for start, stop in self._runs((SENT, OWED)):
                at_home.add(start, stop)
            self.places = {OWN_NODE: at_home}
        runs = self.places.get(node)
        if runs is None:
            runs = self.places[node] = Runs()
        runs.add(first, end)

    def _runs(self, states: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        for state in states:
            start = self.state.find(state)
            while start >= 0:
                end = start + 1
                while end < self.count and self.state[end] == state:
                    end += 1
                yield start, end
                start = self.state.find(state, end)

    def _are_at(self, first: int, end: int, node: int) -> bool:
        if self.places is None:
            return node == OWN_NODE
        runs = self.places.get(node)
        return runs is not None and runs.covers(first, end)

    def _take_away(self, first: int, end: int, node: int) -> None:
        """A node has nothing of these items any more."""
        if self.places is not None:
            self.places[node].remove(first, end)

    def requeue(self, first: int, count: int, attempt: int) -> None:
        """Items that were withdrawn must be sent (again), before anything new."""
        if attempt != 1:
            for index in range(first, first + count):
                self.attempts[index] = attempt
        if self.requeued:
            start, before, run = self.requeued[-1]
            if start + before == first and run == attempt:
                self.requeued[-1] = (start, before + count, attempt)
                return
        self.requeued.append((first, count, attempt))

    def is_sent(self, index: int, attempt: int, node: int) -> bool:
        """Whether a node owes an answer for this run."""
        if index >= self.count or self.state[index] not in (SENT, OWED) or attempt != self.attempt_of(index):
            return False
        return self._are_at(index, index + 1, node)

    def is_settled(self, index: int) -> bool:
        """Whether an item has ended for the program."""
        return self.state[index] >= DONE

    def withdraw(self, index: int, node: int) -> bool:
        """The node owes nothing for a sent item any more. True: it has not settled, send it again or fail it."""
        self._take_away(index, index + 1, node)
        if self.state[index] == OWED:
            self._set_done(index)
            self.owed -= 1
            return False
        self.state[index] = UNSENT
        self.sent -= 1
        return True

    def add_loss(self, index: int, cause: LostCause, *, with_node: bool) -> Losses:
        """Count a lost run; returns all losses of the item."""
        losses = self.losses[index] = self.losses.get(index, NO_LOSSES).counting(cause, with_node=with_node)
        return losses

    def finish(self, first: int, attempt: int, values: Sequence[bytes], node: int) -> tuple[int, int]:
        """Settle items with their values from a node: (newly settled, answers that were owed)."""
        count = len(values)
        end = first + count
        places = self.places
        if (attempt == 1 and self.state.count(SENT, first, end) == count
                and (not self.attempts or self.attempts.keys().isdisjoint(range(first, end)))
                and (not node if places is None else self._are_at(first, end, node))):  # fmt: skip
            if places is not None:
                places[node].remove(first, end)
            self.state[first:end] = bytes([DONE]) * count
            self.sent -= count
            self.finished += count
            self.completions.append(Completed(first, count, values))
            return count, count
        accepted = answered = 0
        run: list[bytes] = []  # values of the items just before `index`
        for index, value in enumerate(values, first):
            if self.is_sent(index, attempt, node):
                answered += 1
                if self.withdraw(index, node):
                    self._set_done(index)
                    accepted += 1
                    run.append(value)
                    continue
            self._complete(index, run)
            run = []
        self._complete(end, run)
        self.finished += accepted
        return accepted, answered

    def _complete(self, end: int, values: list[bytes]) -> None:
        if values:
            self.completions.append(Completed(end - len(values), len(values), values))

    def _set_done(self, index: int) -> None:
        self.state[index] = DONE
        self.losses.pop(index, None)

    def fail(self, first: int, count: int, mark: Any) -> int:
        """Settle items with a mark; returns how many had not settled before."""
        failed = 0
        start = first
        for index in range(first, first + count):
            state = self.state[index]
            if state >= DONE:
                self._complete_failed(start, index, mark)
                start = index + 1
                continue
            failed += 1
            if state == SENT:
                self.sent -= 1
                self.owed += 1
                self.state[index] = OWED
            else:
                self._set_done(index)
        self._complete_failed(start, first + count, mark)
        self.finished += failed
        return failed

    def _complete_failed(self, start: int, end: int, mark: Any) -> None:
        if start < end:
            self.completions.append(Completed(start, end - start, mark))

    def take_unsent(self) -> list[tuple[int, int]]:
        """Give up everything that waits to be sent: (first, count) each."""
        spans = [(first, count) for first, count, _ in self.requeued]
        if self.cursor < self.count:
            spans.append((self.cursor, self.count - self.cursor))
        self.requeued.clear()
        self.cursor = self.count
        return spans

    def nodes(self) -> list[int]:
        """Where something of it may be outstanding."""
        return [OWN_NODE] if self.places is None else [node for node, runs in self.places.items() if runs]

    def sent_spans(self, node: int) -> list[Span]:
        """Every item in SENT at a node, as spans of equal attempts."""
        runs: list[list[int]] = []
        for index in self._find(SENT, node):
            attempt = self.attempt_of(index)
            if runs and runs[-1][0] + runs[-1][1] == index and runs[-1][2] == attempt:
                runs[-1][1] += 1
            else:
                runs.append([index, 1, attempt])
        return [Span(self.stream, first, count, attempt) for first, count, attempt in runs]

    def _find(self, state: int, node: int) -> Iterator[int]:
        where = [(0, self.count)] if self.places is None else self.places[node]
        for first, end in where:
            index = self.state.find(state, first, end)
            while index >= 0:
                yield index
                index = self.state.find(state, index + 1, end)

    def forget_owed(self, node: int) -> None:
        """A node will answer for nothing any more."""
        for index in self._find(OWED, node):
            self.withdraw(index, node)

    def check(self) -> None:
        """Verify the invariants; for tests and the simulator."""
        assert self.sent == self.state.count(SENT), self
        assert self.owed == self.state.count(OWED), self
        assert self.finished == self.state.count(DONE) + self.owed, self
        waiting = set(range(self.cursor, self.count))
        for first, count, attempt in self.requeued:
            assert waiting.isdisjoint(range(first, first + count)), self
            waiting.update(range(first, first + count))
            assert all(self.attempt_of(index) == attempt for index in range(first, first + count)), self
        assert len(waiting) == self.state.count(UNSENT), self
        assert all([self.state[index] == UNSENT for index in waiting]), self
        assert all([self.state[index] in (SENT, OWED) for index in self.loads]), self
        if self.places is not None:
            placed = [index for runs in self.places.values() for run in runs for index in range(*run)]
            outstanding = [index for index, state in enumerate(self.state) if state in (SENT, OWED)]
            assert sorted(placed) == outstanding, f"{self} has {placed}, not {outstanding}"
        assert not self.disposed or (self.owed and not self.sent and not waiting and not self.extras), self

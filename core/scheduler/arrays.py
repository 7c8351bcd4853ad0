"""Task arrays at their owner: one record for many calls of one function.

Each item has one byte of state; an attempt other than the first is kept only for the few items that have one. Items are
dealt from `cursor` upwards; what must go again waits in `requeued` and goes before anything new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ids import Span
from .outcomes import LostCause

if TYPE_CHECKING:
    from .owner import Kind

UNSENT, SENT, DONE, OWED = 0, 1, 2, 3  # OWED: settled by the owner, the node has not answered for it yet


class Completed(NamedTuple):
    """Consecutive items that settled together: value bytes each, or one mark for all of them."""

    first: int
    count: int
    values: Any


class Array:
    """One task array; `Owner` calls the methods, the driver takes `completions`."""

    __slots__ = ("attempts", "cancelled", "completions", "count", "cursor", "extras", "finished", "kind", "loads", "losses",
                 "owed", "requeued", "sent", "state", "stream")  # fmt: skip

    def __init__(self, stream: int, kind: Kind) -> None:
        self.stream = stream
        self.kind = kind
        self.count = 0  # items appended
        self.cursor = 0  # first item never sent
        self.finished = 0  # items settled
        self.sent = 0  # items in SENT
        self.owed = 0  # items in OWED
        self.cancelled = False
        self.state = bytearray()
        self.attempts: dict[int, int] = {}
        self.losses: dict[int, list[int]] = {}
        self.requeued: deque[tuple[int, int, int]] = deque()
        self.loads: dict[int, tuple[int, tuple[Any, ...]]] = {}  # index → bytes it carries, objects it holds
        self.extras: dict[int, Any] = {}  # index → Extra of a result that was not taken yet
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

    def next_span(self, room: int) -> tuple[int, int, int] | None:
        """Take up to `room` items to send now: (first, count, attempt), or None when none wait."""
        if self.requeued:
            first, count, attempt = self.requeued.popleft()
            if count > room:
                self.requeued.appendleft((first + room, count - room, attempt))
                count = room
            if attempt != 1:
                for index in range(first, first + count):
                    self.attempts[index] = attempt
        elif self.cursor < self.count:
            first, attempt = self.cursor, 1
            count = min(room, self.count - first)
            self.cursor = first + count
        else:
            return None
        self.state[first : first + count] = bytes([SENT]) * count
        self.sent += count
        return first, count, attempt

    def requeue(self, first: int, count: int, attempt: int) -> None:
        """Items that were sent must be sent (again), before anything new."""
        self.sent -= self.state.count(SENT, first, first + count)
        self.state[first : first + count] = bytes(count)
        if attempt != 1:
            for index in range(first, first + count):
                self.attempts[index] = attempt
        if self.requeued and self.requeued[-1][0] + self.requeued[-1][1] == first and self.requeued[-1][2] == attempt:
            first, before, _ = self.requeued.pop()
            count += before
        self.requeued.append((first, count, attempt))

    def is_sent(self, index: int, attempt: int) -> bool:
        """Whether the node owes an answer for this attempt."""
        return (
            index < self.count
            and self.state[index] in (SENT, OWED)
            and (attempt == (self.attempts.get(index, 1) if self.attempts else 1))
        )

    def is_settled(self, index: int) -> bool:
        """Whether the item has ended for the program."""
        return self.state[index] >= DONE

    def answer_cancelled(self, index: int) -> None:
        """The node has answered for an item that was settled before."""
        self.state[index] = DONE
        self.owed -= 1

    def add_loss(self, index: int, cause: LostCause) -> tuple[int, int]:
        """Count a lost run that the node has answered for; returns (process losses, machine losses)."""
        self.state[index] = UNSENT
        self.sent -= 1
        losses = self.losses.setdefault(index, [0, 0])
        if cause is LostCause.PROCESS:
            losses[0] += 1
        elif cause is LostCause.MACHINE:
            losses[1] += 1
        return losses[0], losses[1]

    def finish(self, first: int, attempt: int, values: Sequence[bytes]) -> tuple[int, int]:
        """Settle items with their values: (newly settled, answers that were owed)."""
        count = len(values)
        if attempt == 1 and not self.attempts and self.state[first : first + count] == bytes([SENT]) * count:
            self.state[first : first + count] = bytes([DONE]) * count
            self.sent -= count
            self.finished += count
            self.completions.append(Completed(first, count, values))
            return count, count
        accepted = answered = 0
        for offset, value in enumerate(values):
            index = first + offset
            if not self.is_sent(index, attempt):
                continue
            answered += 1
            if self.state[index] == OWED:
                self.answer_cancelled(index)
                continue
            self.state[index] = DONE
            self.sent -= 1
            accepted += 1
            self.completions.append(Completed(index, 1, [value]))
        self.finished += accepted
        return accepted, answered

    def fail(self, first: int, count: int, mark: Any) -> int:
        """Settle items with a mark; returns how many had not settled before."""
        failed = 0
        for index in range(first, first + count):
            state = self.state[index]
            if state >= DONE:
                continue
            if state == SENT:
                self.sent -= 1
                self.owed += 1
            self.state[index] = OWED if state == SENT else DONE
            failed += 1
            self.completions.append(Completed(index, 1, mark))
        self.finished += failed
        return failed

    def fail_unsendable(self, index: int, mark: Any) -> int:
        """Settle an item that was taken to be sent and could not be pickled: the node owes nothing for it."""
        self.state[index] = UNSENT
        self.sent -= 1
        return self.fail(index, 1, mark)

    def take_unsent(self) -> list[tuple[int, int]]:
        """Give up everything that waits to be sent: (first, count) each."""
        spans = [(first, count) for first, count, _ in self.requeued]
        if self.cursor < self.count:
            spans.append((self.cursor, self.count - self.cursor))
        self.requeued.clear()
        self.cursor = self.count
        return spans

    def sent_spans(self) -> list[Span]:
        """Every item in SENT, as spans of equal attempts."""
        spans: list[Span] = []
        for index in self._sent_indices():
            attempt = self.attempts.get(index, 1)
            last = spans[-1] if spans else None
            if last is not None and last.first + last.count == index and last.attempt == attempt:
                spans[-1] = last._replace(count=last.count + 1)
            else:
                spans.append(Span(self.stream, index, 1, attempt))
        return spans

    def _sent_indices(self) -> Iterator[int]:
        index = self.state.find(SENT)
        while index >= 0:
            yield index
            index = self.state.find(SENT, index + 1)

    def check(self) -> None:
        """Verify the invariants; for tests and the simulator."""
        assert self.sent == self.state.count(SENT), self
        assert self.owed == self.state.count(OWED), self
        assert self.finished == self.state.count(DONE) + self.owed, self
        waiting = set(range(self.cursor, self.count))
        for first, count, _ in self.requeued:
            assert waiting.isdisjoint(range(first, first + count)), self
            waiting.update(range(first, first + count))
        assert {i for i, s in enumerate(self.state) if s == UNSENT} == waiting, self

"""What a worker has been given: its range of packets, and what became of each task when the worker dies.

A packet is taken from the claim socket by exactly one reader, the worker or its node; a worker writes the results of
a packet before it takes the next, and tasks of a packet run in order. So of all outstanding packets at most the first
has begun, and within it the board's word parts what ran from what did not:

    reported (gone from here) | ran, result died with the worker | the suspect | not begun

A worker that runs calls at the same time takes packets at once and reports their tasks in any order: all that it has
taken are suspects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ..ids import Span
from .commands import InvalidTransition, TaskKey
from .intervals import Interval, cut

if TYPE_CHECKING:
    from .queues import Kind

#: One entry of a report: (owner, stream, first, count, stride, attempt).
Done = tuple[int, int, int, int, int, int]


class Packet:
    """Tasks of one kind that travel to a worker together.

    ``intervals`` holds what has not been reported, ``count`` its number of tasks, ``each`` the seconds a task was
    reckoned at. ``cancelled`` names tasks whose owner no longer wants them, ``doomed`` those for which the worker may
    be killed.
    """

    __slots__ = ("number", "kind", "intervals", "count", "each", "cancelled", "doomed")

    def __init__(self, number: int, kind: Kind, intervals: list[Interval], count: int, each: float) -> None:
        self.number = number
        self.kind = kind
        self.intervals = intervals
        self.count = count
        self.each = each
        self.cancelled: list[Span] = []
        self.doomed: list[Span] = []

    def after(self, done: Iterable[Done]) -> tuple[list[Interval], int]:
        """What is left once ``done`` is reported, and how many tasks that names.

        Raises InvalidTransition unless the report names the next tasks of this packet, in order.
        """
        rest = self.intervals
        at = 0
        partial: Interval | None = None
        total = 0
        for owner, stream, first, count, stride, attempt in done:
            total += count
            while count > 0:
                if at == len(rest):
                    raise InvalidTransition(f"packet {self.number} has no task {stream}/{first} left")
                head = partial or rest[at]
                if (head.stream, head.first, head.owner, head.attempt) != (stream, first, owner, attempt):
                    raise InvalidTransition(f"packet {self.number}: {stream}/{first} reported, {head!r} is next")
                length = len(head.calls)
                if count < length:
                    partial = head.part(count, length)
                    break
                partial = None
                at += 1
                count -= length
                first += length * stride
        if partial is not None:
            return [partial, *rest[at + 1 :]], total
        return rest[at:], total

    def without(self, done: Iterable[Done]) -> tuple[list[Interval], int]:
        """What is left once ``done`` is reported, in any order, and how many tasks that names.

        Raises InvalidTransition when the packet has not all of them.
        """
        named = [Span(stream, first, count, attempt, stride) for _, stream, first, count, stride, attempt in done]
        rest, taken = cut(self.intervals, named)
        count = sum(span.count for span in taken)
        if count != sum(span.count for span in named):
            raise InvalidTransition(f"packet {self.number} has not all of {named} left")
        return rest, count

    def find(self, task: TaskKey) -> bool:
        """Whether the task is among those not yet reported."""
        owner, stream, index = task
        return any(i.owner == owner and i.position(stream, index) >= 0 for i in self.intervals)

    def is_doomed(self, task: TaskKey) -> bool:
        """Whether the worker may be killed for running this task."""
        _, stream, index = task
        return self.find(task) and any(s.stream == stream and s.first <= index < s.end for s in self.doomed)


class Fate(NamedTuple):
    """What became of the tasks of one packet when its worker died."""

    packet: Packet
    suspect: list[Interval]  #: the one that was running, or empty
    unreported: list[Interval]  #: ran, but their results died with the worker
    untouched: list[Interval]  #: not begun


class Range:
    """The packets a worker has outstanding, oldest first.

    ``seconds`` is what they are reckoned at; ``tasks`` counts them. ``is_concurrent``: see the head of this file.
    """

    __slots__ = ("is_concurrent", "packets", "seconds", "tasks")

    def __init__(self, *, is_concurrent: bool = False) -> None:
        self.is_concurrent = is_concurrent
        self.packets: deque[Packet] = deque()
        self.seconds = 0.0
        self.tasks = 0

    def add(self, packet: Packet) -> None:
        """Append a packet that is being sent."""
        self.packets.append(packet)
        self.seconds += packet.each * packet.count
        self.tasks += packet.count

    def report(self, number: int, done: Iterable[Done], packet_done: bool) -> tuple[Packet, int]:
        """Take reported tasks off the first packet (any, if concurrent), and the packet itself when it is done.

        Returns the packet and the number of tasks. Raises InvalidTransition and changes nothing when the packet is
        not the first one, the tasks are not its next ones, or it is said to be done with tasks left.
        """
        packet = self._running(number)
        rest, count = packet.without(done) if self.is_concurrent else packet.after(done)
        if packet_done:
            if rest:
                raise InvalidTransition(f"packet {number} is said to be done with {rest!r} left")
            self.packets.remove(packet)
        packet.intervals = rest
        packet.count -= count
        self._subtract(packet.each, count)
        return packet, count

    def _running(self, number: int) -> Packet:
        if self.packets and self.packets[0].number == number:
            return self.packets[0]
        for packet in self.packets if self.is_concurrent else ():
            if packet.number == number:
                return packet
        raise InvalidTransition(f"packet {number} is not the one being run")

    def take_back(self, numbers: Collection[int]) -> list[Packet]:
        """Remove packets that the kernel gave back, oldest first.

        Raises InvalidTransition and changes nothing when one of them is not outstanding.
        """
        wanted = set(numbers)
        taken = [p for p in self.packets if p.number in wanted]
        if len(taken) != len(wanted):
            raise InvalidTransition(f"not all of packets {sorted(wanted)} are outstanding")
        if taken:
            self.packets = deque(p for p in self.packets if p.number not in wanted)
        for packet in taken:
            self._subtract(packet.each, packet.count)
        return taken

    def give_back(self, number: int, count: int) -> tuple[Packet, list[Interval]]:
        """Take the last tasks, which have not begun, off the packet that is being run; returns it and them.

        It may be all that is left, when none runs at this moment: the word that the packet is done comes next.
        Raises InvalidTransition and changes nothing when the packet is not the first one or has not so many.
        """
        packet = self.packets[0] if self.packets else None
        if packet is None or packet.number != number or not 0 < count <= packet.count:
            raise InvalidTransition(f"packet {number} is not being run, or has no {count} tasks left")
        kept: list[Interval] = []
        rest: list[Interval] = []
        left = packet.count - count
        for interval in packet.intervals:
            length = len(interval.calls)
            if 0 < left < length:
                kept.append(interval.part(0, left))
                rest.append(interval.part(left, length))
            else:
                (kept if left > 0 else rest).append(interval)
            left -= length
        packet.intervals = kept
        packet.count -= count
        self._subtract(packet.each, count)
        return packet, rest

    def autopsy(self, returned: Collection[int], running: TaskKey | None) -> list[Fate]:
        """Tell the fate of every task outstanding at a worker that died, oldest packet first; the range is then empty.

        Args:
            returned: numbers of the packets that the node read back: not begun.
            running: what the board names, or None: then nothing that is outstanding has begun. A word that names a
                task already reported means the same.
        """
        fates = []
        for packet in self.packets:
            if self.is_concurrent and packet.number not in returned:
                fates.append(Fate(packet, packet.intervals, [], []))
            elif running is not None and packet.number not in returned and packet.find(running):
                fates.append(_part_at(packet, running))
            else:
                fates.append(Fate(packet, [], [], packet.intervals))
        self.packets.clear()
        self.seconds = 0.0
        self.tasks = 0
        return fates

    def _subtract(self, each: float, count: int) -> None:
        self.tasks -= count
        self.seconds = self.seconds - each * count if self.tasks else 0.0


def _part_at(packet: Packet, running: TaskKey) -> Fate:
    owner, stream, index = running
    fate = Fate(packet, [], [], [])
    for interval in packet.intervals:
        at = interval.position(stream, index) if interval.owner == owner and not fate.suspect else -1
        if at < 0:
            (fate.untouched if fate.suspect else fate.unreported).append(interval)
            continue
        if at:
            fate.unreported.append(interval.part(0, at))
        fate.suspect.append(interval.part(at, at + 1))
        if at + 1 < len(interval.calls):
            fate.untouched.append(interval.part(at + 1, len(interval.calls)))
    return fate

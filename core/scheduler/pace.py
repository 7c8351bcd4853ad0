"""Measured run time of a kind, and the sizes of packets and ranges that follow from it."""

from __future__ import annotations

from math import sqrt

#: Seconds of work in a packet. Larger saves messages, smaller loses less when a worker dies and spreads better.
PACKET_SECONDS = 0.001
#: Seconds of work in a worker's range, and the run time from which tasks are long: a long one has nothing behind it.
#: Larger covers slower loops, smaller leaves less to recall.
RANGE_SECONDS = 0.010
#: Most tasks in a packet: bounds what is run again after a death.
PACKET_TASKS = 256
#: Most bytes of calls in a packet: what a socket takes at once without being enlarged.
PACKET_NBYTES = 64 * 1024
#: Most packets in a range.
RANGE_PACKETS = 16
#: Weight of a measurement that is slower than the mean so far: high, so that one slow item shows at once.
SLOWER_WEIGHT = 0.75
#: Shortest run time that is believed: a clock may show no progress at all.
LEAST_SECONDS = 1e-7


class Pace:
    """Mean run time of a kind's tasks.

    Slower tasks weigh in at once. Faster ones pull down the logarithm, so that a first call which imported modules
    for a second is forgotten within about three packets. ``mean`` is 0.0 until measured.
    """

    __slots__ = ("mean", "samples", "packet_tasks")

    def __init__(self) -> None:
        self.mean = 0.0
        self.samples = 0
        self.packet_tasks = 1

    def note(self, seconds: float, count: int) -> None:
        """Take in that ``count`` tasks ran for so many seconds together."""
        each = seconds / count
        if each < LEAST_SECONDS:
            each = LEAST_SECONDS
        mean = self.mean
        if not mean:
            mean = each
        elif each > mean:
            mean += SLOWER_WEIGHT * (each - mean)
        else:
            mean = sqrt(mean * each)
        self.mean = mean
        self.samples += 1
        size = int(PACKET_SECONDS / mean)
        self.packet_tasks = 1 if size < 1 else size if size < PACKET_TASKS else PACKET_TASKS

    @property
    def expected(self) -> float:
        """Seconds that a task is reckoned at: a whole range when nothing is known."""
        return self.mean or RANGE_SECONDS

    @property
    def is_short(self) -> bool:
        """Whether such tasks may lie behind others: measured, and not long."""
        return 0.0 < self.mean < RANGE_SECONDS

    def room(self, packets: int, outstanding_seconds: float) -> int:
        """How many more tasks a worker may get that has so much outstanding.

        Unmeasured and long tasks go one at a time and behind nothing.
        """
        mean = self.mean
        if not packets:
            return 1 if not mean or mean >= RANGE_SECONDS else int(RANGE_SECONDS / mean)
        if not self.is_short or packets >= RANGE_PACKETS:
            return 0
        return max(0, int((RANGE_SECONDS - outstanding_seconds) / mean))

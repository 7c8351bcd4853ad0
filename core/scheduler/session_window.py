"""The two halves of a session: what goes out and is kept until acknowledged, what came in and has to be acknowledged.

    base              cursor                       next
     |   in flight      |          waiting           |
                             ^ fresh: from here on never sent

``flight`` and ``waiting`` together hold the frames from ``base`` to ``next``, one a number. After a break all of
``flight`` waits again, so ``fresh`` may be ahead of ``cursor``. Numbers come in in order only, so all the receiving
half keeps is the one it expects.
"""

from __future__ import annotations

from collections import deque
from math import inf

from .session_words import Unsent, Word

#: Most frames that may be sent and not acknowledged. Smaller makes a far peer wait for acknowledgements (10,000 frames
#: a second over 0.1 s there and back are 1,000), larger lets more be sent again after a break.
WINDOW_FRAMES = 4096
#: Most bytes of bodies that may be sent and not acknowledged: 1 Gbit/s over 0.1 s is 12.5 MB. A frame that is larger
#: goes alone.
WINDOW_NBYTES = 16 * 1024 * 1024
#: Frames and bytes taken after which an acknowledgement waits no longer: the peer's window never runs dry.
ACK_FRAMES = WINDOW_FRAMES // 8
ACK_NBYTES = WINDOW_NBYTES // 8
#: Most bytes of bodies that are kept for a peer that is silent. While it answers, what its owner has outstanding there
#: is bound by credit, and nothing is turned away. Larger bears longer breaks under heavy traffic, smaller needs less
#: memory in them.
MOST_WAITING_NBYTES = 4 * WINDOW_NBYTES

#: A limit that no number reaches.
NO_LIMIT = 1 << 64

#: Word, type, body.
Held = tuple[int, int, bytes]


class Outgoing:
    """Numbered frames on their way out; see the drawing above. Nothing beyond ``limit`` is sent."""

    __slots__ = (
        "base", "cursor", "fresh", "limit", "flight", "flight_nbytes", "waiting", "waiting_nbytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.base = self.cursor = self.fresh = 1
        self.limit = NO_LIMIT
        self.flight: deque[Held] = deque()
        self.waiting: deque[Held] = deque()
        self.flight_nbytes = self.waiting_nbytes = 0

    @property
    def next(self) -> int:
        """The number of the next frame to be added."""
        return self.cursor + len(self.waiting)

    @property
    def room(self) -> int:
        """Bytes that still fit in the window at once; 0 or less when it is full."""
        if len(self.flight) + len(self.waiting) >= WINDOW_FRAMES:
            return 0
        return WINDOW_NBYTES - self.flight_nbytes - self.waiting_nbytes

    def add(self, frame: Held) -> None:
        """Keep a frame; it waits for its turn."""
        self.waiting.append(frame)
        self.waiting_nbytes += len(frame[2])

    def take(self) -> Held | None:
        """Move the first that waits into flight, as number ``cursor - 1``; None when the window has no room for it."""
        flight = self.flight
        frame = self.waiting[0]
        nbytes = len(frame[2])
        if flight and (len(flight) >= WINDOW_FRAMES or self.flight_nbytes + nbytes > WINDOW_NBYTES):
            return None
        if self.cursor > self.limit:
            return None
        flight.append(self.waiting.popleft())
        self.waiting_nbytes -= nbytes
        self.flight_nbytes += nbytes
        self.cursor += 1
        if self.cursor > self.fresh:
            self.fresh = self.cursor
        return frame

    def acknowledge(self, expects: int) -> None:
        """Forget all frames before ``expects``, which is at most ``fresh``."""
        flight = self.flight
        while self.base < expects and flight:
            self.flight_nbytes -= len(flight.popleft()[2])
            self.base += 1
        while self.base < expects:  # told over an older path, when the frames had begun to wait again
            self.waiting_nbytes -= len(self.waiting.popleft()[2])
            self.base += 1
            self.cursor += 1

    def rewind(self) -> None:
        """Let all that is in flight wait again."""
        self.waiting.extendleft(reversed(self.flight))
        self.waiting_nbytes += self.flight_nbytes
        self.flight.clear()
        self.flight_nbytes = 0
        self.cursor = self.base

    def clear(self) -> tuple[Unsent, ...]:
        """Forget everything; returns the messages that were never sent."""
        never = list(self.waiting)[self.fresh - self.cursor :]
        self.flight.clear()
        self.waiting.clear()
        self.flight_nbytes = self.waiting_nbytes = 0
        return tuple(Unsent(*held[1:]) for held in never if held[0] == Word.DATA)

    def check(self) -> None:
        """Raise ``AssertionError`` when an invariant does not hold; for tests."""
        assert self.cursor == self.base + len(self.flight), "flight and cursor disagree"
        assert self.cursor <= self.fresh <= self.next, "what was sent is not among what is kept"
        assert self.fresh - self.base <= WINDOW_FRAMES, "more frames out than the window has"
        assert self.flight_nbytes <= WINDOW_NBYTES or len(self.flight) == 1, "more bytes out than the window has"
        assert self.flight_nbytes == sum([len(held[2]) for held in self.flight])
        assert self.waiting_nbytes == sum([len(held[2]) for held in self.waiting])


class Incoming:
    """What was taken: the next number, what of it is not acknowledged yet, what was missed."""

    __slots__ = ("expects", "missed", "missed_at", "owed", "owed_at", "owed_nbytes")

    def __init__(self) -> None:
        self.expects = 1
        self.owed = self.owed_nbytes = 0
        self.owed_at = inf
        self.missed = 0  # the number last asked for
        self.missed_at = -inf

    def owe(self, nbytes: int, now: float) -> bool:
        """Note that a frame has to be acknowledged; True when that must not wait any longer."""
        if not self.owed:
            self.owed_at = now
        self.owed += 1
        self.owed_nbytes += nbytes
        return self.owed >= ACK_FRAMES or self.owed_nbytes >= ACK_NBYTES

    def said(self) -> None:
        """Note that a frame went to the peer: it acknowledges."""
        self.owed = self.owed_nbytes = 0
        self.owed_at = inf

    def check(self) -> None:
        """Raise ``AssertionError`` when an invariant does not hold; for tests."""
        assert (self.owed > 0) == (self.owed_at < inf)

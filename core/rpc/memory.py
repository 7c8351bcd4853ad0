"""A link within one process, for tests and the simulator: the real codec, no kernel, no hidden time.

Nothing moves by itself: ``flush`` hands bytes to the other end, and the other end's ``deliver`` decodes them and calls
back. A test or simulator decides when that is, so it can delay, stall and cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from .codec import FrameDecoder, FrameTuple, ProtocolError, encode_frame

#: Called with the link and the frames of one delivery.
OnFrames = Callable[["MemoryLink", list[FrameTuple]], None]
#: Called once, with the link and the error that ended it, or None at the end of the stream.
OnClosed = Callable[["MemoryLink", Exception | None], None]


class MemoryLink:
    """One end of an in-memory link; make two with ``memory_pair``. Descriptors are passed on as plain numbers."""

    __slots__ = ("_arrived", "_decoder", "_on_closed", "_on_frames", "_peer", "_queue", "closed", "queued_nbytes")

    def __init__(self, on_frames: OnFrames, on_closed: OnClosed) -> None:
        self._on_frames = on_frames
        self._on_closed = on_closed
        self._peer: MemoryLink | None = None
        self._queue: list[tuple[bytes, tuple[int, ...]]] = []
        self._arrived: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._decoder = FrameDecoder()
        self.closed = False
        self.queued_nbytes = 0

    def send(self, frame_type: int, body: bytes, destination: int = 0, fds: Sequence[int] = ()) -> None:
        """Queue one message until ``flush``; dropped when the link is closed."""
        data = encode_frame(frame_type, body, destination, None, len(fds))
        if not self.closed:
            self._queue.append((data, tuple(fds)))
            self.queued_nbytes += len(data)

    def flush(self) -> None:
        """Hand everything queued to the other end, which sees it when it delivers."""
        if self._peer is not None and not self._peer.closed:
            self._peer._arrived.extend(self._queue)
        self._queue = []
        self.queued_nbytes = 0

    def deliver(self) -> int:
        """Decode what has arrived and call back; return the number of frames."""
        error: Exception | None = None
        ended = False
        while self._arrived and not ended and not self.closed:
            data, fds = self._arrived.popleft()
            try:
                self._decoder.feed(data, fds)
            except ProtocolError as problem:
                error, ended = problem, True
            ended = ended or not data
        frames = self._decoder.frames()
        if frames:
            self._on_frames(self, frames)
        if ended and not self.closed:
            self.close()
            self._on_closed(self, error)
        return len(frames)

    def close(self) -> None:
        """Close this end without a call back; the other end sees the end of the stream after what was flushed."""
        if not self.closed:
            self.closed = True
            self._queue = []
            self.queued_nbytes = 0
            if self._peer is not None:
                self._peer._arrived.append((b"", ()))


def memory_pair(first: tuple[OnFrames, OnClosed], second: tuple[OnFrames, OnClosed]) -> tuple[MemoryLink, MemoryLink]:
    """Create two ends that are connected with each other."""
    ends = MemoryLink(*first), MemoryLink(*second)
    ends[0]._peer, ends[1]._peer = ends[1], ends[0]
    return ends

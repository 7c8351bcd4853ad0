"""The node's end of a local link: one read a readiness event, one write a turn of the loop, lanes served in order."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .codec import (
    LANE_TASKS,
    LANES,
    MAX_BODY,
    START,
    DecoderState,
    FrameTuple,
    ProtocolError,
    decode,
    encode_frame,
    encode_parts,
)
from .sockets import (
    RECEIVE_FLAGS,
    RIGHTS_NBYTES,
    TRUNCATED,
    check_complete,
    close_fds,
    duplicates,
    received_fds,
    rights,
)

if TYPE_CHECKING:
    from ..loops import Loop

#: Bytes of one read. Larger buffers come from mmap: 64 KiB costs 2 µs a read here, 256 KiB 14 µs.
READ_NBYTES = 64 * 1024

#: Bytes of one read while the peer fills the smaller ones.
BULK_READ_NBYTES = 256 * 1024

#: Reads in one readiness event; then other links get their turn.
MAX_READS = 8

#: Bytes joined into one write. Larger: fewer system calls; smaller: less copying, and control overtakes sooner.
WRITE_NBYTES = 256 * 1024


class LoopLink:
    """A link's end on an event loop (see ``loops.Loop``); every method is called in the loop's thread.

    ``on_frames(link, frames)`` is called once for a readiness event. ``on_closed(link, error)`` is called exactly once,
    when the stream ends (None), fails or breaks the rules, after all that came before; ``close`` does not call it.
    """

    __slots__ = (
        "_fd",
        "_is_waiting",
        "_lanes",
        "_loop",
        "_on_closed",
        "_on_frames",
        "_read_nbytes",
        "_rights",
        "_sock",
        "_state",
        "_unsent",
        "closed",
        "queued_nbytes",
    )

    def __init__(
        self,
        sock: socket.socket,
        loop: Loop,
        on_frames: Callable[[LoopLink, list[FrameTuple]], None],
        on_closed: Callable[[LoopLink, Exception | None], None],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._on_frames = on_frames
        self._on_closed = on_closed
        self._read_nbytes = READ_NBYTES
        self._state: DecoderState = START
        self._lanes: tuple[deque[tuple[bytes, tuple[int, ...]]], ...] = (deque(), deque(), deque())
        self._unsent: bytes | memoryview = b""
        self._rights: tuple[int, ...] = ()  # to go with the first byte of _unsent
        self._is_waiting = False  # for room: the loop calls _write
        self.closed = False
        #: Bytes taken by ``send`` that the kernel has not taken yet.
        self.queued_nbytes = 0
        loop.add_reader(self._fd, self._on_readable)

    def fileno(self) -> int:
        """The socket's descriptor; -1 once closed."""
        return self._sock.fileno()

    def send(self, frame_type: int, body: bytes, destination: int = 0, fds: Sequence[int] = ()) -> None:
        """Queue one message until ``flush``; dropped when the link is closed. Raises ProtocolError over the bounds."""
        if self.closed:
            return
        lane = self._lanes[LANES[frame_type]]
        if len(body) <= MAX_BODY:
            data = encode_frame(frame_type, body, destination, None, len(fds))
            lane.append((data, duplicates(fds) if fds else ()))
            self.queued_nbytes += len(data)
            return
        parts = encode_parts(frame_type, body, destination, None, len(fds))
        owned = duplicates(fds)
        for number, data in enumerate(parts):
            lane.append((data, () if number else owned))
            self.queued_nbytes += len(data)

    def send_raw(self, data: bytes, lane: int = LANE_TASKS) -> None:
        """Queue whole encoded frames without descriptors, as they are; dropped when the link is closed."""
        if not self.closed:
            self._lanes[lane].append((data, ()))
            self.queued_nbytes += len(data)

    def flush(self) -> None:
        """Write what is queued; what the kernel does not take now follows when it has room."""
        if not self._is_waiting and not self.closed:
            self._write()

    def drain(self) -> None:
        """Take in all that has arrived, now; for after the end of the peer's process."""
        while not self.closed and self._on_readable():
            pass

    def close(self) -> None:
        """Close this end without a call back; what is queued is dropped. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._fd)
        self._drop_queue()
        close_fds(self._state[1])
        for unfinished in self._state[2].values():
            close_fds(unfinished[2])
        self._state = START
        self._sock.close()

    def _write(self) -> None:
        try:
            while self._unsent or self._load():
                unsent = self._unsent
                if self._rights:
                    nbytes = self._sock.sendmsg((unsent,), rights(self._rights))
                    close_fds(self._rights)
                    self._rights = ()
                else:
                    nbytes = self._sock.send(unsent)
                self.queued_nbytes -= nbytes
                self._unsent = b"" if nbytes == len(unsent) else memoryview(unsent)[nbytes:]
        except BlockingIOError:
            if not self._is_waiting:
                self._is_waiting = True
                self._loop.add_writer(self._fd, self._write)
        except OSError as error:
            # The peer is gone, but what it sent before still counts: read it to the end first, and not from within
            # the caller's turn.
            self._drop_queue()
            self._loop.call_soon(self._read_out, error)
        else:
            self._stop_waiting()

    def _load(self) -> bool:
        """Join the next frames into one write: lanes in order, descriptors only with the first frame."""
        batch: list[bytes] = []
        nbytes = 0
        for lane in self._lanes:
            while lane and nbytes < WRITE_NBYTES:
                data, fds = lane[0]
                if fds and batch:
                    self._unsent = b"".join(batch)
                    return True
                lane.popleft()
                self._rights = self._rights or fds
                batch.append(data)
                nbytes += len(data)
        self._unsent = b"".join(batch)
        return bool(batch)

    def _on_readable(self) -> bool:
        """Handle what is there; False when nothing is left or nothing more will come."""
        if self.closed:
            return False
        frames: list[FrameTuple] = []
        error: Exception | None = None
        is_empty = False
        try:
            has_ended = self._read(frames)
        except BlockingIOError:
            has_ended, is_empty = False, True
        except ConnectionResetError:
            has_ended = True
        except (OSError, ProtocolError) as problem:
            has_ended, error = True, problem
        try:
            if frames:
                self._on_frames(self, frames)
        finally:
            if has_ended:
                self._end(error)
        return not is_empty and not has_ended

    def _read(self, frames: list[FrameTuple]) -> bool:
        """Read and decode what is there; True at the end of the stream."""
        for _ in range(MAX_READS):
            size = self._read_nbytes
            data, ancillary, flags, _ = self._sock.recvmsg(size, RIGHTS_NBYTES, RECEIVE_FLAGS)
            if not data:
                return True
            fds: tuple[int, ...] = ()
            try:
                if ancillary or flags & TRUNCATED:
                    fds = received_fds(ancillary)
                    check_complete(flags)
                decoded, self._state = decode(self._state, data, fds)
            except (OSError, ProtocolError):
                close_fds(fds)
                raise
            frames += decoded
            if len(data) < size:
                if len(data) < READ_NBYTES:
                    self._read_nbytes = READ_NBYTES
                return False
            self._read_nbytes = BULK_READ_NBYTES
        return False

    def _read_out(self, error: OSError) -> None:
        while not self.closed:
            frames: list[FrameTuple] = []
            try:
                has_ended = self._read(frames)
            except (OSError, ProtocolError):  # nothing is left to read
                has_ended = True
            if frames:
                self._on_frames(self, frames)
            if has_ended:
                self._end(error)

    def _end(self, error: Exception | None) -> None:
        if not self.closed:
            self.close()
            self._on_closed(self, error)

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._fd)

    def _drop_queue(self) -> None:
        self._stop_waiting()
        close_fds(self._rights)
        self._rights = ()
        self._unsent = b""
        for lane in self._lanes:
            for _, fds in lane:
                close_fds(fds)
            lane.clear()
        self.queued_nbytes = 0

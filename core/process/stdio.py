"""The node's end of a worker's stdout or stderr: lines for the client, the last words for the death message."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..loops import Loop

#: Bytes of a line after which its beginning is passed on without waiting for the end.
MAX_LINE_NBYTES = 16 * 1024

#: Bytes kept of what was written last.
TAIL_NBYTES = 4 * 1024

#: Bytes of one read, the size of a pipe.
_READ_NBYTES = 64 * 1024

#: Reads in one readiness event; then others get their turn.
_MAX_READS = 4


class LineReader:
    """Read lines from a pipe on an event loop, in the loop's thread.

    ``on_lines(lines)`` is called with whole lines without their ends, undecodable bytes replaced; a line longer than
    ``MAX_LINE_NBYTES`` comes in pieces, an unfinished one at the end of the pipe. The reader owns ``fd``.
    """

    __slots__ = ("_fd", "_loop", "_on_lines", "_rest", "_tail", "closed")

    def __init__(self, fd: int, loop: Loop, on_lines: Callable[[list[str]], None]) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = loop
        self._on_lines = on_lines
        self._rest = b""
        self._tail = b""
        #: The pipe has ended or was closed here.
        self.closed = False
        loop.add_reader(fd, self._on_readable)

    @property
    def tail(self) -> str:
        """The last ``TAIL_NBYTES`` bytes written, from the beginning of a line where there is one."""
        tail = self._tail
        if len(tail) == TAIL_NBYTES:
            tail = tail[tail.find(b"\n") + 1 :] or tail
        return tail.decode("utf-8", "replace")

    def drain(self) -> None:
        """Read what is in the pipe now; for after the process's end, when others may still hold the pipe open."""
        while not self.closed and self._read():
            pass

    def close(self) -> None:
        """Pass on an unfinished line and close the pipe; a second call does nothing."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        if self._rest:
            rest, self._rest = self._rest, b""
            self._on_lines([rest.decode("utf-8", "replace")])

    def _on_readable(self) -> None:
        for _ in range(_MAX_READS):
            if self.closed or not self._read():
                return

    def _read(self) -> bool:
        """Take in one read; False when there was none to take or the pipe has ended."""
        try:
            chunk = os.read(self._fd, _READ_NBYTES)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if not chunk:
            self.close()
            return False
        self._tail = (self._tail + chunk)[-TAIL_NBYTES:]
        *lines, rest = (self._rest + chunk).split(b"\n")
        while len(rest) > MAX_LINE_NBYTES:
            lines.append(rest[:MAX_LINE_NBYTES])
            rest = rest[MAX_LINE_NBYTES:]
        self._rest = rest
        if lines:
            self._on_lines([line.removesuffix(b"\r").decode("utf-8", "replace") for line in lines])
        return True

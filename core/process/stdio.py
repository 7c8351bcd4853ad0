"""The node's end of a worker's stdout or stderr: text for the client, the last words for the death message."""

from __future__ import annotations

import codecs
import fcntl
import os
import sys
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..loops import Loop

#: Characters of a line after which its beginning is passed on without waiting for the end.
MAX_LINE = 16 * 1024

#: Seconds after which the beginning of a line that gets no end is passed on. Longer keeps more lines whole where
#: several processes write; shorter shows progress bars sooner.
PIECE_SECONDS = 0.1

#: Bytes kept of what was written last.
TAIL_NBYTES = 4 * 1024

#: Bytes of one read, the size of a pipe.
_READ_NBYTES = 64 * 1024

#: Reads in one readiness event; then others get their turn.
_MAX_READS = 4


_new_decoder = codecs.getincrementaldecoder("utf-8")


def unread_nbytes(fd: int) -> int:
    """Bytes that lie in a pipe; 0 for what is none, or closed."""
    try:
        return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
    except OSError:
        return 0


class LineReader:
    """Read text from a pipe on an event loop, in the loop's thread. The reader owns ``fd``.

    ``on_text(texts, is_ended)`` is called with whole lines, each with its newline, undecodable bytes replaced. The last
    text may be a piece of a line, without newline: of one that is long, that has waited for `PIECE_SECONDS`, or that
    ends here because the task or the pipe does. The latter is said by ``is_ended``, then perhaps with an empty piece.
    """

    __slots__ = ("_decoder", "_fd", "_is_timed", "_loop", "_on_text", "_rest", "_tail", "_turn", "closed",
                 "is_within_line")  # fmt: skip

    def __init__(self, fd: int, loop: Loop, on_text: Callable[[list[str], bool], None]) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = loop
        self._on_text = on_text
        self._decoder = _new_decoder("replace")
        self._rest = ""  # of an unfinished line: what was not passed on
        self._turn = 0  # counts what was passed on, to tell whether the rest is still the same line's
        self._is_timed = False  # the loop calls `_on_due`
        self._tail = b""
        #: The last line that was read has no end yet, whether or not a piece of it was passed on.
        self.is_within_line = False
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
        """Read what is in the pipe now; what comes meanwhile comes by itself, perhaps quicker than it can be read."""
        left = 0 if self.closed else unread_nbytes(self._fd)
        while left > 0 and not self.closed:
            left -= self._read()

    def pass_rest(self, *, is_ended: bool) -> None:
        """Pass on a line that has no end yet, or, with `is_ended`, that gets none."""
        if self._rest or (is_ended and self.is_within_line):
            rest, self._rest = self._rest, ""
            self.is_within_line = not is_ended
            self._pass_on([rest], is_ended)

    def close(self) -> None:
        """Pass on an unfinished line and close the pipe; a second call does nothing."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._rest += self._decoder.decode(b"", final=True)
        self.pass_rest(is_ended=True)

    def _pass_on(self, texts: list[str], is_ended: bool = False) -> None:
        self._turn += 1
        self._on_text(texts, is_ended)

    def _on_readable(self) -> None:
        for _ in range(_MAX_READS):
            if self.closed or not self._read():
                return

    def _read(self) -> int:
        """Take in one read; returns its bytes, 0 when there was none to take or the pipe has ended."""
        try:
            chunk = os.read(self._fd, _READ_NBYTES)
        except BlockingIOError:
            return 0
        except OSError:
            chunk = b""
        if not chunk:
            self.close()
            return 0
        self._tail = (self._tail + chunk)[-TAIL_NBYTES:]
        *lines, rest = (self._rest + self._decoder.decode(chunk)).split("\n")
        texts = [line + "\n" for line in lines]
        self.is_within_line = bool(rest) or (self.is_within_line and not lines)
        if len(rest) > MAX_LINE:
            texts.append(rest)
            rest = ""
        self._rest = rest
        if texts:
            self._pass_on(texts)
        if rest and not self._is_timed:
            self._set_timer()
        return len(chunk)

    def _set_timer(self) -> None:
        self._is_timed = True
        self._loop.call_later(PIECE_SECONDS, self._on_due, self._turn)

    def _on_due(self, turn: int) -> None:
        self._is_timed = False
        if turn == self._turn:
            self.pass_rest(is_ended=False)
        elif self._rest and not self.closed:
            self._set_timer()  # it is a later line's, which has its time too

"""The first steps of a forked worker: what it inherits from the template is made its own."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
from collections.abc import Callable, Mapping
from typing import Any, TextIO

_flush_c: Callable[[], Any] = lambda: None  # noqa: E731

_LINE_BUFFERED = 1  # _IOLBF, of glibc, musl and macOS alike


def buffer_c_output_by_lines() -> None:
    """Have what C code prints written at the end of each line, here and in children; Python's own is not concerned."""
    global _flush_c
    import ctypes

    try:
        libc = ctypes.CDLL(None)
        stream = ctypes.c_void_p.in_dll(libc, "__stdoutp" if sys.platform == "darwin" else "stdout")
        libc.setvbuf(stream, None, _LINE_BUFFERED, ctypes.c_size_t(0))
    except (OSError, ValueError, AttributeError):
        return  # a library of other names; what it buffers comes later, or is lost with its process
    _flush_c = lambda: libc.fflush(stream)  # noqa: E731


def restore_signals() -> None:
    """Give the signals that the template uses their usual meaning in a Python program."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def apply_env(own: Mapping[str, str | None], env: bytes) -> None:
    """Set back what the template changed (None: unset), then set the ``name=value`` entries, each ended by a NUL."""
    for name, value in own.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    for entry in env.split(b"\0")[:-1]:
        name, _, setting = os.fsdecode(entry).partition("=")
        os.environ[name] = setting


def attach_streams(stdout: int, stderr: int) -> None:
    """Put pipes behind descriptors 1 and 2, nothing behind 0, and new files over all three; consumes its arguments.

    Output is line-buffered, so that little is lost with a process that is killed. The old files may hold text that the
    node had not flushed when the template was forked; they are not written to any more.
    """
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, target in ((nothing, 0), (stdout, 1), (stderr, 2)):
        os.dup2(fd, target)
        os.close(fd)
    replace_stream("stdin", open(0, encoding="utf-8", closefd=False))  # noqa: SIM115
    for fd, name in ((1, "stdout"), (2, "stderr")):
        replace_stream(name, open(fd, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115


def flush_streams() -> None:
    """Write out what the standard streams hold, C's too, as far as somebody still reads them."""
    _flush_c()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue


def has_unread_output() -> bool:
    """Whether something lies in the pipes of the standard streams that nobody has read yet; C's is flushed first."""
    _flush_c()
    return _unread_nbytes(1) > 0 or _unread_nbytes(2) > 0


def _unread_nbytes(fd: int) -> int:
    try:
        return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
    except OSError:  # the task has closed it or put something else there
        return 0


def replace_stream(name: str, stream: TextIO) -> None:
    """Make it the standard stream of that name, as Python knows it."""
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)

"""The first steps of a forked worker: what it inherits from the template is made its own."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from .stdio import unread_nbytes


def _nothing() -> None:
    """Until C's output is known by name there is none to flush."""


_flush_c: Callable[[], Any] = _nothing

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
    _flush_c = functools.partial(libc.fflush, stream)


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


def flush_streams(*, redirected: bool = False) -> None:
    """Write out what our standard streams hold, C's too, as far as somebody still reads them.

    `redirected`: also what the program has put in their place; that is its code, so not from other threads.
    """
    _flush_c()
    for stream in (sys.stdout, sys.stderr) if redirected else ():
        _flush(stream)
    for stream in (sys.__stdout__, sys.__stderr__):
        _flush(stream)


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except Exception:  # closed, None, or no stream at all
        pass


def has_unread_output() -> bool:
    """Whether something lies in the pipes of the standard streams that nobody has read yet; C's is flushed first."""
    _flush_c()
    return unread_nbytes(1) > 0 or unread_nbytes(2) > 0


def replace_stream(name: str, stream: TextIO) -> None:
    """Make it the standard stream of that name, as Python knows it."""
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)

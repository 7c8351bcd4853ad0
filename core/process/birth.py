"""The first steps of a forked worker: what it inherits from the template is made its own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import TextIO


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
    _replace("stdin", open(0, encoding="utf-8", closefd=False))  # noqa: SIM115
    _replace("stdout", open(1, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115
    _replace("stderr", open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115


def flush_streams() -> None:
    """Write out what the standard streams hold, as far as somebody still reads them."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue


def _replace(name: str, stream: TextIO) -> None:
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)

"""What heads and nodes of a cluster have in common as processes: how they answer their starter, and how they are ended.

Whoever starts one passes two descriptors. Into the first the process writes one line of JSON when it serves, or why it
cannot; the other is the reading end of a pipe that ends with the starter (-1: it may outlive it).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

from .aioloop import AioLoop
from .errors import OutboardError
from .exits import exit_code_of, one_line


class Starter:
    """The one who started this process and waits for its first word."""

    def __init__(self, ready_fd: int) -> None:
        self._fd = ready_fd
        self.exit_code = 0

    def answer(self, **told: Any) -> None:
        """Say the first word; what is said later is dropped."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):  # it may have gone
            os.write(self._fd, json.dumps({"pid": os.getpid(), **told}).encode() + b"\n")
        os.close(self._fd)
        self._fd = -1

    @property
    def is_waiting(self) -> bool:
        """Whether the first word has yet to be said."""
        return self._fd >= 0

    @contextlib.contextmanager
    def told_of_faults(self) -> Iterator[None]:
        """Tell of an error of ours or of the system in the body, which ends the process with a code of its own.

        Raises:
            Exception: any error that comes when the first word was said, or that is a fault of ours.
        """
        try:
            yield
        except (OutboardError, OSError, ValueError) as error:
            if not self.is_waiting:
                raise
            self.exit_code = exit_code_of(error)
            self.answer(error=one_line(error), exit_code=self.exit_code)


def watch_end(loop: AioLoop, life_fd: int, end: Callable[[str], object]) -> None:
    """Call ``end(why)`` for each SIGTERM, and when whoever started this process has gone."""
    loop.asyncio.add_signal_handler(signal.SIGTERM, end, "SIGTERM")
    if life_fd >= 0:

        def on_end() -> None:
            loop.remove_reader(life_fd)
            end("the process that started this one has ended")

        loop.add_reader(life_fd, on_end)

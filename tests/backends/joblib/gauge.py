"""How many tasks run at a time, whatever processes they are in."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Gauge:
    """Counts, in a file that several processes append to, how many tasks run at a time."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, seconds: float = 0.05) -> None:
        self._note("+")
        time.sleep(seconds)
        self._note("-")

    @property
    def peak(self) -> int:
        """Most tasks that ran at the same time."""
        running = peak = 0
        for sign in Path(self.path).read_text():
            running += 1 if sign == "+" else -1
            peak = max(peak, running)
        return peak

    def _note(self, sign: str) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, sign.encode())
        os.close(descriptor)

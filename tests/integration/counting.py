"""The actor that most tests of actors make."""

from __future__ import annotations

import os
import time
from typing import Any

import outboard


class Counter:
    """Counts, and may come to grief."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, amount: int = 1) -> int:
        self.value += amount
        return self.value

    def call(self, other: Any) -> int:
        return int(outboard.get(other.add.remote()))

    def die(self) -> None:
        os._exit(7)

    def fail(self) -> None:
        raise KeyError("no such thing")

    def leave(self) -> None:
        outboard.exit_actor()

    def nap(self, seconds: float) -> None:
        time.sleep(seconds)

    def pid(self) -> int:
        return os.getpid()

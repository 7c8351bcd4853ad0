"""What the parts that live on an event loop need of it: a small share of asyncio's loop, so that either will do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Loop(Protocol):
    """Calls back when descriptors are ready and when time has come; one thread."""

    def add_reader(self, fd: int, callback: Callable[..., object], /, *args: Any) -> object:
        """Call back whenever ``fd`` is readable or has ended, until `remove_reader`."""

    def remove_reader(self, fd: int, /) -> object:
        """Call back no more for reading; nothing happens when there was no reader."""

    def add_writer(self, fd: int, callback: Callable[..., object], /, *args: Any) -> object:
        """Call back whenever ``fd`` takes bytes or has ended, until `remove_writer`."""

    def remove_writer(self, fd: int, /) -> object:
        """Call back no more for writing; nothing happens when there was no writer."""

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> object:
        """Call back in the loop's next turn."""

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> object:
        """Call back after so many seconds."""

    def time(self) -> float:
        """Monotonic seconds."""

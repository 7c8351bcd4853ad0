"""Ctrl-C that never tears a state machine apart.

A Python signal handler runs between any two bytecodes of the main thread, so a KeyboardInterrupt could be raised while
the client's machine is half-way through an event. Code that must run whole does so inside `shield`; an interrupt that
arrives meanwhile is raised when the outermost shield ends. Where the client waits it opens the shield, so Ctrl-C is
answered at once. Handlers that the program installs itself are left alone; `Client` notices when one of those raised in
the middle of an event, and gives the cluster up rather than trust a torn state.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

_MAIN = threading.main_thread().ident


class Shield:
    """Reentrant; only the main thread is affected, since only it runs signal handlers."""

    __slots__ = ("_depth", "_installed", "_pending")

    def __init__(self) -> None:
        self._depth = 0
        self._pending = False
        self._installed = False

    def install(self) -> None:
        """Take over SIGINT from Python's default handler; does nothing for other handlers and threads."""
        if threading.get_ident() == _MAIN and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)
            self._installed = True

    def uninstall(self) -> None:
        """Give SIGINT back, unless the program has changed it meanwhile."""
        if self._installed and threading.get_ident() == _MAIN:
            self._installed = False
            if signal.getsignal(signal.SIGINT) == self._handle:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self._depth > 0:
            self._pending = True
        else:
            raise KeyboardInterrupt

    def __enter__(self) -> None:
        if threading.get_ident() == _MAIN:
            self._depth += 1

    def __exit__(self, *exc: object) -> None:
        if threading.get_ident() == _MAIN:
            self._depth -= 1
            if self._pending and self._depth == 0:
                self._pending = False
                raise KeyboardInterrupt

    def open(self) -> int:
        """Let interrupts through for a wait; returns what `close` needs."""
        if threading.get_ident() != _MAIN:
            return 0
        depth, self._depth = self._depth, 0
        if self._pending:
            self._pending = False
            self._depth = depth
            raise KeyboardInterrupt
        return depth

    def close(self, depth: int) -> None:
        """End what `open` began."""
        if threading.get_ident() == _MAIN:
            self._depth = depth


shield = Shield()

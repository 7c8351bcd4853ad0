"""Interrupts that never tear a state machine apart: Ctrl-C in a client, a cancelled task in a worker.

A Python signal handler runs between any two bytecodes of the main thread, so what it raises could hit the client's
machine half-way through an event. Code that must run whole does so inside ``with shield``; an interrupt that arrives
meanwhile is raised when the outermost shield ends. What may take long (waiting, the user's own pickling) is called
through `Shield.open`, where interrupts are raised at once. Whether one may be raised, the handler reads off the stack:
only a call that is going on lets it through, so what cleans up after an interrupt is never hit by the next.

Handlers that the program installs itself are left alone; `Client` notices when one of those raised in the middle of an
event, and gives the cluster up rather than trust a torn state.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_MAIN = threading.main_thread().ident


def _call(call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return call(*args)


_OPEN = _call.__code__


class Shield:
    """Reentrant; only the main thread is affected, since only it runs signal handlers."""

    __slots__ = ("_depth", "_opened_at", "_pending")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every shield and interrupt: in a forked child none of them is going on."""
        self._depth = 0
        self._opened_at = 0  # depth at which the innermost `open` was called
        self._pending: type[BaseException] | None = None

    def install(self) -> None:
        """Take over SIGINT from Python's default handler; does nothing for other handlers and threads."""
        if threading.get_ident() == _MAIN and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        self.interrupt(frame, KeyboardInterrupt)

    def interrupt(self, frame: FrameType | None, error: type[BaseException]) -> None:
        """Raise ``error`` now or at the end of the outermost shield; for handlers, with the frame they were given.

        In a finaliser of ours it would only be reported as ignored: then the next shield raises it.
        """
        if self._may_raise(frame):
            raise error
        self._pending = error

    def _may_raise(self, frame: FrameType | None) -> bool:
        is_ours = False
        while frame is not None:
            if frame.f_code is _OPEN:
                return self._depth == self._opened_at
            if (frame.f_globals.get("__package__") or "").partition(".")[0] == __package__:
                is_ours = True
                if frame.f_code.co_name == "__del__":
                    return False
            frame = frame.f_back
        if not is_ours:  # an exception of the program's own handler kept a shield from ending
            self._depth = self._opened_at = 0
        return self._depth == 0

    @property
    def is_outermost(self) -> bool:
        """Whether this is the main thread, within one shield only."""
        return self._depth == 1 and threading.get_ident() == _MAIN

    def __enter__(self) -> None:
        if threading.get_ident() == _MAIN:
            self._depth += 1

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if threading.get_ident() == _MAIN:
            self._depth -= 1
            if self._depth == 0:
                self._opened_at = 0
                self._raise_pending(kind)

    def _raise_pending(self, current: type[BaseException] | None = None) -> None:
        error, self._pending = self._pending, None
        if error is not None and error is not current:
            raise error

    def open(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call something that may take long; interrupts are raised at once meanwhile."""
        if threading.get_ident() != _MAIN:
            return call(*args)
        outer = self._opened_at
        try:
            self._opened_at = self._depth
            self._raise_pending()
            return _call(call, args)
        finally:
            self._opened_at = outer


shield = Shield()

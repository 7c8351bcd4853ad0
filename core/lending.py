"""Whether a worker's task holds its CPUs, which it lends while any thread of it waits: a pure machine.

States: HELD, LENT (the node was told BLOCKED), ASKED (it was told UNBLOCK and has not said RESUME yet). A task with
threads may have several waits; those of a task that has ended mean nothing to the next one.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Who has the CPUs; see the head of this file."""

    HELD = "held"
    LENT = "lent"
    ASKED = "asked"


class Lending:
    """The waits of one task at a time. Used under the client's lock; `is_lent` may be read by any thread.

    Invariants: without waits it is not LENT; `is_lent` says that it is not HELD.
    """

    __slots__ = ("_waits", "is_lent", "state")

    def __init__(self) -> None:
        self._waits: set[object] = set()
        self.state = State.HELD
        self.is_lent = False

    def begin(self, wait: object) -> bool:
        """A wait begins to last; True: tell the node BLOCKED."""
        self._waits.add(wait)
        return self._lend() if self.state is State.HELD else False

    def undo(self, wait: object) -> None:
        """What `begin` asked for was not done: the task has ended meanwhile."""
        self._waits.discard(wait)
        self.state, self.is_lent = State.HELD, False

    def end(self, wait: object) -> bool:
        """A wait is over, if it still counts; True: tell the node UNBLOCK."""
        self._waits.discard(wait)
        return self._ask()

    def end_all(self) -> bool:
        """The task is over, and whatever waits in it counts no more; True: tell the node UNBLOCK."""
        self._waits.clear()
        return self._ask()

    def on_resumed(self) -> bool:
        """The node gave the CPUs; True: tell it BLOCKED, for another wait has begun since they were asked for."""
        self.state, self.is_lent = State.HELD, False
        return self._lend() if self._waits else False

    def _lend(self) -> bool:
        self.state, self.is_lent = State.LENT, True
        return True

    def _ask(self) -> bool:
        if self._waits or self.state is not State.LENT:
            return False
        self.state = State.ASKED
        return True

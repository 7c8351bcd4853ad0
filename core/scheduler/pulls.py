"""What a node brings in from others: one pull of an object, however many wait for it.

A pull takes from one node at a time and goes on with another when that fails; bytes that are there are not asked for
again. It is *due* to those who wait for it, or *ahead*: begun because a task that was sent here will need it. It first
gets room, then one of `MOST_TRANSFERS` transfers, those that somebody waits for before those ahead. The giving side is
in `takers.py`.

Collections and their invariants:

- ``_pulls``: every pull by object. Those with room that do not move lie in exactly one of ``_due`` and ``_ahead``.
- ``_moving``: how many have a transfer; their ``source`` is set.
- ``_doubted``: nodes that were given up and not heard of since: one attempt shows whether they can be reached again.
"""

from __future__ import annotations

from collections import Counter, deque
from enum import IntEnum
from typing import NamedTuple

#: Objects that a node brings in at a time. More would share one network; fewer leave it idle between small ones.
MOST_TRANSFERS = 8

#: Attempts with one source after which a pull gives it up, and seconds before each but the first.
MOST_ATTEMPTS = 3
PAUSES = (0.0, 0.3, 1.5)

#: Why an object cannot be had whose only copy lay at a node with which its client's session was lost.
SESSION_LOST = "the session with the node that had it was lost"

Key = tuple[int, int, int]  # owner, seq, version


class Cause(IntEnum):
    """Why nobody gets an object."""

    LOST = 1
    FULL = 2


class Reserve(NamedTuple):
    """Find room. `is_ahead`: only what lies unused, and say at once when there is none."""

    key: Key
    nbytes: int
    is_ahead: bool


class Fetch(NamedTuple):
    """Bring what is lacking from a node, after a pause of so many seconds."""

    key: Key
    source: int
    pause: float


class Stop(NamedTuple):
    """End the transfer of an object; nothing more is said of it."""

    key: Key


class Discard(NamedTuple):
    """Give up the room that was found, or is being looked for."""

    key: Key


class Keep(NamedTuple):
    """It is here: enter it among the extents of this node. `root`: the client at the top of who wanted it first."""

    key: Key
    root: int


class Give(NamedTuple):
    """Tell who waits where it lies."""

    key: Key
    waiter: int


class Refuse(NamedTuple):
    """Tell who waits that it will not come."""

    key: Key
    waiter: int
    cause: Cause
    reason: str


Command = Reserve | Fetch | Stop | Discard | Keep | Give | Refuse


class _Pull:
    __slots__ = ("attempts", "failure", "has_room", "is_moving", "known", "root", "source", "sources", "waiters")

    def __init__(self, source: int, root: int) -> None:
        self.root = root
        self.waiters: list[int] = []  # a process once for each of its questions
        self.sources = deque((source,))  # to be tried, in this order
        self.known = {source}  # all that were ever named
        self.attempts: Counter[int] = Counter()
        self.source: int | None = None  # the one under way
        self.has_room = False
        self.is_moving = False
        self.failure = "no node that had it can be reached"


class Pulls:
    """Pure machine over the objects that a node brings in. Nodes and processes are named by their incarnations."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.commands: list[Command] = []
        self._pulls: dict[Key, _Pull] = {}
        self._due: dict[Key, None] = {}
        self._ahead: dict[Key, None] = {}
        self._doubted: set[int] = set()
        self._moving = 0

    def __repr__(self) -> str:
        return f"<Pulls {len(self._pulls)} moving={self._moving} due={len(self._due)} ahead={len(self._ahead)}>"

    def __contains__(self, key: Key) -> bool:
        return key in self._pulls

    def take_commands(self) -> list[Command]:
        """Return what is to be done, in order, and forget it."""
        commands, self.commands = self.commands, []
        return commands

    # -- who wants what -----------------------------------------------------------------------------------------------

    def on_wanted(self, key: Key, nbytes: int, source: int, waiter: int | None, root: int, other: int = 0) -> None:
        """An object of that node is wanted here; `waiter` None: by a task that has not begun.

        `other`: a node that may have a copy (0: none is known).
        """
        pull = self._pulls.get(key)
        if pull is None:
            pull = self._pulls[key] = _Pull(source, root)
            if other not in (0, source, self.node):
                pull.sources.append(other)
                pull.known.add(other)
            self.commands.append(Reserve(key, nbytes, waiter is None))
        if waiter is not None:
            pull.waiters.append(waiter)
            if key in self._ahead:
                del self._ahead[key]
                self._due[key] = None

    def on_waiter_gone(self, waiter: int) -> None:
        """A process has ended. What moves goes on; what only it wanted and has not begun is given up."""
        for key, pull in list(self._pulls.items()):
            if waiter in pull.waiters:
                pull.waiters = [other for other in pull.waiters if other != waiter]
                if not pull.waiters and pull.source is None:
                    self._end(key, pull)

    def on_root_gone(self, root: int) -> None:
        """Nobody will want what was begun for the processes of this client."""
        for key, pull in list(self._pulls.items()):
            if pull.root == root:
                self._refuse(key, pull, Cause.LOST, "the client whose task needed it has ended")

    def on_freed(self, key: Key) -> None:
        """The owner has let go of an object."""
        pull = self._pulls.get(key)
        if pull is not None:
            self._refuse(key, pull, Cause.LOST, "its owner has let go of it")

    # -- room ---------------------------------------------------------------------------------------------------------

    def on_room(self, key: Key) -> None:
        """Room was found. Not after `Discard`."""
        pull = self._pulls[key]
        pull.has_room = True
        (self._due if pull.waiters else self._ahead)[key] = None
        self._begin_next()

    def on_no_room(self, key: Key, reason: str) -> None:
        """No room will come. Not after `Discard`."""
        self._refuse(key, self._pulls[key], Cause.FULL, reason)

    # -- transfers ----------------------------------------------------------------------------------------------------

    def _begin_next(self) -> None:
        while self._moving < MOST_TRANSFERS and (waiting := self._due or self._ahead):
            key = next(iter(waiting))
            del waiting[key]
            self._moving += 1
            pull = self._pulls[key]
            pull.is_moving = True
            self._try_next(key, pull)

    def _try_next(self, key: Key, pull: _Pull) -> None:
        if not pull.sources:
            self._refuse(key, pull, Cause.LOST, pull.failure)
            return
        source = pull.source = pull.sources.popleft()
        earlier = pull.attempts[source]
        pull.attempts[source] = MOST_ATTEMPTS if source in self._doubted else earlier + 1
        self.commands.append(Fetch(key, source, PAUSES[earlier]))

    def on_arrived(self, key: Key) -> None:
        """All bytes are there."""
        pull = self._pulls[key]
        if pull.source is not None:
            self._doubted.discard(pull.source)
        waiters, pull.waiters = pull.waiters, []
        self.commands.append(Keep(key, pull.root))
        self.commands += [Give(key, waiter) for waiter in waiters]
        self._forget(key, pull)

    def on_failed(self, key: Key, reason: str, *, is_final: bool) -> None:
        """The transfer under way has ended early. `is_final`: there is no point in asking that source again."""
        pull = self._pulls[key]
        source, pull.source, pull.failure = pull.source, None, reason
        if source is not None and not is_final:
            if pull.attempts[source] < MOST_ATTEMPTS:
                pull.sources.append(source)
            else:
                self._doubted.add(source)
        self._try_next(key, pull)

    def on_progress(self, key: Key) -> None:
        """The source under way has given something: its earlier failures do not count any more."""
        pull = self._pulls[key]
        if pull.source is not None:
            pull.attempts[pull.source] = 1
            self._doubted.discard(pull.source)

    def on_sent_on(self, key: Key, nodes: tuple[int, ...]) -> None:
        """The source under way is busy and names others; if all of them fail it is asked again."""
        pull = self._pulls[key]
        assert pull.source is not None
        self._doubted.discard(pull.source)
        pull.attempts[pull.source] -= 1  # it did not fail
        pull.sources.appendleft(pull.source)
        new = [node for node in nodes if node not in pull.known and node != self.node]
        pull.known.update(new)
        pull.sources.extendleft(reversed(new))
        pull.source = None
        self._try_next(key, pull)

    def on_source_gone(self, node: int) -> None:
        """A node has ended, or nobody can reach it any more."""
        self._doubted.discard(node)
        self._leave_source(node, list(self._pulls), "the node that had it has gone")

    def on_session_lost(self, node: int, root: int) -> None:
        """A client's session with a node was lost: what that has of the client's objects is had no more."""
        keys = [key for key, pull in self._pulls.items() if pull.root == root]
        self._leave_source(node, keys, SESSION_LOST)

    def _leave_source(self, node: int, keys: list[Key], reason: str) -> None:
        """Try these with this source no more."""
        pulls = {key: self._pulls[key] for key in keys}
        for pull in pulls.values():
            if node in pull.sources:
                pull.sources.remove(node)
        lost = [(key, pull) for key, pull in pulls.items() if pull.source is None and not pull.sources]
        for key, _ in lost:  # before any of them ends, so that none of them gets a transfer
            self._due.pop(key, None)
            self._ahead.pop(key, None)
        for key, pull in lost:
            self._refuse(key, pull, Cause.LOST, reason)
        for key in [key for key, pull in pulls.items() if pull.source == node]:
            self.commands.append(Stop(key))
            self.on_failed(key, reason, is_final=True)

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _refuse(self, key: Key, pull: _Pull, cause: Cause, reason: str) -> None:
        waiters, pull.waiters = pull.waiters, []
        self._end(key, pull)
        self.commands += [Refuse(key, waiter, cause, reason) for waiter in waiters]

    def _end(self, key: Key, pull: _Pull) -> None:
        if pull.source is not None:
            self.commands.append(Stop(key))
        self.commands.append(Discard(key))
        self._forget(key, pull)

    def _forget(self, key: Key, pull: _Pull) -> None:
        """Take a pull off the tables; the next one may begin."""
        del self._pulls[key]
        self._due.pop(key, None)
        self._ahead.pop(key, None)
        if pull.is_moving:
            self._moving -= 1
            self._begin_next()

    def check(self) -> None:
        """Raise ``AssertionError`` when an invariant does not hold; for tests."""
        waiting = self._due.keys() | self._ahead.keys()
        assert not self._due.keys() & self._ahead.keys()
        for key, pull in self._pulls.items():
            assert (key in waiting) == (pull.has_room and not pull.is_moving), f"{key} is neither moving nor waiting"
            assert pull.is_moving == (pull.source is not None) and (pull.source is not None or pull.sources)
            assert key not in self._ahead or not pull.waiters, f"somebody waits for {key}, which counts as ahead"
        assert self._moving == sum(pull.is_moving for pull in self._pulls.values()) <= MOST_TRANSFERS
        assert not waiting or self._moving == MOST_TRANSFERS, "a transfer is idle"

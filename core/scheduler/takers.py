"""Who may take an object from this node, and who is sent on to nodes that have it by now.

A node serves so many takers of an object at a time and sends the others on to those it has served, so that what
everybody wants spreads like a tree. Who comes back without it waits for its turn.

Collections and their invariants:

- ``_turns``: every turn that was asked for and has not ended; it is among its object's ``active`` or in its ``queue``.
- ``_wanted``: objects that were asked for, the one asked for last at the end.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from .pulls import Key

#: Takers of one object that a node serves at a time. The law's number.
MOST_TAKERS = 4

#: Nodes to which one taker is sent on, and that are remembered as served, of an object; objects of which they are.
MOST_NAMED = 3
MOST_SERVED = 64
MOST_OBJECTS = 1000


class Serve(NamedTuple):
    """Give the object to who has this turn."""

    turn: int


class SendOn(NamedTuple):
    """Tell who has this turn that these nodes have the object too; the turn is over."""

    turn: int
    nodes: tuple[int, ...]


class _Wanted:
    """One object: `sent_on` are takers that have been named others, `served` nodes that have it by now."""

    __slots__ = ("active", "queue", "sent_on", "served")

    def __init__(self) -> None:
        self.active: set[int] = set()
        self.queue: deque[int] = deque()
        self.sent_on: set[int] = set()
        self.served: deque[int] = deque(maxlen=MOST_SERVED)


class Takers:
    """Pure machine over the nodes that take objects from this one. A turn is one request of a node, by its number."""

    def __init__(self) -> None:
        self.commands: list[Serve | SendOn] = []
        self._wanted: dict[Key, _Wanted] = {}
        self._turns: dict[int, tuple[Key, int]] = {}
        self._last_turn = 0

    def take_commands(self) -> list[Serve | SendOn]:
        """Return what is to be done, in order, and forget it."""
        commands, self.commands = self.commands, []
        return commands

    def on_asked(self, key: Key, taker: int) -> int:
        """A node wants an object; returns the number of its turn, which begins, waits, or is over at once."""
        self._last_turn += 1
        turn = self._last_turn
        wanted = self._wanted.pop(key, None) or _Wanted()
        self._wanted[key] = wanted  # the last one asked for stands last
        self._turns[turn] = key, taker
        wanted.queue.append(turn)
        self._review(wanted)
        self._forget_old()
        return turn

    def on_ended(self, turn: int, *, is_whole: bool) -> None:
        """A turn is over, or nobody waits for it any more; `is_whole`: its taker has the object now."""
        key, taker = self._turns.pop(turn, (None, 0))
        if key is None:
            return  # it was sent on
        wanted = self._wanted[key]
        if turn in wanted.active:
            wanted.active.remove(turn)
        else:
            wanted.queue.remove(turn)
        wanted.sent_on.discard(taker)
        if is_whole and taker not in wanted.served:
            wanted.served.append(taker)
        self._review(wanted)

    def on_node_gone(self, node: int) -> None:
        """Nobody is sent on to a node that has ended."""
        for wanted in self._wanted.values():
            if node in wanted.served:
                wanted.served.remove(node)

    def _review(self, wanted: _Wanted) -> None:
        """Begin turns as far as may be, and send on the others, but for those that were sent on before."""
        while wanted.queue and len(wanted.active) < MOST_TAKERS:
            turn = wanted.queue.popleft()
            wanted.active.add(turn)
            self.commands.append(Serve(turn))
        if not wanted.served:
            return
        for turn in [turn for turn in wanted.queue if self._turns[turn][1] not in wanted.sent_on]:
            taker = self._turns[turn][1]
            nodes = [node for node in wanted.served if node != taker][:MOST_NAMED]
            if nodes:
                wanted.queue.remove(turn)
                del self._turns[turn]
                wanted.served.rotate(-1)  # the next taker gets others
                wanted.sent_on.add(taker)
                self.commands.append(SendOn(turn, tuple(nodes)))

    def _forget_old(self) -> None:
        for key in list(self._wanted)[: max(0, len(self._wanted) - MOST_OBJECTS)]:
            if not self._wanted[key].active and not self._wanted[key].queue:
                del self._wanted[key]

    def check(self) -> None:
        """Raise ``AssertionError`` when an invariant does not hold; for tests."""
        placed = [turn for wanted in self._wanted.values() for turn in (*wanted.active, *wanted.queue)]
        assert sorted(placed) == sorted(self._turns)
        assert all(len(wanted.active) <= MOST_TAKERS for wanted in self._wanted.values())
        assert all(len(w.active) == MOST_TAKERS for w in self._wanted.values() if w.queue), "a taker waits for nothing"

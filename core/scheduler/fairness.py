"""Whose turn it is: shares between root clients, and order within one.

Roots take turns by the run time they have been served; what is under way counts as its expected run time, so that two
roots with long tasks alternate. Within a root the oldest tasks come first. While a root has blocked tasks, the CPUs
these gave back are its own to use, and go to their children first, then to deeper tasks before shallower ones.

Workers belong to a root for life, so a turn may cost a process: the node holds as many as it may, and one of another
root that has work would end. Such a turn comes only as `Root.keeps` allows.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .queues import Kind, Shape

#: The whole of a node, in the unit of `Root.held`.
WHOLE = 1 << 40
#: Seconds for which a root keeps its share after a process of its own has started. A start takes about a hundredth of
#: it; with more roots than processes each waits about this long for every round of the others.
LEASE_SECONDS = 0.5


class Rotation:
    """The roots with queued tasks, and the virtual time at which a root joins them."""

    __slots__ = ("ready", "virtual_seconds")

    def __init__(self) -> None:
        self.ready: dict[Root, None] = {}
        self.virtual_seconds = 0.0

    def turns(self) -> list[Root]:
        """The ready roots, next one first."""
        ready = self.ready
        if len(ready) < 2:
            return list(ready)
        turns = sorted(ready, key=attrgetter("served_seconds", "held"))
        owed = [root for root in turns if root.lent_cpu > root.nested_cpu]
        return owed + [root for root in turns if root.lent_cpu <= root.nested_cpu] if owed else turns


class Root:
    """The account of one root client; what its nested clients submit counts here.

    ``ready`` holds its shapes with queued tasks. ``lent_cpu`` is what its blocked tasks have given back, ``nested_cpu``
    what leases for tasks of nested clients hold. ``served_seconds`` includes what is reckoned for tasks under way.
    ``held`` is the part of the node that its leases hold, what is lent aside; it keeps that until ``kept_until``.
    """

    __slots__ = ("rotation", "ready", "served_seconds", "lent_cpu", "nested_cpu", "held", "kept_until")

    def __init__(self, rotation: Rotation) -> None:
        self.rotation = rotation
        self.ready: dict[Shape, None] = {}
        self.served_seconds = 0.0
        self.lent_cpu = 0
        self.nested_cpu = 0
        self.held = 0
        self.kept_until = float("-inf")

    def add(self, shape: Shape) -> None:
        """Note that a shape has queued tasks. A root that comes back gets no credit for its absence."""
        if not self.ready:
            self.served_seconds = max(self.served_seconds, self.rotation.virtual_seconds)
            self.rotation.ready[self] = None
        self.ready[shape] = None

    def discard(self, shape: Shape) -> None:
        """Note that a shape has no queued tasks any more."""
        if self.ready.pop(shape, self) is None and not self.ready:
            del self.rotation.ready[self]

    @property
    def is_owed(self) -> bool:
        """Whether its blocked tasks have given back more CPU than their children use."""
        return self.lent_cpu > self.nested_cpu

    def keeps(self, besides: int, rival: Root, part: int, now: float) -> bool:
        """Whether this root may go on with a place for which a rival, whose turn it is, would have to end a process.

        It gives the place up at once if it then still holds as much as the rival, and after its lease if it then holds
        no less than the rival holds now: whole shares are equal soon, and what is left over goes round.

        Args:
            besides: what this root holds besides the place.
            part: what the rival would hold more.
        """
        if besides >= rival.held + part:
            return False
        return now < self.kept_until or besides < rival.held

    def charge(self, seconds: float) -> None:
        """Count run time as served, or take it back when negative."""
        self.served_seconds += seconds

    def note_turn(self) -> None:
        """Move virtual time on to this root, whose turn it has been."""
        if self.served_seconds > self.rotation.virtual_seconds:
            self.rotation.virtual_seconds = self.served_seconds


def rank(kind: Kind) -> tuple[bool, int, int]:
    """Sorts kinds of one root with queued tasks by whose turn it is."""
    shape = kind.shape
    order = kind.queue[0].order
    spec = shape.binding.spec
    has_lent = any(pool.lent_cpu for pool in shape.pools) if spec.gang else shape.root.lent_cpu
    if not has_lent or spec.ordered:
        return False, 0, order
    return not kind.client.is_awaited, -kind.client.depth, order


def next_kind(shape: Shape) -> Kind:
    """The kind whose tasks are next in a shape that has queued ones."""
    kinds = shape.waiting
    if len(kinds) == 1:
        return next(iter(kinds))
    return min(kinds, key=rank)


def shape_turns(root: Root) -> list[Shape]:
    """The root's shapes with queued tasks, next one first."""
    ready = root.ready
    return list(ready) if len(ready) < 2 else sorted(ready, key=lambda shape: rank(next_kind(shape)))

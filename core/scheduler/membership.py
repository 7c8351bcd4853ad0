"""The membership as its numbered states: who is told which difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .cluster_commands import TellMembers
from .members import Member, MembersChanged


class Membership:
    """The list of members, and what of it the nodes have been told.

    Collections and their invariants:

    - ``current``: the members now, by incarnation.
    - ``_told``: the members in state ``number``.
    - ``_changed``: exactly the incarnations in which these differ, in the order in which they came to.
    - ``_wanting``: nodes that get the full list with the next flush instead of the difference.
    - ``pythons``: Python minors of the members that take work, counted.
    """

    __slots__ = ("current", "epoch", "number", "pythons", "_changed", "_told", "_wanting")

    def __init__(self, epoch: int, members: Iterable[Member]) -> None:
        self.epoch = epoch
        self.number = 0
        self.current = {member.incarnation: member for member in members}
        self._told = dict(self.current)
        self._changed: dict[int, None] = {}
        self._wanting: dict[int, None] = {}
        self.pythons = _pythons(self.current.values())

    @property
    def has_changed(self) -> bool:
        """Whether the list is not what was told last."""
        return bool(self._changed)

    @property
    def is_due(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._changed or self._wanting)

    def put(self, member: Member) -> None:
        """Enter a member, or what has changed of it."""
        old = self.current.get(member.incarnation)
        if old == member:
            return
        if old is not None:
            self._count(old, -1)
        self._count(member, 1)
        self.current[member.incarnation] = member
        self._note(member.incarnation)

    def remove(self, incarnation: int) -> None:
        """Strike a member off the list."""
        self._wanting.pop(incarnation, None)
        member = self.current.pop(incarnation, None)
        if member is not None:
            self._count(member, -1)
            self._note(incarnation)

    def want_full(self, incarnation: int) -> None:
        """Note that a member does not have the last state."""
        self._wanting[incarnation] = None

    def flush(self, nodes: Iterable[int]) -> list[TellMembers]:
        """Make a new state and return what to tell ``nodes``; those that want it are told everything."""
        told: list[TellMembers] = []
        change = self._advance()
        if change is not None:
            knowing = tuple(node for node in nodes if node not in self._wanting)
            if knowing:
                told.append(TellMembers(knowing, change))
        if self._wanting:
            everybody = tuple(self._told.values())
            full = MembersChanged(self.epoch, 0, self.number, everybody, (), True)
            told.append(TellMembers(tuple(self._wanting), full))
            self._wanting = {}
        return told

    def _note(self, incarnation: int) -> None:
        if self.current.get(incarnation) != self._told.get(incarnation):
            self._changed[incarnation] = None
        else:
            self._changed.pop(incarnation, None)  # it is as it was

    def _count(self, member: Member, sign: int) -> None:
        if member.takes_work:
            self.pythons[member.python] += sign
            if not self.pythons[member.python]:
                del self.pythons[member.python]

    def _advance(self) -> MembersChanged | None:
        """Bring ``_told`` up to ``current``; None when nothing is different."""
        if not self._changed:
            return None
        current, told = self.current, self._told
        present = tuple(current[incarnation] for incarnation in self._changed if incarnation in current)
        gone = tuple(incarnation for incarnation in self._changed if incarnation not in current)
        for member in present:
            told[member.incarnation] = member
        for incarnation in gone:
            del told[incarnation]
        self._changed = {}
        self.number += 1
        return MembersChanged(self.epoch, self.number - 1, self.number, present, gone, False)

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        current, told = self.current, self._told
        apart = {i for i, member in current.items() if told.get(i) != member}
        apart.update(told.keys() - current.keys())
        assert apart == self._changed.keys(), f"changes that nobody is told: {apart ^ self._changed.keys()}"
        assert all([i == member.incarnation for i, member in current.items()])
        assert self.pythons == _pythons(self.current.values())
        assert self._wanting.keys() <= self.current.keys(), "the list is kept for one that is no member"


def _pythons(members: Iterable[Member]) -> Counter[str]:
    return Counter(member.python for member in members if member.takes_work)

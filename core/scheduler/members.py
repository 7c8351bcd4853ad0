"""What nodes know of each other, and how they are told that it changed."""

from __future__ import annotations

from typing import NamedTuple


class Member(NamedTuple):
    """One node of the cluster; ``address`` is empty and ``slots`` 0 for the gateway of a client."""

    incarnation: int
    address: str
    host: str
    python: str
    slots: int
    is_draining: bool = False

    @property
    def takes_work(self) -> bool:
        """Whether tasks of others may be sent there."""
        return bool(self.slots) and not self.is_draining


class MembersChanged(NamedTuple):
    """The difference between two numbered states of the membership, or (``is_full``) all of the later one.

    A node applies a difference when epoch and ``since`` are what it has; otherwise it says that it missed numbers and
    gets the full list. Members in ``present`` are new or have changed.
    """

    epoch: int
    since: int
    number: int
    present: tuple[Member, ...]
    gone: tuple[int, ...]
    is_full: bool

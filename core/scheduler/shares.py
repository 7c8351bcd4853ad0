"""Shares: what tasks of one kind may have, and have, at one node."""

from __future__ import annotations

from typing import NamedTuple

#: Stands for the own node wherever the client's machine names nodes; a further one is named by its incarnation.
OWN_NODE = 0

#: Bytes of arguments (inline and stored) that may be outstanding per kind and node. Smaller recycles warm pages more,
#: larger keeps more workers of large tasks busy. The protocol's 8 MB are for inline bytes; stored ones cost the link
#: nothing.
OUTSTANDING_NBYTES = 64 << 20

#: Tasks per kind and node that may be outstanding whatever their bytes, so that one huge argument cannot stop the flow.
OUTSTANDING_MIN = 4


class Terms(NamedTuple):
    """What a further node said as its session began: the credit of every kind, and how many tasks run there at once."""

    initial_credit: int
    slots: int


class Share:
    """One kind at one node. `limit` is the credit, or 0 while the kind may not go there.

    `stirred` are the shares of the kind at further nodes that may have room, or something to be told; with a thousand
    nodes no event looks at all of them.
    """

    __slots__ = ("credit", "is_allowed", "limit", "nbytes", "node", "outstanding", "stirred", "wanted")

    def __init__(self, node: int, credit: int, stirred: dict[Share, None], *, is_allowed: bool) -> None:
        self.stirred = stirred
        self.node = node
        self.credit = credit
        self.outstanding = 0  # tasks sent there for which it has not answered
        self.nbytes = 0  # of what is outstanding
        self.wanted = 0  # tasks that the node knows to wait beyond the credit; reckoned on both sides alike
        self.allow(is_allowed)

    def __repr__(self) -> str:
        return f"<Share of {self.node:x} {self.outstanding}/{self.limit} outstanding>"

    def room(self) -> int:
        """How many more tasks may be sent there now."""
        room = self.limit - self.outstanding
        if self.nbytes >= OUTSTANDING_NBYTES:
            return min(room, OUTSTANDING_MIN - self.outstanding)
        return room

    def is_window_full(self) -> bool:
        """Whether what is outstanding carries so many bytes that nothing should follow."""
        return self.nbytes >= OUTSTANDING_NBYTES and self.outstanding >= OUTSTANDING_MIN

    def answered(self, count: int) -> None:
        """The node has answered for so many tasks."""
        self.outstanding -= count
        self.stir()

    def stir(self) -> None:
        """Have it looked at when something is sent next; the own node's always is."""
        if self.node:
            self.stirred[self] = None

    def grant(self, credit: int) -> None:
        """Take note of a new credit; what it lets through no longer waits, as the node reckons it too."""
        self.wanted = max(0, self.wanted - max(0, credit - self.credit))
        self.credit = credit
        self.allow(self.is_allowed)

    def allow(self, is_allowed: bool) -> None:
        """Open or close the node for the kind."""
        self.is_allowed = is_allowed
        self.limit = self.credit if is_allowed else 0
        self.stir()

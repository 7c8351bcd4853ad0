"""Lanes: the calls of one actor from here, whatever their kinds, in one order and under one window.

Credits are per kind and let tasks overtake each other; a call of an actor must not overtake those made before it. So
calls wait in the lane instead of in their kinds, and all kinds of a lane share its only `Share`. What the actor's node
grants for them means nothing: a window takes the place of credit.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from .shares import OWN_NODE, Share

if TYPE_CHECKING:
    from .kinds import Kind
    from .tasks import Task

#: Calls of one caller to one actor that may be on their way. The law's number; a larger one keeps the actor busier over
#: long ways, a smaller one leaves less at an actor's node that is lost.
LANE_WINDOW = 1000


class Lane:
    """See the head of this file.

    - `in_order`: a call whose inputs are missing holds back those behind it; else it waits for them aside.
    - `calls`: what has not been sent, by index; of one in order also what waits for inputs. Some may have settled.
    - `seeker`: the kind with which the own node is asked to look for a node, while `is_seeking`, calls or none: others
      may call the actor. `is_asking`: it has been.
    - `shares`: the one share by its node, as the kinds of the lane have it; empty while nobody knows where it is.
    """

    __slots__ = ("_order", "calls", "in_order", "is_asking", "is_seeking", "seeker", "share", "shares")

    def __init__(self, *, in_order: bool) -> None:
        self.in_order = in_order
        self.is_seeking = False  # no node is known for it, and the own one is to look for one
        self.seeker: Kind | None = None
        self.is_asking = False
        self.calls: dict[int, Task] = {}
        self._order: list[int] = []
        self.share = Share(OWN_NODE, LANE_WINDOW, {}, is_allowed=False)
        self.shares: dict[int, Share] = {}

    def __repr__(self) -> str:
        return f"<Lane {len(self.calls)} waiting, {self.share!r}>"

    def place(self, node: int | None, *, is_seeking: bool) -> None:
        """Say where the actor is; None: nobody knows yet, or any more."""
        self.is_seeking = is_seeking
        self.shares.clear()
        if node is None:
            self.share.allow(is_allowed=False)
            return
        if node != self.share.node:
            assert not self.share.outstanding, "an actor moved with calls outstanding"
            self.share = Share(node, LANE_WINDOW, {}, is_allowed=True)
        self.share.allow(is_allowed=True)
        self.shares[node] = self.share

    def add(self, task: Task) -> None:
        """Have a call sent in its turn, which is that of its index."""
        if task.index not in self.calls:
            self.calls[task.index] = task
            heappush(self._order, task.index)

    def first(self) -> Task | None:
        """The call whose turn it is."""
        return self.calls[self._order[0]] if self._order else None

    def take(self) -> Task:
        """Remove the call whose turn it is."""
        return self.calls.pop(heappop(self._order))

    def clear(self) -> None:
        """Nothing of it will be sent."""
        self.calls.clear()
        self._order.clear()

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        assert sorted(self._order) == sorted(self.calls)
        assert list(self.shares.values()) in ([], [self.share])
        assert self.share.is_allowed == bool(self.shares)

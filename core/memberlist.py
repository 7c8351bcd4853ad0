"""The membership as a node knows it from the head's numbered differences."""

from __future__ import annotations

from .rpc.protos import cluster_pb2 as pb


class MemberList:
    """Members by incarnation, as of state ``number`` of a head's ``epoch``."""

    __slots__ = ("_coming", "current", "epoch", "number")

    def __init__(self) -> None:
        self.epoch = 0
        self.number = 0
        self.current: dict[int, pb.Member] = {}
        self._coming: dict[int, pb.Member] | None = None

    def apply(self, change: pb.Membership) -> bool:
        """Take one message; False when it does not follow on what is known, and the whole list is needed."""
        if self._coming is None:
            if not change.whole and (change.epoch, change.since) != (self.epoch, self.number):
                return False
            self._coming = {} if change.whole else dict(self.current)
        for incarnation in change.left:
            self._coming.pop(incarnation, None)
        for member in change.joined:
            self._coming[member.incarnation] = member
        if not change.more:
            self.current, self._coming = self._coming, None
            self.epoch, self.number = change.epoch, change.number
        return True

    def break_off(self) -> None:
        """The stream ended: a message that was to go on does not."""
        self._coming = None

"""Names of actors at a node of a cluster: the head decides.

What clients here own is told to each head that comes, so names outlive the head. A request that finds none waits for
one, as long as the law says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from .names import INCARNATION, Key, Names
from .rpc.protos import cluster_pb2
from .rpc.protos import outboard_pb2 as pb

if TYPE_CHECKING:
    from .node import Node, Peer

#: Says something to the head, if it is there.
Report = Callable[[cluster_pb2.Report], object]

#: Seconds that a request waits for a head. The law's number.
HEAD_SECONDS = 60.0

#: Seconds after which a head is asked again that had no room for the question.
AGAIN_SECONDS = 1.0

#: Numbers of requests begin here, so that a head's words about them are no words about room.
FIRST_REQUEST = 1 << 40


class _Asked(NamedTuple):
    """A request that the head has yet to answer."""

    client: int
    request: pb.NameRequest


class HeadNames(Names):
    """See `Names`. Every method is called in the loop's thread."""

    def __init__(self, node: Node, report: Report) -> None:
        super().__init__(node)
        self._report = report
        self._asked: dict[int, _Asked] = {}
        self._last = FIRST_REQUEST

    def decide(self, peer: Peer, request: pb.NameRequest) -> None:
        """Ask the head."""
        self._last += 1
        self._asked[self._last] = _Asked(peer.incarnation, request)
        self._node.loop.call_later(HEAD_SECONDS, self._give_up, self._last)
        self._ask(self._last)

    def _ask(self, number: int) -> None:
        asked = self._asked.get(number)
        if asked is None:
            return
        request = asked.request
        if request.what == pb.NameRequest.FIND:
            question = cluster_pb2.NameQuestion(id=number, namespace=request.namespace, name=request.name)
            self._report(cluster_pb2.Report(name=question))
        else:
            claim = _claim(number, (request.namespace, request.name), request.owner, request.record)
            self._report(cluster_pb2.Report(claim=claim))

    def on_answer(self, answer: cluster_pb2.NameAnswer) -> None:
        """The head has answered."""
        asked = self._asked.pop(answer.id, None)
        if asked is None:
            return
        request = asked.request
        key = request.namespace, request.name
        if answer.outcome == cluster_pb2.NameAnswer.GRANTED:
            if asked.client not in self._node.peers:
                self._tell_release(key, request.owner)  # it has ended meanwhile
                return
            self.held[key] = request.owner, request.record
        outcome = cluster_pb2.NameAnswer.Outcome.Name(answer.outcome)  # the same names in both
        self.reply(asked.client, pb.NameReply(outcome=outcome, record=answer.record, reason=answer.reason))

    def on_try_later(self, number: int) -> None:
        """The head takes no more questions for now."""
        self._node.loop.call_later(AGAIN_SECONDS, self._ask, number)

    def on_head(self) -> None:
        """A head has come: ask it what none has answered."""
        for number in list(self._asked):
            self._ask(number)

    def claims(self) -> list[cluster_pb2.NameClaim]:
        """Give what clients here own, for a head to which this node comes."""
        return [_claim(0, key, owner, record) for key, (owner, record) in self.held.items()]

    def _give_up(self, number: int) -> None:
        asked = self._asked.pop(number, None)
        if asked is not None:
            reason = f"no head has answered within {HEAD_SECONDS:g} s"
            self.reply(asked.client, pb.NameReply(outcome=pb.NameReply.UNREACHABLE, reason=reason))

    def release(self, key: Key, owner: int) -> None:
        """A name's owner lets it go; nothing when it is another's by now."""
        if self.held.get(key, (0, b""))[0] == owner:
            super().release(key, owner)
            self._tell_release(key, owner)

    def _tell_release(self, key: Key, owner: int) -> None:
        released = cluster_pb2.NameRelease(namespace=key[0], name=key[1], owner=owner, incarnation=INCARNATION)
        self._report(cluster_pb2.Report(release=released))


def _claim(number: int, key: Key, owner: int, record: bytes) -> cluster_pb2.NameClaim:
    return cluster_pb2.NameClaim(id=number, namespace=key[0], name=key[1], owner=owner, incarnation=INCARNATION,
                                 record=record)  # fmt: skip

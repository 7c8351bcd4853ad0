"""Names of actors at a node without a head. What there is in a cluster with one is in `headnames`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler.cluster_commands import NameClaim
from .scheduler.naming import NAMES, fault_of_claim

if TYPE_CHECKING:
    from .node import Node, Peer

#: All claims of actors are first ones: who has a name keeps it, and the owner starts its actor again by itself.
INCARNATION = 1

#: Namespace and name.
Key = tuple[str, str]


class Names:
    """A name is its owner's until that lets it go or ends. `held`: (owner, record) of each, of clients here."""

    def __init__(self, node: Node) -> None:
        self.held: dict[Key, tuple[int, bytes]] = {}
        self._node = node

    def on_request(self, peer: Peer, request: pb.NameRequest) -> None:
        """A client here claims, looks for or lets go of a name."""
        if request.what == pb.NameRequest.RELEASE:
            self.release((request.namespace, request.name), request.owner)
        else:
            self.decide(peer, request)

    def decide(self, peer: Peer, request: pb.NameRequest) -> None:
        """Answer a claim or a question, now or later."""
        self.reply(peer.incarnation, self._answer(request))

    def _answer(self, request: pb.NameRequest) -> pb.NameReply:
        key = request.namespace, request.name
        held = self.held.get(key)
        if request.what == pb.NameRequest.FIND or (held is not None and held[0] != request.owner):
            outcome = pb.NameReply.UNKNOWN if held is None else pb.NameReply.FOUND
            return pb.NameReply(outcome=outcome, record=held[1] if held is not None else b"")
        fault = fault_of_claim(NameClaim(*key, request.owner, INCARNATION, request.record))
        if fault or len(self.held) >= NAMES:
            return pb.NameReply(outcome=pb.NameReply.REFUSED, reason=fault or "there are too many names")
        self.held[key] = request.owner, request.record
        return pb.NameReply(outcome=pb.NameReply.GRANTED)

    def reply(self, client: int, reply: pb.NameReply) -> None:
        """Answer a client."""
        self._node.send(client, Frame.NAME_REPLY, reply.SerializeToString())
        self._node.flush_soon()

    def release(self, key: Key, owner: int) -> None:
        """A name's owner lets it go; nothing when it is another's by now."""
        if self.held.get(key, (0, b""))[0] == owner:
            del self.held[key]

    def on_client_left(self, client: int) -> None:
        """A client has ended, and its actors with it."""
        for key in [key for key, (owner, _) in self.held.items() if owner == client]:
            self.release(key, client)

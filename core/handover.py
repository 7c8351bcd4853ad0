"""What becomes of the objects of a node that leaves: the own node of each root takes what is of use to that root.

Descriptors go on naming the node that has left. Whoever cannot get an object there asks the root's own node next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb

if TYPE_CHECKING:
    from .node import Node
    from .tree import Trunk

#: Objects in one message.
OBJECTS_AT_A_TIME = 1000

Key = tuple[int, int, int]  # owner, seq, version


class HandOver:
    """Both sides of it; every method is called in the loop's thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._going: dict[Trunk, set[Key]] = {}

    @property
    def is_done(self) -> bool:
        """Whether everything has been taken by those who are still there."""
        return not any(keys for trunk, keys in self._going.items() if not trunk.session.is_closed)

    def begin(self, trunks: list[Trunk]) -> None:
        """Offer what lies here to the own nodes of roots."""
        for trunk in trunks:
            owners = {peer.incarnation for peer in self._node.peers.values() if peer.root == trunk.root}
            objects = self._node.store.extents.primaries(owners)
            self._going[trunk] = {key for key, _ in objects}
            for start in range(0, len(objects), OBJECTS_AT_A_TIME):
                announce = pb.Announce()
                for (owner, seq, version), place in objects[start : start + OBJECTS_AT_A_TIME]:
                    announce.announced.add(owner=owner, seq=seq, version=version, nbytes=place.nbytes,
                                           node=self._node.incarnation)  # fmt: skip
                trunk.send(Frame.EVACUATE, announce.SerializeToString(), self._node.incarnation, 0)

    def on_evacuated(self, trunk: Trunk, body: bytes) -> None:
        """A root's own node has these now, or cannot get them."""
        going = self._going.get(trunk, set())
        going.difference_update((ref.owner, ref.seq, ref.version) for ref in pb.Refs.FromString(body).refs)

    def on_evacuate(self, trunk: Trunk, body: bytes) -> None:
        """A node that leaves offers what it has for a root of this node."""
        for d in pb.Announce.FromString(body).announced:
            taken = pb.Refs(refs=[pb.Ref(owner=d.owner, seq=d.seq, version=d.version)]).SerializeToString()

            def on_done(taken: bytes = taken) -> None:
                trunk.send(Frame.EVACUATED, taken, self._node.incarnation, 0)

            self._node.store.replicas.take_over(d, trunk.root, on_done)

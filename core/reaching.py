"""Sessions that clients of this node want with a certain node, since an actor is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb

if TYPE_CHECKING:
    from .node import Node, Peer

#: Seconds between attempts to open a session with a node that a client wants to reach. Longer saves messages while
#: others have yet to learn of a node's end, shorter sooner finds an actor elsewhere.
AGAIN_SECONDS = 0.1


class Reaching:
    """Tries until a client is welcome there, or the node is no member any more; used in the loop's thread.

    `_since`: when a client first asked for a node, by both.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._since: dict[tuple[int, int], float] = {}
        self._is_due = False

    def on_reach(self, peer: Peer, node: int) -> None:
        """A client asks for a session with a node."""
        self._since.setdefault((peer.incarnation, node), self._node.now())
        self._connect(peer, node)
        self._wait()

    def on_welcome(self, client: int, node: int) -> None:
        """A client has a session with a node."""
        self._since.pop((client, node), None)

    def _connect(self, peer: Peer, node: int) -> bool:
        """Open the session if the node is a member; returns whether it is."""
        peering, tree = self._node.peering, self._node.tree
        member = peering.members.current.get(node) if peering is not None else None
        if member is None or tree is None:
            return False
        tree.connect(peer, node, member.address)
        return True

    def _wait(self) -> None:
        if self._since and not self._is_due:
            self._is_due = True
            self._node.loop.call_later(AGAIN_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._is_due = False
        now = self._node.now()
        for (client, node), since in list(self._since.items()):
            peer = self._node.peers.get(client)
            if peer is None:
                del self._since[client, node]
            elif not self._connect(peer, node) and now - since >= AGAIN_SECONDS:
                # Not at once: it may have just ended, and those who sent the client there not know it yet.
                del self._since[client, node]
                gone = pb.NodeGone(node=node, lost=True, reason="it is no member of the cluster")
                self._node.send(client, Frame.NODE_GONE, gone.SerializeToString())
        self._wait()
        self._node.settle()

"""What a program hears when it asks what there is: all nodes of its cluster, not only the one that it asked.

The node that is asked answers for itself; of the others it says what the head knows, at most a second late. When the
head does not answer, the last that it said stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .aioloop import AioLoop
from .errors import OutboardError
from .rpc.codec import Frame
from .rpc.grpc_credentials import Security
from .rpc.grpc_head import ask_status
from .rpc.protos import cluster_pb2
from .rpc.protos import outboard_pb2 as pb

if TYPE_CHECKING:
    from .node import Node, Peer

#: Seconds that the head may take: less than a program waits that only wants to end.
ANSWER_SECONDS = 0.8


class ClusterStatus:
    """Answers the STATUS frames of one node's clients and workers; every method is called in the loop's thread.

    Args:
        head: where the head listens, ``host:port``.
    """

    def __init__(self, node: Node, loop: AioLoop, head: str, security: Security) -> None:
        self._node = node
        self._loop = loop
        self._head = head
        self._security = security
        self._others: list[pb.NodeStatus] = []

    def on_status(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """Answer one question, as soon as the head has said what it knows."""
        self._node.read_output(peer)
        self._loop.spawn(self._answer(peer.incarnation))

    async def _answer(self, peer: int) -> None:
        node = self._node
        try:
            found = await ask_status(self._head, self._security, ANSWER_SECONDS)
        except (OutboardError, OSError, ValueError):
            pass
        else:
            self._others = [describe(n) for n in found.nodes if n.member.incarnation != node.incarnation and _is_up(n)]
        own = [node.describe()] if any(node.totals.values()) else []
        node.send(peer, Frame.STATUS_REPLY, pb.StatusReply(nodes=own + self._others).SerializeToString())
        node.flush_soon()


def _is_up(node: cluster_pb2.NodeStatus) -> bool:
    """Whether a member runs tasks: slotless ones never do, awaited ones may have gone."""
    return bool(node.member.slots) and not node.awaited


def describe(node: cluster_pb2.NodeStatus) -> pb.NodeStatus:
    """Say of another node what the head knows; its workers are its own affair."""
    load = node.load
    return pb.NodeStatus(node=node.member.incarnation, host=node.member.host, pid=node.pid, totals=node.member.totals,
                         free=node.free, running=load.running, queued=load.queued, store_nbytes=load.store_nbytes,
                         store_used_nbytes=load.store_used_nbytes,
                         actors=map(pb.ActorStatus.FromString, load.actors))  # fmt: skip

"""Detached actors at their node: what outlives its program needs another client to belong to.

Each gets a *keeper*: a root client without a process, which the node makes up with what the actor's maker said of
itself, and which ends with the actor. Everybody, its maker included, calls the actor as another program's.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb

if TYPE_CHECKING:
    from .node import Node, Peer


#: Seconds for which callers of a detached actor that has died are told how it did. Longer keeps its record longer.
DEAD_SECONDS = 60.0


class KeeperLink:
    """Stands for the link of a keeper, to which nobody listens. See `LoopLink`."""

    closed = False
    queued_nbytes = 0

    def __init__(self, node: Node, keeper: int) -> None:
        self._node = node
        self._keeper = keeper

    def send(self, frame_type: int, body: bytes, origin: int = 0, fds: tuple[int, ...] = ()) -> None:
        """Write what the actor prints to the node's log; when the actor is gone its keeper is."""
        if frame_type == Frame.LOG:
            sys.stderr.write("".join(line.text for line in pb.Log.FromString(body).lines))
            sys.stderr.flush()
        elif frame_type == Frame.UNBOUND or (frame_type == Frame.NAME_REPLY and not _is_granted(body)):
            self._node.loop.call_soon(self._node.end_keeper, self._keeper)
        elif frame_type == Frame.BINDING_FAILED:
            if self._node.names is not None:
                self._node.names.on_client_left(self._keeper)
            self._node.loop.call_later(DEAD_SECONDS, self._node.end_keeper, self._keeper)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """There is nothing to close."""


def _is_granted(body: bytes) -> bool:
    return pb.NameReply.FromString(body).outcome == pb.NameReply.GRANTED


def keep(node: Node, maker: Peer, binding: pb.Binding) -> None:
    """Make up the keeper of a detached actor, and let the actor be made; a name that is taken ends it again."""
    keeper, root = binding.keeper, node.peers.get(maker.root, maker)
    hello = pb.Hello()
    hello.CopyFrom(root.hello)
    hello.incarnation, hello.pid = keeper, 0
    peer = node.add_peer(KeeperLink(node, keeper), keeper, keeper, None)
    peer.hello = hello
    peer.is_client = True
    node.dispatch.on_client_joined(keeper, keeper, node.now())
    body = pb.Binding()
    body.CopyFrom(binding)
    body.keeper = 0
    node.bind(peer, body)
    if binding.name:
        claim = pb.NameRequest(what=pb.NameRequest.CLAIM, namespace=binding.namespace, name=binding.name,
                               record=binding.record, owner=keeper)  # fmt: skip
        node.claim_for(peer, claim)

"""Objects of nodes that cannot be dialled: asked for part by part in frames of the links between nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .errors import ObjectLostError, TransportError
from .ids import ObjectId
from .rpc.grpc_objects import ELSEWHERE, Pull, decode_nodes
from .rpc.object_sockets import PATIENCE
from .rpc.protos import outboard_pb2 as pb

#: Bytes of a part. Larger: fewer frames; smaller: the window is used more evenly.
PART_NBYTES = 512 << 10

#: Bytes asked for that have not come. Larger fills longer lines (this one 1 Gbit/s over 16 ms), but what is under way
#: lies before the control frames of the same link: 8 MiB held them up for 11 ms on 2 busy cores, 2 MiB for 3 ms.
WINDOW_NBYTES = 2 << 20

#: Sends the body of a FETCH; False when there is no way to the node.
SendFetch = Callable[[bytes], bool]


class FrameFetch:
    """Brings one object from one node. `asker` is this node."""

    def __init__(self, pull: Pull, source: int, asker: int, send: SendFetch) -> None:
        self._pull = pull
        self._source = source
        self._asker = asker
        self._send = send
        self._asked = pull.offset  # all before was asked for
        self._done: asyncio.Future[tuple[int, ...]] = asyncio.get_running_loop().create_future()
        self._heard: Callable[[], None] = lambda: None

    async def run(self, patience: float = PATIENCE) -> tuple[int, ...]:
        """Bring what is lacking; or return nodes that have it too, when the source is busy.

        Raises:
            ObjectLostError: the node has no copy. TransportError: there is no way to it, or it is silent.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(patience) as limit:
                self._heard = lambda: limit.reschedule(loop.time() + patience)
                self._ask(1)  # whether it is our turn is told by the first answer
                return await self._done
        except TimeoutError:
            raise TransportError(f"node {self._source:016x} sent nothing for {patience:g} s") from None

    def _ask(self, nbytes: int) -> None:
        """Ask for parts until so many bytes are on their way."""
        pull = self._pull
        self._asked = max(self._asked, pull.offset)
        while self._asked < len(pull.into) and self._asked - pull.offset < nbytes:
            part = min(PART_NBYTES, len(pull.into) - self._asked)
            fetch = pb.Fetch(owner=pull.id.owner, seq=pull.id.seq, version=pull.version, offset=self._asked,
                             nbytes=part, asker=self._asker)  # fmt: skip
            if not self._send(fetch.SerializeToString()):
                self._fail(TransportError(f"there is no way to node {self._source:016x} now"))
                return
            self._asked += part

    def on_piece(self, piece: pb.Piece) -> None:
        """Take one piece; one that does not come next is an answer to what was asked before a break."""
        pull = self._pull
        if self._done.done():
            return
        is_of_source = piece.source == self._source
        if piece.offset == ELSEWHERE:
            if is_of_source:
                self._heard()
                nodes = decode_nodes(piece.data)
                if nodes:
                    self._done.set_result(nodes)
        elif not piece.data:
            if is_of_source:
                oid = ObjectId(piece.owner, piece.seq)
                self._fail(ObjectLostError("no copy there", oid=oid, version=piece.version))
        elif piece.offset == pull.offset:
            end = pull.offset + len(piece.data)
            if end > len(pull.into):
                self._fail(TransportError(f"node {self._source:016x} sent more than the object has"))
                return
            pull.into[pull.offset : end] = piece.data
            pull.offset = end
            self._heard()
            if end == len(pull.into):
                self._done.set_result(())
            else:
                self._ask(WINDOW_NBYTES)

    def _fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)

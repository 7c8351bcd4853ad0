"""Stored objects from node to node, in pieces straight into memory that the taker has set aside.

A piece is a fixed prefix (offset, version) and raw bytes: protobuf would copy them once more. Pieces of one version
come in order; a taker that finds another version or a gap breaks off, so bytes of two versions are never mixed.

A node that is busy with an object says so with pieces whose offset is `ELSEWHERE`: without bytes it asks for patience,
else the bytes are the incarnations of nodes that have the object too, and nothing follows. A taker that would rather
dial a socket is told where by a piece whose offset is `BY_SOCKET`; the bytes come there, see `object_sockets`, and the
call ends when they have come.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ..errors import TransportError
from ..ids import ObjectId
from .codec import ProtocolError
from .grpc_channels import open_channel
from .grpc_credentials import Security, split_address
from .grpc_errors import refusing, translated
from .grpc_library import grpc
from .grpc_messages import parse, path, service
from .object_sockets import MIN_NBYTES, PATIENCE, MakeOffer, NotDialledError, Offer, Taking
from .protos import cluster_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["Objects"]

#: Offset u64 and version u64 before the bytes of a piece.
PREFIX = struct.Struct("<QQ")
PREFIX_NBYTES = PREFIX.size

#: Bytes of a piece. Larger: fewer messages; smaller: frames of the same loop wait less. Tried on 2 shared cores:
#: 512 KiB moved 1.2 GB/s and a frame took 1.1 ms, 256 KiB 1.2 GB/s and 0.5 ms, 128 KiB 0.9 GB/s and 0.4 ms.
PIECE_NBYTES = 256 * 1024

#: Offsets of pieces that are not of the object.
ELSEWHERE = 2**64 - 1
BY_SOCKET = 2**64 - 2

_ELSEWHERE_BYTES = struct.pack("<Q", ELSEWHERE)
_BY_SOCKET_BYTES = struct.pack("<Q", BY_SOCKET)

#: Seconds between two words to a taker that waits for its turn: well below `PATIENCE`.
WORD_SECONDS = 1.0

#: Bytes of a request.
MAX_REQUEST_NBYTES = 256

#: Finds the bytes of one version and keeps them where they are until the context ends; raises ObjectLostError.
OpenObject = Callable[[ObjectId, int], AbstractContextManager[memoryview]]


class Turn(Protocol):
    """One taker's turn: it may begin, or is to go to `nodes`, or waits while there is neither."""

    @property
    def may_begin(self) -> bool:
        """Whether the bytes may be given."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes that have the object too, which the taker is sent on to."""

    async def wait(self, seconds: float) -> None:
        """Wait until one of both changes, at most so long."""

    def end(self, *, is_whole: bool) -> None:
        """Say that it is over; `is_whole`: all bytes were given."""


#: Called with id, version and the taker's node, in the loop's thread, once a pull.
AskTurn = Callable[[ObjectId, int, int], Turn]


class _AtOnce:
    """The turn of those who need not wait."""

    may_begin = True
    nodes: tuple[int, ...] = ()

    async def wait(self, seconds: float) -> None:
        """Never called: it may begin."""

    def end(self, *, is_whole: bool) -> None:
        """Nobody waits for it."""


class ObjectsService:
    """The giving side. ``open_object(id, version)`` is called in the loop's thread, once a pull whose turn it is.

    ``ask_turn``: tells whose turn it is; without it everybody is served at once. ``make_offer``: opens a port for a
    taker that wants one; without it bytes go within the call.
    """

    def __init__(
        self, open_object: OpenObject, ask_turn: AskTurn | None = None, make_offer: MakeOffer | None = None
    ) -> None:
        self._open_object = open_object
        self._make_offer = make_offer
        self._ask_turn: AskTurn = ask_turn or (lambda object_id, version, taker: _AtOnce())
        self.handler = service(SERVICE, {"Pull": self._pull})

    async def _pull(self, request: bytes, context: Any) -> None:
        async with refusing(context):
            wanted = parse(pb.PullRequest, request, MAX_REQUEST_NBYTES)
            turn = self._ask_turn(ObjectId(wanted.owner, wanted.seq), wanted.version, wanted.taker)
            is_whole = False
            try:
                while not (turn.may_begin or turn.nodes):
                    await turn.wait(WORD_SECONDS)
                    if not (turn.may_begin or turn.nodes):
                        await context.write(encode_elsewhere(wanted.version, ()))
                if turn.may_begin:
                    await self._give(context, wanted)
                    is_whole = True
                else:
                    await context.write(encode_elsewhere(wanted.version, turn.nodes))
            finally:
                turn.end(is_whole=is_whole)

    async def _give(self, context: Any, wanted: pb.PullRequest) -> None:
        version, offset = wanted.version, wanted.offset
        with self._open_object(ObjectId(wanted.owner, wanted.seq), version) as view:
            if offset > len(view):
                raise ProtocolError(f"offset {offset} lies beyond the object's {len(view)} bytes")
            if wanted.by_socket and self._make_offer is not None:
                try:
                    offer = self._make_offer(view[offset:])
                except OSError:
                    pass  # there is no port to be had
                else:
                    return await _give_by_socket(context, version, offer)
            for start in range(offset, len(view), PIECE_NBYTES):
                with view[start : start + PIECE_NBYTES] as piece:
                    data = b"".join((PREFIX.pack(start, version), piece))
                await context.write(data)


async def _give_by_socket(context: Any, version: int, offer: Offer) -> None:
    ended = offer.start()
    try:
        await context.write(PREFIX.pack(BY_SOCKET, version) + offer.where)
        problem = await asyncio.shield(ended)
    finally:
        offer.stop()  # nothing goes out any more: the object may go
    if problem is not None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, f"the bytes were not taken: {problem}")


def encode_elsewhere(version: int, nodes: tuple[int, ...]) -> bytes:
    """Write the piece that names other nodes, or asks for patience."""
    return PREFIX.pack(ELSEWHERE, version) + encode_nodes(nodes)


def encode_nodes(nodes: tuple[int, ...]) -> bytes:
    """Write incarnations of nodes."""
    return struct.pack(f"<{len(nodes)}Q", *nodes)


def decode_nodes(data: bytes | memoryview) -> tuple[int, ...]:
    """Read incarnations of nodes; ProtocolError when these bytes are none."""
    if len(data) % 8:
        raise ProtocolError(f"{len(data)} bytes are no list of nodes")
    return struct.unpack(f"<{len(data) // 8}Q", data)


class Pull:
    """One version of an object on its way into ``into``, which is as long as the object.

    ``offset`` bytes are there. After a failure the pull goes on from there, with the same source or another one.
    ``writing`` is not done while a thread may write to ``into``: for a moment also after a pull was cancelled.
    """

    __slots__ = ("id", "into", "offset", "version", "writing")

    def __init__(self, object_id: ObjectId, version: int, into: memoryview) -> None:
        self.id = object_id
        self.version = version
        self.into = into
        self.offset = 0
        self.writing: asyncio.Future[Any] | None = None

    def take(self, data: bytes) -> None:
        """Put one piece in its place; ProtocolError when it is not the one that comes next."""
        nbytes = len(data) - PREFIX_NBYTES
        if nbytes <= 0:
            raise ProtocolError(f"a piece of {len(data)} bytes")
        offset, version = PREFIX.unpack_from(data)
        if version != self.version:
            raise ProtocolError(f"a piece of version {version} among those of version {self.version}")
        end = offset + nbytes
        if offset != self.offset or end > len(self.into):
            raise ProtocolError(f"bytes {offset} to {end} came; {self.offset} of {len(self.into)} were there")
        self.into[offset:end] = memoryview(data)[PREFIX_NBYTES:]
        self.offset = end


class Source:
    """A node that objects are pulled from; it has a connection of its own, so that frames do not wait behind pieces.

    ``taker`` is the node that pulls.
    """

    def __init__(self, address: str, security: Security, taker: int = 0) -> None:
        self._taker = taker
        self._address = address
        self._security = security
        self._channel = open_channel(address, security)
        self._is_dialling = True  # its ports can be dialled, as far as is known

    async def fetch(self, pull: Pull, patience: float = PATIENCE) -> tuple[int, ...]:
        """Bring what ``pull`` lacks; or return nodes that have it too, when the source is busy.

        Args:
            patience: seconds without a piece after which the source is given up.
        Raises:
            ObjectLostError: this node has no copy. TransportError: it ended, stalled, or sent other bytes.
        """
        if self._is_dialling and len(pull.into) - pull.offset >= MIN_NBYTES:
            try:
                return await self._fetch(pull, patience, by_socket=True)
            except NotDialledError:
                self._is_dialling = False
        return await self._fetch(pull, patience, by_socket=False)

    async def _fetch(self, pull: Pull, patience: float, *, by_socket: bool) -> tuple[int, ...]:
        request = pb.PullRequest(owner=pull.id.owner, seq=pull.id.seq, version=pull.version, offset=pull.offset,
                                 taker=self._taker, by_socket=by_socket)  # fmt: skip
        send = self._channel.unary_stream(path(SERVICE, "Pull"))
        call = send(request.SerializeToString(), metadata=self._security.metadata)
        try:
            async with translated(self._address):
                nodes = await self._receive(call, pull, patience)
        except ProtocolError as error:
            raise TransportError(f"{self._address} sent wrong bytes: {error}") from None
        except TimeoutError:
            raise TransportError(f"{self._address} sent nothing for {patience:g} s") from None
        finally:
            call.cancel()
        if pull.offset != len(pull.into) and not nodes:
            raise TransportError(f"{self._address} ended after {pull.offset} of {len(pull.into)} bytes")
        return nodes

    async def _receive(self, call: Any, pull: Pull, patience: float) -> tuple[int, ...]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(patience) as limit:
            while (data := await call.read()) is not grpc.aio.EOF:
                if data[:8] == _BY_SOCKET_BYTES:
                    limit.reschedule(None)
                    await self._take_by_socket(data[PREFIX_NBYTES:], pull, patience)
                elif data[:8] != _ELSEWHERE_BYTES:
                    pull.take(data)
                elif nodes := decode_nodes(data[PREFIX_NBYTES:]):
                    return nodes
                limit.reschedule(loop.time() + patience)
        return ()

    async def _take_by_socket(self, where: bytes, pull: Pull, patience: float) -> None:
        host = split_address(self._address)[0]
        taking = Taking(self._security, host, where, pull.into, pull.offset, patience)
        pull.writing = taking.start()
        try:
            problem = await asyncio.shield(pull.writing)
        finally:
            taking.stop()
            pull.offset = taking.offset
        if problem is not None:
            raise problem

    async def close(self) -> None:
        """Close the connection; pulls under way fail."""
        await self._channel.close()

"""Stored objects from node to node, in pieces straight into memory that the taker has set aside.

A piece is a fixed prefix (offset, version) and raw bytes: protobuf would copy them once more. Pieces of one version
come in order; a taker that finds another version or a gap breaks off, so bytes of two versions are never mixed.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..errors import TransportError
from ..ids import ObjectId
from .codec import ProtocolError
from .grpc_channels import open_channel
from .grpc_credentials import Security
from .grpc_errors import refusing, translated
from .grpc_library import grpc
from .grpc_messages import parse, path, service
from .protos import cluster_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["Objects"]

#: Offset u64 and version u64 before the bytes of a piece.
PREFIX = struct.Struct("<QQ")
PREFIX_NBYTES = PREFIX.size

#: Bytes of a piece. Larger: fewer messages; smaller: frames of the same loop wait less. Tried on 2 shared cores:
#: 512 KiB moved 1.2 GB/s and a frame took 1.1 ms, 256 KiB 1.2 GB/s and 0.5 ms, 128 KiB 0.9 GB/s and 0.4 ms.
PIECE_NBYTES = 256 * 1024

#: Bytes of a request.
MAX_REQUEST_NBYTES = 256

#: Seconds without a piece after which a source is given up.
PATIENCE = 5.0

#: Finds the bytes of one version and keeps them where they are until the context ends; raises ObjectLostError.
OpenObject = Callable[[ObjectId, int], AbstractContextManager[memoryview]]


class ObjectsService:
    """The giving side. ``open_object(id, version)`` is called in the loop's thread, once a pull."""

    def __init__(self, open_object: OpenObject) -> None:
        self._open_object = open_object
        self.handler = service(SERVICE, {"Pull": self._pull})

    async def _pull(self, request: bytes, context: Any) -> None:
        async with refusing(context):
            wanted = parse(pb.PullRequest, request, MAX_REQUEST_NBYTES)
            version, offset = wanted.version, wanted.offset
            with self._open_object(ObjectId(wanted.owner, wanted.seq), version) as view:
                if offset > len(view):
                    raise ProtocolError(f"offset {offset} lies beyond the object's {len(view)} bytes")
                for start in range(offset, len(view), PIECE_NBYTES):
                    with view[start : start + PIECE_NBYTES] as piece:
                        data = b"".join((PREFIX.pack(start, version), piece))
                    await context.write(data)


class Pull:
    """One version of an object on its way into ``into``, which is as long as the object.

    ``offset`` bytes are there. After a failure the pull goes on from there, with the same source or another one.
    """

    __slots__ = ("id", "into", "offset", "version")

    def __init__(self, object_id: ObjectId, version: int, into: memoryview) -> None:
        self.id = object_id
        self.version = version
        self.into = into
        self.offset = 0

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
    """A node that objects are pulled from; it has a connection of its own, so that frames do not wait behind pieces."""

    def __init__(self, address: str, security: Security) -> None:
        self._address = address
        self._security = security
        self._channel = open_channel(address, security)

    async def fetch(self, pull: Pull, patience: float = PATIENCE) -> None:
        """Bring what ``pull`` lacks.

        Args:
            patience: seconds without a piece after which the source is given up.
        Raises:
            ObjectLostError: this node has no copy. TransportError: it ended, stalled, or sent other bytes.
        """
        request = pb.PullRequest(owner=pull.id.owner, seq=pull.id.seq, version=pull.version, offset=pull.offset)
        send = self._channel.unary_stream(path(SERVICE, "Pull"))
        call = send(request.SerializeToString(), metadata=self._security.metadata)
        try:
            async with translated(self._address):
                await self._receive(call, pull, patience)
        except ProtocolError as error:
            raise TransportError(f"{self._address} sent wrong bytes: {error}") from None
        except TimeoutError:
            raise TransportError(f"{self._address} sent nothing for {patience:g} s") from None
        finally:
            call.cancel()
        if pull.offset != len(pull.into):
            raise TransportError(f"{self._address} ended after {pull.offset} of {len(pull.into)} bytes")

    async def _receive(self, call: Any, pull: Pull, patience: float) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(patience) as limit:
            while (data := await call.read()) is not grpc.aio.EOF:
                pull.take(data)
                limit.reschedule(loop.time() + patience)

    async def close(self) -> None:
        """Close the connection; pulls under way fail."""
        await self._channel.close()

"""A server with every service, whose callbacks record that they were called, and what tests dial it with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from outboard.errors import ObjectLostError
from outboard.ids import ObjectId
from outboard.rpc.codec import FrameTuple
from outboard.rpc.grpc_channels import CHANNEL_OPTIONS
from outboard.rpc.grpc_credentials import Security, make_token
from outboard.rpc.grpc_head import HeadEnd, HeadService
from outboard.rpc.grpc_hello import make_hello
from outboard.rpc.grpc_library import grpc
from outboard.rpc.grpc_links import LinksService, PeerLink, dial
from outboard.rpc.grpc_objects import ObjectsService
from outboard.rpc.grpc_server import HEALTH_NAME, Server
from outboard.rpc.object_sockets import MakeOffer
from outboard.rpc.protos import cluster_pb2 as pb

SERVER = 0x5E
CLIENT = 0xC1
OBJECT = ObjectId(7, 1)

#: Path of every RPC of every service, from the descriptors.
PATHS = [
    f"/{HEALTH_NAME if described.name == 'Health' else described.full_name}/{rpc.name}"
    for described in pb.DESCRIPTOR.services_by_name.values()
    for rpc in described.methods
]


class World:
    """`calls` names the callbacks that were called; links that were taken lie in `links` and `nodes`."""

    def __init__(self) -> None:
        self.security = Security(make_token())
        self.calls: list[str] = []
        self.links: list[PeerLink] = []
        self.nodes: list[HeadEnd] = []
        self.reports: list[pb.Report] = []
        self.objects: dict[ObjectId, bytes] = {}
        self.make_offer: MakeOffer | None = None
        self.refusal: Exception | None = None
        self.inbox = Inbox()
        self.address = ""

    @contextlib.asynccontextmanager
    async def serving(self, *more: Any, security: Security | None = None) -> AsyncIterator[Server]:
        """Serve on a free port of this machine; `more` are further handlers."""
        handlers = [
            LinksService(make_hello(SERVER, "test"), self.on_link).handler,
            ObjectsService(self.open_object, make_offer=self.make_offer).handler,
            HeadService(self.on_node, self.on_status, self.on_stop).handler,
        ]
        server = Server(security or self.security, [*more, *handlers])
        port = await server.start("127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        try:
            yield server
        finally:
            await server.stop(0)

    def on_link(self, link: PeerLink) -> None:
        self.calls.append("link")
        if self.refusal is not None:
            raise self.refusal
        self.links.append(link)
        link.on_frames, link.on_closed = self.inbox.on_frames, self.inbox.on_closed

    @contextlib.contextmanager
    def open_object(self, object_id: ObjectId, version: int) -> Iterator[memoryview]:
        self.calls.append("object")
        if object_id not in self.objects or version:
            raise ObjectLostError("no copy here")
        yield memoryview(self.objects[object_id])

    async def on_node(self, link: HeadEnd) -> pb.Registered:
        self.calls.append("node")
        if self.refusal is not None:
            raise self.refusal
        self.nodes.append(link)
        link.on_message = lambda _, report: self.reports.append(report)
        return pb.Registered(epoch=3, cluster="test")

    async def on_status(self) -> pb.ClusterStatus:
        self.calls.append("status")
        return pb.ClusterStatus(cluster="test")

    async def on_stop(self, request: pb.StopRequest) -> pb.StopReply:
        self.calls.append("stop force" if request.force else "stop")
        return pb.StopReply(left=2)

    async def dial(self, inbox: Inbox, **changes: Any) -> PeerLink:
        """Dial this server as a node."""
        hello = make_hello(CLIENT, "test")
        wanted = changes.pop("wanted", 0)
        for name, value in changes.items():
            setattr(hello, name, value)
        return await dial(self.address, self.security, hello, inbox.on_frames, inbox.on_closed, wanted=wanted)


class Inbox:
    """Keeps what a link brings."""

    def __init__(self) -> None:
        self.frames: list[FrameTuple] = []
        self.ends: list[Exception | None] = []

    def on_frames(self, _: PeerLink, frames: list[FrameTuple]) -> None:
        self.frames += frames

    def on_closed(self, _: PeerLink, error: Exception | None) -> None:
        self.ends.append(error)


async def until(condition: Callable[[], object], timeout: float = 10.0) -> None:
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.001)


async def raw_call(
    address: str, rpc: str, metadata: Any, message: bytes | None = b"", options: Any = ()
) -> tuple[Any, str]:
    """Call any RPC with any metadata and bytes (None: send nothing) and return the status.

    A call that answers is cut off after its answer.
    """
    async with grpc.aio.insecure_channel(address, (*CHANNEL_OPTIONS, *options)) as channel:
        if message is None:
            call = channel.stream_stream(rpc)(metadata=metadata, timeout=10)
        else:
            call = channel.unary_stream(rpc)(message, metadata=metadata, timeout=10)
        with contextlib.suppress(grpc.aio.AioRpcError):
            if await call.read() is not grpc.aio.EOF:
                call.cancel()
        return await call.code(), await call.details()

"""Between a node and the head: one typed stream a node, and two questions anybody with the token may ask.

Only transport: what reports mean is for the head's machine, what notes mean for the node. Every message is bounded when
it comes in.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from ..errors import TransportError, VersionMismatchError
from ..version import PROTOCOL, __version__
from .codec import ProtocolError
from .grpc_channels import MAX_PAYLOAD, open_channel
from .grpc_credentials import Security
from .grpc_errors import refusing, translated
from .grpc_messages import parse, path, service
from .grpc_streams import Duplex, admit, await_admission
from .protos import cluster_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["Head"]

#: Messages that may wait for a peer before the stream is given up: a node reads the few a second that it gets.
MAX_QUEUED = 10_000

#: Seconds in which each side says its first word.
FIRST_TIMEOUT = 10.0

#: Bytes of a unary request.
MAX_REQUEST_NBYTES = 1024

Out = TypeVar("Out", pb.Report, pb.Note)
In = TypeVar("In", pb.Report, pb.Note)


class AttendLink(Generic[Out, In]):
    """One end of a node's stream to the head; every method is called in the loop's thread.

    ``on_message(link, message)`` gets what comes, in order. ``on_closed(link, error)`` is called exactly once, when the
    stream ends by the peer (None) or fails; ``close`` does not call it. Both may be replaced at any time. ``first`` is
    the peer's first word: a Registration at the head, Registered at the node.
    """

    __slots__ = ("_duplex", "_kind", "_queue", "closed", "first", "on_closed", "on_message")

    def __init__(self, stream: Any, peer: str, kind: type[In], first: Any) -> None:
        self._duplex = Duplex(stream, peer, self._take, self._give)
        self._queue: deque[bytes] = deque()
        self._kind: type[In] = kind
        self.first = first
        self.closed = False
        self.on_message: Callable[[AttendLink[Out, In], In], object] = _unheard
        self.on_closed: Callable[[AttendLink[Out, In], Exception | None], object] = _unheard

    def send(self, message: Out) -> None:
        """Queue one message until ``flush``; dropped when the link is closed."""
        if self.closed:
            return
        self._queue.append(message.SerializeToString())
        if len(self._queue) > MAX_QUEUED:
            asyncio.get_running_loop().call_soon(self._fail, TransportError("the other end of the head does not read"))

    def flush(self) -> None:
        """Send what is queued."""
        if not self.closed:
            self._duplex.wake()

    def close(self) -> None:
        """End the stream without a call back; a second call does nothing."""
        if not self.closed:
            self.closed = True
            self._queue.clear()
            self._duplex.stop()

    async def finish(self, timeout: float = FIRST_TIMEOUT) -> None:
        """Take no more, send what is queued, and close when the peer has read it, or after ``timeout`` seconds."""
        if not self.closed:
            self.closed = True
            await self._duplex.finish(timeout)

    def _take(self) -> bytes:
        return self._queue.popleft() if self._queue else b""

    def _give(self, data: bytes) -> None:
        if self.closed:
            return
        message = parse(self._kind, data, MAX_PAYLOAD)
        try:
            self.on_message(self, message)
        except Exception:  # a fault of the one who called back is no fault of the peer
            sys.excepthook(*sys.exc_info())

    def _fail(self, error: Exception | None) -> None:
        if not self.closed:
            self.close()
            self.on_closed(self, error)


NodeEnd = AttendLink[pb.Report, pb.Note]
HeadEnd = AttendLink[pb.Note, pb.Report]


async def attend(
    address: str, security: Security, registration: pb.Registration, timeout: float = FIRST_TIMEOUT
) -> NodeEnd:
    """Register with the head at ``host:port``; the caller sets the callbacks before it awaits anything.

    Raises:
        TransportError: no answer, or not in time. AuthenticationError: wrong token or cluster.
        VersionMismatchError: releases that do not fit. NodeLostError: this incarnation was struck off.
    """
    channel = open_channel(address, security)
    call = channel.stream_stream(path(SERVICE, "Attend"))(metadata=security.metadata)
    try:
        async with asyncio.timeout(timeout), translated(address):
            await await_admission(call, address)
            await call.write(pb.Report(registration=registration).SerializeToString())
            data = await call.read()
        note = parse(pb.Note, data if isinstance(data, bytes) else b"", MAX_PAYLOAD)
        if note.WhichOneof("body") != "registered":
            raise ProtocolError("its first word is not Registered")
    except BaseException as error:
        call.cancel()
        await channel.close()
        if isinstance(error, TimeoutError):
            raise TransportError(f"the head at {address} did not answer within {timeout:g} s") from None
        if isinstance(error, ProtocolError):
            raise VersionMismatchError(f"{address} does not answer as a head does: {error}") from None
        raise
    link: NodeEnd = AttendLink(call, address, pb.Note, note.registered)
    link._duplex.start(link._fail, channel.close)
    return link


async def ask_status(address: str, security: Security, timeout: float) -> pb.ClusterStatus:
    """Ask the head what there is; errors as those of `attend`."""
    return pb.ClusterStatus.FromString(await _ask(address, security, "Status", pb.StatusRequest(), timeout))


async def ask_stop(address: str, security: Security, request: pb.StopRequest, timeout: float) -> pb.StopReply:
    """Ask the head to end the cluster and wait until its nodes have left; errors as those of `attend`."""
    return pb.StopReply.FromString(await _ask(address, security, "Stop", request, timeout))


async def _ask(address: str, security: Security, rpc: str, request: Any, timeout: float) -> bytes:
    async with open_channel(address, security) as channel, translated(address):
        send = channel.unary_unary(path(SERVICE, rpc))
        answer = await send(request.SerializeToString(), metadata=security.metadata, timeout=timeout)
        return bytes(answer)


class HeadService:
    """The head's side.

    ``on_node(link)`` gets each node's stream, whose registration is ``link.first``, sets its callbacks and returns the
    Registered to answer; it may raise one of our errors to refuse. It is cancelled when the node hangs up meanwhile;
    what it queues on the link follows its answer. ``on_status`` and ``on_stop`` answer the questions.
    """

    def __init__(
        self,
        on_node: Callable[[HeadEnd], Awaitable[pb.Registered]],
        on_status: Callable[[], Awaitable[pb.ClusterStatus]],
        on_stop: Callable[[pb.StopRequest], Awaitable[pb.StopReply]],
    ) -> None:
        self._on_node = on_node
        self._on_status = on_status
        self._on_stop = on_stop
        methods = {"Attend": self._attend, "Status": self._status, "Stop": self._stop}
        self.handler = service(SERVICE, methods)

    async def _attend(self, _: Any, context: Any) -> None:
        async with refusing(context):
            await admit(context)
            link: HeadEnd = AttendLink(context, context.peer(), pb.Report, await self._await_registration(context))
            registered = await self._on_node(link)
            await link._duplex.run(link._fail, pb.Note(registered=registered).SerializeToString())

    async def _await_registration(self, context: Any) -> pb.Registration:
        try:
            async with asyncio.timeout(FIRST_TIMEOUT):
                data = await context.read()
        except TimeoutError:
            raise ProtocolError(f"no registration within {FIRST_TIMEOUT:g} s") from None
        report = parse(pb.Report, data if isinstance(data, bytes) else b"", MAX_PAYLOAD)
        if report.WhichOneof("body") != "registration" or not report.registration.incarnation:
            raise ProtocolError("the first report is a registration, with an incarnation")
        theirs = report.registration
        if theirs.protocol != PROTOCOL:
            raise VersionMismatchError(
                f"this head runs Outboard {__version__} (protocol {PROTOCOL}); the node runs "
                f"{theirs.release or 'something else'} (protocol {theirs.protocol})"
            )
        return theirs

    async def _status(self, request: bytes, context: Any) -> bytes:
        async with refusing(context):
            parse(pb.StatusRequest, request, MAX_REQUEST_NBYTES)
            return bytes((await self._on_status()).SerializeToString())

    async def _stop(self, request: bytes, context: Any) -> bytes:
        async with refusing(context):
            reply = await self._on_stop(parse(pb.StopRequest, request, MAX_REQUEST_NBYTES))
            return bytes(reply.SerializeToString())


def _unheard(*_: object) -> None:
    """Stand for a callback that has not been set."""

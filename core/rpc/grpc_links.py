"""Links between nodes: the frames of a local link in one stream of gRPC.

A message of the stream is a batch of whole frames as `codec` lays them out, and gRPC sees bytes only, so that
forwarding parses nothing. What one turn of the loop queued goes out as one message; lanes are served in order each time
a message is put together, so a control frame overtakes all but the message under way.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import NodeLostError, TransportError, VersionMismatchError
from .codec import (
    LANE_TASKS,
    LANES,
    MAX_BODY,
    START,
    DecoderState,
    Frame,
    FrameTuple,
    ProtocolError,
    decode,
    encode_frame,
    encode_parts,
)
from .grpc_channels import open_channel
from .grpc_credentials import Security
from .grpc_errors import error_of, refusing
from .grpc_hello import check_fit, read_hello
from .grpc_library import grpc
from .grpc_messages import path, service
from .grpc_streams import Duplex, admit, await_admission
from .protos import cluster_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["Links"]

#: Bytes after which no more frames are joined into a message; with the last one it stays below 512 KiB. Larger: fewer
#: messages, which cost 100 µs each; smaller: control frames wait less behind one.
BATCH_NBYTES = 256 * 1024

#: Bytes that may wait for a peer before the link gives it up. Windows keep a session far below; this is for faults.
MAX_QUEUED_NBYTES = 256 * 1024 * 1024

#: Seconds that a dialler has for its hello, once the stream is open.
HELLO_TIMEOUT = 10.0

#: Seconds in which `PeerLink.finish` tries to have everything read.
FINISH_TIMEOUT = 5.0

OnFrames = Callable[["PeerLink", list[FrameTuple]], object]
OnClosed = Callable[["PeerLink", Exception | None], object]


class PeerLink:
    """A link to another node; every method is called in the loop's thread.

    ``on_frames(link, frames)`` is called once for a message. ``on_closed(link, error)`` is called exactly once, when
    the peer ended the stream (None), or it failed or broke the rules; ``close`` does not call it. Both may be replaced
    at any time. ``hello`` is what the peer said of itself.
    """

    __slots__ = ("_duplex", "_lanes", "_state", "closed", "hello", "on_closed", "on_frames", "queued_nbytes")

    def __init__(self, stream: Any, peer: str, hello: pb.PeerHello, on_frames: OnFrames, on_closed: OnClosed) -> None:
        self._duplex = Duplex(stream, peer, self._take, self._give)
        self._lanes: tuple[deque[bytes], ...] = (deque(), deque(), deque())
        self._state: DecoderState = START
        self.hello = hello
        self.on_frames = on_frames
        self.on_closed = on_closed
        self.closed = False
        #: Bytes taken by ``send`` that the stream has not taken yet.
        self.queued_nbytes = 0

    def send(self, frame_type: int, body: bytes, destination: int = 0, fds: Sequence[int] = ()) -> None:
        """Queue one message until ``flush``; dropped when the link is closed.

        Raises:
            ProtocolError: a message over the bounds, or with descriptors, which do not leave a machine.
        """
        if fds:
            raise ProtocolError("descriptors cannot be sent to another machine")
        if len(body) <= MAX_BODY:
            self.send_raw(encode_frame(frame_type, body, destination), LANES[frame_type])
        else:
            for data in encode_parts(frame_type, body, destination):
                self.send_raw(data, LANES[frame_type])

    def send_raw(self, data: bytes, lane: int = LANE_TASKS) -> None:
        """Queue one encoded frame as it is; dropped when the link is closed."""
        if self.closed:
            return
        self._lanes[lane].append(data)
        self.queued_nbytes += len(data)
        if self.queued_nbytes > MAX_QUEUED_NBYTES:
            # Not from within the caller's turn: it still holds the link.
            asyncio.get_running_loop().call_soon(self._give_up)

    def flush(self) -> None:
        """Send what is queued; what the stream does not take now follows when it has room."""
        if not self.closed:
            self._duplex.wake()

    def close(self) -> None:
        """End the stream without a call back; what has not gone out is dropped. A second call does nothing."""
        if not self.closed:
            self._drop()
            self._duplex.stop()

    async def finish(self, timeout: float = FINISH_TIMEOUT) -> None:
        """Take no more, send what is queued, and close when the peer has read it, or after ``timeout`` seconds."""
        if not self.closed:
            self.closed = True
            await self._duplex.finish(timeout)
            self._drop()

    def _take(self) -> bytes:
        batch: list[bytes] = []
        nbytes = 0
        for lane in self._lanes:
            while lane and nbytes < BATCH_NBYTES:
                data = lane.popleft()
                batch.append(data)
                nbytes += len(data)
        self.queued_nbytes -= nbytes
        return batch[0] if len(batch) == 1 else b"".join(batch)

    def _give(self, data: bytes) -> None:
        if self.closed:
            return
        frames, state = decode(self._state, data)
        if state is not START and (state[0] or len(state[2]) > len(self._lanes)):
            raise ProtocolError("a message that does not end with a frame, or more lanes than there are")
        self._state = state
        if not frames:
            return
        try:
            self.on_frames(self, frames)
        except Exception:  # a fault of the one who called back is no fault of the peer
            sys.excepthook(*sys.exc_info())

    def _give_up(self) -> None:
        if not self.closed:
            error = TransportError(f"the node at {self.hello.address or 'the other end'} does not read")
            self.close()
            self.on_closed(self, error)

    def _ended(self, error: Exception | None) -> None:
        if not self.closed:
            self._drop()
            self.on_closed(self, error)

    def _drop(self) -> None:
        self.closed = True
        self._state = START
        for lane in self._lanes:
            lane.clear()
        self.queued_nbytes = 0


async def dial(
    address: str,
    security: Security,
    mine: pb.PeerHello,
    on_frames: OnFrames,
    on_closed: OnClosed,
    *,
    wanted: int = 0,
    timeout: float = HELLO_TIMEOUT,
) -> PeerLink:
    """Open a link to the node at ``host:port``; it has a connection of its own.

    Args:
        wanted: incarnation of the node that is meant; 0 for whoever answers.
        timeout: seconds until the peer's hello must be here.
    Raises:
        TransportError: nobody answered, or not in time, or TLS failed. AuthenticationError: wrong token or cluster.
        VersionMismatchError: releases or Pythons that do not fit. NodeLostError: another incarnation answered.
        ValueError: see `Security.check`.
    """
    channel = open_channel(address, security)
    call = channel.stream_stream(path(SERVICE, "Connect"))(metadata=security.metadata)
    try:
        theirs = await _greet(call, address, pb.PeerHello.FromString(mine.SerializeToString()), wanted, timeout)
    except BaseException:
        call.cancel()
        await channel.close()
        raise
    link = PeerLink(call, address, theirs, on_frames, on_closed)
    link._duplex.start(link._ended, channel.close)
    return link


async def _greet(call: Any, address: str, mine: pb.PeerHello, wanted: int, timeout: float) -> pb.PeerHello:
    mine.wanted = wanted
    try:
        async with asyncio.timeout(timeout):
            await await_admission(call, address)
            await call.write(encode_frame(Frame.HELLO, mine.SerializeToString()))
            data = await call.read()
    except TimeoutError:
        raise TransportError(f"{address} did not answer within {timeout:g} s") from None
    except grpc.aio.AioRpcError as error:
        raise error_of(address, error.code(), error.details()) from None
    if data is grpc.aio.EOF:
        raise TransportError(f"{address} ended the link before it answered")
    try:
        theirs = read_hello(data)
    except ProtocolError as error:
        raise VersionMismatchError(f"{address} does not greet as a node does: {error}") from None
    check_fit(mine, theirs)
    if wanted and theirs.incarnation != wanted:
        raise NodeLostError(f"another node answers at {address}: {theirs.incarnation:016x}, not {wanted:016x}")
    return theirs


class LinksService:
    """The listening side of links.

    ``on_link(link)`` gets each new link, greeted, and sets its two callbacks; it may raise one of our errors to refuse.
    """

    def __init__(self, mine: pb.PeerHello, on_link: Callable[[PeerLink], object]) -> None:
        self._mine = mine
        self._on_link = on_link
        self.handler = service(SERVICE, {"Connect": self._connect})

    async def _connect(self, _: Any, context: Any) -> None:
        async with refusing(context):
            await admit(context)
            hello = await self._await_hello(context)
            check_fit(self._mine, hello)
            link = PeerLink(context, context.peer(), hello, _unheard, _unheard)
            self._on_link(link)
            await link._duplex.run(link._ended, encode_frame(Frame.HELLO, self._mine.SerializeToString()))

    async def _await_hello(self, context: Any) -> pb.PeerHello:
        try:
            async with asyncio.timeout(HELLO_TIMEOUT):
                data = await context.read()
        except TimeoutError:
            raise ProtocolError(f"no hello within {HELLO_TIMEOUT:g} s") from None
        return read_hello(data if isinstance(data, bytes) else b"")


def _unheard(*_: object) -> None:
    """Stand for a callback that has not been set."""

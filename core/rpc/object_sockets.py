"""Bytes of large objects, on a socket of their own: one thread sends, one receives, straight from memory to memory.

As messages of gRPC the bytes go through the loops of both nodes, and control waits for them there; a thread in a system
call holds neither loop nor interpreter. The loops only arrange it: within the call of gRPC, which has been let in, the
giver opens a port for this one transfer and names it with a ticket; the call stays open meanwhile. TLS is as for calls.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable

from ..errors import TransportError
from .codec import ProtocolError
from .grpc_credentials import Security, Tls

#: Bytes from which on a socket is worth its connection, and two threads their start.
MIN_NBYTES = 4 << 20

#: Bytes of one system call. Larger: fewer turns at the interpreter; smaller: they stay in the caches on their way.
CHUNK_NBYTES = 128 << 10

#: How far the threads stand behind others that want to run. Beside 2 GB/s on 2 cores a frame took 3.9 ms (p99) with
#: chunks of 256 KiB, 3.2 ms with 128 KiB; 19 halves the speed, and workers that compute would stop the bytes.
NICENESS = 5

#: Seconds in which a taker must have dialled and shown its ticket; then the bytes go over gRPC.
DIAL_SECONDS = 2.0

#: Seconds without a byte after which the other side is given up.
PATIENCE = 5.0

#: Random bytes of a ticket. It is good for one transfer, while its call stands.
TICKET_NBYTES = 16

#: What the giver says in the call: port and ticket.
_WHERE = struct.Struct(f"<H{TICKET_NBYTES}s")

#: What the taker says when all bytes are there.
_DONE = b"."


class NotDialledError(TransportError):
    """The giver's port cannot be used from here; not a byte has come."""


class _Transfer:
    """One side of a transfer. `run` is a thread's; `stop` may be called by any, and nothing is sent after it."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self._is_stopped = False

    def run(self) -> None:
        """Move the bytes."""
        raise NotImplementedError

    def start(self) -> asyncio.Future[Exception | None]:
        """Run in a thread. The result is what went wrong; it is not cancelled before the thread has ended."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Exception | None] = loop.create_future()
        threading.Thread(target=self._run, args=(loop, ended), name="outboard-object", daemon=True).start()
        return ended

    def _run(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[Exception | None]) -> None:
        problem: Exception | None = None
        stand_behind()
        try:
            self.run()
        except Exception as error:
            problem = error
        finally:
            for used in self._sockets:
                used.close()
        try:
            loop.call_soon_threadsafe(ended.set_result, problem)
        except RuntimeError:  # the loop was closed: nobody waits
            pass

    def stop(self) -> None:
        """End it soon."""
        self._is_stopped = True
        for used in self._sockets:
            try:
                socket.socket.shutdown(used, socket.SHUT_RDWR)  # that of TLS would make the thread read plain bytes
            except OSError:  # not connected, or closed
                pass

    def _use(self, used: socket.socket) -> socket.socket:
        self._sockets.append(used)
        if self._is_stopped:
            raise TransportError("the transfer was given up")
        return used


class Offer(_Transfer):
    """Gives ``data`` to the first who dials and shows the ticket. `where` is what the taker must be told."""

    def __init__(self, security: Security, host: str, data: memoryview, patience: float = PATIENCE) -> None:
        """``host``: where the node listens. Raises OSError when there is no port."""
        super().__init__()
        self._tls = security.tls
        self._data = data
        self._patience = patience
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        self._listener = self._use(socket.create_server(address[:2], family=family))
        self._ticket = secrets.token_bytes(TICKET_NBYTES)
        self.where = _WHERE.pack(self._listener.getsockname()[1], self._ticket)

    def run(self) -> None:
        """Give the bytes. TransportError, OSError: they were not taken."""
        taker = self._await_taker(None if self._tls is None else _server_context(self._tls))
        _block(taker, self._patience)
        at, end = 0, len(self._data)
        while at < end:
            at += taker.send(self._data[at : at + CHUNK_NBYTES])
        if taker.recv(len(_DONE)) != _DONE:
            raise TransportError("the taker went away")

    def _await_taker(self, context: ssl.SSLContext | None) -> socket.socket:
        until = time.monotonic() + DIAL_SECONDS
        with self._listener:
            while (left := until - time.monotonic()) > 0:
                self._listener.settimeout(left)
                taker = self._use(self._listener.accept()[0])
                try:
                    taker.settimeout(left)
                    if context is not None:
                        taker = self._use(context.wrap_socket(taker, server_side=True))
                    if hmac.compare_digest(_read(taker, TICKET_NBYTES), self._ticket):
                        return taker
                except OSError:  # no friend, or none any more
                    pass
                taker.close()
        raise TransportError("the taker did not dial")


class Taking(_Transfer):
    """Takes what an offer gives, into ``into`` from ``offset`` on; ``offset`` grows with what is there."""

    def __init__(
        self, security: Security, host: str, where: bytes, into: memoryview, offset: int, patience: float
    ) -> None:
        """``host``: that of the giver. Raises ProtocolError when ``where`` says nothing."""
        super().__init__()
        if len(where) != _WHERE.size:
            raise ProtocolError(f"{len(where)} bytes do not say where to dial")
        self._tls = security.tls
        self._host = host
        self._port, self._ticket = _WHERE.unpack(where)
        self._into = into
        self.offset = offset
        self._patience = patience

    def run(self) -> None:
        """Take the bytes. NotDialledError: it did not begin. TransportError: it ended early, or stalled."""
        begin = self.offset
        try:
            self._take(self._dial())
        except (OSError, TransportError) as error:
            kind = NotDialledError if self.offset == begin and not self._is_stopped else TransportError
            is_stalled = isinstance(error, (BlockingIOError, ssl.SSLWantReadError))
            raise kind(f"{self._host} sent nothing for {self._patience:g} s" if is_stalled else str(error)) from None

    def _dial(self) -> socket.socket:
        giver = self._use(socket.create_connection((self._host, self._port), DIAL_SECONDS))
        if self._tls is not None:
            giver = self._use(_client_context(self._tls).wrap_socket(giver, server_hostname=self._host))
        giver.sendall(self._ticket)
        return giver

    def _take(self, giver: socket.socket) -> None:
        _block(giver, self._patience)
        flags = socket.MSG_WAITALL if self._tls is None else 0
        while self.offset < len(self._into):
            end = min(self.offset + CHUNK_NBYTES, len(self._into))
            count = giver.recv_into(self._into[self.offset : end], 0, flags)
            if not count or self._is_stopped:
                raise TransportError(f"it ended after {self.offset} of {len(self._into)} bytes")
            self.offset += count
        giver.sendall(_DONE)


def stand_behind() -> None:
    """Let this thread, which moves bytes, run after others."""
    if sys.platform == "linux":  # where threads have priorities of their own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


def _block(used: socket.socket, seconds: float) -> None:
    """Let each call take all it was given, and fail when nothing moves for so long."""
    used.settimeout(None)
    limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
    used.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    used.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def _read(used: socket.socket, nbytes: int) -> bytes:
    """Read so many bytes, fewer when no more come."""
    data = b""
    while len(data) < nbytes and (more := used.recv(nbytes - len(data))):
        data += more
    return data


def _server_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if tls.cert:
        context.load_cert_chain(tls.cert, tls.key)
    if tls.ca and tls.mutual:
        context.load_verify_locations(tls.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _client_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and host
    if tls.ca:
        context.load_verify_locations(tls.ca)
    else:
        context.load_default_certs()
    if tls.cert:
        context.load_cert_chain(tls.cert, tls.key)
    return context


#: Makes an offer of bytes.
MakeOffer = Callable[[memoryview], Offer]

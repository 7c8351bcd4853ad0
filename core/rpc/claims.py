"""Claim sockets: work that has been dealt and not begun.

Node and worker hold the reading end of one packet socket together; the kernel gives each packet to exactly one of
them. So what the node reads back has not begun, even when the worker hangs in C code, is stopped or is dead.
"""

from __future__ import annotations

import errno
import socket
import sys

from .sockets import raise_send_buffer

#: Bytes of kernel buffer asked for a worker's packets; the kernel may give less.
CLAIM_BUFFER_NBYTES = 2 << 20

#: Longest packet; a reader's buffer needs no more.
MAX_PACKET = 1 << 20

#: Bytes the kernel keeps for itself of a send buffer when it judges whether a packet fits.
_KERNEL_SHARE = 64

_PACKETS = socket.SOCK_DGRAM if sys.platform == "darwin" else socket.SOCK_SEQPACKET


_DONTWAIT = int(socket.MSG_DONTWAIT)


def claim_pair() -> tuple[socket.socket, socket.socket]:
    """Create a claim socket: the node's sending end, and the reading end that node and worker share."""
    node_send, read_end = socket.socketpair(socket.AF_UNIX, _PACKETS)
    raise_send_buffer(node_send, CLAIM_BUFFER_NBYTES)
    return node_send, read_end


class ClaimSender:
    """The node's side of one worker's claim socket. Never blocks; owns both ends. Not thread-safe."""

    __slots__ = ("_buffer", "_read_end", "_recv_into", "_send", "_send_end", "max_nbytes")

    def __init__(self, node_send: socket.socket, read_end: socket.socket) -> None:
        self._send_end = node_send
        self._read_end = read_end
        self._send = node_send.send
        self._recv_into = read_end.recv_into
        self._buffer: memoryview | None = None
        #: Longest packet this socket takes; what is longer goes over the link.
        self.max_nbytes = min(MAX_PACKET, node_send.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) - _KERNEL_SHARE)

    def send(self, packet: bytes) -> bool:
        """Deal one packet; False when the socket is full or its last reader is gone.

        Raises ValueError for a packet that is empty or longer than ``max_nbytes``.
        """
        if not 0 < len(packet) <= self.max_nbytes:
            raise ValueError(f"a packet has 1 to {self.max_nbytes} bytes, not {len(packet)}")
        try:
            # The flag rather than a non-blocking socket: the worker shares the open file and must block on it.
            self._send(packet, _DONTWAIT)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            return False
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                return False
            raise
        return True

    def take_back(self) -> bytes | None:
        """Read back the oldest packet the worker has not taken; None when there is none."""
        if self._buffer is None:
            self._buffer = memoryview(bytearray(self.max_nbytes))
        try:
            nbytes = self._recv_into(self._buffer, 0, _DONTWAIT)
        except (BlockingIOError, ConnectionResetError):
            return None
        return bytes(self._buffer[:nbytes]) if nbytes else None

    def finish(self) -> None:
        """Deal nothing more: the worker finds the end after what it was dealt; `take_back` still works."""
        self._send_end.close()

    def close(self) -> None:
        """Close both ends; a second call does nothing."""
        self._send_end.close()
        self._read_end.close()
        self._buffer = None  # large, and who has the sender may be garbage for long before it is collected

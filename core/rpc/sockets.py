"""Sockets of the local link: pairs, a listener only its owner can reach, and descriptors that travel.

Whoever may connect may run code as us, so both sides hold: the socket lies in a fresh folder of mode 0700, and the
peer's user id is asked of the kernel.
"""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
import sys
from collections.abc import Iterable, Sequence

from .codec import MAX_DESCRIPTORS, ProtocolError

#: Bytes a link's kernel buffer may hold (the kernel caps it by its own limit). Larger: bursts of submissions block
#: less often; smaller: less unswappable memory a link.
SEND_BUFFER_NBYTES = 1 << 20

#: Longest path of a Unix socket, portable value (macOS; Linux allows 107).
MAX_PATH_NBYTES = 103

#: One message of the kernel: data, ancillary data, flags, address.
RawMessage = tuple[bytes, list[tuple[int, int, bytes]], int, object]

# Plain integers: arithmetic with the socket module's flags costs a microsecond each time.
_CLOEXEC = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
TRUNCATED = int(socket.MSG_CTRUNC)

#: Arguments of ``recvmsg`` after the size: room for the most descriptors one message can carry, and flags.
RIGHTS_NBYTES = socket.CMSG_SPACE(MAX_DESCRIPTORS * 4)
RECEIVE_FLAGS = _CLOEXEC


def socketpair() -> tuple[socket.socket, socket.socket]:
    """Create two connected stream sockets for a link."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for end in pair:
        raise_send_buffer(end, SEND_BUFFER_NBYTES)
    return pair


def listen(path: str) -> socket.socket:
    """Listen at ``path``, whose folder is created with mode 0700.

    Raises:
        FileExistsError: the folder exists; somebody else may have prepared it.
        OSError: the path is too long for a Unix socket.
    """
    _check_length(path)
    os.mkdir(os.path.dirname(path), 0o700)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def accept(listener: socket.socket) -> socket.socket:
    """Accept one connection; raises PermissionError, and closes it, when the peer is another user."""
    connection, _ = listener.accept()
    return _checked(connection)


def connect(path: str) -> socket.socket:
    """Connect to the listener at ``path``; raises PermissionError when another user listens there."""
    _check_length(path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return _checked(connection)


def peer_ids(connection: socket.socket) -> tuple[int, int]:
    """Process id and user id of the peer as they were when it connected; pid 0 where the system does not tell."""
    if sys.platform == "darwin":
        # Level SOL_LOCAL (0): option LOCAL_PEERCRED (1) gives struct xucred, LOCAL_PEERPID (2) the pid.
        _, uid = struct.unpack("=II", connection.getsockopt(0, 1, 76)[:8])
        return connection.getsockopt(0, 2), uid
    pid, uid, _ = struct.unpack("=iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def raise_send_buffer(end: socket.socket, nbytes: int) -> None:
    """Ask for a larger send buffer; the kernel gives what its limit allows."""
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, nbytes)
    except OSError as error:
        if error.errno != errno.ENOBUFS:  # macOS refuses instead of capping
            raise


def duplicates(fds: Sequence[int]) -> tuple[int, ...]:
    """Duplicate descriptors, so that they outlive the caller's own until they are sent."""
    if len(fds) > MAX_DESCRIPTORS:
        raise ProtocolError(f"a message carries at most {MAX_DESCRIPTORS} descriptors, not {len(fds)}")
    return tuple(map(os.dup, fds))


def rights(fds: Sequence[int]) -> list[tuple[int, int, bytes]]:
    """Ancillary data that passes ``fds``."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())] if fds else []


def received_fds(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, ...]:
    """Descriptors in received ancillary data; the caller owns them."""
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return tuple(fds)


def check_complete(flags: int) -> None:
    """Raise OSError(EMFILE) when the kernel dropped descriptors of a message: this process may hold no more."""
    if flags & TRUNCATED:
        raise OSError(errno.EMFILE, "descriptors of a message were dropped: the limit of open files is reached")


def close_fds(fds: Iterable[int]) -> None:
    """Close descriptors that nobody claimed."""
    for fd in fds:
        os.close(fd)


def _check_length(path: str) -> None:
    nbytes = len(os.fsencode(path))
    if nbytes > MAX_PATH_NBYTES:
        text = f"a Unix socket's path has at most {MAX_PATH_NBYTES} bytes, not {nbytes}"
        raise OSError(errno.ENAMETOOLONG, text, path)


def _checked(connection: socket.socket) -> socket.socket:
    uid = peer_ids(connection)[1]
    if uid != os.geteuid():
        connection.close()
        raise PermissionError(errno.EPERM, f"the peer of the socket belongs to user {uid}, not to {os.geteuid()}")
    raise_send_buffer(connection, SEND_BUFFER_NBYTES)
    return connection

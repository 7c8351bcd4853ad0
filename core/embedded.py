"""The embedded cluster: one child process, started with the first call and ended with this process."""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
from typing import TYPE_CHECKING

from .interrupts import shield
from .options import Settings
from .process.interpreter import command_line
from .process.lifetime import open_pidfd, wait_child
from .rpc.sockets import connect, socketpair

if TYPE_CHECKING:
    from .native import NativeEngine

#: Seconds until a node that was told to end is killed.
END_TIMEOUT = 5.0

#: Descriptors that the node finds: its end of the client's link, and a pidfd of the client.
_LINK_FD, _PIDFD = 3, 4

#: Program of the node: the two descriptors, then the settings.
_PROGRAM = "from outboard.boot import main; main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"


def start(settings: Settings) -> NativeEngine:
    """Start an embedded cluster, or connect to that of the process this one was forked from.

    Raises:
        NodeLostError: the node ended before it answered. GetTimeoutError: no answer within `start_timeout`.
        VersionMismatchError: the two ends do not fit.
    """
    shield.install()
    if settings.address not in (None, "", "local"):
        from .errors import TransportError

        raise TransportError(
            f"address {settings.address!r}: joining a running cluster is not supported by this release; "
            "leave OUTBOARD_ADDRESS unset for an embedded one"
        )
    if settings.address != "local":
        engine = _join(settings)
        if engine is not None:
            return engine
    with shield:
        ours, theirs = socketpair()
        pid = _spawn(theirs, settings)
        theirs.close()
        from .greeting import greet  # while the node starts, this process imports what it needs itself

        try:
            return greet(ours, settings.start_timeout, functools.partial(_end, pid), settings.log_prefix)
        except BaseException:
            ours.close()
            _end(pid)
            raise


def _spawn(theirs: socket.socket, settings: Settings) -> int:
    pidfd = open_pidfd(os.getpid())
    described = json.dumps({
        "num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus, "resources": dict(settings.resources),
        "store_memory": settings.store_memory,
    })  # fmt: skip
    env = {k: v for k, v in os.environ.items() if k != "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"}
    watch_fd = -1 if pidfd is None else _PIDFD
    program = command_line(_PROGRAM, str(_LINK_FD), str(watch_fd), described)
    # High copies first: either descriptor may have the other's number.
    link, watch = _high_copy(theirs.fileno()), _high_copy(theirs.fileno() if pidfd is None else pidfd)
    null = os.open(os.devnull, os.O_RDWR)
    actions = [
        (os.POSIX_SPAWN_DUP2, null, 0),
        (os.POSIX_SPAWN_DUP2, link, _LINK_FD),
        (os.POSIX_SPAWN_DUP2, watch, _PIDFD),
        *((os.POSIX_SPAWN_DUP2, null, fd) for fd in (1, 2) if not _is_inherited(fd)),
    ]
    try:
        return os.posix_spawn(sys.executable, program, env, file_actions=actions, setsid=True)
    finally:
        for fd in (link, watch, null, *(() if pidfd is None else (pidfd,))):
            os.close(fd)


def _is_inherited(fd: int) -> bool:
    """Whether a standard stream is open, for the node too; else something of the node's would get its number."""
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False


def _high_copy(fd: int) -> int:
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)


def _join(settings: Settings) -> NativeEngine | None:
    """Connect to the node of the process we were forked from; None when there is none any more."""
    hooks = sys.modules.get("outboard.forks")
    address = hooks.inherited_address() if hooks is not None else None
    if address is None:
        return None
    try:
        sock = connect(address)
    except OSError:
        return None
    from .greeting import greet

    return greet(sock, settings.start_timeout, lambda: None, settings.log_prefix)


def _end(pid: int) -> None:
    """Wait for the node's end, which follows that of its link; kill it when it does not come."""
    import signal

    try:
        if wait_child(pid, END_TIMEOUT) is None:
            os.kill(pid, signal.SIGKILL)
            wait_child(pid, END_TIMEOUT)
    except (ChildProcessError, ProcessLookupError):
        pass  # the program reaps all children itself

"""The embedded cluster: one child process, started with the first call and ended with this process.

Who names a running cluster goes by `clusterclient`; a child of ours that is such a program's own node is started here.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .interrupts import shield
from .options import LOCAL_ADDRESS, Settings
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


#: Address by which this process, or the one it was forked from, started an engine last.
_last_address: str | None = None


def start(settings: Settings) -> NativeEngine:
    """Start an embedded cluster, or connect to that of the process this one was forked from, or to a running one.

    Raises:
        NodeLostError: the node ended before it answered. GetTimeoutError: no answer within `start_timeout`.
        VersionMismatchError: the two ends do not fit. Those of `clusterclient.start`.
    """
    global _last_address
    shield.install()
    address = settings.address or None
    if address != LOCAL_ADDRESS and address in (None, _last_address):
        engine = _join(settings)
        if engine is not None:
            return engine
    _last_address = address
    if settings.names_running:
        from . import clusterclient

        return clusterclient.start(settings)
    with shield:
        ours, theirs = socketpair()
        pid = spawn_node(theirs, _PROGRAM, {
            "num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus, "resources": dict(settings.resources),
            "store_memory": settings.store_memory,
        })  # fmt: skip
        theirs.close()
        from .greeting import greet  # while the node starts, this process imports what it needs itself

        try:
            return greet(ours, settings.start_timeout, functools.partial(end_node, pid), settings)
        except BaseException:
            ours.close()
            end_node(pid)
            raise


def spawn_node(theirs: socket.socket, program: str, settings: Mapping[str, Any], **env: str) -> int:
    """Start a node for this process alone and return its pid.

    Args:
        theirs: its end of the link. program: what it runs, given two descriptors and the settings as JSON.
        env: variables of its environment besides ours.
    """
    pidfd = open_pidfd(os.getpid())
    env = {k: v for k, v in os.environ.items() if k != "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"} | env
    watch_fd = -1 if pidfd is None else _PIDFD
    command = command_line(program, str(_LINK_FD), str(watch_fd), json.dumps(settings))
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
        return os.posix_spawn(sys.executable, command, env, file_actions=actions, setsid=True)
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

    return greet(sock, settings.start_timeout, lambda: None, settings)


def end_node(pid: int, *, at_once: bool = False) -> None:
    """Wait for the node's end, which follows that of its link; kill it when it does not come.

    `at_once`: it may not listen to its link yet, and so is told.
    """
    import signal

    try:
        if at_once:
            os.kill(pid, signal.SIGTERM)
        if wait_child(pid, END_TIMEOUT) is None:
            os.kill(pid, signal.SIGKILL)
            wait_child(pid, END_TIMEOUT)
    except (ChildProcessError, ProcessLookupError):
        pass  # the program reaps all children itself

"""How a program joins a running cluster: over a node of its user on this machine, else over a slotless one of its own.

With a node at hand it needs no token: whoever may connect to that node's socket may run code as its user anyway.
"""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING

from . import localnodes
from .addresses import REACH_SECONDS, check_reachable, join_address, split_address
from .clusterfolder import ClusterFolder
from .embedded import end_node, spawn_node
from .errors import NodeLostError, TransportError, VersionMismatchError
from .interrupts import shield
from .options import AUTO_ADDRESS, Settings
from .rpc.sockets import connect, socketpair

if TYPE_CHECKING:
    from .native import NativeEngine

#: What a slotless node runs: the descriptors of the client's link and pidfd, then the settings.
_PROGRAM = "from outboard.boot import lead; lead(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"


def start(settings: Settings) -> NativeEngine:
    """Connect to the cluster whose head is at ``settings.address`` (``"auto"``: to the one of this machine).

    Raises:
        TransportError: nobody can be reached there. AuthenticationError: it has another token, or there is none here.
        VersionMismatchError: what listens there is no head, or does not fit. GetTimeoutError: no answer in time.
        ValueError: not an address.
    """
    deadline = time.monotonic() + settings.start_timeout
    folder = ClusterFolder(settings.folder)
    head = _head(settings, folder)
    if head is not None or settings.folder is None:  # a folder of its own names one cluster, not any
        engine = _over_local_node(head, settings, deadline)
        if engine is not None:
            return engine
    if head is None:
        raise TransportError(
            "no cluster of this user runs on this machine: start one with `outboard start --head`, or name the head "
            "of another one with address='host:port' or OUTBOARD_ADDRESS"
        )
    check_reachable(head, min(REACH_SECONDS, settings.start_timeout))
    return _over_own_node(head, settings, folder, deadline)


def _head(settings: Settings, folder: ClusterFolder) -> str | None:
    """Return where the head listens; None: somewhere, and only a node of this machine may know."""
    told = folder.address() if settings.address == AUTO_ADDRESS else settings.address
    return join_address(*split_address(told)) if told else None


def _over_local_node(head: str | None, settings: Settings, deadline: float) -> NativeEngine | None:
    for path in localnodes.find(head):
        with shield:
            try:
                sock = connect(path)
            except OSError:
                continue  # it has ended, and its folder is about to
            from .greeting import greet

            try:
                return greet(sock, deadline - time.monotonic(), lambda: None, settings)
            except (NodeLostError, VersionMismatchError):
                sock.close()  # it ends just now, or runs another Python than this program
            except BaseException:
                sock.close()
                raise
    return None


def _over_own_node(head: str, settings: Settings, folder: ClusterFolder, deadline: float) -> NativeEngine:
    files = {name: getattr(settings, name) for name in ("token_file", "tls_cert", "tls_key", "tls_ca")}
    left = max(0.0, deadline - time.monotonic())
    told = {
        "address": head, "folder": str(folder.path), "insecure": settings.insecure,
        "start_timeout": settings.start_timeout, "answer_by": deadline, "store_memory": settings.store_memory,
        **{name: path and os.path.abspath(path) for name, path in files.items()},
    }  # fmt: skip
    with shield:
        ours, theirs = socketpair()
        pid = spawn_node(theirs, _PROGRAM, told, GRPC_VERBOSITY="NONE")  # its library would write on our stderr
        theirs.close()
        from .greeting import greet  # while the node starts

        try:
            return greet(ours, left, functools.partial(end_node, pid), settings)
        except BaseException:
            ours.close()
            end_node(pid, at_once=True)
            raise

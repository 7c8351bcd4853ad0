"""First steps of an embedded node: it imports what node and workers share, and forks the template.

Started by `embedded.start` as ``python -c`` with descriptors of the client's link and pidfd, and the settings as JSON.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterable
from typing import NamedTuple

from .process.board import Board
from .process.spawn import WORKER_ENTRY, WORKER_MODULES, fork_template
from .rpc.sockets import listen

#: What node and workers both use: imported once, before the template parts from the node.
SHARED_MODULES = ("outboard.rpc.local", "outboard.rpc.protos.outboard_pb2", "outboard.store.memory", "outboard.errors")


class Boot(NamedTuple):
    """What the node takes over from its first steps."""

    client: socket.socket
    client_pidfd: int | None
    folder: str
    listener: socket.socket
    board: Board
    template_pid: int
    template_control: socket.socket


def open_folder(parents: Iterable[str | None]) -> tuple[str, socket.socket]:
    """Make the cluster's folder in the first of ``parents`` that can hold it, and listen on a socket there.

    One that is missing, not writable or too long for a socket's path is passed over; OSError when all are.
    """
    name = f"outboard-{os.urandom(8).hex()}"
    problems = []
    for parent in parents:
        if not parent:
            continue
        folder = os.path.join(parent, name)
        try:
            return folder, listen(os.path.join(folder, "node.sock"))
        except OSError as error:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
            problems.append(str(error))
    raise OSError(f"no folder for the cluster's socket: {'; '.join(problems)}")


def main(link_fd: int, pidfd: int, settings_json: str) -> None:
    """Fork the template, then be the node until the client that started this process ends."""
    gc.disable()  # until all is imported: what is made now stays
    settings = json.loads(settings_json)
    for module in SHARED_MODULES:
        importlib.import_module(module)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's to answer
    client = socket.socket(fileno=link_fd)
    folder, listener = open_folder((os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR"), "/tmp"))
    board = Board.create()
    unwanted = [link_fd, listener.fileno()] + ([pidfd] if pidfd >= 0 else [])
    template_pid, control = fork_template(
        WORKER_ENTRY, folder=folder, board_fd=board.fd, modules=WORKER_MODULES, unwanted_fds=unwanted
    )
    boot = Boot(client, pidfd if pidfd >= 0 else None, folder, listener, board, template_pid, control)
    from .node import run

    gc.freeze()
    gc.enable()
    run(boot, settings)
    sys.stderr.flush()
    os._exit(0)  # sockets and processes end with this one; taking the interpreter apart would only tell of each

"""First steps of a node: it imports what node and workers share, and forks the template.

Started as ``python -c`` with the settings as JSON: an embedded one by `embedded.start`, with descriptors of the
client's link and pidfd; a cluster's by `launch.start`, with descriptors for its answer and of its starter's life.
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
    """What the node takes over from its first steps; only an embedded one has a client."""

    client: socket.socket | None
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
    client = socket.socket(fileno=link_fd)
    boot = _fork(client, [link_fd] + ([pidfd] if pidfd >= 0 else []))
    from .node import run

    gc.freeze()
    gc.enable()
    run(boot._replace(client_pidfd=pidfd if pidfd >= 0 else None), json.loads(settings_json))
    sys.stderr.flush()
    os._exit(0)  # sockets and processes end with this one; taking the interpreter apart would only tell of each


def join(ready_fd: int, life_fd: int, settings_json: str) -> None:
    """Fork the template, then be a node of the cluster that the settings name, until it leaves."""
    settings = json.loads(settings_json)
    token = os.environ.pop("OUTBOARD_TOKEN", None)  # workers need not have it
    boot = _fork(None, [ready_fd, life_fd])
    from .joining import run

    gc.freeze()
    gc.enable()
    code = run(boot, settings, ready_fd, life_fd, token)
    sys.stderr.flush()
    os._exit(code)


def _fork(client: socket.socket | None, unwanted: list[int]) -> Boot:
    """Import what is shared, open the folder, and fork the template, which closes what it has no use for."""
    gc.disable()  # until all is imported: what is made now stays
    for module in SHARED_MODULES:
        importlib.import_module(module)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this process to answer
    folder, listener = open_folder((os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR"), "/tmp"))
    board = Board.create()
    template_pid, control = fork_template(
        WORKER_ENTRY, folder=folder, board_fd=board.fd, modules=WORKER_MODULES,
        unwanted_fds=[*unwanted, listener.fileno()],
    )  # fmt: skip
    return Boot(client, None, folder, listener, board, template_pid, control)

"""First steps of a node: it imports what node and workers share, and forks the template.

Started as ``python -c`` with the settings as JSON: that of one client by `embedded.start` or `clusterclient.start`,
with descriptors of the client's link and pidfd; a cluster's by `launch.start`, with descriptors for its answer and of
its starter's life.
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
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .localnodes import folder_parents
from .process.board import Board
from .process.spawn import WORKER_ENTRY, WORKER_MODULES, fork_template
from .rpc.sockets import listen

#: What node and workers both use: imported once, before the template parts from the node.
SHARED_MODULES = ("outboard.rpc.local", "outboard.rpc.protos.outboard_pb2", "outboard.store.memory", "outboard.errors")


class Boot(NamedTuple):
    """What the node takes over from its first steps; one that `launch` started has no client."""

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
    boot = _fork_for_client(link_fd, pidfd, WORKER_MODULES)
    from .node import run

    gc.freeze()
    gc.enable()
    run(boot, json.loads(settings_json))
    sys.stderr.flush()
    os._exit(0)  # sockets and processes end with this one; taking the interpreter apart would only tell of each


def lead(link_fd: int, pidfd: int, settings_json: str) -> None:
    """Be the way of one client into the cluster that the settings name, until that client ends: see `gateway`."""
    token = os.environ.pop("OUTBOARD_TOKEN", None)
    boot = _fork_for_client(link_fd, pidfd, ())  # without workers the template only removes the folder in the end
    from .gateway import run

    gc.freeze()
    gc.enable()
    run(boot, json.loads(settings_json), token)
    sys.stderr.flush()
    os._exit(0)


def join(ready_fd: int, life_fd: int, settings_json: str) -> None:
    """Fork the template, then be a node of the cluster that the settings name, until it leaves."""
    settings = json.loads(settings_json)
    token = os.environ.pop("OUTBOARD_TOKEN", None)  # workers need not have it
    boot = _fork(None, [ready_fd, life_fd], WORKER_MODULES)
    from .joining import run

    gc.freeze()
    gc.enable()
    code = run(boot, settings, ready_fd, life_fd, token)
    sys.stderr.flush()
    os._exit(code)


def _fork_for_client(link_fd: int, pidfd: int, modules: Sequence[str]) -> Boot:
    boot = _fork(socket.socket(fileno=link_fd), [link_fd] + ([pidfd] if pidfd >= 0 else []), modules)
    return boot._replace(client_pidfd=pidfd if pidfd >= 0 else None)


def _fork(client: socket.socket | None, unwanted: list[int], modules: Sequence[str]) -> Boot:
    """Import what is shared, open the folder, and fork the template, which closes what it has no use for."""
    gc.disable()  # until all is imported: what is made now stays
    for module in SHARED_MODULES:
        importlib.import_module(module)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this process to answer
    folder, listener = open_folder(folder_parents())
    board = Board.create()
    template_pid, control = fork_template(
        WORKER_ENTRY, folder=folder, board_fd=board.fd, modules=modules,
        unwanted_fds=[*unwanted, listener.fileno()],
    )  # fmt: skip
    return Boot(client, None, folder, listener, board, template_pid, control)

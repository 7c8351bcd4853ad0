"""The nodes of clusters on this machine: a program finds one of its user's by a file beside the node's socket.

Only files in folders that belong to this user, with mode 0700, are believed; who listens at the socket is checked once
more when it is connected to.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

#: Name of the file that holds the address of the head, as the node dials it.
_HEAD_FILE = "head"

#: Seconds in which a name must be resolved that might mean the same head as another one.
RESOLVE_SECONDS = 1.0

#: Bytes of such a file that are read.
_HEAD_NBYTES = 512


def folder_parents() -> Iterator[str]:
    """Name the folders in which nodes put theirs, best first; not all need exist."""
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR"), "/tmp"):
        if parent:
            yield parent


def announce(folder: str, head: str) -> None:
    """Tell programs of this user that a node of the cluster at ``head`` listens in ``folder``."""
    fresh = os.path.join(folder, f"{_HEAD_FILE}.new")
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(head)
    os.replace(fresh, os.path.join(folder, _HEAD_FILE))


def withdraw(folder: str) -> None:
    """Tell no further programs; a second call does nothing."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, _HEAD_FILE))


def find(head: str | None) -> list[str]:
    """Return the sockets of nodes of the cluster at ``head`` (None: of any), the one that joined last first.

    A node that has been killed may still be among them for a moment.
    """
    found = [(since, path) for path, theirs, since in _announced() if head is None or is_same(theirs, head)]
    return [path for _, path in sorted(found, reverse=True)]


def _announced() -> Iterator[tuple[str, str, float]]:
    """Yield the socket of each node that was announced, its head, and since when."""
    parents = {os.path.realpath(parent) for parent in (*folder_parents(), f"/run/user/{os.geteuid()}")}
    for parent in parents:
        try:
            names = [name for name in os.listdir(parent) if name.startswith("outboard-")]
        except OSError:
            continue
        for name in names:
            folder = os.path.join(parent, name)
            with contextlib.suppress(OSError, ValueError):  # it has gone, or has never joined a cluster
                theirs = os.lstat(folder)
                if stat.S_ISDIR(theirs.st_mode) and theirs.st_uid == os.geteuid() and not theirs.st_mode & 0o077:
                    with open(os.path.join(folder, _HEAD_FILE), encoding="utf-8") as file:
                        head, since = file.read(_HEAD_NBYTES), os.fstat(file.fileno()).st_mtime
                    yield os.path.join(folder, "node.sock"), head, since


def is_same(one: str, other: str) -> bool:
    """Say whether two addresses of the form host:port lead to the same listener, as far as names tell."""
    from .addresses import split_address  # nodes import this module, and need no addresses

    try:
        (host, port), (other_host, other_port) = split_address(one), split_address(other)
    except ValueError:
        return False
    return port == other_port and (host == other_host or bool(_resolved(host, port) & _resolved(other_host, port)))


def _resolved(host: str, port: int) -> set[str]:
    from .addresses import resolve
    from .errors import TransportError

    try:
        return {str(info[4][0]) for info in resolve(host, port, RESOLVE_SECONDS)}
    except TransportError:
        return set()

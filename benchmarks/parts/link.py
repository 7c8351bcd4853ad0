"""The local link: one frame to another process and back, and many in a row."""

from __future__ import annotations

import os

from outboard.rpc import local
from outboard.rpc.codec import Frame

from .timing import show

BODY = bytes(100)
MANY = 1_000


def take(link: local.BlockingLink, count: int) -> None:
    """Wait for so many frames."""
    while count:
        link.receive(None)
        count -= len(link.frames())


def echo(link: local.BlockingLink) -> None:
    """Send back what comes, until the other end closes."""
    while not link.closed:
        link.receive(None)
        for frame_type, body, destination, _ in link.frames():
            link.send(frame_type, body, destination)


def call(link: local.BlockingLink, count: int) -> None:
    """Send frames and wait until all have come back."""
    for _ in range(count):
        link.send(Frame.SUBMIT, BODY)
    take(link, count)


def main() -> None:
    """Print the table; the other end is a fork of this process."""
    here, there = local.socketpair()
    pid = os.fork()
    if pid == 0:
        here.close()
        echo(local.BlockingLink(there))
        os._exit(0)
    there.close()
    link = local.BlockingLink(here)
    try:
        show("one frame there and back", lambda: call(link, 1))
        show(f"{MANY} frames there and back, a frame", lambda: call(link, MANY), MANY)
    finally:
        link.close()
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()

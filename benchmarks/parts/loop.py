"""Event loops compared: one small message there and back over a Unix socket, the other end being a loop in a child.

asyncio takes part, and uvloop where it is installed.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from outboard.pollloop import PollLoop
from outboard.rpc.local import socketpair

MESSAGE = bytes(64)
ROUNDS, CALLS = 8, 3_000


def echo(make_loop: Callable[[], Any], end: socket.socket) -> None:
    """Answer every message with itself, for ever."""
    loop = make_loop()
    end.setblocking(False)

    def on_readable() -> None:
        end.send(end.recv(4096))

    loop.add_reader(end.fileno(), on_readable)
    loop.run_forever()


def measure(make_loop: Callable[[], Any]) -> float:
    """Best mean of several rounds, in microseconds."""
    ours, theirs = socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        echo(make_loop, theirs)
        os._exit(1)
    theirs.close()
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            ours.send(MESSAGE)
            ours.recv(4096)
        best = min(best, (time.perf_counter() - begin) / CALLS)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    ours.close()
    return best * 1e6


#: Program of a fresh interpreter: what importing a module takes of time and of memory.
IMPORT = """
import importlib, psutil, sys, time
memory = psutil.Process().memory_info
before, begin = memory().rss, time.perf_counter()
importlib.import_module(sys.argv[1])
print(time.perf_counter() - begin, memory().rss - before)
"""


def import_cost(module: str) -> tuple[float, float]:
    """Least milliseconds of several imports in fresh interpreters, and the MB that they added."""
    command = [sys.executable, "-c", IMPORT, module]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(ROUNDS)]
    seconds, nbytes = zip(*((float(took), float(grown)) for took, grown in runs), strict=True)
    return min(seconds) * 1e3, min(nbytes) / 1e6


def main() -> None:
    """Print one line a loop, and what importing it costs."""
    loops: dict[str, Callable[[], Any]] = {"PollLoop": PollLoop}
    loops["asyncio"] = importlib.import_module("asyncio").new_event_loop
    try:
        loops["uvloop"] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        print("loop: uvloop is not installed")
    for name, make_loop in loops.items():
        print(f"loop: one message there and back, {name:<9} {measure(make_loop):6.1f} us")
        module = "outboard.pollloop" if name == "PollLoop" else name
        print("loop: its import, {:<9} {:6.1f} ms {:6.1f} MB".format(name, *import_cost(module)))


if __name__ == "__main__":
    main()

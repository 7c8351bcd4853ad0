"""A cluster of a head and two nodes on this machine, for as long as a program needs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import outboard

#: The command, also where its script is not on the path.
COMMAND = [sys.executable, "-c", "from outboard.cli.main import main; main()"]

#: Signals that would end the program at once, and leave the cluster running.
ENDING = (signal.SIGTERM, signal.SIGHUP)


def command(folder: Path, *arguments: str, **variables: str) -> None:
    """Run ``outboard`` with a folder of its own; ``variables`` are for the environment of what it starts.

    A command that has begun is waited for, whatever interrupts this program: ``stop`` ends what ``start`` made known.
    """
    env = os.environ | {"OUTBOARD_FOLDER": str(folder)} | variables
    with subprocess.Popen([*COMMAND, *arguments], env=env) as process:
        process.wait()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Have the first signal that would end the program raise ``SystemExit``; later ones change nothing."""

    def leave(signum: int, _frame: FrameType | None) -> None:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + signum)

    before = {signum: signal.signal(signum, leave) for signum in ENDING}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextmanager
def two_nodes(cpus: int) -> Iterator[None]:
    """Run a cluster of a head and two nodes with so many CPUs each, which this program uses meanwhile.

    The environment of workers says in ``NODE`` whose they are, ``first`` or ``second``.
    """
    with ending_in_order(), tempfile.TemporaryDirectory(prefix="ob-two-") as name:
        folder = Path(name, "cluster")
        try:
            command(folder, "start", "--head", "--no-node", "--port", "0", "--detach")
            address = (folder / "address").read_text().strip()
            for node in ("first", "second"):
                command(folder, "start", "--address", address, "--num-cpus", str(cpus), "--detach", NODE=node)
            outboard.init("auto", folder=str(folder))
            yield
        finally:
            outboard.shutdown()
            if (folder / "address").exists():
                command(folder, "stop")

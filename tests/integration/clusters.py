"""Clusters that tests start with the commands, as processes of their own, and programs on them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

COMMAND = [sys.executable, "-c", "from outboard.cli.main import main; main()"]

#: Seconds in which a node that was killed, or went silent, must be gone from the status, on a machine under load.
LOSS_SECONDS = 12.0

#: What programs begin with. `where()` is the pid of the node whose worker runs it.
BEGIN = """
    import collections, os, sys, threading, time
    import numpy as np
    import outboard as ob
    from outboard.multiprocessing import Pool

    def where():
        import psutil
        process = psutil.Process()
        while process.ppid() > 1 and "outboard-node" not in " ".join(process.cmdline()):
            process = process.parent()
        return process.pid

    @ob.remote
    def place(seconds=0.0):
        time.sleep(seconds)
        return where()

    ob.init()
"""


class Commands:
    """Runs the commands with a folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("OUTBOARD_")}
        self.env["OUTBOARD_FOLDER"] = str(folder)
        self.pids: list[int] = []
        self.foreground: list[subprocess.Popen[str]] = []

    def run(self, *arguments: str, code: int = 0, **env: str) -> str:
        """Run a command to its end; return what it printed where it must have succeeded, else its one line."""
        done = subprocess.run(
            [*COMMAND, *arguments], env=self.env | env, text=True, capture_output=True, timeout=30, check=False
        )
        self.note(done.stdout)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        # On a machine under load a command may say that it waits.
        said = [line for line in done.stderr.splitlines() if not re.match(r"outboard: (\S+: )?waiting for ", line)]
        if code:
            assert done.stdout == "" and len(said) == 1, done
        return said[0] if code else done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Run a command that stays."""
        command = subprocess.Popen(
            [*COMMAND, *arguments], env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.foreground.append(command)
        return command

    def note(self, printed: str) -> list[int]:
        """Remember the processes that a command says it has started."""
        found = [int(pid) for pid in re.findall(r"\(pid (\d+)", printed)]
        self.pids += found
        return found

    def head(self, *arguments: str) -> tuple[int, int]:
        """Start head and node detached; return their pids."""
        printed = self.run("start", "--head", "--port", "0", "--num-cpus", "2", "--detach", *arguments)
        head, node = (int(pid) for pid in re.findall(r"\(pid (\d+)", printed))
        return head, node

    def join(self, *arguments: str, **env: str) -> int:
        """Start one more node detached; return its pid."""
        printed = self.run("start", "--address", self.address, "--num-cpus", "1", "--detach", *arguments, **env)
        return int(re.findall(r"\(pid (\d+)", printed)[0])

    @property
    def address(self) -> str:
        return (self.folder / "address").read_text().strip()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "--json"))
        return found

    def nodes(self) -> dict[int, dict[str, Any]]:
        """Return the nodes of the status by pid; awaited ones have none."""
        return {node["pid"]: node for node in self.status()["nodes"]}


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(tmp_path / "cluster")
    yield made
    for command in made.foreground:
        if command.poll() is None:
            command.kill()
        command.communicate()
    for pid in made.pids:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
    await_end(*made.pids)


@pytest.fixture
def apart() -> Iterator[str]:
    """A folder for what is to be taken for another machine; its name is short enough for sockets in it."""
    with tempfile.TemporaryDirectory(prefix="m") as name:
        yield name


@pytest.fixture
def join(commands: Commands, apart: str) -> Callable[..., int]:
    """Start a node as on another machine: programs here find only the head's; return its pid."""
    return partial(commands.join, TMPDIR=apart, XDG_RUNTIME_DIR=apart)


@pytest.fixture
def program(commands: Commands, start_program: Callable[..., subprocess.Popen[str]], tmp_path: Any) -> Any:
    """Start a program that joins the test's cluster; `slotless`: it finds no node on its machine."""

    def start(text: str, *arguments: str, slotless: bool = False) -> subprocess.Popen[str]:
        env = commands.env | {"OUTBOARD_ADDRESS": commands.address}
        if slotless:
            elsewhere = tmp_path / "elsewhere"
            elsewhere.mkdir(exist_ok=True)
            env |= {"TMPDIR": str(elsewhere), "XDG_RUNTIME_DIR": str(elsewhere)}
        return start_program(BEGIN + text, *arguments, env=env)

    return start


def finish(program: subprocess.Popen[str], within: float = 60.0) -> list[str]:
    """Wait for a program's end, which must be a good one, and return the lines it printed."""
    out, err = program.communicate(timeout=within)
    assert program.returncode == 0, f"{out}\n{err}"
    return out.splitlines()


def await_line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    line = program.stdout.readline()
    assert line, program.communicate()[1]
    return line.strip()


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def await_end(*pids: int, within: float = 10.0) -> None:
    deadline = time.monotonic() + within
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"{alive} still run"
        threading.Event().wait(0.01)

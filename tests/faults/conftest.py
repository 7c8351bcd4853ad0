"""Clusters and programs that may be broken."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import outboard as ob

#: Seconds for something that should take milliseconds, on a machine under load.
PATIENCE = 10.0


@pytest.fixture
def cluster() -> Iterator[Callable[..., Any]]:
    """Start an embedded cluster with settings of the test's own; it is shut down afterwards."""
    yield ob.init
    ob.shutdown()


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Wait for a condition: ``eventually(condition, within=seconds)`` gives its first true value or fails."""

    def wait(condition: Callable[[], Any], within: float = PATIENCE) -> Any:
        deadline = time.monotonic() + within
        while not (value := condition()):
            assert time.monotonic() < deadline, f"not within {within} s: {condition}"
            threading.Event().wait(0.005)
        return value

    return wait


@pytest.fixture
def start_program(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Run a script as a process of its own: ``start_program(text, *arguments)``; killed when the test ends."""
    running: list[subprocess.Popen[str]] = []

    def start(text: str, *arguments: str, name: str = "program.py", **options: Any) -> subprocess.Popen[str]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = options.pop("command", [sys.executable, str(path)])
        program = subprocess.Popen([*command, *arguments], text=True, **{**pipes, **options})
        running.append(program)
        return program

    yield start
    for program in running:
        if program.poll() is None:
            program.kill()
        program.communicate()


@pytest.fixture
def run_program(start_program: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """Run a script to its end and return what it printed; it must succeed, quickly, and say nothing on stderr."""

    def run(text: str, *arguments: str, timeout: float = 30.0, quiet: bool = True, **options: Any) -> str:
        program = start_program(text, *arguments, **options)
        out, err = program.communicate(timeout=timeout)
        assert program.returncode == 0, f"exit status {program.returncode}\n{out}\n{err}"
        assert not quiet or not err, err
        return out

    return run


def family(pid: int) -> list[psutil.Process]:
    """List a process's descendants."""
    return psutil.Process(pid).children(recursive=True)


def node_of(pid: int | None = None) -> psutil.Process:
    """Find the embedded node of a process, this one unless told."""
    return next(p for p in psutil.Process(pid or os.getpid()).children() if "outboard.boot" in " ".join(p.cmdline()))

"""Starting heads and nodes of a cluster as processes of their own, and looking after them in the foreground.

A process that is started detached has a session of its own and writes to a log file; the other kind writes where its
starter does and ends when that ends. Neither ever finds a token on its command line.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .errors import OutboardError, describe_exit
from .exits import FAILED, TIMED_OUT
from .process.interpreter import command_line

#: What the processes run, by what they are.
_CALLS = {
    "head": "from outboard.headprocess import main; sys.exit(main(*map(int, sys.argv[2:4]), sys.argv[4]))",
    "node": "from outboard.boot import join; join(*map(int, sys.argv[2:4]), sys.argv[4])",
}

#: Lines of a process's log that are shown when it ended without a word.
TAIL_LINES = 3

#: Seconds that processes which were told to end may take beyond what they were granted.
END_SECONDS = 5.0

#: Seconds for the objects of a node that leaves to be fetched from it; at 0.5 GB/s as many as fit in most stores.
HAND_OVER_SECONDS = 30.0


class StartError(OutboardError):
    """A process did not come to serve; ``exit_code`` is its own."""

    def __init__(self, message: str = "", *, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Started(NamedTuple):
    """A process that serves; ``life`` is the writing end that ends it when this process ends, -1 when detached."""

    process: subprocess.Popen[bytes]
    life: int
    told: dict[str, Any]


def program(what: str, ready_fd: int, life_fd: int, settings: Mapping[str, Any]) -> list[str]:
    """Return the command line of a head or node; ``what`` stands where lists of processes show it."""
    return command_line(_CALLS[what], f"outboard-{what}", str(ready_fd), str(life_fd), json.dumps(dict(settings)))


def start(
    what: str, settings: Mapping[str, Any], *, timeout: float, on_wait: Callable[[], object], quiet: float = 1.0
) -> Started:
    """Start a head or a node and return when it serves.

    Args:
        what: ``"head"`` or ``"node"``. settings: for it; with a ``log`` it is detached.
        timeout: seconds until it is ended for not answering.
        on_wait: called once when it has not answered after ``quiet`` seconds.
    Raises:
        StartError: it could not serve, and why.
    """
    ready, ready_theirs = os.pipe()
    life_theirs, life = os.pipe()
    log = settings["log"]
    try:
        passed = [ready_theirs] + ([] if log else [life_theirs])
        command = program(what, ready_theirs, -1 if log else life_theirs, settings)
        process = _spawn(command, log, passed)
    except BaseException:
        os.close(life)
        os.close(ready)
        raise
    finally:
        os.close(ready_theirs)
        os.close(life_theirs)
    if log:
        os.close(life)
    try:
        told = _await_answer(ready, timeout, on_wait, quiet)
        if told is None or "error" in told:
            raise _fault(what, process, told, log)
    except BaseException:
        end([process], END_SECONDS)
        if not log:
            os.close(life)
        raise
    finally:
        os.close(ready)
    return Started(process, -1 if log else life, told)


def _spawn(command: Sequence[str], log: str, passed: Sequence[int]) -> subprocess.Popen[bytes]:
    env = {k: v for k, v in os.environ.items() if k != "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"}
    if env.get("GRPC_VERBOSITY", "ERROR") == "ERROR":
        env["GRPC_VERBOSITY"] = "NONE"  # what the library would say on stderr, we say in a line of our own
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "pass_fds": passed, "env": env, "start_new_session": True}
    if not log:
        return subprocess.Popen(command, **options)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(command, stdout=fd, stderr=fd, cwd="/", **options)
    finally:
        os.close(fd)


def _await_answer(fd: int, timeout: float, on_wait: Callable[[], object], quiet: float) -> dict[str, Any] | None:
    """Read the first word; None when the process ended before it said one."""
    deadline, pause, data = time.monotonic() + timeout, quiet, b""
    while not data.endswith(b"\n"):
        if select.select([fd], [], [], max(0.0, min(pause, deadline - time.monotonic())))[0]:
            more = os.read(fd, 65536)
            if not more:
                return None
            data += more
        elif time.monotonic() >= deadline:
            return {"error": f"no answer within {timeout:g} s", "exit_code": TIMED_OUT}
        elif pause == quiet:
            on_wait()
            pause = timeout
    told: dict[str, Any] = json.loads(data)
    return told


def _fault(what: str, process: subprocess.Popen[bytes], told: dict[str, Any] | None, log: str) -> StartError:
    if told is not None:
        if log:
            os.unlink(log)  # it says no more than this does
        return StartError(told["error"], exit_code=told["exit_code"])
    code = process.wait(END_SECONDS)
    how = describe_exit(-code if code < 0 else 0, code)
    tail = "\n".join(_tail(log))
    return StartError(f"the {what} ended {how} before it answered{f': {tail}' if tail else ''}")


def _tail(log: str) -> list[str]:
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()[-TAIL_LINES:]
    except OSError:
        return []


def end(processes: Sequence[subprocess.Popen[bytes]], timeout: float) -> None:
    """Tell processes to end, in this order, each when the one before it has; kill those that take too long."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def look_after(started: Sequence[Started], grace: float) -> int:
    """Stay until one of the processes ends, or this one is told to; end the others and return an exit code.

    ``started`` is in the order in which they are ended. SIGTERM and SIGINT let what runs finish, ``grace`` seconds at
    most, and what others still need be fetched; a second one does not let it finish.
    """
    caught: list[int] = []
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_w, False)

    def on_signal(number: int, _: object) -> None:
        caught.append(number)
        for one in started if len(caught) > 1 else ():
            one.process.terminate()

    before = {n: signal.signal(n, on_signal) for n in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    try:
        while not caught and all(one.process.poll() is None for one in started):
            select.select([wake_r], [], [])
            os.read(wake_r, 4096)
        ended = next((one for one in started if one.process.poll() is not None), None)
        end([one.process for one in started], grace + HAND_OVER_SECONDS + END_SECONDS)
        code = ended.process.returncode if ended is not None else 0
        return code if code >= 0 else FAILED
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(wake_r)
        os.close(wake_w)

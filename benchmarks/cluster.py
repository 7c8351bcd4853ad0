"""What crossing machines costs: a head and nodes on loopback, started with the commands that users type.

``python -m benchmarks.cluster`` prints one line a figure. Nodes are told apart by a resource of their own; the program
is connected to the first node.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import outboard as ob
from outboard.multiprocessing import Pool

COMMAND = [sys.executable, "-c", "from outboard.cli.main import main; main()"]

#: Calls of which the median is told, after as many that warm up.
CALLS = 500

PLAIN_TASKS = 5_000
ITEMS = 10_000

#: Bytes of the object that is pulled.
OBJECT_NBYTES = 1_000_000_000

FAR = {"far": 0.001}


class LocalCluster:
    """A head and nodes that are processes of this machine."""

    def __init__(self, folder: Path) -> None:
        self.env = os.environ | {"OUTBOARD_FOLDER": str(folder)}
        self._folder = folder
        self.command("start", "--head", "--no-node", "--port", "0", "--detach")

    @property
    def address(self) -> str:
        """Where the head listens."""
        return (self._folder / "address").read_text().strip()

    def command(self, *arguments: str) -> str:
        """Run ``outboard`` and return what it printed."""
        return subprocess.run(
            [*COMMAND, *arguments], env=self.env, check=True, text=True, stdout=subprocess.PIPE
        ).stdout

    def join(self, *arguments: str, apart: bool = False) -> int:
        """Start a node and return its pid; programs here do not find one that is ``apart``, as on another machine."""
        env = self.env | ({"TMPDIR": str(self._folder), "XDG_RUNTIME_DIR": str(self._folder)} if apart else {})
        command = [*COMMAND, "start", "--address", self.address, "--detach", *arguments]
        printed = subprocess.run(command, env=env, check=True, text=True, stdout=subprocess.PIPE).stdout
        return int(re.findall(r"\(pid (\d+)", printed)[0])

    def start_head(self) -> None:
        """Start a head again at the same address."""
        self.command("start", "--head", "--no-node", "--detach")

    def head_pid(self) -> int:
        """The head's process."""
        return int(re.findall(r"pid (\d+)", self.command("status"))[0])


@contextmanager
def cluster(*far: str) -> Iterator[tuple[LocalCluster, list[int]]]:
    """Run a head, a node for this program, and one more with the resource ``far``."""
    with tempfile.TemporaryDirectory(prefix="ob-bench-") as name:
        made = LocalCluster(Path(name, "cluster"))
        pids = [made.join("--num-cpus", "1", "--resources", "near=1")]
        pids.append(made.join("--num-cpus", "1", "--resources", "far=1", *far, apart=True))
        ob.init(made.address, folder=str(made._folder))
        try:
            yield made, pids
        finally:
            ob.shutdown()
            made.command("stop", "--grace", "1")


def tell(name: str, value: float, unit: str) -> None:
    """Print one figure."""
    print(f"{name:<58} {value:>12,.4g} {unit}", flush=True)


def timed(call: Callable[[], Any]) -> float:
    """Seconds that a call takes."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


@ob.remote(resources=FAR)
def far_away(value: int) -> int:
    """Run at the other node."""
    return value


@ob.remote
def anywhere(value: int) -> int:
    """Run where there is room."""
    return value


@ob.remote(resources=FAR)
def make(nbytes: int) -> Any:
    """Leave a large result at the other node."""
    return np.ones(nbytes // 8)


@ob.remote(resources=FAR, max_retries=3)
def stay(folder: str, seconds: float) -> None:
    """Say where and when it began, and stay for a while."""
    Path(folder, f"{os.getpid()}").write_text(repr(time.time()))
    time.sleep(seconds)


def square(value: int) -> int:
    """The trivial item."""
    return value * value


def measure_work() -> None:
    """Round trips, throughput, bytes."""
    with cluster():
        for _ in range(CALLS):
            ob.get(far_away.remote(0))
        seconds = [timed(lambda: ob.get(far_away.remote(1))) for _ in range(CALLS)]
        tell("task on another node and back, median", statistics.median(seconds) * 1e6, "us")
        for _ in range(3):
            ob.get([anywhere.remote(i) for i in range(PLAIN_TASKS)])
        rates = [
            PLAIN_TASKS / timed(lambda: ob.get([anywhere.remote(i) for i in range(PLAIN_TASKS)])) for _ in range(5)
        ]
        tell(f"{PLAIN_TASKS:,} tasks over two nodes, best of 5", max(rates), "tasks/s")
        with Pool(2) as pool:
            for _ in range(3):
                pool.map(square, range(ITEMS), chunksize=1)
            rates = [ITEMS / timed(lambda: pool.map(square, range(ITEMS), chunksize=1)) for _ in range(5)]
        tell(f"map of {ITEMS:,} trivial items, chunksize 1, best of 5", max(rates), "items/s")
        speeds = []
        for _ in range(3):
            ref = make.remote(OBJECT_NBYTES)
            ob.wait([ref])
            speeds.append(OBJECT_NBYTES / timed(partial(ob.get, ref)) / 1e9)
            del ref
        tell("1 GB object pulled, best of 3", max(speeds), "GB/s")


def measure_loss(how: signal.Signals) -> float:
    """Seconds from a node's end until its task runs at another one."""
    with tempfile.TemporaryDirectory() as folder, cluster() as (made, pids):
        ref = stay.remote(folder, 30.0)
        while not os.listdir(folder):
            time.sleep(0.005)
        pids.append(made.join("--num-cpus", "1", "--resources", "far=1", apart=True))
        time.sleep(1.5)  # the head has heard of its free slot
        (first,) = os.listdir(folder)
        begun = time.time()
        os.kill(pids[1], how)
        while len(os.listdir(folder)) < 2:
            time.sleep(0.002)
        (second,) = set(os.listdir(folder)) - {first}
        while not (written := Path(folder, second).read_text()):
            time.sleep(0.001)
        ob.cancel(ref)
        if how == signal.SIGSTOP:
            os.kill(pids[1], signal.SIGKILL)
        return float(written) - begun


@ob.remote
def note(seconds: float) -> tuple[int, float]:
    """Say where it ran and when it began."""
    began = time.time()
    time.sleep(seconds)
    return os.getppid(), began


def measure_join() -> None:
    """A node that joins while more waits than there is room for."""
    with cluster() as (made, _):
        known = {where for where, _ in ob.get([note.remote(0.05) for _ in range(40)])}
        refs = [note.remote(0.05) for _ in range(200)]
        ob.wait(refs, num_returns=20)
        made.join("--num-cpus", "2", apart=True)
        joined = time.time()
        begun = [began for where, began in ob.get(refs) if where not in known]
        tell("a node that joins has work after its start was reported", min(begun) - joined, "s")


def measure_head() -> None:
    """A head that is killed and started again while tasks run."""
    with cluster() as (made, _):
        refs = [anywhere.remote(i) for i in range(20_000)]
        os.kill(made.head_pid(), signal.SIGKILL)
        begun = time.perf_counter()
        made.start_head()
        while '"state": "ready"' not in (said := made.command("status", "--json")) or said.count('"ready"') < 2:
            time.sleep(0.02)
        tell("head killed and started again: both nodes back", time.perf_counter() - begun, "s")
        tell("tasks lost meanwhile", len(refs) - len(set(ob.get(refs))), "")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="*", default=["work", "join", "killed", "silent", "head"])
    for what in parser.parse_args().what:
        if what == "work":
            measure_work()
        elif what == "killed":
            tell("node killed: its task runs elsewhere after", measure_loss(signal.SIGKILL), "s")
        elif what == "silent":
            tell("node silent: its task runs elsewhere after", measure_loss(signal.SIGSTOP), "s")
        elif what == "join":
            measure_join()
        elif what == "head":
            measure_head()


if __name__ == "__main__":
    main()

"""Links between machines that are cut, one way and both ways, and come back within the grace and after it.

The machines are network namespaces. A cut drops packets without a word, as a broken cable does: nobody's connection is
closed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import eventually
from tests.faults.netns import Machine, Network, network
from tests.integration.clusters import BEGIN, await_end, await_line, finish, is_alive

__all__ = ["eventually", "network"]

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(90)]

#: Seconds of a cut within the grace, and of one that everybody has given up by then.
SHORT_SECONDS = 2.5
LONG_SECONDS = 7.0

#: Tasks that leave a mark in the folder of the first argument each time when they run.
NOTES = """
    notes = sys.argv[1]

    def note(i):
        with open(f"{notes}/{i}.{where()}", "a") as file:
            file.write("x")
        time.sleep(0.2)
        return i
"""


def once_each(count: int, first: int) -> str:
    """A program whose tasks must not run twice; it speaks after the first ones, and of the nodes that ran all."""
    return f"""{NOTES}
    refs = [ob.remote(note).options(max_retries=0).remote(i) for i in range({count})]
    ob.wait(refs, num_returns={first})
    print("running", flush=True)
    print(ob.get(refs) == list(range({count})), len({{name.partition(".")[2] for name in os.listdir(notes)}}))
    """


class Site:
    """A cluster over machines of a network: a head on one of its own, nodes on others."""

    def __init__(self, network: Network, folder: Path, scratch: str) -> None:
        self.network = network
        self.pids: list[int] = []
        self.scratch = Path(scratch)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("OUTBOARD_")}
        self.env |= {"OUTBOARD_FOLDER": str(folder), "OUTBOARD_INSECURE": "1"}
        self.head = network.machine()
        self._start(self.head, "--head", "--no-node", "--host", self.head.address, "--port", "0")
        self.env["OUTBOARD_ADDRESS"] = (folder / "address").read_text().strip()

    def _start(self, machine: Machine, *arguments: str) -> int:
        env = self.env | self.place(machine)
        printed = machine.outboard("start", "--detach", *arguments, env=env)
        self.pids.append(int(re.findall(r"\(pid (\d+)", printed)[0]))
        return self.pids[-1]

    def place(self, machine: Machine) -> dict[str, str]:
        """Variables for what runs on a machine, so that it finds only what is there."""
        folder = self.scratch / machine.address.rpartition(".")[2]
        folder.mkdir(mode=0o700, exist_ok=True)
        return {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder)}

    def join(self, *arguments: str) -> tuple[Machine, int]:
        """Add a machine with a node; return that and the node's process."""
        machine = self.network.machine()
        return machine, self._start(machine, *arguments)

    def nodes(self) -> dict[int, str]:
        """The incarnations of nodes by process."""
        found = json.loads(self.head.outboard("status", "--json", env=self.env))
        return {node["pid"]: node["node"] for node in found["nodes"]}


@pytest.fixture
def site(network: Network, tmp_path: Path) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="s") as scratch:  # sockets in it need a short name
        made = Site(network, tmp_path / "cluster", scratch)
        yield made
        for pid in filter(is_alive, made.pids):
            os.kill(pid, signal.SIGKILL)
        await_end(*made.pids)


@pytest.fixture
def program(site: Site, start_program: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> Callable[..., Any]:
    """Start a program on a machine; its argument is a folder that is empty at first."""

    def start(machine: Machine, text: str) -> tuple[subprocess.Popen[str], Path]:
        notes = tmp_path / "notes"
        notes.mkdir()
        path = tmp_path / "program.py"
        command = [*machine.enter(), sys.executable, str(path)]
        return start_program(BEGIN + text, str(notes), command=command, env=site.env | site.place(machine)), notes

    return start


def go_on(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()


def runs_of(notes: Path) -> dict[int, int]:
    """How often each task has run."""
    runs: dict[int, int] = {}
    for path in notes.iterdir():
        index = int(path.name.partition(".")[0])
        runs[index] = runs.get(index, 0) + len(path.read_text())
    return runs


class Cuts:
    """Cuts between one machine and three others: each way, and both."""

    def __init__(self, one: Machine, deaf: Machine, unheard: Machine, gone: Machine) -> None:
        self._cuts = [(deaf, one), (one, unheard), (one, gone), (gone, one)]

    def __enter__(self) -> None:
        for hearer, other in self._cuts:
            hearer.lose_what_comes_from(other)

    def __exit__(self, *_: object) -> None:
        for hearer, other in self._cuts:
            hearer.hear_again(other)


def wait(seconds: float) -> None:
    """Let time pass: a cut has a length."""
    time.sleep(seconds)


def test_work_goes_on_untouched_over_cuts_within_the_grace(site: Site, program: Any) -> None:
    own, _ = site.join("--num-cpus", "1")
    others = [site.join("--num-cpus", "1")[0] for _ in range(3)]
    running, notes = program(own, once_each(80, 12))
    assert await_line(running) == "running"
    with Cuts(own, *others):
        wait(SHORT_SECONDS)
    assert finish(running) == ["True 4"]
    assert runs_of(notes) == dict.fromkeys(range(80), 1)


def test_work_of_nodes_that_are_cut_off_runs_elsewhere_and_they_get_new_work_once_back(
    site: Site, program: Any
) -> None:
    own, _ = site.join("--num-cpus", "2")
    joined = [site.join("--num-cpus", "1") for _ in range(3)]
    before = site.nodes()
    text = """
    refs = [ob.remote(note).remote(i) for i in range(40)]
    ob.wait(refs, num_returns=12)
    print("running", flush=True)
    print(ob.get(refs) == list(range(40)), flush=True)
    sys.stdin.readline()
    wanted, by = set(map(int, sys.stdin.readline().split())), time.monotonic() + 20
    while wanted and time.monotonic() < by:
        wanted -= set(ob.get([place.remote(0.1) for _ in range(16)]))
    print(wanted or "all")
    """
    running, notes = program(own, NOTES + text)
    assert await_line(running) == "running"
    begun = time.monotonic()
    with Cuts(own, *(machine for machine, _ in joined)):
        assert await_line(running) == "True"
        took = time.monotonic() - begun
        wait(max(0.0, LONG_SECONDS - took))
    assert 4.5 < took < 20, took
    go_on(running)
    assert running.stdin is not None
    running.stdin.write(" ".join(str(pid) for _, pid in joined) + "\n")
    assert finish(running) == ["all"]
    runs = runs_of(notes)
    assert set(runs) == set(range(40)) and set(runs.values()) == {1, 2}  # no task was lost twice
    assert site.nodes() == before  # for the head nobody was away


def test_program_behind_a_cut_goes_on_through_another_node(site: Site, program: Any) -> None:
    """Sessions of a program without a node go on over the next gateway: even the tasks at the lost one run once."""
    first, _ = site.join("--num-cpus", "1")
    second, _ = site.join("--num-cpus", "1")
    home = site.network.machine()
    running, notes = program(home, once_each(40, 8))
    assert await_line(running) == "running"
    gateway = next(m for m in (first, second) if m.address in home.connections())
    home.lose_what_comes_from(gateway)
    assert finish(running) == ["True 2"]
    assert runs_of(notes) == dict.fromkeys(range(40), 1)

"""The search of ``model_search.py`` on a cluster of two nodes on this machine, one of which is killed on the way.

Starts a head and two nodes as ``outboard start`` does it on two machines, lets the pool of the search use both, and
kills the one that the program is not connected to once a third of the fits is there. Then the search runs once more on
this machine alone: the scores must be the same.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

import outboard
from model_search import Score, Trial, plan_trials, rank, ranking_table, score_trial, search, with_lines
from outboard.multiprocessing import Pool

#: The command, also where its script is not on the path.
COMMAND = [sys.executable, "-c", "from outboard.cli.main import main; main()"]

#: Share of the fits after which a node is killed.
KILL_AFTER = 1 / 3


def command(folder: Path, *arguments: str) -> str:
    """Run ``outboard`` with a folder of its own and return what it printed."""
    env = os.environ | {"OUTBOARD_FOLDER": str(folder)}
    return subprocess.run([*COMMAND, *arguments], env=env, check=True, text=True, stdout=subprocess.PIPE).stdout


def say(console: Console, text: str) -> None:
    """Print what a command said as it is."""
    console.print(text, end="", soft_wrap=True, markup=False, highlight=False)


@contextmanager
def two_nodes(cpus: int, console: Console) -> Iterator[Path]:
    """Run a cluster of a head and two nodes with so many CPUs each; gives its folder."""
    with tempfile.TemporaryDirectory(prefix="ob-demo-") as name:
        folder = Path(name, "cluster")
        say(console, command(folder, "start", "--head", "--no-node", "--port", "0", "--detach"))
        try:
            address = (folder / "address").read_text().strip()
            for _ in range(2):
                say(console, command(folder, "start", "--address", address, "--num-cpus", str(cpus), "--detach"))
            yield folder
        finally:
            say(console, command(folder, "stop"))


def kill_other_node(console: Console) -> None:
    """Kill the node that this program is not connected to, as a machine that loses its power would end."""
    _own, other = (node["pid"] for node in outboard.nodes())
    os.kill(other, signal.SIGKILL)
    console.print(f"[bold]killed the node with pid {other}[/]")


def search_with_a_loss(processes: int, trials: list[Trial], console: Console) -> list[Score]:
    """Score every trial on the cluster, and kill a node on the way."""

    def watched(scores: Iterable[Score]) -> Iterator[Score]:
        for done, score in enumerate(scores, start=1):
            if done == int(len(trials) * KILL_AFTER):
                kill_other_node(console)
            yield score

    with Pool(processes) as pool:
        return list(with_lines(watched(pool.imap_unordered(score_trial, trials)), len(trials), console))


def main() -> None:
    """Search on the cluster and on this machine alone, and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cpus", type=int, default=max(1, (os.cpu_count() or 1) // 2), help="of each of the two nodes")
    options = parser.parse_args()
    console, trials = Console(), plan_trials()
    with two_nodes(options.cpus, console) as folder:
        outboard.init("auto", folder=str(folder))
        cpus, nodes = outboard.cluster_resources()["CPU"], outboard.nodes()
        console.print(f"{len(trials)} fits on {cpus:g} CPUs of {len(nodes)} nodes")
        started = time.perf_counter()
        scores = search_with_a_loss(2 * options.cpus, trials, console)
        console.print(f"{len(scores)} fits in {time.perf_counter() - started:.1f} s, with a node lost on the way")
        outboard.shutdown()
    console.print(ranking_table(rank(scores)))
    outboard.init("local", num_cpus=2 * options.cpus)
    alone, seconds = search(2 * options.cpus, trials, console)
    console.print(f"{len(alone)} fits in {seconds:.1f} s on this machine alone")
    if sorted(scores) != sorted(alone):
        sys.exit("the scores differ")
    console.print("the scores are the same")


if __name__ == "__main__":
    main()

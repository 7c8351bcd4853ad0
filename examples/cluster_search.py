"""The search of ``pool_search.py`` on a cluster of two nodes on this machine, one of which is killed on the way.

Starts a head and two nodes as ``outboard start`` does it on two machines, lets the pool of the search use both, and
kills the one that the program is not connected to once a third of the fits is there. Then the search runs once more on
this machine alone: the scores must be the same.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator

from rich.console import Console

import outboard
from outboard.multiprocessing import Pool
from pool_search import Score, Trial, plan_trials, rank, ranking_table, score_trial, search, with_lines
from two_nodes import two_nodes

#: Share of the fits after which a node is killed.
KILL_AFTER = 1 / 3


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
    parser.add_argument("--step", type=int, default=1, help="take every so-manyth value of C and gamma")
    options = parser.parse_args()
    console, trials = Console(), plan_trials(options.step)
    with two_nodes(options.cpus):
        cpus, nodes = outboard.cluster_resources()["CPU"], outboard.nodes()
        console.print(f"{len(trials)} fits on {cpus:g} CPUs of {len(nodes)} nodes")
        started = time.perf_counter()
        scores = search_with_a_loss(2 * options.cpus, trials, console)
        console.print(f"{len(scores)} fits in {time.perf_counter() - started:.1f} s, with a node lost on the way")
    console.print(ranking_table(rank(scores)))
    outboard.init("local", num_cpus=2 * options.cpus)
    alone, seconds = search(2 * options.cpus, trials, console)
    console.print(f"{len(alone)} fits in {seconds:.1f} s on this machine alone")
    if sorted(scores) != sorted(alone):
        sys.exit("the scores differ")
    console.print("the scores are the same")


if __name__ == "__main__":
    main()

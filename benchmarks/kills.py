"""Workers that are killed all the time, and results that are exact all the same.

``python -m benchmarks.kills --minutes 10`` starts a cluster of two nodes on this machine and runs maps of tasks over
it, while a thread kills workers at random, by default 200 a minute. A figure is printed each minute and at the end. The
exit code is 1 when a result was wrong, a map failed or fewer workers were killed than asked for.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

import outboard as ob

from .cluster import LocalCluster

#: Items of one map, and the longest that one takes; the mean is half of it.
ITEMS = 400
ITEM_SECONDS = 0.02

#: Bytes of every tenth result: those lie in the store.
LARGE_NBYTES = 200_000

#: Runs that an item may lose to a killer who does not care whom he meets.
RETRIES = 50

#: Share of the kills asked for that must have met a worker.
LEAST_SHARE = 0.9


@ob.remote(max_retries=RETRIES)
def work(index: int, seconds: float) -> tuple[int, int, bytes]:
    """Take a while and answer with what can be checked."""
    time.sleep(seconds)
    return index, index * index, bytes([index % 251]) * (LARGE_NBYTES if index % 10 == 0 else 1)


@ob.remote(max_retries=RETRIES, num_cpus=0)
def add(index: int, one: tuple[int, int, bytes], other: tuple[int, int, bytes]) -> tuple[int, int, int]:
    """Take results of others, so that killed workers held inputs."""
    return index, one[1] + other[1], len(one[2]) + len(other[2])


def expected(index: int) -> tuple[int, int, bytes]:
    """What `work` answers."""
    return index, index * index, bytes([index % 251]) * (LARGE_NBYTES if index % 10 == 0 else 1)


def expected_sum(index: int) -> tuple[int, int, int]:
    """What `add` answers for an item and the one after it."""
    one, other = expected(index), expected((index + 1) % ITEMS)
    return index, one[1] + other[1], len(one[2]) + len(other[2])


class Killer(threading.Thread):
    """Kills random workers of nodes at a rate; ``killed`` counts them."""

    def __init__(self, nodes: list[int], a_minute: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.killed = self.missed = 0
        self._nodes = nodes
        self._pause = 60.0 / a_minute
        self._random = random.Random(seed)
        self._ended = threading.Event()

    def run(self) -> None:
        """Kill until told to end; who comes late hurries, so that the rate holds."""
        due = time.monotonic() + self._pause
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            due += self._pause
            try:
                self._kill()
            except (IndexError, psutil.NoSuchProcess):
                self.missed += 1  # no worker lives at this moment

    def _kill(self) -> None:
        found = [w for pid in self._nodes for w in workers_of(pid)]
        self._random.choice(found).kill()
        self.killed += 1

    def end(self) -> None:
        """Kill no more."""
        self._ended.set()
        self.join()


def workers_of(node: int) -> list[psutil.Process]:
    """The workers of a node: what its template has forked."""
    return [worker for template in psutil.Process(node).children() for worker in template.children()]


class Tally:
    """What was right and what was not."""

    def __init__(self) -> None:
        self.maps = self.tasks = self.wrong = self.failed = 0

    def map(self, rng: random.Random) -> None:
        """Run one map and what uses its results, and compare."""
        self.maps += 1
        parts = [work.remote(index, rng.uniform(0.0, ITEM_SECONDS)) for index in range(ITEMS)]
        sums = [add.remote(index, parts[index], parts[(index + 1) % ITEMS]) for index in range(0, ITEMS, 5)]
        try:
            got, added = ob.get(parts, timeout=120), ob.get(sums, timeout=120)
        except (ob.errors.OutboardError, TimeoutError) as error:
            self.failed += 1
            print(f"a map failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return
        self.tasks += len(got) + len(added)
        self.wrong += sum(value != expected(index) for index, value in enumerate(got))
        self.wrong += sum(value != expected_sum(5 * index) for index, value in enumerate(added))


def tell(begun: float, killer: Killer, tally: Tally) -> None:
    """Print how it stands."""
    minutes = (time.monotonic() - begun) / 60
    print(
        f"{minutes:.2f} min: {killer.killed} workers killed ({killer.killed / minutes:.0f} a minute), "
        f"{tally.maps} maps of {tally.tasks} tasks, {tally.wrong} wrong, {tally.failed} failed",
        flush=True,
    )


def measure(minutes: float, a_minute: float, seed: int) -> bool:
    """Work and kill for so long; return whether all was right."""
    with tempfile.TemporaryDirectory(prefix="ob-kills-") as name:
        made = LocalCluster(Path(name, "cluster"))
        try:
            nodes = [made.join("--num-cpus", "2", apart=apart) for apart in (False, True)]
            ob.init(made.address, folder=str(Path(name, "cluster")))
            return _measure(nodes, minutes, a_minute, seed)
        finally:
            ob.shutdown()
            made.command("stop", "--grace", "1")


def _measure(nodes: list[int], minutes: float, a_minute: float, seed: int) -> bool:
    rng, tally = random.Random(seed), Tally()
    tally.map(rng)  # both nodes have workers now
    killer = Killer(nodes, a_minute, seed)
    begun = told = time.monotonic()
    killer.start()
    try:
        while time.monotonic() < begun + 60 * minutes:
            tally.map(rng)
            if time.monotonic() >= told + 60:
                told = time.monotonic()
                tell(begun, killer, tally)
    finally:
        killer.end()
    tell(begun, killer, tally)
    enough = killer.killed >= LEAST_SHARE * a_minute * minutes
    if not enough:
        print(f"too few: {killer.missed} times no worker was alive", file=sys.stderr)
    return enough and not tally.wrong and not tally.failed


def main() -> None:
    """Measure as asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=200.0, help="workers killed a minute")
    parser.add_argument("--seed", type=int, default=os.getpid(), help="which workers, and how long items take")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    sys.exit(0 if measure(given.minutes, given.rate, given.seed) else 1)


if __name__ == "__main__":
    main()

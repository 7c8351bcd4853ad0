"""What a batch of joblib's costs the program and its node with few and with many workers.

``python -m benchmarks.joblib_width``: CPU time, since tasks of nothing on more workers than CPUs say nothing by their
wall time. Each width is the least of some rounds.
"""

from __future__ import annotations

import time

import psutil
from joblib import Parallel, delayed

import outboard
import outboard.joblib

from .functions import noop

WIDTHS = (2, 8, 32, 64)
BATCHES = 3_000
ROUNDS = 3


def node_seconds() -> float:
    """CPU time of the node so far."""
    times = psutil.Process(outboard.nodes()[0]["pid"]).cpu_times()
    return times.user + times.system


def costs(width: int) -> tuple[float, float]:
    """CPU seconds of a batch in this process and in the node; all workers are there before."""
    run = Parallel(n_jobs=width, backend="dist", batch_size=1)
    run(delayed(time.sleep)(0.05) for _ in range(2 * width))
    found = []
    for _ in range(ROUNDS):
        own, node = time.process_time(), node_seconds()
        run(delayed(noop)(n) for n in range(BATCHES))
        found.append(((time.process_time() - own) / BATCHES, (node_seconds() - node) / BATCHES))
    return min(own for own, _ in found), min(node for _, node in found)


def main() -> None:
    """Print a line for each width."""
    outboard.init(num_cpus=max(WIDTHS))
    for width in WIDTHS:
        own, node = costs(width)
        print(f"{width:3} workers: program {own * 1e6:5.0f} us, node {node * 1e6:5.0f} us a batch", flush=True)


if __name__ == "__main__":
    main()

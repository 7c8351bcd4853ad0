"""A pipeline of two generators through which more bytes pass than there is room for.

Workers make blocks and other tasks smooth them; the program adds them up one by one. ``return_as="generator"`` lets
tasks run only so far ahead of who takes their results, so the store and the program need the same room for any number
of blocks.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Iterator

import joblib
import numpy as np
from joblib import Parallel, delayed

import outboard
import outboard.joblib

BLOCK_NBYTES = 2_000_000

#: Room for all values; some 10 blocks a CPU are under way.
STORE = 128 << 20


def make_block(seed: int) -> np.ndarray:
    """Make a block of random numbers, as one might read it from a file."""
    return np.random.default_rng(seed).random(BLOCK_NBYTES // 8)


def smooth(block: np.ndarray) -> np.ndarray:
    """Average neighbours: the result is as large as what went in."""
    return (block + np.roll(block, 1)) / 2


def smoothed_blocks(count: int) -> Iterator[np.ndarray]:
    """Yield the blocks in order. The second Parallel takes what the first one yields."""
    blocks = Parallel(return_as="generator")(delayed(make_block)(seed) for seed in range(count))
    yield from Parallel(return_as="generator")(delayed(smooth)(block) for block in blocks)


def peak_mb() -> float:
    """Return the most memory that this program has held so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main() -> None:
    """Add the blocks up, and watch the memory."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--blocks", type=int, default=1_000, help=f"of {BLOCK_NBYTES / 1e6:g} MB (default: %(default)s)"
    )
    parser.add_argument("--cpus", type=int, default=min(4, joblib.cpu_count()), help="to use (default: %(default)s)")
    options = parser.parse_args()
    outboard.init(num_cpus=options.cpus, store_memory=STORE)
    total, early = 0.0, 0.0
    with joblib.parallel_backend("dist"):
        for done, block in enumerate(smoothed_blocks(options.blocks), start=1):
            total += float(block.mean())
            if done == options.blocks // 4:
                early = peak_mb()
    print(f"{2 * options.blocks * BLOCK_NBYTES / 1e9:.1f} GB of blocks through a store of {STORE >> 20} MiB")
    print(f"mean of all: {total / options.blocks:.4f}")
    print(f"peak of the program's memory: {early:.0f} MB after a quarter, {peak_mb():.0f} MB at the end")


if __name__ == "__main__":
    main()

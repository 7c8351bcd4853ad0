"""Time something short."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

#: Seconds one repeat should last at least: much longer than a tick of the clock, shorter than a change of the machine.
REPEAT_SECONDS = 0.05
REPEATS = 7


def best_of(action: Callable[[], object], per: int = 1) -> tuple[float, float]:
    """Return the fastest and the median time of ``action`` in seconds, divided by ``per``."""
    rounds = 1
    while (took := repeat(action, rounds)) < REPEAT_SECONDS:
        rounds = max(rounds * 2, int(rounds * REPEAT_SECONDS / max(took, 1e-9)))
    times = [repeat(action, rounds) / rounds / per for _ in range(REPEATS)]
    return min(times), statistics.median(times)


def repeat(action: Callable[[], object], rounds: int) -> float:
    """Return how long so many rounds took."""
    started = time.perf_counter()
    for _ in range(rounds):
        action()
    return time.perf_counter() - started


def show(label: str, action: Callable[[], object], per: int = 1) -> None:
    """Print one line: fastest and median, in microseconds."""
    fastest, median = best_of(action, per)
    print(f"{label:<58} {fastest * 1e6:10.2f} µs  median {median * 1e6:10.2f} µs")

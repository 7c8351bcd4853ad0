"""The scenarios: each opens nothing, is given an open subject, and returns its figures.

A figure is (label, value, unit). Units that end in ``/s`` are better when larger, all others when smaller.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from . import functions, processes
from .subjects import WORKERS, Subject

MB = 1_000_000


class Figure(NamedTuple):
    label: str
    value: float
    unit: str


class Knobs(NamedTuple):
    """How much to do: ``scale`` 1 for figures to publish, less for a look; ``idle_seconds`` of watching."""

    scale: float
    idle_seconds: float

    def count(self, full: int) -> int:
        return max(1, round(full * self.scale))


def warm(subject: Subject) -> None:
    """Have every worker started and every path used once."""
    subject.each(functions.noop, range(200))
    for value in range(30):
        subject.call(functions.increment, value)


def warm_arrays(subject: Subject) -> None:
    """Have every worker import numpy, and use the path of large values once."""
    warm(subject)
    subject.each(functions.total, [functions.make_array(MB) for _ in range(8 * WORKERS)])


def seconds(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def median_us(action: Callable[[], Any], count: int) -> float:
    return statistics.median(seconds(action) for _ in range(count)) * 1e6


def call(subject: Subject, knobs: Knobs) -> list[Figure]:
    """One call and its result, 2,000 times."""
    warm(subject)
    took = median_us(lambda: subject.call(functions.increment, 1), knobs.count(2_000))
    return [Figure("one call and its result, median", took, "µs")]


def each(subject: Subject, knobs: Knobs) -> list[Figure]:
    """Map 10,000 trivial items, one a task."""
    warm(subject)
    count = knobs.count(10_000)
    took = seconds(lambda: subject.each(functions.increment, range(count)))
    return [Figure("map, 10,000 items, chunksize 1", count / took, "tasks/s")]


def bulk(subject: Subject, knobs: Knobs) -> list[Figure]:
    """Map a million trivial items, chunks left to the library."""
    warm(subject)
    count = knobs.count(1_000_000)
    took = seconds(lambda: subject.bulk(functions.increment, range(count)))
    return [Figure("map, 1,000,000 items, default chunks", count / took, "items/s")]


def unordered(subject: Subject, knobs: Knobs) -> list[Figure]:
    """Take 5,000 results as they come."""
    warm(subject)
    count = knobs.count(5_000)
    took = seconds(lambda: sum(subject.unordered(functions.increment, range(count))))
    return [Figure("imap_unordered, 5,000 items", count / took, "tasks/s")]


def gather(subject: Subject, knobs: Knobs) -> list[Figure]:
    """Submit 5,000 tasks, then collect them."""
    warm(subject)
    count = knobs.count(5_000)
    took = seconds(lambda: subject.gather(functions.noop, range(count)))
    return [Figure("5,000 tasks submitted, then gathered", count / took, "tasks/s")]


def large_arguments(subject: Subject, knobs: Knobs) -> list[Figure]:
    """Send 40 arrays of 8 MB."""
    warm_arrays(subject)
    arrays = [functions.make_array(8 * MB) for _ in range(knobs.count(40))]
    took = seconds(lambda: subject.each(functions.total, arrays))
    return [Figure("40 arguments of 8 MB", len(arrays) * 8 / 1e3 / took, "GB/s")]


def large_results(subject: Subject, knobs: Knobs) -> list[Figure]:
    """Bring 40 arrays of 8 MB back."""
    warm_arrays(subject)
    sizes = [8 * MB] * knobs.count(40)
    took = seconds(lambda: subject.each(functions.make_array, sizes))
    return [Figure("40 results of 8 MB", len(sizes) * 8 / 1e3 / took, "GB/s")]


def same_argument(subject: Subject, knobs: Knobs) -> list[Figure]:
    """Give one array of 64 MB to 16 calls."""
    warm_arrays(subject)
    array = functions.make_array(64 * MB)
    took = seconds(lambda: subject.each(functions.total, [array] * knobs.count(16)))
    return [Figure("the same 64 MB to 16 calls", took * 1e3, "ms")]


def put_new(subject: Any, knobs: Knobs) -> list[Figure]:
    """Put 100 MB where nothing was before."""
    warm(subject)
    array = functions.make_array(100 * MB)
    times: list[float] = []
    kept = []
    for _ in range(5):
        started = time.perf_counter()
        kept.append(subject.put(array))
        times.append(time.perf_counter() - started)
    return [Figure("put 100 MB into new pages", 0.1 / statistics.median(times), "GB/s")]


def put_recycled(subject: Any, knobs: Knobs) -> list[Figure]:
    """Put 100 MB where another object was, and get it back."""
    warm(subject)
    array = functions.make_array(100 * MB)
    times = []
    for _ in range(12):
        started = time.perf_counter()
        ref = subject.put(array)
        times.append(time.perf_counter() - started)
        del ref
        subject.call(functions.noop)  # a round trip: what was dropped has been taken back
    ref = subject.put(array)
    got = median_us(lambda: subject.get(ref), knobs.count(200))
    return [
        Figure("put 100 MB into recycled pages", 0.1 / statistics.median(times[2:]), "GB/s"),
        Figure("get of 100 MB, median", got, "µs"),
    ]


def put_small(subject: Any, knobs: Knobs) -> list[Figure]:
    """Put a number."""
    warm(subject)
    return [Figure("put of a number, median", median_us(lambda: subject.put(0), knobs.count(2_000)), "µs")]


def idle(subject: Subject, knobs: Knobs) -> list[Figure]:
    """Look at what an open subject costs while nothing runs."""
    warm(subject)
    gc.collect()
    time.sleep(min(2.0, knobs.idle_seconds))
    found = processes.others()
    nbytes = processes.proportional_nbytes(found)
    before = processes.cpu_seconds(found)
    time.sleep(knobs.idle_seconds)
    used = processes.cpu_seconds(found) - before
    return [
        Figure(f"memory of its processes, idle, {WORKERS} workers", nbytes / 1e6, "MB"),
        Figure("processes besides the program", len(found), ""),
        Figure("CPU while idle, of one core", 100 * used / knobs.idle_seconds, "%"),
    ]


#: `cold_start` is measured by the child itself, before anything is open.
SCENARIOS: dict[str, Callable[[Any, Knobs], list[Figure]]] = {
    "call": call,
    "each": each,
    "bulk": bulk,
    "unordered": unordered,
    "gather": gather,
    "large_arguments": large_arguments,
    "large_results": large_results,
    "same_argument": same_argument,
    "put_new": put_new,
    "put_recycled": put_recycled,
    "put_small": put_small,
    "idle": idle,
}

#: Scenarios that need a store.
STORE = {"put_new", "put_recycled", "put_small"}

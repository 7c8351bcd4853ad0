"""What actors cost: python -m benchmarks.actors [rounds]

Prints, for each round: the median of a call there and back, calls a second from one program (of a plain and of an async
class), the median time until an actor that is made has answered its first call, until a killed one that may be started
again has, what 1,000 actors that are made, called and dropped, twenty at a time, leave behind, and items a second of
generators, the queue and parallel iterators.
"""

from __future__ import annotations

import gc
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psutil

import outboard
from outboard.util import Queue
from outboard.util import iter as parallel

CALLS, BURST, STARTS, MANY, AT_A_TIME = 2000, 20_000, 20, 1000, 20


class Plain:
    """Counts."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> int:
        self.value += amount
        return self.value

    def pid(self) -> int:
        return os.getpid()


class Async:
    """Does nothing, in an event loop."""

    async def same(self, value: int = 0) -> int:
        return value


def count(most: int) -> Iterator[int]:
    yield from range(most)


def seconds(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def median(call: Callable[[], Any], times: int) -> float:
    return statistics.median(seconds(call) for _ in range(times))


def show(label: str, value: float, unit: str) -> None:
    print(f"{label:<44} {value:>12,.1f} {unit}", flush=True)


def call(method: Any, times: int) -> None:
    outboard.get([method.remote(1) for _ in range(times)])


def calls() -> None:
    for cls, name, label in ((Plain, "add", "plain"), (Async, "same", "async")):
        method = getattr(outboard.remote(cls).remote(), name)
        outboard.get(method.remote())
        show(f"{label}: call, median", 1e6 * median(partial(call, method, 1), CALLS), "us")
        burst = min(seconds(partial(call, method, BURST)) for _ in range(3))
        show(f"{label}: calls", BURST / burst, "/s")


def starts() -> None:
    plain = outboard.remote(Plain)
    show("made and called, median", 1e3 * median(lambda: outboard.get(plain.remote().add.remote()), STARTS), "ms")
    actor = plain.options(max_restarts=-1, max_task_retries=-1).remote()

    def kill() -> None:
        os.kill(outboard.get(actor.pid.remote()), signal.SIGKILL)
        outboard.get(actor.add.remote())

    show("killed, and called again, median", 1e3 * median(kill, STARTS), "ms")


def many() -> None:
    node, me = psutil.Process(outboard.nodes()[0]["pid"]), psutil.Process()
    plain = outboard.remote(Plain)

    def cycle() -> None:
        for _ in range(0, MANY, AT_A_TIME):
            actors = [plain.remote() for _ in range(AT_A_TIME)]
            outboard.get([actor.add.remote() for actor in actors])

    def used() -> list[float]:
        gc.collect()
        time.sleep(0.5)
        return [figure for process in (me, node) for figure in
                (process.memory_info().rss / 1e6, process.num_threads(), process.num_fds())]  # fmt: skip

    cycle()
    before = used()
    took = seconds(cycle)
    after = used()
    show(f"{MANY} actors made, called, dropped", took, "s")
    labels = [
        f"  left in {where}: {what}" for where in ("program", "node") for what in ("MB", "threads", "descriptors")
    ]
    for label, old, new in zip(labels, before, after, strict=True):
        show(label, new - old, "more")


def streams() -> None:
    refs = outboard.remote(count).remote(5000)
    show("generator: values", 5000 / seconds(lambda: [outboard.get(ref) for ref in refs]), "/s")
    queue = Queue()
    show("queue: put and get, median", 1e6 * median(lambda: (queue.put(1), queue.get()), 500), "us")
    numbers = parallel.from_range(500_000, num_shards=2)
    show("parallel iterator: items", 500_000 / seconds(lambda: sum(numbers.gather_async())), "/s")


def main() -> None:
    outboard.init()
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
        calls()
        starts()
        many()
        streams()


if __name__ == "__main__":
    main()

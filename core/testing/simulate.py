"""Run seeds of the simulator: `python -m outboard.testing.simulate --seeds 2000`.

A seed that fails prints what is wrong, the end of its trace and how to run it again; `--seed S --trace` prints all of
it. The digest of a trace is the same in every run of a seed. Rare marks that no seed reached fail a long run: then
the simulator no longer exercises what it was made for.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field

from .world import World

#: Seeds from which on every rare mark must have been reached.
MARKS_NEED = 2000

#: Lines of a failing seed's trace that are shown.
TAIL = 40

#: What must happen in `MARKS_NEED` seeds, with the names of `World.mark` and of the machines' own counts.
RARE = (
    "adoption",
    "blocked",
    "borrower died",
    "cancel of finished",
    "child",
    "child got its parent's CPU",
    "client died",
    "died between packet and first item",
    "died while running",
    "followed",
    "forgot a kind",
    "init failed",
    "interrupted",
    "killed by the node",
    "late answer",
    "owner lost",
    "part of a packet",
    "passed on when settled",
    "passing refused",
    "poison",
    "recall lost the race",
    "recall won",
    "result of cancelled",
    "retry",
    "returned surplus",
    "room came back",
    "socket full",
    "stopped",
    "store full",
    "template died",
    "word repeated",
)


@dataclass
class Report:
    """What a number of seeds came to."""

    seeds: int = 0
    events: int = 0
    seconds: float = 0.0
    marks: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """Rare marks that were not reached although there were seeds enough."""
        return [mark for mark in RARE if not self.marks[mark]] if self.seeds >= MARKS_NEED else []

    def add(self, other: Report) -> None:
        """Take in what other seeds came to."""
        self.seeds += other.seeds
        self.events += other.events
        self.marks.update(other.marks)
        self.failures.update(other.failures)


def run_seed(seed: int) -> tuple[World, BaseException | None]:
    """Run one world; returns it, and what was wrong with it."""
    world = World(seed)
    try:
        world.run()
    except Exception as error:
        return world, error
    finally:
        world.close()
    return world, None


def run_seeds(first: int, count: int, *, most_failures: int = 1) -> Report:
    """Run seeds one after the other, until so many have failed."""
    report = Report()
    begun = time.perf_counter()
    for seed in range(first, first + count):
        world, error = run_seed(seed)
        report.seeds += 1
        report.events += world.events
        report.marks.update(world.all_marks())
        if error is not None:
            report.failures[seed] = describe(world, error)
            if len(report.failures) >= most_failures:
                break
    report.seconds = time.perf_counter() - begun
    return report


def describe(world: World, error: BaseException) -> str:
    """Say what was wrong, for people."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return "\n".join(
        [
            *world.lines[-TAIL:],
            f"seed {world.seed}: {type(error).__name__}: {error}",
            f"  in {where.name} ({where.filename}:{where.lineno}), {world.events} events, digest {world.digest()}",
            f"  python -m outboard.testing.simulate --seed {world.seed} --trace",
        ]
    )


def show_seed(seed: int, *, with_trace: bool) -> int:
    """Run one seed and print its course."""
    world, error = run_seed(seed)
    if with_trace:
        print("\n".join(world.lines))
    if error is not None:
        print(describe(world, error))
    print(f"seed {seed}: {world.events} events, {world.now:.3f} virtual seconds, digest {world.digest()}")
    return int(error is not None)


def main(arguments: list[str] | None = None) -> int:
    """Be the command."""
    parser = argparse.ArgumentParser(prog="python -m outboard.testing.simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--trace", action="store_true", help="print every event and frame of --seed")
    parser.add_argument("--failures", type=int, default=1, help="go on until so many seeds have failed")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return show_seed(options.seed, with_trace=options.trace)
    report = run_seeds(options.first, options.seeds, most_failures=options.failures)
    for failure in report.failures.values():
        print(failure)
    rate, size = report.seeds / report.seconds, report.events / report.seeds
    print(f"{report.seeds} seeds, {len(report.failures)} failed; {rate:.0f} seeds/s, {size:.0f} events each")
    for mark, times in sorted(report.marks.items()):
        print(f"  {times:7d}  {mark}")
    if report.missing:
        print(f"never reached: {', '.join(report.missing)}")
    return int(bool(report.failures or report.missing))


if __name__ == "__main__":
    sys.exit(main())

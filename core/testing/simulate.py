"""Run seeds of the simulator: `python -m outboard.testing.simulate --seeds 2000`.

A seed names a world and its course: the worlds take turns. One that fails prints what is wrong, the end of its trace
and how to run it again; it is then made short by leaving parts of its world out, and the short course is printed.
`--seed S --trace` prints all of a course. The digest of a trace is the same in every run of a seed. Rare marks that no
seed reached fail a long run: then the simulator no longer exercises what it was made for.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Set
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from .clusterworld import ClusterWorld
from .course import Course
from .networld import NetWorld
from .shrink import shrink
from .world import World

#: The sorts of worlds, in the order in which seeds take them.
WORLDS: tuple[type[Course], ...] = (World, NetWorld, ClusterWorld)

#: Seeds of a world from which on every rare mark of it must have been reached.
MARKS_NEED = 600

#: Lines of a failing seed's trace that are shown.
TAIL = 40

#: Seeds that a process takes at a time.
CHUNK = 50

#: Objects made between two looks for garbage. Fewer cost more time, more keep the worlds that have ended for longer.
GARBAGE = 20_000


@dataclass
class Report:
    """What a number of seeds came to."""

    seeds: Counter[str] = field(default_factory=Counter)  # by world
    events: int = 0
    seconds: float = 0.0
    marks: Counter[str] = field(default_factory=Counter)  # "world: mark"
    failures: dict[int, str] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """Rare marks that were not reached although there were seeds enough of their world."""
        wanted = [f"{w.name}: {mark}" for w in WORLDS for mark in w.rare if self.seeds[w.name] >= MARKS_NEED]
        return [mark for mark in wanted if not self.marks[mark]]

    def note(self, course: Course, error: BaseException | None) -> None:
        """Take in what one seed came to."""
        self.seeds[course.name] += 1
        self.events += course.events
        self.marks.update({f"{course.name}: {mark}": times for mark, times in course.all_marks().items()})
        if error is not None:
            self.failures[course.seed] = describe(course, error)

    def add(self, other: Report) -> None:
        """Take in what other seeds came to."""
        self.seeds.update(other.seeds)
        self.events += other.events
        self.marks.update(other.marks)
        self.failures.update(other.failures)


def world_of(seed: int) -> type[Course]:
    """The sort of world that a seed has."""
    return WORLDS[seed % len(WORLDS)]


def find_world(name: str) -> type[Course]:
    """A sort of world by its name."""
    return next(world for world in WORLDS if world.name == name)


def run_seed(seed: int, world: str = "", without: Set[str] = frozenset()) -> tuple[Course, BaseException | None]:
    """Run one course; returns it, and what was wrong with it. `world`: which sort, else the seed's own."""
    course = (find_world(world) if world else world_of(seed))(seed, without)
    try:
        course.run()
    except Exception as error:
        return course, error
    finally:
        course.close()
    return course, None


def run_seeds(first: int, count: int, *, world: str = "", most_failures: int = 1) -> Report:
    """Run seeds one after the other, until so many have failed."""
    report = Report()
    begun = time.perf_counter()
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(GARBAGE)
    try:
        for seed in range(first, first + count):
            course, error = run_seed(seed, world)
            report.note(course, error)
            if len(report.failures) >= most_failures:
                break
    finally:
        gc.set_threshold(*usual)
    report.seconds = time.perf_counter() - begun
    return report


def run_together(first: int, count: int, *, world: str = "", most_failures: int = 1, processes: int = 0) -> Report:
    """Run seeds in several processes (0: as many as there are CPUs)."""
    report = Report()
    begun = time.perf_counter()
    processes = processes or len(os.sched_getaffinity(0))
    # Forked: nothing here has threads, and other ways to start leave a process of the library's behind.
    with ProcessPoolExecutor(processes, mp_context=get_context("fork")) as pool:
        runs = [
            pool.submit(run_seeds, start, min(CHUNK, first + count - start), world=world, most_failures=most_failures)
            for start in range(first, first + count, CHUNK)
        ]
        for run in runs:
            if len(report.failures) < most_failures:
                report.add(run.result())
            else:
                run.cancel()
    report.seconds = time.perf_counter() - begun
    return report


def describe(course: Course, error: BaseException) -> str:
    """Say what was wrong, for people."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    without = f" --without {','.join(sorted(course.without))!r}" if course.without else ""
    return "\n".join(
        [
            *course.lines[-TAIL:],
            f"seed {course.seed} of {course.name}: {type(error).__name__}: {error}",
            f"  in {where.name} ({where.filename}:{where.lineno}), {course.events} events, digest {course.digest()}",
            f"  python -m outboard.testing.simulate --seed {course.seed} --world {course.name}{without} --trace",
        ]
    )


def show_seed(seed: int, world: str = "", without: Set[str] = frozenset(), *, with_trace: bool) -> int:
    """Run one seed and print its course."""
    course, error = run_seed(seed, world, without)
    if with_trace:
        print("\n".join(course.lines))
    if error is not None:
        print(describe(course, error))
    print(f"seed {seed}: {course.events} events, {course.now:.3f} virtual seconds, digest {course.digest()}")
    return int(error is not None)


def show_short(seed: int, world: str) -> None:
    """Print the shortest course with the same failure that is found quickly."""
    without = shrink(lambda parts: run_seed(seed, world, parts))
    course, error = run_seed(seed, world, without)
    assert error is not None
    print(f"without {len(without)} of {len(set(course.parts))} parts the same goes wrong:")
    print(describe(course, error))


def main(arguments: list[str] | None = None) -> int:
    """Be the command."""
    parser = argparse.ArgumentParser(prog="python -m outboard.testing.simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--world", default="", choices=["", *(w.name for w in WORLDS)], help="of this sort alone")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--without", default="", help="parts that are left out of --seed, with commas between them")
    parser.add_argument("--trace", action="store_true", help="print every event and frame of --seed")
    parser.add_argument("--failures", type=int, default=1, help="go on until so many seeds have failed")
    parser.add_argument("--processes", type=int, default=0, help="so many at a time; 0: one a CPU")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        without = frozenset(filter(None, options.without.split(",")))
        return show_seed(options.seed, options.world, without, with_trace=options.trace)
    report = run_together(options.first, options.seeds, world=options.world, most_failures=options.failures,
                          processes=options.processes)  # fmt: skip
    for seed, failure in sorted(report.failures.items()):
        print(failure)
        show_short(seed, options.world)
    seeds = sum(report.seeds.values())
    rate, size = seeds / report.seconds, report.events / seeds
    print(f"{seeds} seeds, {len(report.failures)} failed; {rate:.0f} seeds/s, {size:.0f} events each")
    for mark, times in sorted(report.marks.items()):
        print(f"  {times:7d}  {mark}")
    if report.missing:
        print(f"never reached: {', '.join(report.missing)}")
    return int(bool(report.failures or report.missing))


if __name__ == "__main__":
    sys.exit(main())

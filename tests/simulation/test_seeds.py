"""The simulator over many seeds: no seed fails, each rare thing happens in some, a seed is one course of events."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from outboard.testing.course import Course
from outboard.testing.shrink import MOST_EVENTS, shrink
from outboard.testing.simulate import MARKS_NEED, WORLDS, Report, run_seed, run_seeds, run_together

SEEDS = 1801
PROCESSES = 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_seed_fails_and_every_rare_mark_is_reached() -> None:
    total = run_together(0, SEEDS, processes=PROCESSES)
    assert not total.failures, "\n".join(total.failures.values())
    assert total.seeds.total() == SEEDS and len(total.seeds) == len(WORLDS)
    assert min(total.seeds.values()) >= MARKS_NEED
    assert total.missing == []


def test_a_seed_is_one_course_of_events_whatever_the_hashes() -> None:
    seeds = range(3, 12)
    code = f"from outboard.testing.simulate import run_seed\nprint([run_seed(s)[0].digest() for s in {[*seeds]}])"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": salt}, capture_output=True, check=True, text=True
        ).stdout
        for salt in ("0", "1", "4242")
    }
    assert len(digests) == 1
    again = [run_seed(seed)[0].digest() for seed in seeds]
    assert str(again) == digests.pop().strip()


def test_different_seeds_take_different_courses() -> None:
    assert len({run_seed(seed)[0].digest() for seed in range(30)}) == 30


def test_a_mark_that_was_never_reached_is_missed_only_in_long_runs() -> None:
    assert run_seeds(0, 1).missing == []
    name, rare = WORLDS[0].name, WORLDS[0].rare
    assert Report(seeds=Counter({name: MARKS_NEED})).missing == [f"{name}: {mark}" for mark in rare]


class Fragile(Course):
    """A course that goes wrong when two of its parts are there."""

    name = "fragile"

    def run(self) -> None:
        there = [part for part in map(str, range(40)) if self.keeps(part)]
        assert not {"7", "31"} <= set(there), "both are there"


def test_a_failing_course_is_made_as_short_as_can_be() -> None:
    def run(without: frozenset[str]) -> tuple[Course, BaseException | None]:
        course = Fragile(0, without)
        try:
            course.run()
        except AssertionError as error:
            return course, error
        return course, None

    assert {str(part) for part in range(40)} - shrink(run) == {"7", "31"}


def test_what_does_not_fail_cannot_be_made_shorter() -> None:
    with pytest.raises(ValueError, match="nothing fails"):
        shrink(lambda without: (Course(0, without), None))


def test_a_course_without_end_is_run_a_few_times_to_make_it_shorter() -> None:
    runs: list[Fragile] = []

    def run(without: frozenset[str]) -> tuple[Course, BaseException | None]:
        course = Fragile(1, without)
        course.events = course.most_events
        runs.append(course)
        try:
            course.run()
        except AssertionError as error:
            return course, error
        return course, None

    shrink(run)
    assert len(runs) == MOST_EVENTS // Fragile.most_events

"""The simulator over many seeds: no seed fails, and each rare thing happens in some."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from outboard.testing.simulate import RARE, Report, run_seed, run_seeds

SEEDS = 2000
PROCESSES = 2

PROGRAM = """
import json, sys
from outboard.testing.simulate import run_seeds
report = run_seeds(int(sys.argv[1]), int(sys.argv[2]))
print(json.dumps([report.seeds, report.events, report.marks, report.failures]))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_seed_fails_and_every_rare_mark_is_reached() -> None:
    share = SEEDS // PROCESSES
    runs = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(n * share), str(share)], stdout=subprocess.PIPE)
        for n in range(PROCESSES)
    ]
    total = Report()
    for run in runs:
        out, _ = run.communicate()
        assert run.returncode == 0
        seeds, events, marks, failures = json.loads(out)
        total.add(Report(seeds=seeds, events=events, failures=failures))
        total.marks.update(marks)
    assert not total.failures, "\n".join(total.failures.values())
    assert total.seeds == SEEDS
    assert total.missing == []


def test_a_seed_is_one_course_of_events_whatever_the_hashes() -> None:
    code = "from outboard.testing.simulate import run_seed\nprint([run_seed(s)[0].digest() for s in (3, 4, 5)])"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": salt}, capture_output=True, check=True, text=True
        ).stdout
        for salt in ("0", "1", "4242")
    }
    assert len(digests) == 1
    again = [run_seed(seed)[0].digest() for seed in (3, 4, 5)]
    assert str(again) == digests.pop().strip()


def test_different_seeds_take_different_courses() -> None:
    assert len({run_seed(seed)[0].digest() for seed in range(20)}) == 20


def test_a_mark_that_was_never_reached_is_missed_only_in_long_runs() -> None:
    assert run_seeds(0, 1).missing == []
    assert Report(seeds=SEEDS).missing == list(RARE)

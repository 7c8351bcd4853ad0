"""One subject, one scenario, one process; prints its figures as JSON on the last line.

usage: python -m benchmarks.child SUBJECT SCENARIO SCALE IDLE_SECONDS
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from . import functions
from .joblib_scenarios import JOBLIB_SCENARIOS
from .joblib_subjects import JOBLIB_SUBJECTS
from .scenarios import SCENARIOS, Figure, Knobs
from .subjects import SUBJECTS

ALL_SUBJECTS: dict[str, Callable[[], Any]] = SUBJECTS | JOBLIB_SUBJECTS
ALL_SCENARIOS: dict[str, Callable[[Any, Knobs], list[Figure]]] = SCENARIOS | JOBLIB_SCENARIOS


def measure(subject: Any, scenario: str, knobs: Knobs) -> list[Figure]:
    """Load and open the subject, run the scenario, and add nothing of one to the figure of another."""
    started = time.perf_counter()
    subject.load()
    loaded = time.perf_counter()
    subject.open()
    try:
        subject.call(functions.noop)
        ready = time.perf_counter()
        if scenario == "cold_start":
            return [
                Figure("import", (loaded - started) * 1e3, "ms"),
                Figure("start to first result, import apart", (ready - loaded) * 1e3, "ms"),
            ]
        return ALL_SCENARIOS[scenario](subject, knobs)
    finally:
        subject.close()


def main() -> None:
    """Do what the command line says."""
    name, scenario, scale, idle_seconds = sys.argv[1:]
    figures = measure(ALL_SUBJECTS[name](), scenario, Knobs(float(scale), float(idle_seconds)))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

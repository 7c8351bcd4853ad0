"""Makes the course of a failing seed short: leaves parts of its world out for as long as the same thing goes wrong.

What is planned of a world (clients, what they do, faults) has names; each is left out alone or with others. Whatever
remains different (delays, the order of events) may hide the failure, so the least set is not sought, only a small one.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence

from .course import Course

#: Runs at most; a course takes about 20 ms.
MOST_RUNS = 400

#: Events of all these runs at most, but for the last: some courses fail because they are without end, and each takes as
#: long as it may. More would keep whoever waits for many minutes.
MOST_EVENTS = 400_000

#: Lives through a course without some parts; returns it, and what was wrong.
Run = Callable[[frozenset[str]], tuple[Course, BaseException | None]]

Failure = tuple[str, str, int | None]


def name_failure(error: BaseException) -> Failure:
    """What went wrong, as far as it is the same in other courses: the error's type and where it was raised."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return type(error).__name__, where.filename, where.lineno


def shrink(run: Run, most_runs: int = MOST_RUNS) -> set[str]:
    """Return names of parts without which the same failure remains; `run` lives through a course without some.

    Raises:
        ValueError: nothing fails.
    """
    course, error = run(frozenset())
    if error is None:
        raise ValueError("nothing fails")
    wanted = name_failure(error)
    without: set[str] = set()
    left = _in_order(course)
    size = max(1, len(left) // 2)
    runs, events = 1, course.events
    while left and runs < most_runs and events < MOST_EVENTS:
        has_shrunk = False
        for start in range(0, len(left), size):
            chunk = [part for part in left[start : start + size] if part not in without]
            if not chunk or runs >= most_runs or events >= MOST_EVENTS:
                continue
            runs += 1
            course, error = run(frozenset(without.union(chunk)))
            events += course.events
            if error is not None and name_failure(error) == wanted:
                without.update(chunk)
                has_shrunk = True
        left = [part for part in left if part not in without]
        if size == 1 and not has_shrunk:
            break
        size = max(1, size // 2)
    return without


def _in_order(course: Course) -> Sequence[str]:
    return list(dict.fromkeys(course.parts))

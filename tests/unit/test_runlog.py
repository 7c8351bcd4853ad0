"""What a node remembers of its tasks: bounded, by program, in messages of bounded size."""

from __future__ import annotations

import time

import pytest

from outboard.runlog import EVENTS_KEPT, EVENTS_TOLD, RunLog

pytestmark = pytest.mark.timeout(10)

ROOT, OTHER = 1, 2


def test_each_program_is_told_its_own() -> None:
    log = RunLog()
    log.on_kind((ROOT, 5), "square", is_call=False)
    log.on_kind((7, 5), "Counter.add", is_call=True)
    log.note(ROOT, (ROOT, 5), 100, 50.0, 2.0, 3)
    log.note(OTHER, (OTHER, 5), 101, 50.0, 1.0, 1)
    log.note(ROOT, (7, 5), 102, 51.0, 0.0, 1, has_died=True)
    [told] = log.tell(ROOT, now=60.0)
    assert [(e.name, e.is_call, e.pid, e.tasks, e.seconds, e.has_died) for e in told.events] == [
        ("square", False, 100, 3, 2.0, False),
        ("Counter.add", True, 102, 1, 0.0, True),
    ]
    assert told.events[0].start == pytest.approx(time.time() - 12.0, abs=5)
    assert told.is_last


def test_a_dropped_kind_keeps_its_name_where_it_has_run() -> None:
    log = RunLog()
    log.on_kind((ROOT, 5), "square", is_call=False)
    log.note(ROOT, (ROOT, 5), 100, 50.0, 2.0, 3)
    log.on_kind_dropped((ROOT, 5))
    log.on_kind_dropped((ROOT, 5))
    log.note(ROOT, (ROOT, 5), 100, 50.0, 2.0, 3)
    assert [event.name for event in next(log.tell(ROOT, 60.0)).events] == ["square", ""]


def test_the_newest_are_kept_and_told_in_parts() -> None:
    log = RunLog()
    for number in range(EVENTS_KEPT + 10):
        log.note(ROOT, (ROOT, 5), number, 50.0, 1.0, 1)
    assert len(log) == EVENTS_KEPT
    told = list(log.tell(ROOT, 60.0))
    assert [part.is_last for part in told] == [False] * (EVENTS_KEPT // EVENTS_TOLD - 1) + [True]
    assert [event.pid for part in told for event in part.events] == list(range(10, EVENTS_KEPT + 10))


def test_who_has_run_nothing_is_told_so() -> None:
    [told] = RunLog().tell(ROOT, 60.0)
    assert told.is_last and not told.events


def test_what_was_read_late_ended_before_the_next_began() -> None:
    log = RunLog()
    for end, seconds in ((50.0, 1.0), (53.0, 1.0), (53.0, 1.0), (53.5, 1.0)):
        log.note(ROOT, (ROOT, 5), 100, end, seconds, 1)
    log.note(ROOT, (ROOT, 5), 200, 53.0, 9.0, 1)
    events = next(log.tell(ROOT, 60.0)).events
    assert [e.start - events[0].start for e in events] == pytest.approx([0.0, 1.5, 2.5, 3.5, -5.0], abs=1e-4)
    assert [e.seconds for e in events] == [1.0, 1.0, 1.0, 1.0, 9.0]


def test_calls_that_run_at_the_same_time_stay_where_they_were() -> None:
    log = RunLog()
    for end in (50.0, 50.5):
        log.note(ROOT, (ROOT, 5), 100, end, 2.0, 1, True)
    first, second = next(log.tell(ROOT, 60.0)).events
    assert second.start - first.start == pytest.approx(0.5, abs=1e-4)


def test_another_program_does_not_shift_what_is_told() -> None:
    log = RunLog()
    log.note(ROOT, (ROOT, 5), 100, 50.0, 1.0, 1)
    log.note(OTHER, (OTHER, 5), 100, 50.5, 3.0, 1)
    [event] = next(log.tell(ROOT, 60.0)).events
    assert event.start == pytest.approx(time.time() - 11.0, abs=5)

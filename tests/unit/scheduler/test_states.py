"""The table of a task's states: every pair of state and event."""

from __future__ import annotations

import itertools

import pytest

from outboard.scheduler.states import TRANSITIONS, InvalidTransition, TaskEvent, TaskState, next_state

pytestmark = pytest.mark.timeout(10)

#: What may happen, state by state; written a second time so that the table cannot change by accident.
EXPECTED = {
    TaskState.WAITING: {"INPUTS_READY": "READY", "INPUT_FAILED": "FAILED", "REFUSE": "FAILED", "CANCEL": "CANCELLED"},
    TaskState.READY: {
        "SEND": "SENT",
        "REFUSE": "FAILED",
        "CANCEL": "CANCELLED",
        "INPUT_LOST": "WAITING",
        "INPUT_FAILED": "FAILED",
    },
    TaskState.SENT: {
        "FINISH": "FINISHED",
        "RETRY": "READY",
        "RETURN": "READY",
        "LOSE": "FAILED",
        "REFUSE": "FAILED",
        "CANCEL": "CANCELLED",
    },
    TaskState.FINISHED: {"REBUILD": "READY"},
    TaskState.FAILED: {},
    TaskState.CANCELLED: {},
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(TaskState, TaskEvent)))
def test_each_pair_of_state_and_event_is_decided(state: TaskState, event: TaskEvent) -> None:
    target = EXPECTED[state].get(event.name)
    if target is not None:
        assert next_state(state, event) is TaskState[target]
    else:
        with pytest.raises(InvalidTransition, match=f"task 5: {event.value} while {state.value}"):
            next_state(state, event, "task 5")


def test_hot_paths_rely_on_the_only_ways_that_the_table_has() -> None:
    assert {s: t for (s, e), t in TRANSITIONS.items() if e is TaskEvent.SEND} == {TaskState.READY: TaskState.SENT}
    assert {s: t for (s, e), t in TRANSITIONS.items() if e is TaskEvent.FINISH} == {TaskState.SENT: TaskState.FINISHED}

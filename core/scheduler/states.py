"""States of a task at its owner, and the only ways from one to the next.

The table is the whole truth: a pair that is not in it raises `InvalidTransition` and leaves the task as it was.
The diagram in docs/architecture.md is generated from it.
"""

from __future__ import annotations

from enum import Enum


class TaskState(Enum):
    """Where a task is. The comment names the collection of `Owner` that holds it."""

    WAITING = "waiting"  # for inputs; in `dependents` of each missing one
    READY = "ready"  # may be sent; in its kind's `ready` queue
    SENT = "sent"  # queued, running or lost at a node; counts against its kind's credit
    FINISHED = "finished"  # has a value; only its object entries remain, and a record in `lineage` of what it stored
    FAILED = "failed"  # ended with an error; only its object entries remain
    CANCELLED = "cancelled"  # settled by its owner; a node may still be busy with it


class TaskEvent(Enum):
    """What can happen to a task."""

    INPUTS_READY = "inputs ready"
    INPUT_FAILED = "input failed"
    SEND = "send"
    FINISH = "finish"  # a result came, good or bad
    RETRY = "retry"  # lost or raised, and may run again
    RETURN = "return"  # the node gave it back, not begun
    LOSE = "lose"  # lost, and may not run again
    REFUSE = "refuse"  # its kind was refused, its binding failed, or the node is gone
    CANCEL = "cancel"
    INPUT_LOST = "input lost"  # it is being made again
    REBUILD = "rebuild"  # something that it stored is lost and must be made again


class InvalidTransition(Exception):
    """An event that cannot happen in this state: a bug of ours, never of the caller."""


_S, _E = TaskState, TaskEvent

TRANSITIONS: dict[tuple[TaskState, TaskEvent], TaskState] = {
    (_S.WAITING, _E.INPUTS_READY): _S.READY,
    (_S.WAITING, _E.INPUT_FAILED): _S.FAILED,
    (_S.WAITING, _E.REFUSE): _S.FAILED,
    (_S.WAITING, _E.CANCEL): _S.CANCELLED,
    (_S.READY, _E.SEND): _S.SENT,
    (_S.READY, _E.INPUT_LOST): _S.WAITING,
    (_S.READY, _E.INPUT_FAILED): _S.FAILED,
    (_S.READY, _E.REFUSE): _S.FAILED,
    (_S.READY, _E.CANCEL): _S.CANCELLED,
    (_S.SENT, _E.FINISH): _S.FINISHED,
    (_S.SENT, _E.RETRY): _S.READY,
    (_S.SENT, _E.RETURN): _S.READY,
    (_S.SENT, _E.LOSE): _S.FAILED,
    (_S.SENT, _E.REFUSE): _S.FAILED,
    (_S.SENT, _E.CANCEL): _S.CANCELLED,
    (_S.FINISHED, _E.REBUILD): _S.READY,
}


def next_state(state: TaskState, event: TaskEvent, about: object = "") -> TaskState:
    """Return the state after `event`, or raise `InvalidTransition` naming `about`."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransition(f"{about}: {event.value} while {state.value}") from None

"""How a task's failure looks to a user of joblib."""

from __future__ import annotations

from pickle import PicklingError
from typing import Any

from outboard.calls import describe_call
from outboard.errors import SerializationError, WorkerLostError


class UnpicklableError(SerializationError, PicklingError):
    """What travels to a worker or back cannot be pickled: a `PicklingError`, as programs expect of joblib."""


def explained(error: BaseException, task: tuple[Any, Any, Any], count: int) -> BaseException:
    """Return what to raise for one of `count` tasks that ran together: it names the call where others would not."""
    call = describe_call(*task)
    if count > 1:
        call = f"one of {count} calls from {call} on"
    if isinstance(error, WorkerLostError):
        error.task, error.index = call, None
    elif isinstance(error, SerializationError):
        return _unpicklable(error, call)
    return error


def _unpicklable(error: SerializationError, call: str) -> BaseException:
    whole = "the result of a task" if error.what == "result" else "the task to send to the workers"
    text = f"Could not pickle {whole}: {call}: {error.reason or error}"
    described = UnpicklableError(
        text, what=error.what, path=error.path, reason=error.reason, value_repr=error.value_repr
    )
    described.__cause__ = error.__cause__ or error
    return described

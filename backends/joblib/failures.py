"""How a task's failure looks to a user of joblib."""

from __future__ import annotations

from typing import Any

from outboard.calls import describe_call
from outboard.errors import WorkerLostError


def explained(error: BaseException, task: tuple[Any, Any, Any], count: int) -> BaseException:
    """Return what to raise for one of `count` tasks that ran together; that of a lost worker names the call."""
    if isinstance(error, WorkerLostError):
        call = describe_call(*task)
        error.task, error.index = call if count == 1 else f"one of {count} calls from {call} on", None
    return error

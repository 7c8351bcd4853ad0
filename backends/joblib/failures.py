"""How a task's failure looks to a user of joblib."""

from __future__ import annotations

from typing import Any

from outboard.errors import WorkerLostError


def explained(error: BaseException, task: tuple[Any, Any, Any], count: int) -> BaseException:
    """Return what to raise for one of `count` tasks that ran together; that of a lost worker names the (first) call."""
    if isinstance(error, WorkerLostError):
        error.task = error.task or getattr(task[0], "__qualname__", repr(task[0]))
    return error

"""How a task's failure looks in `multiprocessing`'s words."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from multiprocessing import pool as standard
from typing import Any

from outboard.calls import describe_call
from outboard.errors import RemoteTraceback as CoreTraceback
from outboard.errors import SerializationError, TaskCancelledError, WorkerLostError

# The type checker's stubs leave these two out.
MaybeEncodingError: Any = standard.MaybeEncodingError  # type: ignore[attr-defined]  # in no stub
RemoteTraceback: Any = standard.RemoteTraceback  # type: ignore[attr-defined]  # in no stub

#: What `multiprocessing` says of what only its own child processes can be given.
_NEEDS_INHERITANCE = re.compile(r"(?P<kind>\w+) objects should only be shared between processes through inheritance")

#: Methods of a manager for classes of another name.
_MAKERS = {"Synchronized": "Value", "SynchronizedArray": "Array", "SynchronizedString": "Array", "SimpleQueue": "Queue"}


def translated(error: BaseException, name_call: Callable[[], tuple[str, int | None]] | None = None) -> BaseException:
    """Return what the standard pool would raise for the failure, or the nearest that it has no word for.

    `name_call` tells the call and its index, and is asked only when its worker was lost.
    """
    if isinstance(error, SerializationError):
        error = _serialization(error)
    elif isinstance(error, WorkerLostError) and name_call is not None:
        task, index = name_call()
        error.task, error.index = task or error.task, index
    cause = error.__cause__
    if isinstance(cause, CoreTraceback):
        error.__cause__ = RemoteTraceback(str(cause))
    return error


def _serialization(error: SerializationError) -> BaseException:
    if error.what == "result":
        encoding: Exception = MaybeEncodingError(error.reason, None)
        reason = str(error) if error.reason is None else repr(error.reason)
        # Its constructor takes reprs, but what is known here are the reprs themselves.
        encoding.__dict__.update(exc=reason, value=error.value_repr)
        encoding.args = (reason, error.value_repr)
        return encoding
    if isinstance(error.reason, RuntimeError):
        return explained(error.reason)
    return error if error.reason is None else error.reason


def explained(error: RuntimeError) -> RuntimeError:
    """Add to the standard refusal of locks, queues and the like what to use in their place; others pass as they are."""
    found = _NEEDS_INHERITANCE.fullmatch(str(error))
    if found is None:
        return error
    maker = _MAKERS.get(found["kind"], found["kind"])
    return RuntimeError(
        f"{error}; workers of this pool inherit nothing from the program. Pass what a manager makes, here or in "
        f"`initargs`: multiprocessing.Manager().{maker}()"
    )


def terminated() -> TaskCancelledError:
    """Make the error of everything that had not finished when its pool was terminated."""
    return TaskCancelledError("the pool was terminated before this had finished")


def describe_item(function: Any, item: Any, *, is_spread: bool) -> str:
    """Write the call for one item of a map (or starmap) for people."""
    return describe_call(function, item if is_spread and isinstance(item, (tuple, list)) else (item,))


def run_callback(callback: Callable[[Any], object], value: Any) -> None:
    """Call the user's callback; what it raises goes to `threading.excepthook`, and the pool goes on."""
    try:
        callback(value)
    except BaseException as error:
        thread = threading.current_thread()
        threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, thread)))

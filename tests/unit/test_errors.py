"""The tree of errors: codes, texts, what they inherit, and that all of it pickles."""

from __future__ import annotations

import concurrent.futures
import copy
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest

from outboard import errors
from outboard.errors import (
    GetTimeoutError,
    OutboardError,
    RemoteError,
    RemoteTraceback,
    SerializationError,
    StoreFullError,
    TaskCancelledError,
    TaskExitError,
    TaskUnschedulableError,
    TransportError,
    WorkerLostError,
    describe_exit,
    describe_nbytes,
)

#: Attributes that differ from the defaults, for the classes that have some.
ATTRIBUTES: dict[type[OutboardError], dict[str, Any]] = {
    WorkerLostError: {
        "task": "train(3)",
        "index": 3,
        "pid": 41207,
        "signal": 9,
        "exitcode": None,
        "peak_nbytes": 30 << 30,
        "limit_nbytes": 32 << 30,
        "stderr_tail": "a\nb",
        "may_have_run": False,
        "host": "gpu03",
        "attempts": 3,
    },
    SerializationError: {"what": "argument", "path": "args[0]", "reason": None, "value_repr": "<x>"},
    RemoteError: {"type_name": "DbError", "text": "7@replica", "traceback": "Traceback …"},
    TaskExitError: {"code": 3},
    TaskUnschedulableError: {"asked": {"GPU": 8}, "available": {"CPU": 2.0}},
    StoreFullError: {"needed_nbytes": 1, "free_nbytes": 2, "capacity_nbytes": 3, "holders": (("a", 5),)},
}


def tree(cls: type[OutboardError] = OutboardError) -> Iterator[type[OutboardError]]:
    yield cls
    for child in cls.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


@pytest.mark.parametrize("cls", list(tree()))
def test_pickles_with_text_and_attributes(cls: type[OutboardError]) -> None:
    attributes = ATTRIBUTES.get(cls, {})
    error = cls("what happened", **attributes)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == str(error) and again.args == error.args == ("what happened",)
    assert {name: getattr(again, name) for name in attributes} == attributes
    assert str(pickle.loads(pickle.dumps(cls(**attributes)))) == str(cls(**attributes))


@pytest.mark.parametrize("cls", list(tree()))
def test_text_begins_with_the_code(cls: type[OutboardError]) -> None:
    assert re.fullmatch(r"OB\d{3}: what happened", str(cls("what happened")))


def test_codes_are_unique_and_the_tree_is_drawn() -> None:
    classes = list(tree())
    assert len({cls.ob_code for cls in classes}) == len(classes)
    assert all(cls.__name__ in (errors.__doc__ or "") for cls in classes)


@pytest.mark.parametrize(
    ("cls", "host_class"),
    [
        (WorkerLostError, concurrent.futures.BrokenExecutor),
        (TaskCancelledError, concurrent.futures.CancelledError),
        (TransportError, ConnectionError),
        (GetTimeoutError, TimeoutError),
    ],
)
def test_users_old_except_clauses_still_work(cls: type[OutboardError], host_class: type[Exception]) -> None:
    with pytest.raises(host_class):
        raise cls("x")


def test_lost_worker_says_what_is_known_and_no_more() -> None:
    full = str(WorkerLostError(**ATTRIBUTES[WorkerLostError]))
    assert full.startswith(
        "OB102: train(3) (item 3) lost: worker process 41207 on gpu03 ended with SIGKILL (-9); 3 runs"
    )
    assert "peaked at 30.0 GiB of 32.0 GiB" in full and full.endswith("stderr:\na\nb")
    assert str(WorkerLostError(exitcode=7)) == (
        "OB102: a task lost: its worker process ended with exit code 7; 1 run begun."
    )


def test_substitute_shows_type_text_and_traceback() -> None:
    text = str(RemoteError(**ATTRIBUTES[RemoteError]))
    assert "DbError: 7@replica" in text and text.endswith("Traceback …")


def test_remote_traceback_has_the_standard_shape() -> None:
    cause = RemoteTraceback.of("Traceback …\nKeyError: 1\n")
    assert str(cause) == '\n"""\nTraceback …\nKeyError: 1\n"""'
    assert str(pickle.loads(pickle.dumps(cause))) == str(cause)


def test_exits_and_sizes_for_people() -> None:
    assert [describe_exit(s, c) for s, c in [(9, None), (0, 7), (0, None), (63, None)]] == [
        "with SIGKILL (-9)",
        "with exit code 7",
        "for an unknown reason",
        "with signal 63",
    ]
    assert [describe_nbytes(n) for n in (5, 2048, 3 << 20, 5 << 40)] == ["5 B", "2.0 KiB", "3.0 MiB", "5120.0 GiB"]


@pytest.mark.parametrize("cls", list(tree()))
@pytest.mark.parametrize("message", ["", "what happened"])
def test_repr_and_text_are_never_empty(cls: type[OutboardError], message: str) -> None:
    for attributes in ({}, ATTRIBUTES.get(cls, {})):
        error = cls(message, **attributes)
        said = message or error._text()
        assert len(said) > 10 and said in str(error)
        assert repr(error).startswith(f"{cls.__name__}(") and repr(said)[1:-1] in repr(error)
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert (type(again), repr(again), str(again)) == (cls, repr(error), str(error))
            assert vars(again) == vars(error)


def test_repr_of_a_lost_worker_tells_what_is_known() -> None:
    assert repr(WorkerLostError(pid=7, exitcode=3)) == (
        "WorkerLostError('a task lost: worker process 7 ended with exit code 3; 1 run begun.')"
    )

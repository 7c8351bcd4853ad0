"""Calls in words, for errors that name the one that failed."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

#: Characters of an argument that an error repeats.
_REPR_MAX = 80

_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = _shortened.maxlong = _REPR_MAX


def describe_call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> str:
    """Write a call for people: ``train(3, seed=1)``; never raises."""
    name = type(function).__name__
    try:
        name = getattr(function, "__qualname__", None) or name
        parts = [_shortened.repr(arg) for arg in args]
        parts += [f"{key}={_shortened.repr(value)}" for key, value in (kwargs or {}).items()]
    except Exception:
        parts = ["…"]
    return f"{name}({', '.join(parts)})"

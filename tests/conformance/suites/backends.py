"""Puts the backend "dist" among those that a test is parametrised with, and knows which tests are about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from joblib.parallel import BACKENDS, ParallelBackendBase

from outboard.joblib import NAME, DistBackend

#: Whose cases are taken over: those of the backend that has processes and takes what cloudpickle takes.
MODEL = "loky"


def add_cases(metafunc: pytest.Metafunc) -> None:
    """For each case with loky, have one with "dist"; cases of several values, from those with threads too."""
    stock = metafunc.parametrize

    def parametrize(argnames: Any, argvalues: Iterable[Any], *args: Any, **kwargs: Any) -> None:
        cases = list(argvalues)
        names = argnames.split(",") if isinstance(argnames, str) else argnames
        for case in tuple(cases):
            new = _on_dist(case, len(names))
            if new is not None and new not in cases:
                cases.append(new)
        stock(argnames, cases, *args, **kwargs)

    metafunc.parametrize = parametrize  # type: ignore[method-assign]


def _on_dist(case: Any, count: int) -> Any:
    """Return the same case on "dist"; None if it is not to be taken over."""
    values = case.values if hasattr(case, "marks") else (case,) if count == 1 else case
    words = [value for value in values if isinstance(value, str)]  # others may be arrays, which compare by element
    if NAME in words:
        return None
    for model in (MODEL,) if count == 1 else (MODEL, "threading"):
        if model in words:
            case = tuple(NAME if isinstance(value, str) and value == model else value for value in values)
            return case[0] if count == 1 else case
    return None


def names_dist(item: pytest.Item) -> bool:
    """Whether a test's parameters name "dist"."""
    return any(value == NAME if isinstance(value, str) else isinstance(value, DistBackend) for value in _values(item))


def names_any(item: pytest.Item) -> bool:
    """Whether a test's parameters name a backend; who runs the others chooses it."""
    return any(map(_is_backend, _values(item)))


def _values(item: pytest.Item) -> list[Any]:
    return list(item.callspec.params.values()) if hasattr(item, "callspec") else []


def _is_backend(value: Any) -> bool:
    if isinstance(value, str):
        return value in BACKENDS or value == "spawn"
    return isinstance(value, ParallelBackendBase) or hasattr(value, "get_start_method")

"""Puts the backend "dist" among those that a test is parametrised with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from joblib.parallel import BACKENDS, ParallelBackendBase

from outboard.joblib import NAME, DistBackend

#: Whose cases are taken over for "dist": those of the backend that has processes and takes what cloudpickle takes.
MODEL = "loky"


def add_cases(metafunc: pytest.Metafunc) -> None:
    """For each case with loky, have one with "dist"."""
    stock = metafunc.parametrize

    def parametrize(argnames: Any, argvalues: Iterable[Any], *args: Any, **kwargs: Any) -> None:
        cases = list(argvalues)
        names = argnames.split(",") if isinstance(argnames, str) else argnames
        if not kwargs.get("ids"):
            new = [_on_dist(case, len(names)) for case in cases]
            cases += [case for case in new if case is not None and case not in cases]
        stock(argnames, cases, *args, **kwargs)

    metafunc.parametrize = parametrize  # type: ignore[method-assign]


def _on_dist(case: Any, count: int) -> Any:
    """Return the same case on "dist"; None if it is not one of the model's."""
    values = case.values if hasattr(case, "marks") else case
    if count == 1 and not hasattr(case, "marks"):
        return NAME if _is_model(values) else None
    if not any(map(_is_model, values)):
        return None
    return tuple(NAME if _is_model(value) else value for value in values)


def _is_model(value: Any) -> bool:
    return isinstance(value, str) and value == MODEL


def runs_on_dist(item: pytest.Item) -> bool:
    """Whether a test is about "dist": it names it, or leaves the choice of the backend to whoever runs it."""
    values = list(item.callspec.params.values()) if hasattr(item, "callspec") else []
    if any(value == NAME if isinstance(value, str) else isinstance(value, DistBackend) for value in values):
        return True
    return not any(_is_backend(value) for value in values)


def _is_backend(value: Any) -> bool:
    if isinstance(value, str):
        return value in BACKENDS or value == "spawn"
    return isinstance(value, ParallelBackendBase) or hasattr(value, "get_start_method")

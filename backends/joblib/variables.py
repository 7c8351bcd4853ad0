"""Context variables of the calling thread, in its tasks: each is found by the module and the name that lead to it."""

from __future__ import annotations

import contextvars
import importlib
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .parcels import Parcel, StaysBehind, pack, unpack

#: Context variables without a module that are remembered, so that they are searched for once; more cost memory.
UNFOUND = 1000

#: Module and name of a variable, and its value.
PackedVariable = tuple[str, str, Parcel]

_found: dict[int, tuple[contextvars.ContextVar[Any], str, str]] = {}
_unfound: dict[contextvars.ContextVar[Any], int] = {}  # and how many modules there were then


def pack_variables() -> list[PackedVariable]:
    """Return what travels for the variables that are set.

    What no importable module holds, and what does not pickle, stays here.
    """
    packed: list[PackedVariable] = []
    for variable, value in contextvars.copy_context().items():
        place = _place_of(variable)
        if place is not None:
            with suppress(StaysBehind):
                packed.append((*place, pack(value)))
    return packed


def unpack_variables(packed: list[PackedVariable]) -> list[tuple[contextvars.ContextVar[Any], Any]]:
    """Return the variables that are found here, and their values; imports their modules."""
    variables = []
    for module, name, parcel in packed:
        variable = _find(module, name)
        if variable is not None:
            with suppress(StaysBehind):
                variables.append((variable, unpack(parcel)))
    return variables


@contextmanager
def setting(variables: list[tuple[contextvars.ContextVar[Any], Any]]) -> Iterator[None]:
    """Give each variable its value, and in the end that of before."""
    tokens = [(variable, variable.set(value)) for variable, value in variables]
    try:
        yield
    finally:
        for variable, token in tokens:
            variable.reset(token)


def _find(module: str, name: str) -> contextvars.ContextVar[Any] | None:
    try:
        found = getattr(importlib.import_module(module), name, None)
    except (Exception, SystemExit):  # not here, or it does not like to be imported
        return None
    return found if isinstance(found, contextvars.ContextVar) else None


def _place_of(variable: contextvars.ContextVar[Any]) -> tuple[str, str] | None:
    known = _found.get(id(variable))
    if known is not None and known[0] is variable:
        return known[1:]
    modules = len(sys.modules)
    if _unfound.get(variable) == modules:  # the search takes milliseconds: every module's names
        return None
    for module_name, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType) or module_name == "__main__":
            continue
        for name, value in list(vars(module).items()):
            if value is variable:
                _found[id(variable)] = (variable, module_name, name)
                return module_name, name
    if len(_unfound) >= UNFOUND:
        _unfound.clear()
    _unfound[variable] = modules
    return None

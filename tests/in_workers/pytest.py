"""Stands for pytest where a worker imports a module of tests to find a function: marks and fixtures do nothing there.

pytest itself takes 0.1 s of CPU time to import, in each of some thousands of workers. Any other name brings it in.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


class _Nothing:
    """Any mark, fixture or case; as a decorator it leaves alone what it decorates."""

    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else self


mark = fixture = param = _Nothing()


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    here = sys.path.copy()
    sys.path[:] = [folder for folder in here if folder != __file__.rpartition("/")[0]]
    try:
        del sys.modules[__name__]
        return getattr(importlib.import_module(__name__), name)
    finally:
        sys.path[:] = here

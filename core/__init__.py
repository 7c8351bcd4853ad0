"""Keep your program, get more processes: tasks, objects and drop-in backends on one small scheduler.

Names load when they are first used: a node or worker that imports a part of the package does not pay for the rest.
"""

from __future__ import annotations

import typing as _typing

from .version import __version__

if _typing.TYPE_CHECKING:
    from .actors import exit_actor, get_actor, kill, method
    from .api import (
        available_resources,
        cancel,
        cluster_resources,
        get,
        init,
        is_initialized,
        nodes,
        put,
        remote,
        shutdown,
        wait,
    )
    from .gangs import Gang, gang
    from .generators import ObjectRefGenerator
    from .refs import ObjectRef
    from .runtime_context import get_runtime_context
    from .timelines import timeline

__all__ = [
    "Gang",
    "ObjectRef",
    "ObjectRefGenerator",
    "__version__",
    "available_resources",
    "cancel",
    "cluster_resources",
    "exit_actor",
    "gang",
    "get",
    "get_actor",
    "get_runtime_context",
    "init",
    "is_initialized",
    "kill",
    "method",
    "nodes",
    "put",
    "remote",
    "shutdown",
    "timeline",
    "wait",
]

_HOMES = {
    "Gang": "gangs",
    "ObjectRef": "refs",
    "ObjectRefGenerator": "generators",
    "gang": "gangs",
    "timeline": "timelines",
    "get_runtime_context": "runtime_context",
} | dict.fromkeys(("exit_actor", "get_actor", "kill", "method"), "actors")


def __getattr__(name: str) -> _typing.Any:
    from importlib import import_module

    if name == "util":
        return import_module("outboard.util")
    if name not in __all__:
        raise AttributeError(f"module 'outboard' has no attribute {name!r}")
    value = getattr(import_module(f"outboard.{_HOMES.get(name, 'api')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

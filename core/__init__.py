"""Keep your program, get more processes: tasks, objects and drop-in backends on one small scheduler."""

from __future__ import annotations

from .api import (
    ObjectRef,
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

__version__ = "0.1.0"

__all__ = [
    "ObjectRef",
    "available_resources",
    "cancel",
    "cluster_resources",
    "get",
    "init",
    "is_initialized",
    "nodes",
    "put",
    "remote",
    "shutdown",
    "wait",
]

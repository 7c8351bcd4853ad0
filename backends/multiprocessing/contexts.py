"""Contexts as `multiprocessing.get_context` returns them, whose Pool is ours."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from typing import Any

from .pool import Pool, cpu_count

_contexts: dict[type, Any] = {}


class _OurPool:
    """What a context does otherwise than the standard one from which it inherits all the rest."""

    def Pool(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
    ) -> Pool:
        """Make a Pool on Outboard; the context's start method does not matter to it."""
        return Pool(processes, initializer, initargs, maxtasksperchild)

    def cpu_count(self) -> int:
        """Return the number of CPUs of the cluster."""
        return cpu_count()

    def get_context(self, method: str | None = None) -> Any:
        """Return another context, or this one."""
        return self if method is None else get_context(method)


def get_context(method: str | None = None) -> Any:
    """Return the context of a start method (None: the default one), whose Pool is ours and all else standard.

    It is an instance of the standard context's class, one for each method.

    Raises:
        ValueError: unknown method.
    """
    standard = type(multiprocessing.get_context(method))
    if standard not in _contexts:
        _contexts[standard] = type(standard.__name__, (_OurPool, standard), {})()
    return _contexts[standard]

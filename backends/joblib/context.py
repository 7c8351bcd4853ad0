"""What a task takes along from the thread that called `Parallel`, and how the worker puts it on.

Travels once a call, within the function of its task array: joblib's setting for `Parallel`s inside tasks, warning
filters, context variables, scikit-learn's configuration, log levels, environment variables set after the start, limits
of thread pools. The last three stay with the worker until another call brings others; the rest is put on for each item.
What a task changes of context variables and warning filters, the tasks after it in its item do not see.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from contextvars import copy_context
from functools import partial
from typing import Any

import joblib
from joblib import parallel

from .filters import filtering, pack_filters, restore_filters, unpack_filters
from .lasting import changed_environment, log_levels, set_environment, set_log_levels
from .threads import chosen_by_program, limit_threads
from .variables import pack_variables, setting, unpack_variables

#: Seconds after which a worker returns the tasks of an item that it has not begun: they were thought to be shorter.
SLOW_SECONDS = 0.005

#: Where joblib keeps the setting of each thread; without it (another joblib) its public context is entered each time.
_joblib_local: Any = getattr(parallel, "_backend", None)

_worn: Context | None = None  # whose lasting settings this process has
_sklearn_defaults: dict[str, Any] = {}


class Context:
    """The settings of the thread that calls a `Parallel`, for its tasks.

    Args:
        backend: that of `Parallel`s inside tasks. n_jobs: tasks that run at a time.
        inner: threads that libraries may use; None: the worker's machine says.
    """

    def __init__(self, backend: Any, n_jobs: int, inner: int | None) -> None:
        self.backend = backend
        self.n_jobs = n_jobs
        self.inner = inner
        self.threads = chosen_by_program()
        self.environment = changed_environment()
        self.levels = log_levels()
        self.filters = pack_filters()
        self.sklearn = _sklearn_settings()
        self.variables = pack_variables()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.put_on()  # before the function and the arguments load numeric libraries

    def put_on(self) -> None:
        """Set what lasts in this worker, instead of what another call's tasks, or a call that did not load, left."""
        global _worn
        _worn = self
        set_environment(self.environment)
        limit_threads(self.n_jobs, self.inner, self.threads)
        set_log_levels(self.levels)

    def scopes(self) -> list[Callable[[], AbstractContextManager[Any]]]:
        """Return what is put on for each task, besides joblib's setting and warning filters."""
        scopes: list[Callable[[], AbstractContextManager[Any]]] = []
        if self.sklearn:
            import sklearn

            scopes.append(lambda: sklearn.config_context(**self.sklearn))
        variables = unpack_variables(self.variables)
        if variables:
            scopes.append(partial(setting, variables))
        return scopes


class Task:
    """The function of a call's task array: runs one task in the caller's context.

    It holds the function of the first task; tasks with that one send their arguments alone.
    """

    def __init__(self, context: Context, function: Any) -> None:
        self._context = context
        self._function = function
        self._config: dict[str, Any] = {}
        self._filters: list[Any] = []
        self._scopes: list[Callable[[], AbstractContextManager[Any]]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return Task, (self._context, self._function)

    def __repr__(self) -> str:
        return f"<Task {getattr(self._function, '__qualname__', self._function)!r}>"

    @property
    def __name__(self) -> str:
        return str(getattr(self._function, "__name__", type(self._function).__name__))

    def calls(self, tasks: Sequence[tuple[Any, Any, Any]]) -> list[tuple[Any, ...]]:
        """Return what is sent for each (function, args, kwargs): an item, or part of one that is a list."""
        known = self._function
        return [
            (args, kwargs) if function is known or _are_same(function, known) else (function, args, kwargs)
            for function, args, kwargs in tasks
        ]

    def __call__(self, item: Any) -> Any:
        """Run one task, or the tasks of a list until one has taken long; returns the result, or those there are."""
        run = self._run_some if type(item) is list else self._run_one
        if _worn is not self._context:
            self._context.put_on()
        if not self._config:
            self._prepare()
        if self._scopes or self._filters != warnings.filters or _joblib_local is None:
            with ExitStack() as stack:
                self._enter(stack)
                return run(item)
        before = getattr(_joblib_local, "config", None)
        _joblib_local.config = self._config
        try:
            return run(item)
        finally:
            if before is None:
                del _joblib_local.config
            else:
                _joblib_local.config = before

    def _run_one(self, call: tuple[Any, ...]) -> Any:
        return copy_context().run(self._run, call)

    def _run_some(self, calls: list[tuple[Any, ...]]) -> list[Any]:
        results: list[Any] = []
        end = time.perf_counter() + SLOW_SECONDS
        while len(results) < len(calls) and (not results or time.perf_counter() <= end):
            copy_context().run(self._run_alike, calls, results, end)
        return results

    def _run_alike(self, calls: list[tuple[Any, ...]], results: list[Any], end: float) -> None:
        """Run tasks until one has set a context variable, which the next are not to find, or has taken long."""
        before = copy_context()
        for call in calls[len(results) :]:
            results.append(self._run(call))
            if time.perf_counter() > end or _is_other_than(before):
                break

    def _run(self, call: tuple[Any, ...]) -> Any:
        function, args, kwargs = (self._function, *call) if len(call) == 2 else call
        try:
            return function(*args, **kwargs)
        finally:
            if warnings.filters != self._filters:  # the next task of the item finds those of the call
                restore_filters(self._filters)

    def _prepare(self) -> None:
        with self._joblib_setting() as config:
            self._config = config
        filters, here = unpack_filters(self._context.filters), list(warnings.filters)
        self._filters = here if filters == here else filters  # the same objects compare fast
        self._scopes = self._context.scopes()

    def _enter(self, stack: ExitStack) -> None:
        stack.enter_context(self._joblib_setting())
        if self._filters != warnings.filters:
            stack.enter_context(filtering(self._filters))
        for scope in self._scopes:
            stack.enter_context(scope())

    def _joblib_setting(self) -> Any:
        return joblib.parallel_config(backend=self._context.backend, n_jobs=1)


def _is_other_than(before: contextvars.Context) -> bool:
    try:
        return copy_context() != before  # at once where nothing was set
    except Exception:  # of values that do not compare: arrays
        return True


def _are_same(function: Any, known: Any) -> bool:
    """Whether these do the same, though each look at a method makes another object, and scikit-learn one a task.

    Its objects hold the configuration and all warning filters, which take longer to pickle than many a task to run.
    """
    kind = type(function)
    if kind is not type(known):
        return False
    if kind is types.MethodType:
        return function.__self__ is known.__self__ and function.__func__ is known.__func__
    if kind.__module__ != "sklearn.utils.parallel":
        return False
    one, other = vars(function), vars(known)
    return one.keys() == other.keys() and all(
        value is other[name] or (type(value) is str and value == other[name]) for name, value in one.items()
    )


def _sklearn_settings() -> dict[str, Any]:
    """Return what differs from scikit-learn's defaults in the configuration of this thread."""
    sklearn = sys.modules.get("sklearn")
    if sklearn is None:
        return {}
    if not _sklearn_defaults:  # a new thread has them
        thread = threading.Thread(target=lambda: _sklearn_defaults.update(sklearn.get_config()))
        thread.start()
        thread.join()
    return {name: value for name, value in sklearn.get_config().items() if _sklearn_defaults.get(name) != value}

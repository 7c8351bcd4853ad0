"""What a task takes along from the thread that called `Parallel`, and how the worker puts it on.

Travels once a call, within the function of its task array: joblib's setting for `Parallel`s inside tasks, warning
filters, context variables, scikit-learn's configuration, log levels, environment variables set after the start, limits
of thread pools. The last three stay with the worker until another call brings others; the rest is put on for each task.
"""

from __future__ import annotations

import contextvars
import pickle
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import joblib
from joblib import parallel

from .lasting import changed_environment, log_levels, set_environment, set_log_levels
from .threads import chosen_by_program, limit_threads

#: Seconds after which a worker returns the tasks of an item that it has not begun: they were thought to be shorter.
SLOW_SECONDS = 0.005

#: Context variables without a module that are remembered, so that they are searched for once; more cost memory.
UNFOUND = 1000

#: Where joblib keeps the setting of each thread; without it (another joblib) its public context is entered each time.
_joblib_local: Any = getattr(parallel, "_backend", None)

_worn: Task | None = None  # whose lasting settings this process has
_variables_found: dict[int, tuple[contextvars.ContextVar[Any], str, str] | None] = {}
_variables_unfound: dict[contextvars.ContextVar[Any], int] = {}  # and how many modules there were then
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
        self.filters: list[Any] = list(warnings.filters)
        self.sklearn = _sklearn_settings()
        self.variables = _context_variables()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.put_on()  # before the function and the arguments load numeric libraries

    def put_on(self) -> None:
        """Set what lasts in this worker."""
        set_environment(self.environment)
        limit_threads(self.n_jobs, self.inner, self.threads)
        set_log_levels(self.levels)

    def scopes(self) -> list[Callable[[], AbstractContextManager[Any]]]:
        """Return what is put on for each task, besides joblib's setting and warning filters."""
        scopes: list[Callable[[], AbstractContextManager[Any]]] = []
        if self.sklearn:
            import sklearn

            scopes.append(lambda: sklearn.config_context(**self.sklearn))
        if self.variables:
            scopes.append(self._set_variables)
        return scopes

    @contextmanager
    def _set_variables(self) -> Iterator[None]:
        tokens = []
        for module, name, value in self.variables:
            variable = getattr(sys.modules.get(module), name, None)
            if isinstance(variable, contextvars.ContextVar):
                tokens.append((variable, variable.set(value)))
        try:
            yield
        finally:
            for variable, token in tokens:
                variable.reset(token)


class Task:
    """The function of a call's task array: runs one task in the caller's context.

    It holds the function of the first task; tasks with that one send their arguments alone.
    """

    def __init__(self, context: Context, function: Any) -> None:
        self._context = context
        self._function = function
        self._config: dict[str, Any] = {}
        self._scopes: list[Callable[[], AbstractContextManager[Any]]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return Task, (self._context, self._function)

    def __repr__(self) -> str:
        return f"<Task {getattr(self._function, '__qualname__', self._function)!r}>"

    @property
    def __name__(self) -> str:
        return str(getattr(self._function, "__name__", type(self._function).__name__))

    def call(self, task: tuple[Any, Any, Any]) -> tuple[Any, ...]:
        """Return what is sent for one (function, args, kwargs): an item of the array, or part of one that is a list."""
        function, args, kwargs = task
        known = self._function
        if function is known or _are_same(function, known):
            return args, kwargs
        return function, args, kwargs

    def __call__(self, item: Any) -> Any:
        """Run one task, or the tasks of a list until one has taken long; returns the result, or those there are."""
        run = self._run_some if type(item) is list else self._run
        if _worn is not self:
            self.put_on()
        if self._scopes or self._context.filters != warnings.filters or _joblib_local is None:
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

    def _run(self, call: tuple[Any, ...]) -> Any:
        function, args, kwargs = (self._function, *call) if len(call) == 2 else call
        return function(*args, **kwargs)

    def _run_some(self, calls: list[tuple[Any, ...]]) -> list[Any]:
        run, results, end = self._run, [], time.perf_counter() + SLOW_SECONDS
        for call in calls:
            results.append(run(call))
            if time.perf_counter() > end:
                break
        return results

    def put_on(self) -> None:
        """Set what lasts, again where another call's tasks ran meanwhile."""
        global _worn
        _worn = self
        self._context.put_on()
        if not self._config:
            with self._joblib_setting() as config:
                self._config = config
            self._scopes = self._context.scopes()

    def _enter(self, stack: ExitStack) -> None:
        filters = self._context.filters
        stack.enter_context(self._joblib_setting())
        if filters != warnings.filters:
            stack.enter_context(warnings.catch_warnings())
            warnings.filters[:] = filters  # type: ignore[index]  # typeshed has it as a sequence
        for scope in self._scopes:
            stack.enter_context(scope())

    def _joblib_setting(self) -> Any:
        return joblib.parallel_config(backend=self._context.backend, n_jobs=1)


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


def _context_variables() -> list[tuple[str, str, Any]]:
    """Return the context variables that are set: module and name that lead to each, and its value.

    What no importable module holds, and what does not pickle, cannot travel and stays here.
    """
    found = []
    for variable, value in contextvars.copy_context().items():
        place = _place_of(variable)
        if place is not None and _pickles(value):
            found.append((*place, value))
    return found


def _place_of(variable: contextvars.ContextVar[Any]) -> tuple[str, str] | None:
    known = _variables_found.get(id(variable))
    if known is not None and known[0] is variable:
        return known[1:]
    modules = len(sys.modules)
    if _variables_unfound.get(variable) == modules:  # the search takes milliseconds: every module's names
        return None
    for module_name, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType) or module_name == "__main__":
            continue
        for name, value in list(vars(module).items()):
            if value is variable:
                _variables_found[id(variable)] = (variable, module_name, name)
                return module_name, name
    if len(_variables_unfound) >= UNFOUND:
        _variables_unfound.clear()
    _variables_unfound[variable] = modules
    return None


def _pickles(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True

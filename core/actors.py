"""Actors, first part: one process that keeps an object, and calls of its methods in the order they were made.

An actor is an *ordered* binding with one worker whose initialiser makes the object. Calls run once; when the process is
lost they fail with `WorkerLostError`. Restarts, names, handles that travel and async methods come later.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from . import engine as engines
from .errors import TaskCancelledError
from .options import TaskOptions

#: What calls of actors ask for unless told otherwise: no CPU, so that any number of actors may wait for each other.
_DEFAULTS = TaskOptions(num_cpus=0, max_retries=0)

#: Attribute of a method that has options of its own.
_OPTIONS = "__outboard_options__"

Function = TypeVar("Function", bound=Callable[..., Any])

_instance: Any = None


class _Maker:
    """Initialiser of an actor's worker: makes the object there."""

    def __init__(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.cls, self.args, self.kwargs = cls, args, kwargs

    def __call__(self) -> None:
        global _instance
        _instance = self.cls(*self.args, **self.kwargs)


class _Call:
    """Function of one method's calls, in the actor's worker; its name for people says the class too."""

    def __init__(self, cls: str, method: str) -> None:
        self.method = method
        self.__name__ = self.__qualname__ = f"{cls}.{method}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(_instance, self.method)(*args, **kwargs)


class RemoteMethod:
    """A method of an actor; `remote` calls it there."""

    __slots__ = ("_actor", "_call", "_options")

    def __init__(self, actor: ActorHandle, call: _Call, options: TaskOptions) -> None:
        self._actor = actor
        self._call = call
        self._options = options

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Queue a call behind those made before and return the reference of its result."""
        return self._actor._engine.submit(self._call, args, kwargs, self._options, self._actor._binding)

    def options(self, **options: Any) -> RemoteMethod:
        """Return the same method with other options, as ``num_returns``; retries are a ValueError."""
        return RemoteMethod(self._actor, self._call, _merged(self._options, options))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: the right spelling is in the error."""
        raise TypeError(f"call {self._call.method}.remote(...): the actor lives in another process")


class ActorHandle:
    """Reaches one actor; when the last handle has gone the actor ends after the calls that were made."""

    def __init__(self, engine: Any, binding: Any, cls: type, options: TaskOptions) -> None:
        self._engine = engine
        self._binding = binding
        self._cls = cls
        self._options = options
        self._end = weakref.finalize(self, engine.unbind, binding, force=False)
        self._end.atexit = False

    def __repr__(self) -> str:
        return f"<ActorHandle {self._cls.__name__} {self._binding!r}>"

    def __getattr__(self, name: str) -> RemoteMethod:
        method = getattr(self._cls, name, None)
        if name.startswith("__") or not callable(method):
            raise AttributeError(f"actor {self._cls.__name__} has no method {name!r}{_near(name, self._cls)}")
        options = _merged(self._options, getattr(method, _OPTIONS, {}))
        return RemoteMethod(self, _Call(self._cls.__name__, name), options)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("actor handles cannot be passed to other processes by this release")


class RemoteClass:
    """A class whose `remote` makes an actor; made by `remote` with options from `actor_options`.

    The resources of an actor are what each of its calls holds while it runs; between calls it holds none.
    """

    def __init__(self, cls: type, options: TaskOptions) -> None:
        self.__wrapped__ = cls
        self._options = options

    def __repr__(self) -> str:
        return f"<RemoteClass {self.__wrapped__.__qualname__}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: the right spelling is in the error."""
        raise TypeError(f"call {self.__wrapped__.__name__}.remote(...) to make an actor")

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle:
        """Make an actor and return its handle at once; an exception of the constructor is shown by every call."""
        engine = engines.current()
        binding = engine.bind(
            processes=1,
            initializer=_Maker(self.__wrapped__, args, kwargs),
            label=self.__wrapped__.__name__,
            ordered=True,
        )
        return ActorHandle(engine, binding, self.__wrapped__, self._options)

    def options(self, **options: Any) -> RemoteClass:
        """Return the same class with other options. See `actor_options`."""
        return RemoteClass(self.__wrapped__, actor_options(options, self._options))


def actor_options(options: dict[str, Any], base: TaskOptions = _DEFAULTS) -> TaskOptions:
    """Give the options of a class's actors: fields of `TaskOptions`, where calls need no CPU unless told otherwise.

    Raises:
        ValueError: retries, since calls of actors run once; ``num_returns`` or ``name``, which belong to a method;
            or what `TaskOptions.merged` refuses.
    """
    for name in ("num_returns", "name"):
        if name in options:
            raise ValueError(f"{name} belongs to a method of an actor: actor.method.options({name}=...).remote(...)")
    return _merged(base, options)


def _merged(base: TaskOptions, options: dict[str, Any]) -> TaskOptions:
    merged = base.merged(**options)
    if merged.max_retries or merged.retry_exceptions:
        raise ValueError("calls of an actor run once: max_retries must be 0 and retry_exceptions False")
    return merged


def method(**options: Any) -> Callable[[Function], Function]:
    """Give a method of an actor's class options of its own, as ``@outboard.method(num_returns=2)``.

    ``.options()`` at a call goes before them.

    Raises:
        ValueError: an option that calls of actors do not have.
    """
    _merged(_DEFAULTS, options)

    def mark(function: Function) -> Function:
        setattr(function, _OPTIONS, options)
        return function

    return mark


def _near(name: str, cls: type) -> str:
    from difflib import get_close_matches

    methods = [known for known in dir(cls) if not known.startswith("_") and callable(getattr(cls, known))]
    found = get_close_matches(name, methods, n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def kill(actor: ActorHandle) -> None:
    """End an actor's process now; calls that have not finished fail with `TaskCancelledError`."""
    if not isinstance(actor, ActorHandle):
        raise TypeError(f"kill() takes an actor, not {type(actor).__name__}")
    actor._engine.unbind(actor._binding, force=True)


__all__ = ["ActorHandle", "RemoteClass", "RemoteMethod", "TaskCancelledError", "kill", "method"]

"""The object of an actor in its worker: made by the binding's initialiser, reached by the functions of its calls."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from . import engine as engines
from .errors import ActorDiedError, OutboardError, SerializationError
from .ids import ObjectId
from .refs import ObjectRef


class Identity(NamedTuple):
    """Who an actor is, in all processes. `anchor`: see `actorreach`; `name` is empty for one without."""

    anchor: ObjectId
    class_name: str
    name: str = ""
    namespace: str = ""

    @property
    def label(self) -> str:
        """Name it for people: ``Counter`` or ``Counter 'hits'``."""
        return f"{self.class_name} {self.name!r}" if self.name else self.class_name


class Host:
    """An actor in this process. `has_left`: it has called `exit_actor`, and runs no further call.

    `streams`: generators of its methods that somebody takes from, by number.
    """

    __slots__ = ("has_left", "identity", "instance", "streams")

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.instance: Any = None
        self.has_left = False
        self.streams: dict[int, Any] = {}


class ActorExit(BaseException):
    """Ends the call that raises it, and the actor with it; not an error."""


_host: Host | None = None


def current() -> Host | None:
    """Return the actor of this process, None where it has none."""
    return _host


class Maker:
    """Initialiser of an actor's worker: makes the object there. References among its arguments become their values.

    `is_async`: its calls run in an event loop.
    """

    def __init__(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any], identity: Identity, *,
                 is_async: bool) -> None:  # fmt: skip
        self.cls, self.args, self.kwargs, self.identity = cls, args, kwargs, identity
        self.is_async = is_async

    def __call__(self) -> None:
        """Make the object."""
        global _host
        _host = Host(self.identity)
        args = [_resolved(arg) for arg in self.args]
        kwargs = {name: _resolved(arg) for name, arg in self.kwargs.items()}
        _host.instance = self.cls(*args, **kwargs)


@contextmanager
def pickling(what: str) -> Iterator[None]:
    """Say what does not pickle where a `Maker` is sent.

    Raises:
        SerializationError: with `what` in its text.
    """
    try:
        yield
    except OutboardError:
        raise
    except Exception as error:
        raise SerializationError(f"{what} cannot be pickled: {error}", what="argument", reason=error) from error


class Sealed:
    """A `Maker` pickled by value, with everything in it: for an actor that outlives who stored its arguments."""

    def __init__(self, maker: Maker) -> None:
        import cloudpickle  # type: ignore[import-untyped]  # it has no types of its own

        args = tuple(_resolved(arg) for arg in maker.args)
        kwargs = {name: _resolved(arg) for name, arg in maker.kwargs.items()}
        self.is_async = maker.is_async
        self.pickled: bytes = cloudpickle.dumps(Maker(maker.cls, args, kwargs, maker.identity, is_async=maker.is_async))

    def __call__(self) -> None:
        """Make the object."""
        pickle.loads(self.pickled)()


class Method:
    """Function of the calls of one method; its name for people says the class too."""

    def __init__(self, class_name: str, method: str) -> None:
        self.method = method
        self.__name__ = self.__qualname__ = f"{class_name}.{method}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one call."""
        host = _host
        assert host is not None
        if host.has_left:
            raise ActorDiedError(actor=host.identity.label, reason="it has called exit_actor()")
        try:
            return getattr(host.instance, self.method)(*args, **kwargs)
        except ActorExit:
            return _leave(host)


async def leave_after_exit(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await what an async method returned, which may end the actor."""
    try:
        return await coroutine
    except ActorExit:
        assert _host is not None
        return _leave(_host)


def _leave(host: Host) -> None:
    host.has_left = True
    engines.current().actors.leave(host.identity.anchor)


def ready() -> None:
    """Function of the kind with which a node for an actor is sought; it is never called."""


@contextmanager
def within(host: Host | None) -> Iterator[None]:
    """Be a certain actor for a while, in an engine that runs all of them in one process."""
    global _host
    outer, _host = _host, host
    try:
        yield
    finally:
        _host = outer


def make_within(make: Callable[[], object]) -> Host | None:
    """Run a `Maker` in such an engine and return what it made."""
    global _host
    outer = _host
    try:
        make()
        return _host
    finally:
        _host = outer


def _resolved(arg: Any) -> Any:
    return engines.current().get(arg) if isinstance(arg, ObjectRef) else arg

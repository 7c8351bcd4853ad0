"""Actors: one process that keeps an object, and calls of its methods in the order they were made.

A handle may be passed to tasks and other actors; who calls from there has an order of calls of his own. When the last
handle has gone the actor ends after the calls that were made. How a call finds its actor is in `actorreach`.
"""

from __future__ import annotations

import inspect
import pickle
import time
from collections.abc import Callable
from random import getrandbits
from typing import Any, NoReturn, TypeVar

from . import engine as engines
from .actorhost import ActorExit, Identity, Maker, Method, Sealed, pickling
from .actorhost import current as current_host
from .actoroptions import ASYNC_CONCURRENCY, ActorOptions
from .engine import ActorTerms, Engine
from .errors import ActorDiedError, ActorNameError, HeadUnreachableError
from .generators import DYNAMIC, STREAMING, is_generator, stream_method
from .ids import ObjectId
from .options import TaskOptions
from .refs import AnchorRef, OuterRef

#: Seconds until a detached actor must have its name, and between two looks whether it has.
NAME_SECONDS = 60.0
NAME_POLL_SECONDS = 0.005

#: Attribute of a method that has options of its own.
_OPTIONS = "__outboard_options__"

Function = TypeVar("Function", bound=Callable[..., Any])


class RemoteMethod:
    """A method of an actor; `remote` calls it there."""

    __slots__ = ("_actor", "_function", "_options")

    def __init__(self, actor: ActorHandle, function: Method, options: TaskOptions) -> None:
        self._actor = actor
        self._function = function
        self._options = options

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Queue a call behind those that this process has made before, and return the reference of its result."""
        actor = self._actor
        if self._options.num_returns == STREAMING:
            return stream_method(actor._engine, actor._binding, self._function.method, args, kwargs, self._options,
                                 in_order=actor._in_order)  # fmt: skip
        return actor._engine.submit(self._function, args, kwargs, self._options, actor._binding)

    def options(self, **options: Any) -> RemoteMethod:
        """Return the same method with other options, as ``num_returns``. See `method`."""
        return RemoteMethod(self._actor, self._function, _merged(self._options, options))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: the right spelling is in the error."""
        raise TypeError(f"call {self._function.method}.remote(...): the actor lives in another process")


class ActorHandle:
    """Reaches one actor, from any process. Its methods are attributes; others of the object cannot be read.

    Handles of one actor are equal. Thread-safe.
    """

    def __init__(self, ref: AnchorRef | OuterRef, identity: Identity, methods: dict[str, TaskOptions], in_order: bool,
                 address: tuple[int, int] | None = None, binding: Any = None) -> None:  # fmt: skip
        self._ref = ref
        self._identity = identity
        self._methods = methods
        self._in_order = in_order
        self._functions: dict[str, Method] = {}
        engine: Any = ref.hold
        self._engine = engine
        self._address = address  # of another program's
        self._binding = binding or engine.actors.attach(identity.anchor, identity.label, in_order=in_order,
                                                             address=address)  # fmt: skip

    def __repr__(self) -> str:
        return f"<ActorHandle {self._identity.label} {self._ref.hex()}>"

    def __getattr__(self, name: str) -> RemoteMethod:
        options = self.__dict__.get("_methods", {}).get(name)
        if options is None:
            label = self.__dict__["_identity"].label if "_identity" in self.__dict__ else "of this handle"
            raise AttributeError(
                f"actor {label} has no method {name!r}{_near(name, self.__dict__.get('_methods', {}))}"
            )
        function = self._functions.get(name)
        if function is None:
            function = self._functions.setdefault(name, Method(self._identity.class_name, name))
        return RemoteMethod(self, function, options)  # not kept: that were a cycle, and handles end when dropped

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._methods]

    def __eq__(self, other: object) -> bool:
        return self._ref == other._ref if isinstance(other, ActorHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._ref)

    def __reduce__(self) -> tuple[Any, ...]:
        return ActorHandle, (self._ref, self._identity, self._methods, self._in_order, self._address)


class RemoteClass:
    """A class whose `remote` makes an actor; made by `remote` with options from `ActorOptions`."""

    def __init__(self, cls: type, options: ActorOptions) -> None:
        self.__wrapped__ = cls
        self.__doc__ = cls.__doc__
        self._options = options
        self._methods: dict[str, TaskOptions] | None = None  # looked for with the first actor
        self._is_async = False

    def __repr__(self) -> str:
        return f"<RemoteClass {self.__wrapped__.__qualname__}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: the right spelling is in the error."""
        raise TypeError(f"call {self.__wrapped__.__name__}.remote(...) to make an actor")

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle:
        """Make an actor and return its handle at once; every call shows an exception of the constructor.

        Raises:
            SerializationError: the class or an argument does not pickle.
            ActorNameError: another actor has the name.
        """
        cls, options = self.__wrapped__, self._options
        engine = engines.current()
        namespace = options.namespace or engine.namespace
        if options.name and (found := _find(engine, options.name, namespace)) is not None:
            return _taken(found, options, namespace)
        anchor = ObjectId(getrandbits(63) | 1, 1) if options.lifetime else engine.reserve_id()
        identity = Identity(anchor, cls.__name__, options.name or "", namespace)
        methods, is_async = self._look()
        concurrency = options.max_concurrency or (ASYNC_CONCURRENCY if is_async else 1)
        terms = ActorTerms(anchor, options.max_restarts, concurrency if is_async or concurrency > 1 else 0,
                           options.of_calls(), cls.__name__, options.name or "", namespace)  # fmt: skip
        maker = Maker(cls, args, kwargs, identity, is_async=is_async)
        with pickling(f"actor {identity.label}: its class or the arguments of its constructor"):
            sealed = pickle.dumps(Sealed(maker)) if options.lifetime else b""
            if not sealed:
                binding = engine.bind(processes=1, initializer=maker, label=identity.label, actor=terms)
        if sealed:
            return _detach(engine, sealed, identity, methods, terms, options)
        ref = AnchorRef(anchor.owner, anchor.seq, engine)
        made = ActorHandle(ref, identity, methods, terms.max_concurrency == 0, binding=binding)
        return _claim(engine, made, options) if options.name else made

    def _look(self) -> tuple[dict[str, TaskOptions], bool]:
        """Find the class's methods with their options, and whether any is async."""
        if self._methods is None:
            self._methods = _methods_of(self.__wrapped__, self._options.of_calls())
            self._is_async = _is_async(self.__wrapped__)
        return self._methods, self._is_async

    def options(self, **options: Any) -> RemoteClass:
        """Return the same class with other options. See `ActorOptions`."""
        return RemoteClass(self.__wrapped__, self._options.merged(**options))

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteClass, (self.__wrapped__, self._options)


def method(**options: Any) -> Callable[[Function], Function]:
    """Give a method of an actor's class options of its own, as ``@outboard.method(num_returns=2)``.

    ``.options()`` at a call goes before them. ``max_task_retries`` and ``concurrency_group`` of a method are not
    supported; retries are those of the actor.

    Raises:
        ValueError: an option that calls of actors do not have.
    """
    _merged(TaskOptions(num_cpus=0, max_retries=0), options)

    def mark(function: Function) -> Function:
        setattr(function, _OPTIONS, options)
        return function

    return mark


def get_actor(name: str, namespace: str | None = None) -> ActorHandle:
    """Find an actor by its name, in this program's namespace or another one.

    Raises:
        ActorNameError: there is none.
    """
    engine = engines.current()
    found = _find(engine, name, namespace or engine.namespace)
    if found is None:
        raise ActorNameError(f"there is no actor named {name!r} in namespace {(namespace or engine.namespace)!r}")
    return found


def _find(engine: Engine, name: str, namespace: str) -> ActorHandle | None:
    record = engine.actors.find_name(namespace, name)
    try:
        return None if record is None else _handle(engine, record)
    except ActorDiedError:
        return None  # just now


def _handle(engine: Engine, record: bytes) -> ActorHandle:
    root, identity, methods, in_order, address = pickle.loads(record)
    anchor = identity.anchor
    if root == engine.root:
        return ActorHandle(engine.adopt_ref(anchor.owner, anchor.seq, AnchorRef), identity, methods, in_order)
    return ActorHandle(OuterRef(anchor.owner, anchor.seq, engine), identity, methods, in_order, address)


def _claim(engine: Engine, made: ActorHandle, options: ActorOptions) -> ActorHandle:
    """Let an actor that is made have its name, or return who had it before."""
    identity = made._identity
    record = pickle.dumps((engine.root, identity, made._methods, made._in_order, engine.get(made._ref)))
    held = engine.actors.claim_name(identity.anchor, identity.namespace, identity.name, record)
    if held is None:
        return made
    kill(made)
    return _taken(_handle(engine, held), options, identity.namespace)


def _taken(found: ActorHandle, options: ActorOptions, namespace: str) -> ActorHandle:
    """Another actor has the name: that will do, or is an error."""
    if options.get_if_exists:
        return found
    raise ActorNameError(f"there is an actor named {options.name!r} in namespace {namespace!r} already: get_actor() "
                         "finds it, get_if_exists=True uses it")  # fmt: skip


def _detach(engine: Engine, maker: bytes, identity: Identity, methods: dict[str, TaskOptions], terms: ActorTerms,
            options: ActorOptions) -> ActorHandle:  # fmt: skip
    """Make a detached actor. Its name is claimed by its node: it is there when somebody is found under it."""
    address = engine.actors.place(terms)
    record = pickle.dumps((0, identity, methods, terms.max_concurrency == 0, address))
    name = (identity.namespace, identity.name) if identity.name else None
    engine.actors.bind_detached(terms, address, maker, identity.label, name, record)
    made = _handle(engine, record)
    deadline = time.monotonic() + NAME_SECONDS
    while name is not None and (found := engine.actors.find_name(*name)) != record:
        if found is not None:
            return _taken(_handle(engine, found), options, identity.namespace)
        if time.monotonic() > deadline:
            raise HeadUnreachableError(f"the name of actor {identity.label} was not granted within {NAME_SECONDS:g} s")
        time.sleep(NAME_POLL_SECONDS)
    return made


def kill(actor: ActorHandle, *, no_restart: bool = True) -> None:
    """End an actor's process now; calls that have not finished fail with `ActorDiedError`.

    With ``no_restart=False`` another process follows, as after a death, if ``max_restarts`` lets it.
    """
    if not isinstance(actor, ActorHandle):
        raise TypeError(f"kill() takes an actor, not {type(actor).__name__}")
    actor._engine.actors.end(actor._identity.anchor, restart=not no_restart)


def exit_actor() -> NoReturn:
    """End the actor whose method calls this, after this call, which returns None; it is not started again.

    Calls that have not begun fail with `ActorDiedError`.

    Raises:
        RuntimeError: this is no actor.
    """
    if current_host() is None:
        raise RuntimeError("exit_actor() ends the actor whose method calls it; this is none")
    raise ActorExit


def _merged(base: TaskOptions, options: dict[str, Any]) -> TaskOptions:
    merged = base.merged(**options)
    if merged.max_retries != base.max_retries or merged.retry_exceptions:
        raise ValueError("calls of an actor run again only as its max_task_retries says: max_retries and "
                         "retry_exceptions are options of tasks")  # fmt: skip
    if merged.num_returns == DYNAMIC:
        raise ValueError('num_returns="dynamic" is for tasks; a method that yields has num_returns="streaming"')
    return merged


def _methods_of(cls: type, options: TaskOptions) -> dict[str, TaskOptions]:
    """Find what can be called, with the options of each call."""
    found = {}
    for name in dir(cls):
        known = getattr(cls, name, None)
        if callable(known) and (name == "__call__" or not name.startswith("__")):
            returns = {"num_returns": STREAMING} if is_generator(known) else {}
            found[name] = _merged(options, returns | getattr(known, _OPTIONS, {}))
    return found


def _is_async(cls: type) -> bool:
    functions = (getattr(cls, name, None) for name in dir(cls) if not name.startswith("__"))
    return any(inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f) for f in functions)


def _near(name: str, methods: dict[str, TaskOptions]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, methods, n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


__all__ = ["ActorHandle", "RemoteClass", "RemoteMethod", "exit_actor", "get_actor", "kill", "method"]

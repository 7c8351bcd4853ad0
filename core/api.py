"""The public calls. Each finds this process's engine, which starts with the first of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from . import engine as engines
from .actoroptions import ACTOR_OPTION_NAMES, ActorOptions
from .errors import ShutdownError
from .options import TASK_OPTION_NAMES, Settings, TaskOptions, unknown_option
from .refs import ObjectRef, describe_value

if TYPE_CHECKING:
    from .generators import ObjectRefGenerator

#: Of code objects of ``async def`` (as in `inspect`, which takes long to import).
_ASYNC_FLAGS = 0x80 | 0x200

#: Of code objects of generator functions.
_GENERATOR_FLAG = 0x20

P = ParamSpec("P")
R = TypeVar("R")


def init(address: str | None = None, *, num_cpus: float | None = None, num_gpus: float | None = None,
         resources: dict[str, float] | None = None, store_memory: int | float | str | None = None,
         ignore_reinit_error: bool = False, **settings: Any) -> dict[str, Any]:  # fmt: skip
    """Start this process's engine with settings of its own; without this call the first use starts it.

    Args:
        address: None for an embedded cluster, ``"host:port"`` of a running one's head, ``"auto"`` for the running one
            of this user on this machine, ``"inline"`` to run everything in this process, in order.
        num_cpus, num_gpus, resources: what the embedded cluster offers; None for what this machine has.
        store_memory: room for stored objects: bytes, ``"512MiB"``, or a fraction of the memory.
        ignore_reinit_error: return what runs already instead of raising.
        settings: further fields of `outboard.options.Settings`.
    Returns:
        ``{"nodes": …, "resources": …}``: what `nodes` and `cluster_resources` say.
    Raises:
        RuntimeError: this process has an engine already.
        ValueError: unknown or malformed setting, or resources for a cluster that runs already.
        TransportError: that cannot be reached, or does not want this program; the subclass says which.
    """
    loaded = Settings.load(address=address, num_cpus=num_cpus, num_gpus=num_gpus, resources=resources,
                           store_memory=store_memory, **settings)  # fmt: skip
    if loaded.names_running and not all(given is None for given in (num_cpus, num_gpus, resources)):
        raise ValueError(
            f"num_cpus, num_gpus and resources are for an embedded cluster; the nodes of {loaded.address} have what "
            "`outboard start` gave them"
        )
    engine = engines.begin(loaded, may_exist=ignore_reinit_error)
    return {"nodes": engine.nodes(), "resources": engine.cluster_resources()}


def shutdown() -> None:
    """End this process's engine and the embedded cluster with it; the next call starts a new one. Repeatable."""
    engine = engines.clear()
    if engine is not None:
        engine.shutdown()
    engines.bury_lost()


def is_initialized() -> bool:
    """Whether this process has an engine."""
    return engines.peek() is not None


def put(value: Any) -> ObjectRef:
    """Store one value and return a reference that any task may take as an argument. See `Engine.put`."""
    return engines.current().put(value)


@overload
def get(refs: ObjectRef, timeout: float | None = None) -> Any: ...
@overload
def get(refs: list[ObjectRef], timeout: float | None = None) -> list[Any]: ...
def get(refs: ObjectRef | list[ObjectRef], timeout: float | None = None) -> Any:
    """Return the value of a reference, or the values of a list of them. See `Engine.get`.

    Large arrays show the store's bytes and are read-only; small ones are copies and writable. A generator of references
    is returned as it is.
    """
    if isinstance(refs, Iterator):
        return refs
    return engines.current().get(refs, timeout)


def wait(
    refs: Sequence[Any], *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[Any], list[Any]]:
    """Wait for some of several references; returns (ready, others). See `Engine.wait`.

    A generator of references is ready when its next one is there, or it has ended. `fetch_local` makes no difference:
    values travel when they are asked for, by `get` and by tasks.
    """
    if isinstance(refs, Sequence) and any(isinstance(ref, Iterator) for ref in refs):
        from .generators import wait_for

        return wait_for(engines.current(), refs, num_returns, timeout)
    return engines.current().wait(refs, num_returns, timeout)


def cancel(ref: ObjectRef | ObjectRefGenerator, *, force: bool = False, recursive: bool = True) -> None:
    """Cancel the task that makes an object, unless it has finished, and the tasks that it submitted; end a generator.

    Raises:
        ValueError: ``recursive=False``, or the task was submitted by another process. See `Engine.cancel`.
    """
    if isinstance(ref, Iterator):
        ref.close()
        return
    engines.current().cancel(ref, force=force, recursive=recursive)


def nodes() -> list[dict[str, Any]]:
    """Describe the nodes of the cluster. See `Engine.nodes`."""
    return engines.current().nodes()


def cluster_resources() -> dict[str, float]:
    """Give the amounts of all resources of the cluster."""
    return engines.current().cluster_resources()


def available_resources() -> dict[str, float]:
    """Give the amounts that no task holds now."""
    return engines.current().available_resources()


class RemoteFunction(Generic[P, R]):
    """A function whose `remote` runs it as a task; made by `remote`.

    Calling it directly is a TypeError; the function itself is ``__wrapped__``.
    """

    def __init__(self, function: Callable[P, R], options: TaskOptions) -> None:
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        self._options = options

    def __repr__(self) -> str:
        return f"<RemoteFunction {getattr(self.__wrapped__, '__qualname__', self.__wrapped__)}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Refuse: the right spelling is in the error."""
        name = getattr(self.__wrapped__, "__name__", "f")
        raise TypeError(f"call {name}.remote(...) to run it as a task, or {name}.__wrapped__(...) to run it here")

    def remote(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Start a task and return its reference: a list for ``num_returns`` above 1, None for 0.

        Of a generator function an `ObjectRefGenerator` of what it yields.
        """
        if self._options.num_returns in ("streaming", "dynamic"):
            from . import generators

            start = generators.stream_task if self._options.num_returns == "streaming" else generators.submit_dynamic
            return start(self.__wrapped__, args, kwargs, self._options)
        return engines.current().submit(self.__wrapped__, args, kwargs, self._options)

    def options(self, **options: Any) -> RemoteFunction[P, R]:
        """Return the same function with other options. See `TaskOptions`."""
        return RemoteFunction(self.__wrapped__, self._options.merged(**options))

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFunction, (self.__wrapped__, self._options)


def remote(function: Any = None, /, **options: Any) -> Any:
    """Make a function or class remote, or a decorator that does: ``@remote`` and ``@remote(num_cpus=2)`` alike.

    Args:
        function: what the tasks run; it is pickled once per client. A class makes actors, see `outboard.actors`.
        options: fields of `TaskOptions`, of a class those of `ActorOptions`; unknown ones are a ValueError that names
            the valid ones.
    """
    if function is None:
        _check_early(options)
        return lambda decorated: _make_remote(decorated, options)
    return _make_remote(function, options)


def _check_early(options: dict[str, Any]) -> None:
    """Say where it was written what is wrong of a function or class that is not there yet."""
    names = options.keys()
    if names <= set(TASK_OPTION_NAMES):
        TaskOptions().merged(**options)
    elif names <= set(ACTOR_OPTION_NAMES):
        ActorOptions().merged(**options)
    for name in options:
        if name not in TASK_OPTION_NAMES and name not in ACTOR_OPTION_NAMES:
            raise ValueError(unknown_option("option", name, (*TASK_OPTION_NAMES, *ACTOR_OPTION_NAMES)))


def _make_remote(function: Any, options: dict[str, Any]) -> Any:
    if isinstance(function, type):
        from .actors import RemoteClass

        return RemoteClass(function, ActorOptions().merged(**options))
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    if flags & _GENERATOR_FLAG:
        options = {"num_returns": "streaming"} | options
    if flags & _ASYNC_FLAGS:
        raise TypeError(f"{function.__qualname__} is async: only plain functions can be made remote so far")
    if not callable(function):
        raise TypeError(f"remote() takes a function or a class, not {describe_value(function)}")
    return RemoteFunction(function, TaskOptions().merged(**options))


__all__ = ["ObjectRef", "RemoteFunction", "ShutdownError"]

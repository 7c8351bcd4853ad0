"""The Engine protocol: all that backends and the public calls build on, and the engine of this process.

An engine runs tasks somewhere: the native client on an embedded or running cluster, `InlineEngine` in the calling
process. The docstrings are the contract that both keep; `tests/conformance/test_engine.py` checks it.

Finalisers may run in any thread under any lock. So these, and only these, are safe in one: `Engine.dropped.append`,
`Engine.unbind`, and dropping the last reference to a `TaskArray`.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, overload

from .options import INLINE_ADDRESS, Settings, TaskOptions

if TYPE_CHECKING:
    from .gangs import Gang
    from .ids import ObjectId
    from .refs import ObjectRef
    from .rpc.protos import outboard_pb2 as pb

Ref = TypeVar("Ref", bound="ObjectRef")


class Completion(NamedTuple):
    """How one task came out: `value` is its result, or its exception when `ok` is false."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks of a completion
    ok: bool
    value: Any


class Binding:
    """Workers set apart for one caller: they run its initializer and only its tasks.

    Attributes:
        id: number within this engine. processes: most workers at a time. label: shown to people.
        owner: incarnation of the client, as `Engine.nodes` names it; 0 for engines without.
        failed: the exception of the initializer once it has raised; every call on the binding then fails with it.
    """

    __slots__ = ("__weakref__", "failed", "id", "label", "owner", "processes")

    def __init__(self, id: int, processes: int, label: str = "", owner: int = 0) -> None:
        self.id = id
        self.processes = processes
        self.label = label
        self.owner = owner
        self.failed: BaseException | None = None

    def __repr__(self) -> str:
        state = "failed" if self.failed is not None else "up"
        return f"<Binding {self.id} {self.label!r} processes={self.processes} {state}>"


class ActorTerms(NamedTuple):
    """What makes a binding an actor: one worker that keeps an object, whose calls run in the order of submission.

    Attributes:
        anchor: id of the object that its handles refer to, from `Engine.reserve_id`.
        max_restarts: processes that may follow one that died, -1 for any number.
        max_concurrency: calls that may run at a time, in no order then; 0 for one.
        calls: what each call asks for.
        class_name, name, namespace: for people.
    """

    anchor: ObjectId
    max_restarts: int = 0
    max_concurrency: int = 0
    calls: TaskOptions = TaskOptions(num_cpus=0, max_retries=0)
    class_name: str = ""
    name: str = ""
    namespace: str = ""


class TaskArray(Protocol):
    """Calls of one function, appended as the caller likes; each item is one task: ``function(item)``.

    Appending and taking may happen in different threads at once. Dropping the last reference closes the array; what
    was appended still runs.
    """

    @property
    def count(self) -> int:
        """Items appended so far."""

    @property
    def finished(self) -> int:
        """Items that have a result, failed or were cancelled so far, taken or not."""

    @property
    def has_failed(self) -> bool:
        """Whether whatever is appended from now on completes at once as failed: its workers or its engine have gone."""

    @property
    def run_seconds(self) -> float:
        """Run time of the items that have finished so far, all of it together, as the workers measured it."""

    @property
    def taken_nbytes(self) -> int:
        """Bytes of all results taken so far, as they travelled or lay in the store."""

    def extend(self, items: Iterable[Any], *, gather: bool = False) -> int:
        """Append items and return how many.

        With `gather` they are sent together with what is appended next: when this thread waits for something, or in a
        millisecond. Items are kept by reference and pickled when they are sent; one that does not pickle completes with
        `SerializationError`. After `cancel` items complete at once as cancelled.

        Raises:
            ValueError: the array was closed.
        """

    def close(self) -> None:
        """Promise that no more items come. Repeatable."""

    def take(self, timeout: float | None = None) -> list[Completion]:
        """Remove and return the completions that are there, in order of completion; block for at least one.

        Returns an empty list when every item appended so far has been taken.

        Raises:
            GetTimeoutError: none came within so many seconds.
        """

    def take_nowait(self) -> list[Completion]:
        """Remove and return the completions that are there, perhaps none; never blocks."""

    def wait_finished(self, count: int) -> None:
        """Wait until `count` of the items have finished, taken or not. `count` is at most the items appended."""

    def cancel(self, *, kill_after: float | None = 1.0) -> None:
        """Complete everything that is not finished with `TaskCancelledError`, at once.

        Running items are interrupted; a process that has not come back after `kill_after` seconds is killed and
        replaced (None: never).
        """

    def set_done_callback(self, callback: Callable[[list[Completion]], None]) -> None:
        """Deliver all completions in the engine's callback thread instead of through `take`, each one once.

        To be called at most once and before anything was taken; what is there already is delivered too.
        """


class GangCalls(Protocol):
    """What an engine does about gangs beyond running tasks in them. All methods are thread-safe."""

    inherited: Gang | None
    """The gang that this worker is for: what its tasks submit runs in it."""

    def ask(self, bundles: tuple[dict[str, float], ...], strategy: str, timeout: float | None) -> Gang:
        """Set bundles aside and return when they are; arguments and errors are those of `outboard.gang`, checked."""

    def release(self, gang: Gang) -> None:
        """Give the bundles of a gang that it was asked for back, and end what runs in them. Repeatable."""


class ActorCalls(Protocol):
    """What an engine does about actors beyond bindings. All methods are thread-safe."""

    def attach(
        self, anchor: ObjectId, label: str, *, in_order: bool, address: tuple[int, int] | None = None
    ) -> Binding:
        """Give the binding of an actor, which may be another process's.

        The caller has a reference to the anchor; or it is another program's, and lies at this `address`.
        """

    def end(self, anchor: ObjectId, *, restart: bool = False) -> None:
        """Kill an actor's process, whoever made it; with `restart` another one follows as if it had died."""

    def leave(self, anchor: ObjectId) -> None:
        """In an actor: let it end when what has run was reported."""

    def claim_name(self, anchor: ObjectId, namespace: str, name: str, record: bytes) -> bytes | None:
        """Give an actor of this process a name; returns the record of the one that has it, None when that is ours now.

        Raises:
            ActorNameError: nobody can have such a name. HeadUnreachableError: the cluster's head has not answered.
        """

    def find_name(self, namespace: str, name: str) -> bytes | None:
        """Return the record of the actor that has a name, None where none has it; raises as `claim_name`."""

    def place(self, terms: ActorTerms) -> tuple[int, int]:
        """Find a node for an actor that is to outlive this program; returns the address that it will have there.

        Its anchor is named by an owner that is nobody yet, its keeper.
        """

    def bind_detached(
        self, terms: ActorTerms, address: tuple[int, int], make: bytes, label: str, name: tuple[str, str] | None,
        record: bytes,
    ) -> None:  # fmt: skip
        """Make an actor that outlives this program, at the place that `place` has found.

        Args:
            make: pickled callable without arguments that makes its object.
            name: namespace and name, if it has any; somebody else may have it, `find_name` says who. record: for
                whoever finds it.
        """


class Engine(Protocol):
    """Runs tasks and keeps objects. All methods are thread-safe."""

    dropped: deque[tuple[int, int]]
    """(owner, seq) of references that ended, to be drained by the engine."""

    root: int
    """Incarnation of the program's client, 0 for engines without."""

    node_id: str
    """The node of this process, as `nodes` names it; of an engine without, its own name."""

    worker_id: str
    """Names this process among those of the cluster."""

    actor_starts: int
    """In an actor: how many processes it has had at its node, this one included."""

    namespace: str
    """Where names of actors belong that are given without a namespace."""

    @property
    def actors(self) -> ActorCalls:
        """What it does about actors."""

    @property
    def gangs(self) -> GangCalls:
        """What it does about gangs."""

    is_worker: bool
    """Whether this process is a worker, which runs tasks of a program."""

    def running_task(self) -> ObjectId | None:
        """Name the task that this worker runs, by its first result; None where no one task does."""

    def put(self, value: Any) -> ObjectRef:
        """Store one value; TypeError for a reference, `SerializationError` for what does not pickle."""

    @overload
    def get(self, refs: ObjectRef, timeout: float | None = None) -> Any: ...
    @overload
    def get(self, refs: list[ObjectRef], timeout: float | None = None) -> list[Any]: ...
    def get(self, refs: ObjectRef | list[ObjectRef], timeout: float | None = None) -> Any:
        """Return the value, or the list of values, as soon as they are there.

        Raises the exception of the first reference that failed without waiting for others; an exception object that a
        task *returned* is a value like any other.

        Raises:
            GetTimeoutError: not all came within so many seconds; 0 does not wait.
            TypeError: neither a reference nor a list of them.
        """

    def wait(
        self, refs: Sequence[ObjectRef], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """Wait until `num_returns` are ready (values or failures) or the timeout has passed; never raises for it.

        Returns (ready, others), both in input order, at most `num_returns` ready ones.

        Raises:
            TypeError: not several references. ValueError: repeats, or `num_returns` out of range.
        """

    def error_of(self, ref: ObjectRef) -> BaseException | None:
        """Return the error of an object that is there, None when it has a value, which is not looked at."""

    def cancel(
        self, ref: ObjectRef, *, force: bool = False, recursive: bool = True, kill_after: float | None = None
    ) -> None:
        """Settle the task as cancelled unless it has finished; a running one is interrupted.

        `force` kills its process at once, `kill_after` when it has not come back after so many seconds. The tasks that
        it submitted are cancelled with it.

        Raises:
            ValueError: `recursive` is false, which no engine can do; or another process submitted the task, and only
                that one can cancel it.
        """

    def submit(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: TaskOptions,
        binding: Binding | None = None,
    ) -> Any:
        """Start ``function(*args, **kwargs)`` and return its reference; a list for n > 1 results, None for none.

        References at the top level of the arguments are replaced by their values. Function and arguments are pickled
        before it returns. What does not pickle is reported by the reference (`SerializationError`), as is a binding
        that failed or has gone (`TaskCancelledError`), and the end of a gang meanwhile; one that is over already is
        raised (`GangBrokenError`).
        """

    def add_done_callback(self, ref: ObjectRef, callback: Callable[[Completion], None]) -> None:
        """Call back once, in the engine's single callback thread, when the object is there; at once if it is."""

    def bind(
        self,
        *,
        processes: int,
        initializer: Callable[[], object] | None = None,
        max_tasks: int | None = None,
        label: str = "",
        actor: ActorTerms | None = None,
    ) -> Binding:
        """Set up to `processes` workers apart and start them now.

        Each calls `initializer` before its first task and ends after `max_tasks` tasks. With `actor` it is one worker,
        which is let go with the last reference to the anchor; there is one, the caller's, when this returns.
        """

    def reserve_id(self) -> ObjectId:
        """Reserve the id of an object that is to be made."""

    def unbind(self, binding: Binding, *, force: bool) -> None:
        """Let the workers go: after what was submitted, or with `force` now. Only queues the request; repeatable.

        With `force`, whatever has not finished completes with `TaskCancelledError` and the processes are killed.
        """

    def join_binding(self, binding: Binding, timeout: float | None = None) -> bool:
        """Wait until all workers of an unbound binding are gone; False after so many seconds."""

    def open_array(
        self,
        function: Callable[[Any], Any],
        options: TaskOptions,
        binding: Binding | None = None,
        *,
        writable: bool = True,
        share_arguments: bool = False,
    ) -> TaskArray:
        """Open an array of calls of one function, which is pickled once.

        `writable` hands large arguments over as private copies that may be written to, else read-only.
        `share_arguments` promises that large buffers in the items stay as they are for as long as the array lives: one
        that was met before is then known by its identity, its bytes are not looked at again. It stays stored until the
        object that owns its memory ends, the array has ended, or the room is needed.
        A function that does not pickle is reported by the items.
        """

    def idle(self) -> AbstractContextManager[None]:
        """Let others have the CPUs of the task that calls this, for as long as the context lasts.

        For waits that the engine does not see: the task polls, or a thread within `aside` takes results for it. Waits
        of the engine's own lend the CPUs by themselves, in any thread, and may lie within. When the last of all these
        ends the task waits for its CPUs; a context that is still open ends with the task. Outside of tasks it does
        nothing.
        """

    def aside(self) -> AbstractContextManager[None]:
        """Let the waits of this thread not count as the task's, for as long as the context lasts.

        For threads that serve others of the task, and wait while those go on.
        """

    def nodes(self) -> list[dict[str, Any]]:
        """Describe the nodes: `id`, `host`, `pid`, `resources`, `available` and `workers`.

        Each of `workers` has `pid`, `state`, `binding` (id) and `owner` (incarnation of the client that it serves).
        """

    def timeline(self) -> list[pb.Timeline]:
        """Give what has run for this program, as its nodes remember it; what one says within a few seconds counts."""

    def cluster_resources(self) -> dict[str, float]:
        """Give the amounts of all resources of all nodes."""

    def available_resources(self) -> dict[str, float]:
        """Give the amounts that no task holds."""

    def adopt_ref(self, owner: int, seq: int, cls: type[Ref]) -> Ref:
        """Make a counted reference from an id that came by other ways."""

    def nudge(self) -> None:
        """See `refs.Hold.nudge`."""

    def shutdown(self) -> None:
        """End the engine: what is pending fails with `ShutdownError`. Repeatable."""


class Spread:
    """A call that takes its arguments as one tuple, to send argument lists through a task array."""

    __slots__ = ("function",)

    @property
    def __name__(self) -> str:
        return _name_of(self.function)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, args: Iterable[Any]) -> Any:
        """Call the function with the items of the tuple as arguments."""
        return self.function(*args)


class Chunk:
    """A call over a tuple of items that returns the list of results and ends with the first exception."""

    __slots__ = ("function",)

    @property
    def __name__(self) -> str:
        return _name_of(self.function)

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, items: Iterable[Any]) -> list[Any]:
        """Call the function for each item."""
        function = self.function
        # Not map(): it would take a StopIteration that the function raises for the end of the items.
        return [function(item) for item in items]


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


def split_results(function: Any, value: Any, num_returns: int) -> list[Any]:
    """Return the values of an iterable that a task with several results returned.

    Raises:
        TypeError: it is no iterable. ValueError: it has more or fewer values. What iterating it raises passes through.
    """
    name = getattr(function, "__qualname__", None) or type(function).__name__
    if not isinstance(value, Iterable) and not hasattr(type(value), "__getitem__"):
        raise TypeError(f"{name} returned {type(value).__name__}, but num_returns={num_returns} needs as many values")
    parts = list(itertools.islice(value, num_returns + 1))  # it may have no end
    if len(parts) > num_returns:
        count = f"{len(value)}" if isinstance(value, Sized) else f"more than {num_returns}"
        raise ValueError(f"{name} returned {count} values, but num_returns={num_returns}")
    if len(parts) < num_returns:
        raise ValueError(f"{name} returned {len(parts)} value{'s' * (len(parts) != 1)}, but num_returns={num_returns}")
    return parts


#: Seconds that a fork waits for another thread that is starting an engine: as long as a start may take. A child forked
#: in the middle of one would inherit half-imported modules and a half-open connection.
FORK_PATIENCE = 30.0

_lock = threading.RLock()
_engine: Engine | None = None
_settings: Settings | None = None  # those that `begin` was given: an engine that is lost is followed by one like it
_lost: deque[Engine] = deque()
_fork_holds: list[bool] = []  # whether the fork that is going on has the lock


#: Modules that workers import before they run a program's tasks, by name: backends that make themselves known to their
#: host library when they are imported add theirs.
companions: list[str] = []


class ForkHooks(NamedTuple):
    """What somebody else does around a fork, within the lock that starts engines."""

    before: Callable[[], None]
    in_parent: Callable[[], None]
    in_child: Callable[[], None]


#: Called in this order, whoever added theirs meanwhile; a hook of the system's own could come after a start it missed.
fork_hooks: list[ForkHooks] = []


def current() -> Engine:
    """Return this process's engine; the first call starts it as the settings say. Thread-safe."""
    global _engine
    engine = _engine
    if engine is None:
        bury_lost()
        with _lock:
            if _engine is None:
                _engine = start(_settings or Settings.load())
            engine = _engine
    return engine


def install(engine: Engine) -> None:
    """Make it this process's engine; RuntimeError when there is another one."""
    global _engine
    with _lock:
        if _engine is not None and _engine is not engine:
            raise RuntimeError("this process has an engine already: shut it down first")
        _engine = engine


def begin(settings: Settings, *, may_exist: bool) -> Engine:
    """Start this process's engine as the settings say; one that is there already is returned if it may be there.

    Raises:
        RuntimeError: it may not.
    """
    global _engine, _settings
    bury_lost()
    with _lock:
        if _engine is None:
            _engine, _settings = start(settings), settings
        elif not may_exist:
            raise RuntimeError("outboard is initialised already: call outboard.shutdown() first, or pass "
                               "ignore_reinit_error=True")  # fmt: skip
        return _engine


def peek() -> Engine | None:
    """Return this process's engine without starting one."""
    return _engine


def clear() -> Engine | None:
    """Forget this process's engine and return it, not shut down."""
    global _engine, _settings
    with _lock:
        engine, _engine, _settings = _engine, None, None
        return engine


def forget(engine: Engine) -> None:
    """Forget an engine that has lost its cluster; the next call starts another one."""
    global _engine
    if _engine is engine:  # no lock: called from whatever thread noticed
        _engine = None
        _lost.append(engine)


def bury_lost() -> None:
    """Release what engines hold that have lost their cluster: threads, descriptors, the ended node's process."""
    while _lost:
        try:
            engine = _lost.popleft()
        except IndexError:
            break  # another thread took the last one
        engine.shutdown()


def start(settings: Settings) -> Engine:
    """Make an engine as the settings say; not yet that of this process."""
    if settings.address == INLINE_ADDRESS:
        from .inline import InlineEngine

        return InlineEngine()
    from . import embedded

    engine: Engine = embedded.start(settings)
    return engine


def _before_fork() -> None:
    _fork_holds.append(_lock.acquire(timeout=FORK_PATIENCE))
    for hooks in fork_hooks:
        hooks.before()


def _after_fork_in_parent() -> None:
    for hooks in fork_hooks:
        hooks.in_parent()
    if _fork_holds and _fork_holds.pop():
        _lock.release()


def _after_fork_in_child() -> None:
    global _lock, _engine, _settings
    _lock = threading.RLock()  # the inherited one may belong to a thread that is not here
    _fork_holds.clear()
    _engine = _settings = None
    for hooks in fork_hooks:
        hooks.in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)

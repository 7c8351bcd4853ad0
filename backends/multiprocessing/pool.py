"""The Pool: one binding of workers, plain tasks for `apply`, one task array for each map."""

from __future__ import annotations

import itertools
import multiprocessing.pool
import operator
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

from outboard.calls import describe_call
from outboard.cpushare import cpu_share
from outboard.engine import Chunk, Spread, TaskArray, current
from outboard.options import TaskOptions

from .faults import explained, terminated, translated
from .feed import Feed, call_weakly
from .iterators import IMapIterator, IMapUnorderedIterator, flattened
from .results import KILL_AFTER, ApplyResult, Callback, MapResult
from .workers import PoolWorker, list_workers

INIT, RUN, CLOSE, TERMINATE = "INIT", "RUN", "CLOSE", "TERMINATE"

#: Chunks per worker when a map is given no chunk size: the standard pool's number, since its users count on it.
CHUNKS_PER_WORKER = 4

#: Seconds after which `join` looks again for inputs that have ended. Longer delays it, shorter wakes it more often.
LOOK_AGAIN_SECONDS = 0.1

#: Seconds that `terminate` waits for the killed workers to be gone. They take milliseconds; a machine under load more.
TERMINATE_WAIT = 2.0

_numbers = itertools.count(1)

#: Any to the type checker, for our methods return result classes of their own.
_StandardPool: Any = multiprocessing.pool.Pool


def cpu_count() -> int:
    """Return the number of CPUs of the cluster, which is started when there is none yet."""
    return max(1, int(current().cluster_resources().get("CPU", 1)))


def _whole_number(processes: Any) -> int:
    try:
        processes = operator.index(processes)
    except TypeError:
        raise TypeError(f"Number of processes must be a whole number or None, not {processes!r}") from None
    if processes < 1:
        raise ValueError("Number of processes must be at least 1")
    return int(processes)


class Pool(_StandardPool):  # type: ignore[misc]  # Any to the type checker, see there
    """`multiprocessing.Pool` whose workers are those of the cluster.

    It inherits the standard class only for `isinstance` of other libraries: no state or process of it is ever made.
    Of its private attributes there are `_state`, `_processes` and `_pool`. Everything not said here is as in the
    standard pool, https://docs.python.org/3/library/multiprocessing.html.

    Differences on purpose:
        - A worker that dies is replaced, and its call ends with `outboard.errors.WorkerLostError`, which names it.
        - An initializer that raises ends every call of the pool with its exception.
        - SystemExit in a task arrives as `outboard.errors.TaskExitError`; an exception that cannot be rebuilt as
          `outboard.errors.RemoteError`.
        - `terminate()` ends pending results with `outboard.errors.TaskCancelledError`; no callback runs after it.
        - A callback that raises is reported through `threading.excepthook`, and the pool goes on.
        - `imap` and `imap_unordered` draw their input a bounded distance ahead; `join()` draws the rest.
        - A chunk size below 1 is a ValueError in every method. Pools may be made inside tasks.
        - Ctrl-C in a blocking call cancels that call; the pool stays usable.

    Args:
        processes: workers at most; None for the CPUs of the cluster. May exceed them: each task then asks for a share,
            and workers beyond two a CPU start when tasks need them.
        initializer, initargs: called once in each worker before its first task.
        maxtasksperchild: tasks after which a worker is replaced; one chunk of a map is one task.
        context: ignored with a warning: workers are forked from Outboard's own template.
    """

    _state = INIT

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        context: object = None,
    ) -> None:
        if processes is not None:
            processes = _whole_number(processes)
        if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild <= 0):
            raise ValueError("maxtasksperchild must be a positive int or None")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if context is not None:
            warnings.warn("context is ignored: workers are forked from Outboard's template", stacklevel=2)
        self._engine = current()
        self._processes = cpu_count() if processes is None else processes
        share = cpu_share(self._engine, self._processes)
        self._options = TaskOptions(num_cpus=share, max_retries=0)
        try:
            self._binding = self._engine.bind(
                processes=self._processes,
                initializer=None if initializer is None else partial(initializer, *initargs),
                max_tasks=maxtasksperchild,
                label=f"Pool-{next(_numbers)}",
            )
        except RuntimeError as error:
            raise explained(error) from None
        self._lock = threading.Lock()
        self._feeds: weakref.WeakSet[Feed] = weakref.WeakSet()
        self._feeds_changed = threading.Condition(self._lock)
        self._store_nbytes: int | None = None  # asked for with the first imap
        self._awaited: set[ApplyResult] = set()  # results with callbacks: the program need not keep them
        self._callback_thread: int | None = None
        self._callbacks_done = threading.Condition(self._lock)
        self._is_unbound = False
        self._state = RUN

    def apply(self, func: Callable[..., Any], args: Sequence[Any] = (), kwds: Mapping[str, Any] = {}) -> Any:
        """Call ``func(*args, **kwds)`` in a worker and return its value."""
        if self._state != RUN:
            self._refuse()
        engine = self._engine
        ref = None
        try:
            ref = engine.submit(func, args, kwds, self._options, self._binding)
            return engine.get(ref)
        except KeyboardInterrupt:
            if ref is not None:
                engine.cancel(ref, kill_after=KILL_AFTER)
            raise
        except BaseException as error:
            failure = translated(error, lambda: (describe_call(func, args), None))
        # Outside the handler: the engine's exception shall not show as the context of the task's.
        raise failure

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Sequence[Any] = (),
        kwds: Mapping[str, Any] = {},
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> ApplyResult:
        """Start ``func(*args, **kwds)`` in a worker; what is wrong with the call arrives with the result."""
        if self._state != RUN:
            self._refuse()
        result = ApplyResult(self, callback, error_callback)
        result._start(self._engine.submit(func, args, kwds, self._options, self._binding), func, args)
        return result

    def map(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        """Call the function for each item and return the list of values in the order of the input."""
        result: list[Any] = self._map(func, iterable, chunksize).get()
        return result

    def map_async(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> MapResult:
        """Start a map; the callback gets the whole list."""
        return self._map(func, iterable, chunksize, callback=callback, error_callback=error_callback)

    def starmap(
        self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]], chunksize: int | None = None
    ) -> list[Any]:
        """Call ``func(*item)`` for each item and return the list of values in the order of the input."""
        result: list[Any] = self._map(func, iterable, chunksize, is_spread=True).get()
        return result

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> MapResult:
        """Start a starmap; the callback gets the whole list."""
        return self._map(func, iterable, chunksize, is_spread=True, callback=callback, error_callback=error_callback)

    def imap(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int = 1,
        *,
        buffersize: int | None = None,
    ) -> Iterator[Any]:
        """Iterate over the values in the order of the input, which is drawn as results are consumed.

        `buffersize` fixes how many items are drawn ahead of consumption (as in Python 3.16); None adapts the distance
        to the pace of the tasks, from four per worker to a thousand.
        """
        return self._imap(IMapIterator, func, iterable, chunksize, buffersize)

    def imap_unordered(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int = 1,
        *,
        buffersize: int | None = None,
    ) -> Iterator[Any]:
        """Iterate over the values in the order of completion; otherwise as `imap`."""
        return self._imap(IMapUnorderedIterator, func, iterable, chunksize, buffersize)

    def close(self) -> None:
        """Take no more calls; workers leave when those that were made are done. Repeatable."""
        if self._state == RUN:
            self._state = CLOSE
            self._unbind_when_drawn()

    def terminate(self) -> None:
        """Kill the workers at once; pending results end with `TaskCancelledError`. Repeatable, also in a callback."""
        self._state = TERMINATE
        for feed in list(self._feeds):
            feed.end(terminated())
        self._is_unbound = True
        self._engine.unbind(self._binding, force=True)
        if self._callback_thread != threading.get_ident():
            self._engine.join_binding(self._binding, TERMINATE_WAIT)

    def join(self) -> None:
        """Wait until all calls are done, all callbacks have run and the workers are gone; draws the rest of `imap`s."""
        if self._state == RUN:
            raise ValueError("Pool is still running")
        if self._state not in (CLOSE, TERMINATE):
            raise ValueError("In unknown state")
        for feed in list(self._feeds):
            feed.lift()
        with self._feeds_changed:
            # An iterator that is dropped meanwhile ends its feed too, but its finaliser may take no lock to say so.
            while not self._feeds_changed.wait_for(lambda: not self._drawing(), LOOK_AGAIN_SECONDS):
                pass
        self._unbind_when_drawn()
        self._engine.join_binding(self._binding)
        if self._callback_thread != threading.get_ident():
            with self._callbacks_done:
                self._callbacks_done.wait_for(lambda: not self._awaited)

    def __enter__(self) -> Pool:
        if self._state != RUN:
            self._refuse()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.terminate()

    def __reduce__(self) -> NoReturn:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    def __repr__(self) -> str:
        cls = type(self)
        size = getattr(self, "_processes", 0)
        return f"<{cls.__module__}.{cls.__qualname__} state={self._state} pool_size={size}>"

    def __del__(self) -> None:
        if self._state == INIT:
            return
        if self._state == RUN:
            warnings.warn(f"unclosed running multiprocessing pool {self!r}", ResourceWarning, source=self, stacklevel=1)
        if not self._is_unbound or self._state == RUN:
            self._engine.unbind(self._binding, force=True)

    @property
    def _pool(self) -> list[PoolWorker]:
        """The workers that are alive, with `pid`, `exitcode` and `is_alive`."""
        return list_workers(self._engine, self._binding)

    def _map(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Any],
        chunksize: int | None,
        *,
        is_spread: bool = False,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> MapResult:
        if self._state != RUN:
            self._refuse()
        if chunksize is not None and chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize}")
        items = iterable if isinstance(iterable, (list, tuple, range)) else list(iterable)
        if chunksize is None:
            chunksize = max(1, -(-len(items) // (CHUNKS_PER_WORKER * self._processes)))
        result = MapResult(
            self, func, items, chunksize, is_spread=is_spread, callback=callback, error_callback=error_callback
        )
        if items:
            result._begin(self, self._open_array(Spread(func) if is_spread else func, chunksize))
        return result

    def _imap(
        self,
        kind: type[IMapIterator],
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int,
        buffersize: int | None,
    ) -> Iterator[Any]:
        if self._state != RUN:
            self._refuse()
        if chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize:n}")
        if buffersize is not None and buffersize < 1:
            raise ValueError(f"buffersize must be 1 or more, not {buffersize}")
        if self._store_nbytes is None:
            # Wherever they are made, results gather at one node in the end, or may all be made at one.
            self._store_nbytes = min((node.get("store_nbytes", 0) for node in self._engine.nodes()), default=0)
        on_end = call_weakly(self._feed_ended)
        feed = Feed(iterable, chunksize, self._processes, buffersize, self._store_nbytes, on_end)
        array = self._open_array(func, chunksize)
        iterator = kind(self, func, array, feed, chunksize)
        self._feeds.add(feed)
        feed.start(array)
        return iterator if chunksize == 1 else flattened(iterator)

    def _open_array(self, function: Callable[[Any], Any], chunksize: int) -> TaskArray:
        call = function if chunksize == 1 else Chunk(function)
        return self._engine.open_array(call, self._options, self._binding)

    def _refuse(self) -> NoReturn:
        raise ValueError("Pool not running")

    def _drawing(self) -> bool:
        return any(not feed.ended for feed in list(self._feeds))

    def _feed_ended(self) -> None:
        """Hear that an input needs no more drawing: after `close` the last one lets the workers go."""
        with self._feeds_changed:
            self._feeds_changed.notify_all()
        if self._state == CLOSE:
            self._unbind_when_drawn()

    def _unbind_when_drawn(self) -> None:
        if self._drawing():
            return
        with self._lock:
            was_unbound, self._is_unbound = self._is_unbound, True
        if not was_unbound:
            self._engine.unbind(self._binding, force=False)

    @contextmanager
    def _awaiting_callback(self, result: ApplyResult) -> Iterator[None]:
        """Keep a result that the callback thread will deliver, unless asking for it fails."""
        with self._lock:
            self._awaited.add(result)
        try:
            yield
        except BaseException:
            self._callback_done(result)
            raise

    def _enter_callback(self) -> None:
        self._callback_thread = threading.get_ident()

    def _callback_done(self, result: ApplyResult) -> None:
        with self._callbacks_done:
            self._callback_thread = None
            self._awaited.discard(result)
            self._callbacks_done.notify_all()


def __getattr__(name: str) -> Any:
    """Pass on what `multiprocessing.pool` offers besides, such as `ThreadPool`."""
    if not name.startswith("_"):
        return getattr(multiprocessing.pool, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

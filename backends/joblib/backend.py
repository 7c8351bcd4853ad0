"""What joblib asks of a backend. Source of the contract: `joblib._parallel_backends.ParallelBackendBase`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any

import joblib
from joblib.parallel import FallbackToBackend, ParallelBackendBase, SequentialBackend
from outboard.engine import current

from .batches import Batch
from .calls import ParallelCall
from .context import Context
from .window import Window
from .workers import Initializer, keeper

NAME = "dist"


class DistBackend(ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """joblib's tasks on the workers of an Outboard cluster.

    Each `Parallel` works with a backend of its own (see `configure`), so one that a context holds may serve any
    number of them, one after the other or at once, from any thread.

    Args:
        nesting_level: how many `Parallel` are around this one; None: joblib says.
        inner_max_num_threads: threads that libraries may use in a worker; None: the machine's CPUs divided among the
            workers that run there.
        backend_kwargs: `initializer` and `initargs`: called in each worker before its first task. Whatever else joblib
            passes on is accepted.
    """

    default_n_jobs = -1
    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    supports_sharedmem = False
    uses_threads = False

    def __init__(
        self, nesting_level: int | None = None, inner_max_num_threads: int | None = None, **backend_kwargs: Any
    ) -> None:
        super().__init__(nesting_level, inner_max_num_threads, **backend_kwargs)
        self.parallel: Any = None
        self._serves: weakref.ref[Any] | None = None
        self._call: ParallelCall | None = None
        self._shares = True
        self._initializer: Initializer | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return DistBackend, (self.nesting_level, self.inner_max_num_threads)

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many tasks may run at once: -1 all slots of the cluster, -2 all but one; None is one."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs > 0:
            return n_jobs
        slots = keeper.count_slots()
        # Not 1 for "all": joblib would then run everything in the calling process and leave the cluster idle.
        return max(2, slots) if n_jobs == -1 else max(1, slots + 1 + n_jobs)

    def configure(
        self,
        n_jobs: int | None = 1,
        parallel: Any = None,
        prefer: str | None = None,
        require: str | None = None,
        max_nbytes: int | None = 1 << 20,
        mmap_mode: str | None = "r",
        **others: Any,
    ) -> int:
        """Prepare for the calls of one `Parallel`; returns how many of its tasks may run at once.

        `max_nbytes=None` or `mmap_mode=None` turns off that large arguments are stored once for the whole call. Other
        values, and a temporary folder, make no difference: arguments lie in the store and every task may write to its
        own copy of them.

        Raises:
            FallbackToBackend: takes along a backend of the `Parallel`'s own, or for one job that which runs it in the
                calling thread and says so where a `timeout` is given.
        """
        count = self.effective_n_jobs(n_jobs)
        if count == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        if self._serves is None or self._serves() is not parallel:
            own = type(self)(self.nesting_level, self.inner_max_num_threads, **self.backend_kwargs)
            own._serves = weakref.ref(parallel)
            raise FallbackToBackend(own)
        self.parallel = parallel
        self._shares = max_nbytes is not None and mmap_mode is not None
        given = {**self.backend_kwargs, **others}
        function = given.get("initializer")
        self._initializer = None if function is None else Initializer(function, tuple(given.get("initargs") or ()))
        return count

    def start_call(self) -> None:
        """Open a task array for the call, with what the calling thread has set."""
        engine, parallel = current(), self.parallel
        n_jobs = self.effective_n_jobs(parallel.n_jobs)
        window: Window[Batch] | None = None
        if parallel.return_generator:
            window = Window(ordered=parallel.return_ordered, least=2 * n_jobs)
        context = Context(self._nested, n_jobs, self.inner_max_num_threads)
        workers = keeper.lend(engine, n_jobs, are_all=parallel.n_jobs == -1, initializer=self._initializer)
        self._call = ParallelCall(engine, context, workers, window=window, shares=self._shares)

    def submit(self, func: Any, callback: Callable[[Any], object] | None = None) -> Batch:
        """Start a batch of tasks; the callback gets what this returns, once, however they come out."""
        assert self._call is not None and callback is not None, "joblib submits within a call, with a callback"
        return self._call.submit(func.items, callback)

    def apply_async(self, func: Any, callback: Callable[[Any], object] | None = None) -> Batch:
        """The name of `submit` before joblib 1.5."""
        return self.submit(func, callback)

    def retrieve_result_callback(self, out: Batch) -> Any:
        """Return the results of a batch that has finished, or raise what one of its tasks raised."""
        return out.outcome()

    def compute_batch_size(self) -> int:
        """Return how many tasks to submit at a time, from the run times that the workers measured."""
        return 1 if self._call is None else self._call.batch_size

    def stop_call(self) -> None:
        """Let go of the call; what large arguments it stored is freed."""
        call, self._call = self._call, None
        if call is not None:
            call.end()

    def terminate(self) -> None:
        """Let go of the `Parallel`, whose input may hold much after an error; workers stay for the next call."""
        self.parallel = None

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what is queued and what runs; workers stay for the next call."""
        if self._call is not None:
            self._call.abort()

    def get_nested_backend(self) -> tuple[ParallelBackendBase, int]:
        """Return the backend of `Parallel`s within tasks: the same cluster for those that ask for several jobs."""
        return self._nested, 1

    @contextmanager
    def retrieval_context(self) -> Iterator[None]:
        """Give the slot of the task that waits here to the tasks that it waits for."""
        call = self._call
        with nullcontext() if call is None else call.engine.idle():
            yield

    @cached_property
    def _nested(self) -> DistBackend:
        return DistBackend(nesting_level=(self.nesting_level or 0) + 1)


def register(make_default: bool = False) -> None:
    """Make the name "dist" known to joblib; `make_default` also makes it what joblib takes where none is named."""
    joblib.register_parallel_backend(NAME, DistBackend, make_default=make_default)

"""The engine that runs everything in the calling process: for debuggers, for tests and where nothing may be started.

Plain tasks run when they are submitted, items of arrays when they are taken (or, with a callback, one after the other
in the callback thread), so a breakpoint in a task is met in the program itself. Arguments and results are not copied
and nothing is pickled; failures come out as from any other engine. KeyboardInterrupt is the user's and passes through.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from queue import SimpleQueue
from random import getrandbits
from typing import Any

from .actorhost import make_within, within
from .engine import ActorTerms, Binding, Completion, Ref, split_results
from .errors import ObjectLostError, ShutdownError, TaskCancelledError
from .ids import ObjectId
from .inline_actors import InlineActors
from .inline_array import InlineArray, run_call
from .inline_gangs import InlineGangs
from .options import TaskOptions
from .refs import ObjectRef, check_refs, describe_value


class InlineEngine:
    """Runs tasks in the calling process, in order; keeps the `Engine` contract but for time limits."""

    is_worker = False
    root = 0
    namespace = ""
    actor_starts = 1

    def __init__(self) -> None:
        self.dropped: deque[tuple[int, int]] = deque()
        self._owner = getrandbits(64)
        self.node_id = self.worker_id = f"{self._owner:016x}"
        self._seqs = itertools.count(1)
        self._binding_ids = itertools.count(1)
        self._objects: dict[int, Completion] = {}
        self._counts: dict[int, int] = {}
        self._arrays: dict[int, list[InlineArray]] = {}
        self._gone: set[int] = set()
        self.actors = InlineActors()
        self.gangs = InlineGangs(self, self._owner)
        self._posted: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()
        self.is_shut = False

    def running_task(self) -> ObjectId | None:
        """Name none: what runs is the program itself."""

    def put(self, value: Any) -> ObjectRef:
        """Keep the value itself, not a copy."""
        if isinstance(value, ObjectRef):
            raise TypeError("the value is a reference already")
        self._check_running()
        return self._keep(Completion(0, True, value))

    def get(self, refs: ObjectRef | list[ObjectRef], timeout: float | None = None) -> Any:
        """Return values, or raise; everything is there already, so the timeout has no meaning."""
        if isinstance(refs, ObjectRef):
            return self._value(refs)
        if not isinstance(refs, list):
            raise TypeError(f"get() takes a reference (ObjectRef) or a list of them, not {describe_value(refs)}")
        check_refs("get()", refs)
        return [self._value(ref) for ref in refs]

    def wait(
        self, refs: Any, num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """Return the first `num_returns` references: all are ready."""
        if isinstance(refs, ObjectRef) or not isinstance(refs, Iterable):
            raise TypeError(f"wait() takes a list of references (ObjectRef), not {describe_value(refs)}")
        refs = list(refs)
        check_refs("wait()", refs)
        if not refs:
            return [], []
        if len(set(refs)) != len(refs):
            raise ValueError("wait() takes each reference once")
        if not 0 < num_returns <= len(refs):
            raise ValueError(f"num_returns must be between 1 and {len(refs)}, not {num_returns!r}")
        return refs[:num_returns], refs[num_returns:]

    def error_of(self, ref: ObjectRef) -> BaseException | None:
        """Look it up."""
        done = self._completion(ref)
        return None if done.ok else done.value

    def cancel(
        self, ref: ObjectRef, *, force: bool = False, recursive: bool = True, kill_after: float | None = None
    ) -> None:
        """Do nothing: each task has finished when its reference exists."""
        if not recursive:
            raise ValueError("cancel(recursive=False) is not supported: what a task submitted is cancelled with it")

    def submit(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: TaskOptions,
        binding: Binding | None = None,
    ) -> Any:
        """Run the call now."""
        self._check_running()
        self.gangs.check(options)
        done = self._run(function, args, kwargs, binding)
        if options.num_returns == 1:
            return self._keep(done)
        refs = [self._keep(part) for part in _split(function, done, options.num_returns)]
        return refs or None

    def add_done_callback(self, ref: ObjectRef, callback: Callable[[Completion], None]) -> None:
        """Call back in the callback thread."""
        done = self._completion(ref)
        self.post(lambda: callback(done))

    def bind(
        self,
        *,
        processes: int,
        initializer: Callable[[], object] | None = None,
        max_tasks: int | None = None,
        label: str = "",
        actor: ActorTerms | None = None,
    ) -> Binding:
        """Run the initializer, once, in this process."""
        self._check_running()
        if actor is not None:
            self.gangs.check(actor.calls)
        binding = Binding(next(self._binding_ids), processes, label, self._owner)
        self._arrays[binding.id] = []
        if initializer is not None:
            done = run_call(initializer if actor is None else partial(make_within, initializer), (), {})
            binding.failed = None if done.ok else done.value
            if actor is not None:
                seq = actor.anchor.seq
                self._objects[seq], self._counts[seq] = Completion(0, True, None), 1
                self.actors.on_made(seq, binding, done)
        return binding

    def reserve_id(self) -> ObjectId:
        """Take the next number."""
        return ObjectId(self._owner, next(self._seqs))

    def unbind(self, binding: Binding, *, force: bool) -> None:
        """Refuse further calls on the binding; with `force` also what was appended and has not run."""
        if force:
            for array in self._arrays.get(binding.id, ()):
                array.cancel()
        self._gone.add(binding.id)

    def join_binding(self, binding: Binding, timeout: float | None = None) -> bool:
        """Run what is left in the arrays of the binding."""
        for array in self._arrays.pop(binding.id, ()):
            while array.run_next():
                pass
        return True

    def open_array(
        self,
        function: Callable[[Any], Any],
        options: TaskOptions,
        binding: Binding | None = None,
        *,
        writable: bool = True,
        share_arguments: bool = False,
    ) -> InlineArray:
        """Open an array that runs as it is taken."""
        self._check_running()
        array = InlineArray(self, function, binding)
        if binding is not None and binding.id in self._arrays:
            arrays = [other for other in self._arrays[binding.id] if not other.is_done]
            self._arrays[binding.id] = [*arrays, array]
        return array

    def idle(self) -> AbstractContextManager[None]:
        """Do nothing: no task holds anything."""
        return nullcontext()

    def aside(self) -> AbstractContextManager[None]:
        """Do nothing: no task holds anything."""
        return nullcontext()

    def nodes(self) -> list[dict[str, Any]]:
        """Describe this process as the only node, without workers."""
        amounts = self.cluster_resources()
        host = {"id": f"{self._owner:016x}", "host": socket.gethostname(), "pid": os.getpid()}
        return [{**host, "resources": amounts, "available": dict(amounts), "workers": [], "actors": []}]

    def timeline(self) -> list[Any]:
        """Nothing is kept of what runs here: profilers of one process see it."""
        return []

    def cluster_resources(self) -> dict[str, float]:
        """Give the CPUs of the machine."""
        return {"CPU": float(os.cpu_count() or 1)}

    def available_resources(self) -> dict[str, float]:
        """Give the CPUs of the machine: nothing is ever held between calls."""
        return self.cluster_resources()

    def adopt_ref(self, owner: int, seq: int, cls: type[Ref]) -> Ref:
        """Count one more reference."""
        with self._lock:
            self._counts[seq] = self._counts.get(seq, 0) + 1
        return cls(owner, seq, self)

    def nudge(self) -> None:
        """Do nothing: what has been dropped ends with the next call."""

    def shutdown(self) -> None:
        """End the callback thread; further calls raise ShutdownError."""
        with self._lock:
            self.is_shut = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._posted.put(None)
            if thread is not threading.current_thread():
                thread.join()

    def post(self, job: Callable[[], None]) -> None:
        """Queue a job for the callback thread, which starts with the first one."""
        with self._lock:
            if self._thread is None and not self.is_shut:
                self._thread = threading.Thread(target=self._run_posted, name="outboard-callbacks", daemon=True)
                self._thread.start()
        self._posted.put(job)

    def refusal(self, binding: Binding | None) -> BaseException | None:
        """Say why calls on the binding are refused, or None."""
        if binding is None:
            return None
        if binding.failed is not None:
            return binding.failed
        return TaskCancelledError(f"{binding.label or 'the binding'} has ended") if binding.id in self._gone else None

    def _run_posted(self) -> None:
        while (job := self._posted.get()) is not None:
            try:
                job()
            except BaseException as error:
                thread = threading.current_thread()
                threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, thread)))

    def _run(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], binding: Binding | None
    ) -> Completion:
        refused = self.refusal(binding)
        if refused is not None:
            return Completion(0, False, refused)
        try:
            args = [self._resolved(arg) for arg in args]
            kwargs = {name: self._resolved(arg) for name, arg in kwargs.items()}
        except Exception as error:
            return Completion(0, False, error)
        with within(self.actors.host_of(binding)):
            return run_call(function, args, kwargs)

    def _resolved(self, arg: Any) -> Any:
        return self._value(arg) if isinstance(arg, ObjectRef) else arg

    def _keep(self, done: Completion) -> ObjectRef:
        self._free_dropped()
        seq = next(self._seqs)
        self._objects[seq] = done
        self._counts[seq] = 1
        return ObjectRef(self._owner, seq, self)

    def _free_dropped(self) -> None:
        while self.dropped:
            with self._lock:
                _, seq = self.dropped.popleft()
                self._counts[seq] = left = self._counts.get(seq, 0) - 1
                if left <= 0:
                    del self._counts[seq]
                    self._objects.pop(seq, None)
                    self.actors.on_ended(seq)

    def _completion(self, ref: ObjectRef) -> Completion:
        self._check_running()
        try:
            return self._objects[ref.seq]
        except KeyError:
            raise ObjectLostError(f"{ref!r} is not an object of this process") from None

    def _value(self, ref: ObjectRef) -> Any:
        done = self._completion(ref)
        if not done.ok:
            raise done.value
        return done.value

    def _check_running(self) -> None:
        if self.is_shut:
            raise ShutdownError("Outboard was shut down in this process")


def _split(function: Callable[..., Any], done: Completion, num_returns: int) -> list[Completion]:
    """Make the completions of a call with several results (or none) from that of the whole."""
    if done.ok and num_returns:
        done = run_call(split_results, (function, done.value, num_returns), {})
    if not done.ok:
        return [done] * num_returns
    return [Completion(0, True, part) for part in done.value] if num_returns else []

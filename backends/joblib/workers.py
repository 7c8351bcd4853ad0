"""The workers of a call: how many slots there are, and the processes that stay warm between calls."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import joblib
from outboard.cpushare import cpu_share
from outboard.engine import Binding, Engine, current, peek
from outboard.options import Settings, TaskOptions

#: Seconds for which the number of slots is taken as it was: it is asked for before every call, also by libraries that
#: only divide their work by it.
SLOTS_SECONDS = 1.0

#: Sets of processes kept between calls, besides those that are in use. Each costs the memory of idle workers.
KEPT = 2


class Initializer(NamedTuple):
    """What each worker calls before its first task."""

    function: Callable[..., object]
    args: tuple[Any, ...]

    def is_same(self, other: Initializer | None) -> bool:
        """Whether it calls the same function with the same objects, so that workers can be used again."""
        if other is None or self.function != other.function or len(self.args) != len(other.args):
            return False
        return all(mine is its for mine, its in zip(self.args, other.args, strict=True))


class Workers:
    """Processes for at most `n_jobs` tasks at a time; those of the whole cluster when `binding` is None."""

    def __init__(self, n_jobs: int, share: float = 1.0, initializer: Initializer | None = None) -> None:
        """`share`: CPUs that each task asks for."""
        self.options = TaskOptions(num_cpus=share, max_retries=0)
        self.n_jobs = n_jobs
        self.initializer = initializer
        self.binding: Binding | None = None
        self.users = 0

    def bind(self, engine: Engine) -> None:
        """Start the processes."""
        initializer = None if self.initializer is None else partial(self.initializer.function, *self.initializer.args)
        self.binding = engine.bind(processes=self.n_jobs, initializer=initializer, label=f"joblib-{self.n_jobs}")

    def serves(self, n_jobs: int, initializer: Initializer | None) -> bool:
        """Whether a call that asks for this may have them."""
        if self.n_jobs != n_jobs or self.binding is None or self.binding.failed is not None:
            return False
        return self.initializer is None if initializer is None else initializer.is_same(self.initializer)


class Keeper:
    """Lends workers to calls and keeps them warm in between. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engine: weakref.ref[Engine] | None = None
        self._kept: list[Workers] = []  # the ones used last at the end
        self._returned: deque[Workers] = deque()
        self._slots = (0, -SLOTS_SECONDS)

    def count_slots(self) -> int:
        """Return how many tasks can run at once; a cluster of this process's own is not started to find out."""
        engine, now = peek(), time.monotonic()
        if engine is None:
            settings = Settings.load()
            if not settings.names_running:
                return int(settings.num_cpus or joblib.cpu_count())
            engine = current()
        with self._lock:
            slots, when = self._slots
            if self._is_of(engine) and now - when < SLOTS_SECONDS:
                return slots
        slots = max(1, int(engine.cluster_resources().get("CPU", 1)))
        with self._lock:
            self._meet(engine)
            self._slots = (slots, now)
        return slots

    def lend(self, engine: Engine, n_jobs: int, *, are_all: bool, initializer: Initializer | None = None) -> Workers:
        """Give the workers for one call; `are_all`: whatever the cluster has, also what joins it meanwhile."""
        slots = self.count_slots()
        # Within tasks more than there are CPUs would only take them from others, whose callers have limits too.
        if initializer is None and (are_all or n_jobs == slots or (engine.is_worker and n_jobs > slots)):
            return Workers(n_jobs)
        with self._lock:
            self._meet(engine)
            self._take_back(engine)
            workers = next((kept for kept in self._kept if kept.serves(n_jobs, initializer)), None)
            if workers is None:
                workers = Workers(n_jobs, cpu_share(engine, n_jobs), initializer)
                workers.bind(engine)
            else:
                self._kept.remove(workers)
            self._kept.append(workers)
            workers.users += 1
        return workers

    def give_back(self, workers: Workers) -> None:
        """Hear that a call has ended. Safe in finalisers: a generator's may run anywhere, also while this lends."""
        self._returned.append(workers)

    def forget_threads(self) -> None:
        """In a forked child: no thread is here that could hold the lock, and nothing is kept."""
        self._lock = threading.Lock()
        self._engine = None

    def _take_back(self, engine: Engine) -> None:
        """Processes that were not used for longest end when too many are idle. Under the lock."""
        while self._returned:
            self._returned.popleft().users -= 1
        idle = [kept for kept in self._kept if not kept.users]
        for old in idle[: max(0, len(idle) - KEPT)]:
            self._kept.remove(old)
            if old.binding is not None:
                engine.unbind(old.binding, force=False)

    def _is_of(self, engine: Engine) -> bool:
        return self._engine is not None and self._engine() is engine

    def _meet(self, engine: Engine) -> None:
        """Forget what was another engine's, which ended with it. Under the lock."""
        if not self._is_of(engine):
            self._engine = weakref.ref(engine)
            self._kept.clear()
            self._slots = (0, -SLOTS_SECONDS)


keeper = Keeper()
os.register_at_fork(after_in_child=keeper.forget_threads)

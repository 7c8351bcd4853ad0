"""The subjects behind one interface: a few ways to have work done, whatever the library calls them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

#: Processes of every subject. Two, so that a small machine can be compared with itself.
WORKERS = 2


class Subject(Protocol):
    """One library. `load` imports it, `open` starts its processes; a store is optional."""

    def load(self) -> None: ...
    def open(self) -> None: ...
    def close(self) -> None: ...
    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Have one call made and wait for its result."""

    def each(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        """Map with one item a task."""

    def bulk(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        """Map as the library does it when nothing is said."""

    def unordered(self, function: Callable[..., Any], items: Iterable[Any]) -> Iterable[Any]:
        """Give results as they come."""

    def gather(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        """Submit every item by itself, then collect."""


class PoolSubject:
    """A pool with the methods of multiprocessing.Pool."""

    pool: Any

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.pool.apply(function, args)

    def each(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        return list(self.pool.map(function, items, chunksize=1))

    def bulk(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        return list(self.pool.map(function, items))

    def unordered(self, function: Callable[..., Any], items: Iterable[Any]) -> Iterable[Any]:
        yield from self.pool.imap_unordered(function, items)

    def gather(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        return [result.get() for result in [self.pool.apply_async(function, (item,)) for item in items]]

    def close(self) -> None:
        self.pool.close()
        self.pool.join()


class StdlibPool(PoolSubject):
    def load(self) -> None:
        import multiprocessing.pool

        self.make = multiprocessing.Pool

    def open(self) -> None:
        self.pool = self.make(WORKERS)


class OutboardPool(PoolSubject):
    def load(self) -> None:
        from outboard.multiprocessing import Pool

        self.make = Pool

    def open(self) -> None:
        self.pool = self.make(WORKERS)


class RayPool(PoolSubject):
    def load(self) -> None:
        import ray
        from ray.util.multiprocessing import Pool

        self.ray, self.make = ray, Pool

    def open(self) -> None:
        self.ray.init(num_cpus=WORKERS, log_to_driver=False, include_dashboard=False)
        self.pool = self.make(WORKERS)

    def close(self) -> None:
        super().close()
        self.ray.shutdown()


class Executor:
    """concurrent.futures.ProcessPoolExecutor."""

    def load(self) -> None:
        import concurrent.futures

        self.futures = concurrent.futures
        self.make = concurrent.futures.ProcessPoolExecutor

    def open(self) -> None:
        self.pool = self.make(WORKERS)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.pool.submit(function, *args).result()

    def each(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        return list(self.pool.map(function, items))

    def bulk(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        # Its default is one item a task; it is given the chunks that Pool would choose, or nobody would wait for it.
        return list(self.pool.map(function, items, chunksize=math.ceil(len(items) / (4 * WORKERS))))

    def unordered(self, function: Callable[..., Any], items: Iterable[Any]) -> Iterable[Any]:
        done = self.futures.as_completed([self.pool.submit(function, item) for item in items])
        return (future.result() for future in done)

    def gather(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        return [future.result() for future in [self.pool.submit(function, item) for item in items]]

    def close(self) -> None:
        self.pool.shutdown()


class CoreSubject:
    """Functions made remote, references, put and get: Ray's core API, or ours under the same names."""

    api: Any

    def __init__(self) -> None:
        self.remote: dict[Callable[..., Any], Any] = {}

    def submit(self, function: Callable[..., Any], *args: Any) -> Any:
        made = self.remote.get(function)
        if made is None:
            made = self.remote[function] = self.api.remote(function)
        return made.remote(*args)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.api.get(self.submit(function, *args))

    def gather(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        return list(self.api.get([self.submit(function, item) for item in items]))

    each = bulk = gather

    def unordered(self, function: Callable[..., Any], items: Iterable[Any]) -> Iterable[Any]:
        waiting = [self.submit(function, item) for item in items]
        while waiting:
            ready, waiting = self.api.wait(waiting, num_returns=min(64, len(waiting)))
            yield from self.api.get(ready)

    def put(self, value: Any) -> Any:
        return self.api.put(value)

    def get(self, ref: Any) -> Any:
        return self.api.get(ref)

    def close(self) -> None:
        self.api.shutdown()


class OutboardCore(CoreSubject):
    def load(self) -> None:
        import outboard

        self.api = outboard

    def open(self) -> None:
        self.api.init(num_cpus=WORKERS)


class RayCore(CoreSubject):
    def load(self) -> None:
        import ray

        self.api = ray

    def open(self) -> None:
        self.api.init(num_cpus=WORKERS, log_to_driver=False, include_dashboard=False)


SUBJECTS: dict[str, type[Subject]] = {
    "outboard.Pool": OutboardPool,
    "outboard": OutboardCore,
    "stdlib Pool": StdlibPool,
    "ProcessPoolExecutor": Executor,
    "ray.Pool": RayPool,
    "ray": RayCore,
}

"""joblib's backends behind the interface of the subjects, as far as it fits: one call, and many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

#: Processes of every subject, as elsewhere.
WORKERS = 2


class JoblibSubject:
    """A backend that joblib has by itself."""

    backend = "loky"

    def __init__(self) -> None:
        self.opened = ExitStack()

    def load(self) -> None:
        import joblib

        self.joblib = joblib

    def open(self) -> None:
        self.opened.enter_context(self.joblib.parallel_config(self.backend, n_jobs=WORKERS))

    def close(self) -> None:
        self.opened.close()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """As many calls as there are workers: a single one joblib makes by itself."""
        return self.each(function, [args[0] if args else None] * WORKERS)[0]

    def each(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        return self.map(function, items, batch_size=1)

    def bulk(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        return self.map(function, items)

    gather = each

    def unordered(self, function: Callable[..., Any], items: Iterable[Any]) -> Iterable[Any]:
        return self.map(function, items, batch_size=1, return_as="generator_unordered")

    def map(self, function: Callable[..., Any], items: Iterable[Any], **settings: Any) -> Any:
        return self.joblib.Parallel(**settings)(self.joblib.delayed(function)(item) for item in items)


class JoblibMultiprocessing(JoblibSubject):
    backend = "multiprocessing"


class JoblibOutboard(JoblibSubject):
    backend = "dist"

    def load(self) -> None:
        super().load()
        import outboard.joblib  # noqa: F401


class JoblibRay(JoblibSubject):
    backend = "ray"

    def load(self) -> None:
        super().load()
        import ray
        from ray.util.joblib import register_ray

        self.ray = ray
        register_ray()

    def open(self) -> None:
        self.ray.init(num_cpus=WORKERS, log_to_driver=False, include_dashboard=False)
        self.opened.callback(self.ray.shutdown)
        super().open()


class JoblibDask(JoblibSubject):
    backend = "dask"

    def load(self) -> None:
        super().load()
        from distributed import Client

        self.make = Client

    def open(self) -> None:
        self.opened.enter_context(self.make(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None))
        super().open()


JOBLIB_SUBJECTS = {
    "joblib.outboard": JoblibOutboard,
    "joblib.loky": JoblibSubject,
    "joblib.multiprocessing": JoblibMultiprocessing,
    "joblib.ray": JoblibRay,
    "joblib.dask": JoblibDask,
}

"""Clusters, programs, and a backend driven by hand as joblib drives it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import joblib
import pytest
from joblib.parallel import BatchedCalls, FallbackToBackend

import outboard
import outboard.joblib
from outboard.engine import companions
from outboard.joblib import DistBackend
from tests.faults.conftest import eventually, run_program, start_program

__all__ = ["eventually", "run_program", "start_program"]


@pytest.fixture(scope="module", autouse=True)
def known_to_workers() -> Iterator[None]:
    """Let workers import the backend, as they do for any program that has; elsewhere tests keep them light."""
    companions.append(outboard.joblib.__name__)
    yield
    companions.remove(outboard.joblib.__name__)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two slots for all tests of a file."""
    outboard.init(num_cpus=2)
    yield
    outboard.shutdown()


@pytest.fixture
def own_cluster() -> Iterator[None]:
    """Two slots for one test that breaks them, or counts."""
    outboard.init(num_cpus=2)
    yield
    outboard.shutdown()


@pytest.fixture
def parallel(cluster: None) -> Callable[..., Any]:
    """Make a `Parallel` of two jobs on the backend."""
    return partial(joblib.Parallel, n_jobs=2, backend="dist")


class Host:
    """What a backend sees of the `Parallel` that it serves, and how often it calls back for each batch."""

    def __init__(self, n_jobs: int | None = 2, *, generator: bool = False, ordered: bool = True) -> None:
        self.n_jobs = n_jobs
        self.return_generator = generator
        self.return_ordered = ordered
        self.heard: list[Any] = []
        self._changed = threading.Condition()
        self.backend = serving(self)

    def submit(self, *tasks: Any) -> Any:
        """Hand over one batch, as joblib does."""
        return self.backend.submit(BatchedCalls(tasks, self.backend.get_nested_backend()), self._hear)

    def wait(self, count: int, within: float = 20.0) -> list[Any]:
        """Wait until so many callbacks came; return what they got."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.heard) >= count, within), self.heard
        return self.heard

    def end(self) -> None:
        """End the call as joblib does."""
        self.backend.stop_call()
        self.backend.terminate()

    def _hear(self, out: Any) -> None:
        with self._changed:
            self.heard.append(out)
            self._changed.notify_all()


def serving(host: Any) -> DistBackend:
    """Let a backend of its own serve a host; its call has begun."""
    with pytest.raises(FallbackToBackend) as caught:
        DistBackend().configure(n_jobs=host.n_jobs, parallel=host)
    backend = caught.value.backend
    backend.configure(n_jobs=host.n_jobs, parallel=host)
    backend.start_call()
    assert isinstance(backend, DistBackend)
    return backend

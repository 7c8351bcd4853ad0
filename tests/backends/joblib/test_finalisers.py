"""Generators that are dropped anywhere, callbacks that raise, inputs that wait for their own tasks."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import joblib
import pytest

import outboard
import outboard.joblib
from outboard.joblib.workers import Workers

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def end_cluster() -> Iterator[None]:
    yield
    outboard.shutdown()


class Cycle:
    """Holds a generator that only the collector of cycles drops."""

    def __init__(self) -> None:
        self.me = self
        tasks = (joblib.delayed(abs)(-n) for n in range(40))
        self.results = joblib.Parallel(n_jobs=3, backend="dist", return_as="generator")(tasks)
        next(self.results)


@pytest.mark.filterwarnings("ignore")
def test_a_generator_may_be_collected_while_a_call_takes_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = Workers.bind
    monkeypatch.setattr(Workers, "bind", lambda self, engine: (gc.collect(), bind(self, engine))[1])
    Cycle()
    assert joblib.Parallel(n_jobs=4, backend="dist")(joblib.delayed(abs)(-n) for n in range(4)) == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore")
def test_generators_that_the_collector_drops_leave_the_engine_alone() -> None:
    thresholds = gc.get_threshold()
    gc.set_threshold(200, 2, 2)
    try:
        for _ in range(25):
            Cycle()
    finally:
        gc.set_threshold(*thresholds)
    assert joblib.Parallel(n_jobs=2, backend="dist")(joblib.delayed(abs)(-n) for n in range(4)) == [0, 1, 2, 3]


class Loud(joblib.Parallel):  # type: ignore[misc]  # joblib has no types
    def print_progress(self) -> None:
        if self.n_completed_tasks == 2:
            raise ValueError("in the middle")


def test_a_callback_that_raises_is_reported_and_the_others_come(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_value))
    tasks = [joblib.delayed(abs)(-n) for n in range(8)]
    assert Loud(n_jobs=2, backend="dist", batch_size=1, pre_dispatch="all")(tasks) == list(range(8))
    assert [str(error) for error in reported] == ["in the middle"]


@pytest.mark.parametrize(("lag", "ahead"), [(4, 8), (4, 4), (8, 16), (3, 4)])
def test_an_input_may_wait_for_what_it_gave_some_tasks_before(tmp_path: Any, lag: int, ahead: int) -> None:
    def mark(n: int) -> int:
        (tmp_path / str(n)).touch()
        return n

    def tasks() -> Iterator[Any]:
        for n in range(40):
            while n >= lag and not (tmp_path / str(n - lag)).exists():
                time.sleep(0.001)
            yield joblib.delayed(mark)(n)

    parallel = joblib.Parallel(n_jobs=2, backend="dist", batch_size=1, pre_dispatch=ahead)
    assert parallel(tasks()) == list(range(40))

"""`Parallel` within tasks: the same workers, no more tasks than slots, no deadlock at any depth."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import joblib
import pytest
from joblib import Parallel, delayed, parallel_config

import outboard as ob
import outboard.joblib
from outboard.multiprocessing import Pool
from tests.backends.joblib.gauge import Gauge

pytestmark = pytest.mark.usefixtures("cluster")


def leaves(depth: int, gauge: Gauge | None = None, **settings: Any) -> int:
    """Count the leaves of a tree of calls, each of three."""
    if depth == 0:
        if gauge is not None:
            gauge(0.01)
        return 1
    tasks = (delayed(leaves)(depth - 1, gauge, **settings) for _ in range(3))
    return sum(Parallel(**{"n_jobs": 2, **settings})(tasks))


def level() -> tuple[str, int]:
    backend, n_jobs = joblib.parallel.get_active_backend()
    return type(backend).__name__, n_jobs


def levels(depth: int) -> list[int]:
    backend = joblib.parallel.get_active_backend()[0]
    inner = Parallel(n_jobs=2)(delayed(levels)(depth - 1) for _ in range(1)) if depth else [[]]
    return [backend.nesting_level, *inner[0]]


def pid(_: object = None) -> int:
    return os.getpid()


def grandchildren(path: str) -> list[int]:
    Path(path).touch()
    return Parallel(n_jobs=2)(delayed(pid)() for _ in range(20))


def named(_: object = None) -> list[int]:
    return Parallel(n_jobs=2, backend="dist")(delayed(pid)() for _ in range(6))


def stay_below(path: str) -> None:
    Parallel(n_jobs=2)(delayed(stay)(f"{path}{i}") for i in range(1))


def stay(path: str) -> None:
    Path(path).touch()
    try:
        time.sleep(60)
    finally:
        Path(path).unlink()


@pytest.mark.parametrize("n_jobs", [2, -1, 5])
def test_three_levels_end_and_run_no_more_leaves_than_there_are_slots(tmp_path: Path, n_jobs: int) -> None:
    gauge = Gauge(str(tmp_path / "gauge"))
    with parallel_config("dist"):
        assert leaves(3, gauge, n_jobs=n_jobs) == 27
    assert gauge.peak <= 2


def test_levels_of_generators_end(tmp_path: Path) -> None:
    gauge = Gauge(str(tmp_path / "gauge"))
    with parallel_config("dist"):
        assert leaves(3, gauge, return_as="generator_unordered") == 27
    assert gauge.peak <= 2


def test_tasks_know_the_backend_and_are_one_job_unless_they_ask_for_more() -> None:
    found = Parallel(n_jobs=2, backend="dist")(delayed(level)() for _ in range(4))
    assert found == [("DistBackend", 1)] * 4


def test_levels_are_counted() -> None:
    with parallel_config("dist"):
        assert levels(3) == [0, 1, 2, 3]


def test_nested_calls_without_n_jobs_stay_in_their_task(tmp_path: Path) -> None:
    def inner() -> tuple[int, list[int]]:
        return os.getpid(), Parallel()(delayed(pid)() for _ in range(4))

    for own, below in Parallel(n_jobs=2, backend="dist")(delayed(inner)() for _ in range(4)):
        assert set(below) == {own}


def test_idle_slots_help_nested_calls(tmp_path: Path) -> None:
    path = str(tmp_path / "runs")
    below = Parallel(n_jobs=2, backend="dist")([delayed(grandchildren)(path), delayed(pid)()])[0]
    assert os.getpid() not in below and len(below) == 20


def test_the_name_is_known_within_remote_tasks_and_tasks_of_pools() -> None:
    remote = ob.remote(named)
    ours = os.getpid()
    for found in ob.get([remote.remote() for _ in range(3)]):
        assert len(found) == 6 and ours not in found
    with Pool(2) as pool:
        for found in pool.map(named, range(3)):
            assert len(found) == 6 and ours not in found


def test_a_tree_of_calls_within_remote_tasks_keeps_to_the_slots(tmp_path: Path) -> None:
    gauge = Gauge(str(tmp_path / "gauge"))
    remote = ob.remote(leaves)
    assert ob.get([remote.remote(2, gauge, backend="dist") for _ in range(3)]) == [9, 9, 9]
    assert gauge.peak <= 2


def test_pools_and_remote_tasks_within_tasks() -> None:
    def through_pool(n: int) -> int:
        with Pool(2) as pool:
            return sum(pool.map(abs, range(n)))

    def through_remote(n: int) -> int:
        return sum(ob.get([ob.remote(abs).remote(-i) for i in range(n)]))

    for inner in (through_pool, through_remote):
        assert Parallel(n_jobs=2, backend="dist")(delayed(inner)(n) for n in range(5)) == [0, 0, 1, 3, 6]


def test_calls_in_threads_of_tasks_end(tmp_path: Path) -> None:
    def through_threads(n: int) -> int:
        return sum(Parallel(n_jobs=2, backend="threading")(delayed(leaves)(1, gauge, backend="dist") for _ in range(n)))

    gauge = Gauge(str(tmp_path / "gauge"))
    assert Parallel(n_jobs=2, backend="dist")(delayed(through_threads)(3) for _ in range(4)) == [9] * 4
    assert gauge.peak <= 2


def test_an_error_below_passes_all_levels_and_cancels_what_ran(tmp_path: Path, eventually: Any) -> None:
    def fail() -> None:
        while len(list(tmp_path.iterdir())) < 1:
            time.sleep(0.002)
        Parallel(n_jobs=2)(delayed(divmod)(1, x) for x in (1, 0))

    with pytest.raises(ZeroDivisionError):
        Parallel(n_jobs=2, backend="dist")([delayed(stay_below)(str(tmp_path / "s")), delayed(fail)()])
    eventually(lambda: not list(tmp_path.iterdir()))
    with parallel_config("dist"):
        assert leaves(2) == 9

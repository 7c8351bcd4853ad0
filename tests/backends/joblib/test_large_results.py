"""Arguments and results in all larger than the store: results end up in the program's own memory, as with loky."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import joblib
import numpy as np
import pytest

import outboard
import outboard.joblib
from outboard.errors import StoreFullError

pytestmark = pytest.mark.timeout(60)

COUNT, LENGTH = 30, 1_000_000


@pytest.fixture(autouse=True)
def small_store() -> Iterator[None]:
    outboard.init(num_cpus=2, store_memory=64 << 20)
    yield
    outboard.shutdown()


def filled(value: int) -> np.ndarray:
    return np.full(LENGTH, value)


def total(*arrays: np.ndarray) -> int:
    return int(sum(array.sum() for array in arrays))


@pytest.mark.parametrize("return_as", ["list", "generator", "generator_unordered"])
def test_all_are_kept_and_can_be_written_to(return_as: str) -> None:
    parallel = joblib.Parallel(n_jobs=2, backend="dist", return_as=return_as)
    results = list(parallel(joblib.delayed(filled)(n) for n in range(COUNT)))
    assert sorted(int(result[-1]) for result in results) == list(range(COUNT))
    for result in results:
        result += 1
    assert sorted(int(result.max()) for result in results) == list(range(1, COUNT + 1))


def test_distinct_arguments_pass_through_a_small_store() -> None:
    tasks = (joblib.delayed(total)(np.full(LENGTH, n)) for n in range(COUNT))
    assert joblib.Parallel(2, "dist")(tasks) == [LENGTH * n for n in range(COUNT)]


def test_an_argument_of_many_tasks_is_in_the_store_once() -> None:
    """One of 24 MB for each task beside another of its own: copies of it would not fit."""
    shared = np.ones(3 * LENGTH, dtype=int)
    tasks = (joblib.delayed(total)(shared, np.full(LENGTH, n)) for n in range(COUNT))
    assert joblib.Parallel(2, "dist", pre_dispatch="all")(tasks) == [LENGTH * (n + 3) for n in range(COUNT)]


def test_workers_wait_for_a_program_that_takes_its_results_slowly() -> None:
    """Whatever has come is taken in the thread that hears of it, which a slow input holds up."""

    def source() -> Iterator[Any]:
        for n in range(COUNT):
            time.sleep(0.05 if n > 8 else 0)
            yield joblib.delayed(filled)(n)

    results = joblib.Parallel(n_jobs=2, backend="dist", pre_dispatch=10)(source())
    assert [int(result[-1]) for result in results] == list(range(COUNT))


def test_calls_leave_the_store_empty(eventually: Any) -> None:
    """Nearly all of it can be had then: writers give back what lies empty."""

    def has_room() -> bool:
        try:
            outboard.put(np.zeros(6 * LENGTH))
        except StoreFullError:
            return False
        return True

    for _ in range(5):
        shared = np.ones(LENGTH, dtype=int)
        assert joblib.Parallel(2, "dist")(joblib.delayed(total)(shared) for _ in range(5)) == [LENGTH] * 5
    del shared
    eventually(has_room)


def test_an_argument_beyond_the_store_fails_for_want_of_room_and_the_next_call_runs() -> None:
    parallel = joblib.Parallel(n_jobs=2, backend="dist")
    with pytest.raises(StoreFullError, match=r"no room for 7\d"):
        parallel(joblib.delayed(total)(array) for array in [np.ones(10 * LENGTH)] * 3)
    assert parallel(joblib.delayed(total)(np.ones(LENGTH)) for _ in range(3)) == [LENGTH] * 3

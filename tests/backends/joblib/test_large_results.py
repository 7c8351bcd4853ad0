"""Results in all larger than the store: they end up in the program's own memory, as with loky."""

from __future__ import annotations

from collections.abc import Iterator

import joblib
import numpy as np
import pytest

import outboard
import outboard.joblib

pytestmark = pytest.mark.timeout(60)

COUNT, LENGTH = 30, 1_000_000


@pytest.fixture(autouse=True)
def small_store() -> Iterator[None]:
    outboard.init(num_cpus=2, store_memory=64 << 20)
    yield
    outboard.shutdown()


def filled(value: int) -> np.ndarray:
    return np.full(LENGTH, value)


@pytest.mark.parametrize("return_as", ["list", "generator", "generator_unordered"])
def test_all_are_kept_and_can_be_written_to(return_as: str) -> None:
    parallel = joblib.Parallel(n_jobs=2, backend="dist", return_as=return_as)
    results = list(parallel(joblib.delayed(filled)(n) for n in range(COUNT)))
    assert sorted(int(result[-1]) for result in results) == list(range(COUNT))
    for result in results:
        result += 1
    assert sorted(int(result.max()) for result in results) == list(range(1, COUNT + 1))

"""Results that fill the store unless their sum is bounded, whoever holds them back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import outboard
from outboard.multiprocessing import Pool, feed

STORE_NBYTES = 64 << 20


@pytest.fixture
def pool() -> Iterator[Pool]:
    outboard.init(num_cpus=2, store_memory=STORE_NBYTES)
    with Pool(2) as p:
        yield p
    outboard.shutdown()


def megabytes(item: tuple[int, int]) -> Any:
    number, size = item
    return np.full(size * 125_000, float(number))


def megabytes_after_a_while(item: tuple[int, int]) -> Any:
    if item[0] % 40 == 0:
        time.sleep(1.0)
    return megabytes(item)


@pytest.mark.parametrize("is_generator", [False, True])
@pytest.mark.parametrize("method", ["imap", "imap_unordered"])
@pytest.mark.parametrize(("size", "count"), [(1, 60), (10, 25), (20, 8)])
def test_slow_consumer_of_large_results(pool: Pool, method: str, size: int, count: int, is_generator: bool) -> None:
    items = [(i, size) for i in range(count)]
    seen, used = [], 0
    for array in getattr(pool, method)(megabytes, (i for i in items) if is_generator else items):
        seen.append(int(array[0]))
        if len(seen) % 12 == 1:
            time.sleep(0.2)  # long enough for the workers to fill any window
            used = max(used, outboard.nodes()[0]["store_used_nbytes"])
    assert (seen if method == "imap" else sorted(seen)) == list(range(count))
    assert used <= STORE_NBYTES


@pytest.mark.parametrize(("size", "count"), [(1, 60), (10, 30)])
def test_one_slow_task_holds_back_large_results(pool: Pool, size: int, count: int) -> None:
    results = pool.imap(megabytes_after_a_while, [(i, size) for i in range(count)])
    assert [int(array[0]) for array in results] == list(range(count))


def test_chunks_of_large_results(pool: Pool) -> None:
    results = pool.imap(megabytes, [(i, 1) for i in range(120)], chunksize=4)
    assert [int(array[0]) for array in results] == list(range(120))


def test_window_follows_the_size_of_results(pool: Pool) -> None:
    results: Any = pool.imap(megabytes, [(i, 1) for i in range(100)])
    next(results)
    assert results._feed._limit() <= STORE_NBYTES // feed.STORE_SHARE // 1_000_000
    tiny: Any = pool.imap(abs, range(5000))
    for _ in range(2000):
        next(tiny)
    assert tiny._feed._limit() > 100

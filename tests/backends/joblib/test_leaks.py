"""What calls leave behind: nothing that grows, in this process, in the workers, in the store."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import delayed

import outboard

MB = 1 << 20

STORE_NBYTES = 256 * MB

#: Threads or descriptors that may come and go at any moment; 250 calls that leave one each leave far more.
HANDFUL = 10


def square(x: int) -> int:
    return x * x


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two slots and a small store."""
    outboard.init(num_cpus=2, store_memory=STORE_NBYTES)
    yield
    outboard.shutdown()


def total(array: np.ndarray) -> float:
    return float(array.sum())


def own_memory(pid: int | str = "self") -> int:
    """Memory of a process that is no file's and no store's."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) << 10


def footprint() -> tuple[int, int, int]:
    """Memory of this process, without what its allocator keeps for later; threads, descriptors."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return own_memory(), threading.active_count(), len(os.listdir("/proc/self/fd"))


def workers() -> list[int]:
    return [worker["pid"] for node in outboard.nodes() for worker in node["workers"]]


@pytest.mark.parametrize("return_as", ["list", "generator"])
def test_hundreds_of_calls_leave_memory_threads_and_descriptors_as_they_were(
    parallel: Callable[..., Any], eventually: Callable[..., Any], return_as: str
) -> None:
    def calls(count: int) -> None:
        for n in range(count):
            argument = np.full(20_000, n)  # large enough for the store
            assert list(parallel(return_as=return_as)(delayed(total)(argument) for _ in range(3))) == [20_000.0 * n] * 3

    def is_as_before() -> bool:
        memory_after, threads_after, descriptors_after = footprint()
        return (
            memory_after - memory < 4 * MB
            and threads_after - threads < HANDFUL
            and descriptors_after - descriptors < HANDFUL
            and sum(own_memory(pid) for pid in workers()) - below < 8 * MB
        )

    calls(50)
    memory, threads, descriptors = footprint()
    below = sum(own_memory(pid) for pid in workers())
    calls(250)
    eventually(is_as_before)  # the last call's segments and threads go a moment after its results are there


@pytest.mark.parametrize("how", ["error", "dropped"])
def test_calls_that_end_early_do_not_fill_the_store_and_need_no_garbage_collector(
    parallel: Callable[..., Any], how: str
) -> None:
    """Their arguments are more than there is room for."""

    def call() -> None:
        shared = np.ones(2_000_000)
        if how == "error":
            try:  # what pytest offers would keep the traceback
                parallel()(delayed(total)(shared if n < 9 else {}) for n in range(20))
            except AttributeError:
                return
            raise AssertionError("no error")
        found = parallel(return_as="generator")(delayed(np.add)(shared, n) for n in range(200))
        assert next(found)[0] == 1
        with pytest.warns(UserWarning, match="cancelled"):
            found.close()

    gc.disable()
    try:
        for _ in range(20):
            call()
    finally:
        gc.enable()


def test_memory_of_large_results_returns(parallel: Callable[..., Any], eventually: Callable[..., Any]) -> None:
    def rounds(count: int) -> None:
        for _ in range(count):
            found = parallel()(delayed(np.ones)(500_000) for _ in range(40))  # 160 MB
            assert found[-1].sum() == 500_000

    assert parallel()(delayed(square)(x) for x in range(100)) == [x * x for x in range(100)]
    rounds(1)
    before, _, _ = footprint()
    below = [own_memory(pid) for pid in workers()]
    rounds(3)
    eventually(lambda: footprint()[0] - before < 48 * MB)  # a call's results are 160 MB
    assert max(own_memory(pid) for pid in workers()) < 1.1 * max(below) + 2 * MB

"""Memmaps as arguments: tasks see their files, and what they write is there afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outboard as ob
from outboard import engine as engines
from outboard.errors import SerializationError
from outboard.multiprocessing import Pool
from outboard.options import TaskOptions

pytestmark = pytest.mark.timeout(60)

COUNT = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Start a cluster whose store is too small for the arrays here."""
    ob.init(num_cpus=2, store_memory=4 << 20)
    yield
    ob.shutdown()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write a file of 8 MB."""
    path = tmp_path / "numbers"
    np.arange(COUNT, dtype=np.float64).tofile(path)
    return path


def fill(job: tuple[Any, int]) -> int:
    part, value = job
    part[:] = value
    return os.getpid()


def total(array: Any) -> tuple[float, bool]:
    return float(array.sum()), bool(array.flags.writeable)


@ob.remote
def remote_total(array: Any, *, also: Any) -> float:
    return float(array.sum() + also.sum())


def test_what_tasks_write_reaches_the_file(path: Path) -> None:
    array = np.memmap(path, np.float64, "r+")
    with Pool(2) as pool:
        pids = pool.map(fill, [(array[start : start + COUNT // 8], start) for start in range(0, COUNT, COUNT // 8)])
    assert os.getpid() not in pids
    assert [array[start + 1] for start in range(0, COUNT, COUNT // 8)] == list(range(0, COUNT, COUNT // 8))
    assert np.array_equal(np.fromfile(path), array)


class Holder:
    """Holds an array as an attribute."""

    def __init__(self, array: Any) -> None:
        self.array = array


def fill_held(job: tuple[Holder, int]) -> None:
    job[0].array[:] = job[1]


def test_what_tasks_write_to_few_values_reaches_the_file(tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "few", np.float64, "w+", shape=(40,))
    with Pool(2) as pool:
        pool.map(fill, [(array[:10], 1), (np.asarray(array)[10:20], 2)])
        pool.map(fill_held, [(Holder(array[20:30]), 3)])
    remote_fill = ob.remote(fill)
    ob.get(remote_fill.remote((array[30:], 4)))
    assert array.reshape(4, 10).tolist() == [[float(value)] * 10 for value in (1, 2, 3, 4)]


def fill_at(array: Any, place: int) -> None:
    array[place] = place + 1


def test_what_a_partial_or_an_initializer_was_given_is_written_to_as_well(tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "few", np.float64, "w+", shape=(10,))
    with Pool(2, fill_at, (array, 9)) as pool:
        pool.map(partial(fill_at, array), range(9))
    assert array.tolist() == list(range(1, 11))


def test_readonly_ones_are_not_stored_and_stay_so(path: Path) -> None:
    array = np.memmap(path, np.float64, "r")
    expected = float(array.sum())
    shared = engines.current().open_array(total, TaskOptions(), share_arguments=True)
    for _ in range(4):
        shared.extend([array])
    done: list[Any] = []
    while completions := shared.take(timeout=30):
        done += completions
    assert [tuple(completion[1:]) for completion in done] == [(True, (expected, False))] * 4
    assert ob.get(remote_total.remote(array, also=array)) == 2 * expected


def test_another_file_in_its_place_when_the_task_runs_is_named(path: Path, tmp_path: Path) -> None:
    array = np.memmap(path, np.float64, "r")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with Pool(1) as pool:
        first = pool.apply_async(read_gate, (str(gate),))
        second = pool.apply_async(total, (array,))
        path.rename(path.with_name("kept"))
        path.write_bytes(bytes(array.nbytes))
        gate.write_text("go")
        assert first.get(30) == "go"
        with pytest.raises(SerializationError, match=str(path)):
            second.get(30)


def read_gate(path: str) -> str:
    return Path(path).read_text()

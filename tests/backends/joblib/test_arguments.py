"""Arguments: stored once, written to without effect on others, memmaps, files and caches of joblib."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from joblib import delayed

LARGE = 1_000_000


def bump(array: np.ndarray) -> float:
    array[0] += 1
    return float(array[0])


def first(array: np.ndarray) -> float:
    return float(array[0])


def add_at(array: Any, index: int) -> None:
    array[index] += 1
    array.flush()


def kind(array: Any) -> tuple[str, str, bool]:
    return type(array).__name__, getattr(array, "mode", ""), bool(array.flags.writeable)


def total(*arrays: np.ndarray, **more: np.ndarray) -> float:
    return float(sum(array.sum() for array in (*arrays, *more.values())))


def noted(x: int, path: str) -> int:
    with open(path, "a") as file:
        file.write(f"{x}\n")
    return x * x


def dump_and_load(path: str, x: int) -> int:
    joblib.dump({"x": np.full(10, x)}, path)
    return int(joblib.load(path)["x"].sum())


@pytest.mark.parametrize("size", [10, 100_000, LARGE])
def test_every_task_may_write_to_its_own_copy(parallel: Callable[..., Any], size: int) -> None:
    assert parallel()(delayed(bump)(np.zeros(size)) for _ in range(4)) == [1.0] * 4
    shared = np.zeros(size)
    assert parallel()(delayed(bump)(shared) for _ in range(20)) == [1.0] * 20
    assert shared[0] == 0


@pytest.mark.parametrize("size", [10, LARGE])
def test_what_changes_in_place_between_calls_is_new(parallel: Callable[..., Any], size: int) -> None:
    array = np.zeros(size)
    with parallel() as managed:
        for value in range(4):
            array[0] = value
            assert set(managed(delayed(first)(array) for _ in range(6))) == {value}


def test_arguments_anywhere_in_a_call_and_of_any_layout(parallel: Callable[..., Any]) -> None:
    array = np.arange(LARGE, dtype=float).reshape(1000, 1000)
    views = [array, array.T, array[::2], array[:, 3:700], np.asfortranarray(array)]
    found = parallel()(delayed(total)(view, more=view) for view in views)
    assert found == [2 * float(view.sum()) for view in views]


@pytest.mark.parametrize(
    "options", [{"max_nbytes": None}, {"mmap_mode": None}, {"max_nbytes": 0}, {"max_nbytes": "1K"}]
)
def test_sharing_may_be_turned_off_and_its_limits_are_accepted(
    parallel: Callable[..., Any], options: dict[str, Any]
) -> None:
    array = np.zeros(LARGE)
    assert parallel(**options)(delayed(bump)(array) for _ in range(10)) == [1.0] * 10
    assert array[0] == 0


def test_memmaps_that_are_read(parallel: Callable[..., Any], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(LARGE, dtype=float))
    array = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert parallel()(delayed(kind)(array) for _ in range(2)) == [("memmap", "r", False)] * 2
    slices = [array[100:], array[10_000:20_000], array[::-1], array[5:500:7]]
    assert parallel()(delayed(first)(part) for part in slices) == [first(part) for part in slices]


def test_tasks_write_into_a_common_memmap(parallel: Callable[..., Any], tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "data", dtype=float, mode="w+", shape=(20_000,))
    parallel()(delayed(add_at)(array, index) for index in range(30))
    parallel()(delayed(add_at)(array[10_000:], index) for index in range(30))
    assert (array[:30] == 1).all() and (array[10_000:10_030] == 1).all() and array.sum() == 60


def test_memmaps_that_joblib_loads(parallel: Callable[..., Any], tmp_path: Path) -> None:
    joblib.dump(np.arange(LARGE), tmp_path / "dumped")
    array = joblib.load(tmp_path / "dumped", mmap_mode="r")
    assert parallel()(delayed(first)(array[n:]) for n in range(5)) == [0, 1, 2, 3, 4]


def test_a_memory_of_joblib_in_tasks(parallel: Callable[..., Any], tmp_path: Path) -> None:
    memory = joblib.Memory(tmp_path / "cache", verbose=0)
    cached = memory.cache(noted, ignore=["path"])
    for _ in range(2):
        found = parallel()(delayed(cached)(x, str(tmp_path / "calls")) for x in range(10))
        assert found == [x * x for x in range(10)]
    assert sorted(map(int, (tmp_path / "calls").read_text().split())) == list(range(10))
    assert cached(3, "nowhere") == 9


def test_dump_and_load_in_tasks(parallel: Callable[..., Any], tmp_path: Path) -> None:
    found = parallel()(delayed(dump_and_load)(str(tmp_path / f"{x}.gz"), x) for x in range(6))
    assert found == [10 * x for x in range(6)]


def test_objects_that_only_wrapping_makes_picklable(parallel: Callable[..., Any]) -> None:
    @joblib.wrap_non_picklable_objects
    def local(x: int) -> int:
        return x + 1

    assert parallel()(delayed(local)(x) for x in range(4)) == [1, 2, 3, 4]


def test_closures_lambdas_and_local_classes(parallel: Callable[..., Any]) -> None:
    class Local:
        def __init__(self, x: int) -> None:
            self.x = x

        def plus(self, y: int) -> Local:
            return Local(self.x + y)

    offset = 5
    assert parallel()(delayed(lambda x: x + offset)(x) for x in range(4)) == [5, 6, 7, 8]
    found = parallel()(delayed(Local(x).plus)(1) for x in range(4))
    assert [type(made) is Local and made.x for made in found] == [1, 2, 3, 4]

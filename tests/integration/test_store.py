"""Large values: shared, never stale, never reused under a view, and bounded."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import pytest

import outboard as ob
from outboard.errors import StoreFullError
from outboard.multiprocessing import Pool

pytestmark = pytest.mark.timeout(60)

MB = 1 << 20

kept: list[Any] = []


@pytest.fixture
def store() -> Iterator[Callable[[int], None]]:
    """Start a cluster with so many megabytes of store."""
    yield lambda megabytes, cpus=2: ob.init(num_cpus=cpus, store_memory=megabytes * MB) and None
    ob.shutdown()


def total(x: Any) -> float:
    return float(x.sum())


def total_of(*arrays: Any) -> float:
    return float(sum(a.sum() for a in arrays))


def slow_total(x: Any) -> float:
    time.sleep(0.02)
    return float(x.sum())


def make(n: int, value: float) -> Any:
    return np.full(n, value)


def make_bytes(n: int) -> bytes:
    return bytes(n)


def change(x: Any) -> tuple[bool, float]:
    writable = x.flags.writeable
    if writable:
        x += 1
    return writable, float(x[0])


def keep(x: Any) -> int:
    kept.append(x)
    return os.getpid()


def check_kept(expected: list[float]) -> bool:
    return [float(a[0]) for a in kept] == expected and all((a == a[0]).all() for a in kept)


def used() -> int:
    return int(ob.nodes()[0]["store_used_nbytes"])


def settle(condition: Callable[[], bool], within: float = 5.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        gc.collect()
        threading.Event().wait(0.01)


class TestWriting:
    def test_arrays_of_the_core_are_read_only_and_say_so(self, store: Any) -> None:
        store(100)
        for n in (100, 1_000_000):
            source = np.zeros(n)
            ref = ob.put(source)
            array = ob.get(ref)
            if n > 100:  # small values have no memory in common, so nothing needs protection
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = 1
            source += 1
            assert ob.get(ref).sum() == 0
            for argument in (ref, np.zeros(n)):
                writable, first = ob.get(ob.remote(change).remote(argument))
                assert first == writable == (n <= 100)
            assert ob.get(ob.remote(total).remote(ref)) == 0

    def test_pool_arguments_are_private_copies(self, store: Any) -> None:
        store(100)
        for n in (100, 1_000_000):
            source = np.zeros(n)
            with Pool(2) as pool:
                assert pool.map(change, [source] * 8, chunksize=1) == [(True, 1.0)] * 8
                assert pool.apply(change, (source,)) == (True, 1.0)
            assert source.sum() == 0

    def test_content_changed_between_calls_is_new(self, store: Any) -> None:
        store(100)
        array = np.zeros(500_000)
        task = ob.remote(total)
        with Pool(2) as pool:
            for i in range(20):
                array[-1] = i
                assert ob.get(task.remote(array)) == i
                assert pool.apply(total, (array,)) == i
                assert pool.map(total, [array, array], chunksize=1) == [i, i]
                assert ob.get(ob.put(array))[-1] == i

    def test_new_array_at_an_old_address_is_new(self, store: Any) -> None:
        store(100)
        task = ob.remote(total)
        for i in range(30):
            assert ob.get(task.remote(np.full(100_000, float(i)))) == 100_000.0 * i


class TestSharing:
    def test_same_object_sixteen_times_is_stored_once(self, store: Any) -> None:
        store(200)
        array = np.ones(1_500_000)
        before = used()
        refs = [ob.remote(slow_total).remote(array) for _ in range(16)]
        assert used() - before < 3 * array.nbytes
        assert ob.get(refs) == [1_500_000.0] * 16
        with Pool(2) as pool:
            assert pool.map(total, [array] * 16, chunksize=1) == [1_500_000.0] * 16
        assert used() - before < 5 * array.nbytes

    def test_values_read_twice_are_one_memory(self, store: Any) -> None:
        store(200)
        ref = ob.put(np.ones(1_000_000))
        first, second = ob.get(ref), ob.get(ref)
        assert first.__array_interface__["data"] == second.__array_interface__["data"]


class TestViews:
    def test_survive_references_and_later_objects(self, store: Any) -> None:
        store(60)
        views = {}
        for i in range(6):
            ref = ob.put(np.full(100_000, float(i)))
            views[i] = ob.get(ref)
            del ref
        for i in range(6, 10):
            views[i] = ob.get(ob.remote(make).remote(100_000, float(i)))
        parts = {i: view[10:20] for i, view in views.items() if i % 2}
        for i in parts:
            del views[i]
        gc.collect()
        for j in range(100):
            assert ob.get(ob.put(np.full(150_000, -1.0 - j)))[0] == -1.0 - j
            assert ob.get(ob.remote(make).remote(150_000, -2.0))[0] == -2.0
        assert all((view == i).all() for i, view in {**views, **parts}.items())

    def test_kept_by_a_worker_stay_as_they_are(self, store: Any) -> None:
        store(60, cpus=1)
        task, check = ob.remote(keep), ob.remote(check_kept)
        for i in range(5):
            ob.get(task.remote(np.full(100_000, float(i))))
        for j in range(60):
            assert ob.get(ob.put(np.full(150_000, -1.0 - j)))[0] == -1.0 - j
        assert ob.get(check.remote([0.0, 1.0, 2.0, 3.0, 4.0]))

    def test_kept_by_a_pool_worker_stay_as_they_are(self, store: Any) -> None:
        store(60, cpus=1)
        with Pool(1) as pool:
            for i in range(5):
                pool.apply(keep, (np.full(100_000, float(i)),))
            for j in range(60):
                assert pool.apply(total, (np.full(150_000, -1.0 - j),)) == 150_000 * (-1.0 - j)
            assert pool.apply(check_kept, ([0.0, 1.0, 2.0, 3.0, 4.0],))

    def test_outlive_the_cluster(self, store: Any) -> None:
        store(60)
        view = ob.get(ob.put(np.full(200_000, 7.0)))
        ob.shutdown()
        gc.collect()
        assert (view == 7.0).all()


class TestFull:
    def test_object_larger_than_the_store_is_refused_at_once(self, store: Any) -> None:
        store(50)
        for attempt in (lambda: ob.put(bytes(80_000_000)), lambda: ob.get(ob.remote(make_bytes).remote(80_000_000))):
            begun = time.monotonic()
            with pytest.raises(StoreFullError) as caught:
                attempt()
            assert time.monotonic() - begun < 8  # most of it to pickle
            error = caught.value
            assert error.needed_nbytes >= 80_000_000 and error.capacity_nbytes == 50 * MB
            assert "76.3 MiB" in str(error)
        assert ob.get(ob.remote(total).remote(np.ones(1_000_000))) == 1_000_000

    def test_task_may_take_more_than_half_of_the_store(self, store: Any) -> None:
        store(100)
        refs = [ob.put(np.full(2_500_000, float(i))) for i in range(4)]
        assert ob.get(ob.remote(total_of).remote(*refs), timeout=20) == 2_500_000.0 * 6

    def test_holders_are_named_when_only_references_hold_room(self, store: Any) -> None:
        store(50)
        held = []
        begun = time.monotonic()
        with pytest.raises(StoreFullError) as caught:
            while True:
                held.append(ob.put(np.ones(625_000)))
        assert time.monotonic() - begun < 5
        assert 6 <= len(held) <= 10
        assert caught.value.holders and sum(n for _, n in caught.value.holders) > 30 * MB
        held.clear()
        assert ob.get(ob.put(np.ones(625_000))).sum() == 625_000

    def test_room_comes_back(self, store: Any) -> None:
        store(50)
        for i in range(100):
            assert ob.get(ob.put(np.full(1_000_000, float(i))))[0] == i
            assert ob.get(ob.remote(make).remote(1_000_000, float(i)))[0] == i

    def test_fast_producer_is_slowed_by_a_full_store(self, store: Any) -> None:
        store(200)
        rss = psutil.Process().memory_info().rss
        task = ob.remote(slow_total)
        refs = [task.remote(np.ones(2_500_000)) for _ in range(60)]
        assert psutil.Process().memory_info().rss - rss < 400 * MB
        assert ob.get(refs, timeout=40) == [2_500_000.0] * 60
        del refs
        settle(lambda: used() <= 200 * MB)
        assert ob.get(ob.put(np.ones(10_000_000))).sum() == 10_000_000

    def test_results_that_nobody_takes_fill_it_and_end_in_an_error(self, store: Any) -> None:
        store(100)
        refs = [ob.remote(big).remote(i) for i in range(30)]
        with pytest.raises(StoreFullError):
            ob.get(refs, timeout=20)
        del refs
        assert ob.get(ob.remote(big).remote(1.0), timeout=10).sum() == 625_000

    def test_results_that_a_map_collects_may_be_more_than_it_holds(self, store: Any) -> None:
        store(100)
        with Pool(2) as pool:
            found = pool.map(big, range(60), chunksize=1)
        assert [int(array[-1]) for array in found] == list(range(60))

    def test_results_that_are_taken_leave_room_for_the_next(self, store: Any) -> None:
        store(200)
        with Pool(2) as pool:
            for place, array in enumerate(pool.imap(big, range(100), buffersize=8)):
                assert (array == place).all()
        total = 0
        with Pool(2) as pool:
            for array in pool.imap_unordered(big, range(100), buffersize=8):
                total += int(array[-1])
        assert total == sum(range(100))


def big(i: int) -> Any:
    return np.full(625_000, float(i))


@pytest.mark.alone
def test_idle_cluster_uses_no_cpu(store: Any) -> None:
    store(50)
    with Pool(2) as pool:
        pool.map(abs, range(100))
        ob.get(ob.remote(total).remote(np.ones(100_000)))
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        threading.Event().wait(0.5)
        before = sum(sum(p.cpu_times()[:2]) for p in processes)
        threading.Event().wait(4.0)
        assert sum(sum(p.cpu_times()[:2]) for p in processes) - before < 0.021

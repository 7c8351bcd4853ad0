"""Tasks that share a packet with a slow one: neither those before it nor those behind it wait for it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outboard as ob
from outboard.multiprocessing import Pool

pytestmark = pytest.mark.timeout(60)


def wait_for(path: Path | str) -> None:
    while not os.path.exists(path):
        time.sleep(0.005)


def item(job: tuple[int, str]) -> int:
    number, flag = job
    if number == 2:
        wait_for(flag)
    return number


def either(job: tuple[str, str]) -> str:
    """Wait for what the other kind of item does; most items do neither."""
    what, flag = job
    if what == "wait":
        wait_for(flag)
    elif what == "free":
        Path(flag).touch()
    return what


@pytest.fixture(autouse=True)
def one_machine() -> Iterator[None]:
    ob.init(num_cpus=2)
    yield
    ob.shutdown()


@pytest.fixture
def flag(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path / "flag")


def warm_up(pool: Any, function: Any, job: Any) -> None:
    """Teach the node that this function is quick, so that its items share packets."""
    pool.map(function, [job] * 2000, chunksize=1)


def test_finished_items_come_while_a_slow_one_runs(flag: str) -> None:
    with Pool(1) as pool:
        warm_up(pool, item, (0, flag))
        results = pool.imap(item, [(number, flag) for number in range(6)])
        assert [next(results), next(results)] == [0, 1]
        Path(flag).touch()
        assert list(results) == [2, 3, 4, 5]


def test_items_behind_a_slow_one_run_elsewhere(flag: str) -> None:
    with Pool(2) as pool:
        warm_up(pool, either, ("", flag))
        jobs = [("wait", flag)] + [("", flag)] * 6 + [("free", flag)] + [("", flag)] * 8
        assert pool.map(either, jobs, chunksize=1) == [what for what, _ in jobs]


def test_calls_that_wait_for_each_other_end(flag: str) -> None:
    with Pool(2) as pool:
        warm_up(pool, either, ("", flag))
        results = [pool.apply_async(either, ((what, flag),)) for what in ["", "wait", "", "", "free", ""]]
        assert [result.get(20) for result in results] == ["", "wait", "", "", "free", ""]


@ob.remote
def look_up(refs: list[Any]) -> int:
    return sum(ob.get(refs)) if refs else 1


def test_task_that_gets_what_stands_before_it_in_its_packet() -> None:
    ob.get([look_up.remote([]) for _ in range(2000)])
    tasks = [look_up.remote([]) for _ in range(3)]
    tasks += [look_up.remote([tasks[-1]]), *(look_up.remote([]) for _ in range(40))]
    tasks.append(look_up.remote([tasks[-1], tasks[0]]))
    assert ob.get(tasks, timeout=20) == [1] * 44 + [2]


def measure(job: tuple[str, str, np.ndarray[Any, Any]]) -> float:
    what, flag, array = job
    either((what, flag))
    return float(array.sum())


def test_arguments_of_items_given_back_are_there_and_let_go_again(flag: str) -> None:
    array = np.ones(200_000)
    with Pool(2) as pool:
        warm_up(pool, measure, ("", flag, np.ones(1)))
        jobs = [("wait" if n == 1 else "free" if n == 30 else "", flag, array + n) for n in range(40)]
        assert pool.map(measure, jobs, chunksize=1) == [200_000.0 * (n + 1) for n in range(40)]


def keep_until(path: str, array: np.ndarray[Any, Any]) -> None:
    wait_for(path)


def test_room_of_arguments_that_were_given_back_is_free_again(flag: str) -> None:
    ob.shutdown()
    ob.init(num_cpus=2, store_memory=64 << 20)
    gate = f"{flag}-gate"
    array = np.ones(3_000_000)  # 23 MiB
    with Pool(2) as pool:
        warm_up(pool, measure, ("", flag, array[:1]))
        whole_machine = ob.remote(num_cpus=2)(keep_until).remote(gate, array)  # the items gather, and share packets
        jobs = [("wait" if n == 0 else "free" if n == 3 else "", flag, array) for n in range(12)]
        results = pool.map_async(measure, jobs, chunksize=1)
        Path(gate).touch()
        assert results.get(20) == [3_000_000.0] * 12
        ob.get(whole_machine)
        del array, jobs
        assert ob.get(ob.put(np.ones(6_000_000))).size == 6_000_000  # 46 MiB, while the workers live


class Slow:
    def __init__(self) -> None:
        self.seen: list[int] = []

    def add(self, number: int, flag: str) -> list[int]:
        if number == 3 and flag:
            wait_for(flag)
        self.seen.append(number)
        return self.seen


def test_calls_of_an_actor_stay_in_order_and_answer_one_by_one(flag: str) -> None:
    actor = ob.remote(Slow).remote()
    ob.get([actor.add.remote(0, "") for _ in range(500)])
    calls = [actor.add.remote(number, flag) for number in range(1, 9)]
    assert ob.get(calls[1], timeout=20)[-2:] == [1, 2]
    Path(flag).touch()
    assert ob.get(calls[-1], timeout=20)[-8:] == list(range(1, 9))

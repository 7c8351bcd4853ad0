"""Tasks that start and wait for tasks, and references that travel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest

import outboard as ob
from outboard.multiprocessing import Pool

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True, params=[1, 2])
def cpus(request: pytest.FixtureRequest) -> Iterator[int]:
    ob.init(num_cpus=request.param)
    yield request.param
    ob.shutdown()


@ob.remote
def add(a: Any, b: Any = 0) -> Any:
    return a + b


@ob.remote
def descend(depth: int, width: int) -> int:
    if depth == 0:
        return 1
    return sum(ob.get([descend.remote(depth - 1, width) for _ in range(width)]))


@ob.remote
def child_later(x: int) -> Any:
    """Return the reference of a child that has not finished."""
    return slow_double.remote(x)


@ob.remote
def slow_double(x: int) -> int:
    time.sleep(0.1)
    return 2 * x


@ob.remote
def nested_refs(refs: dict[str, list[Any]]) -> dict[str, Any]:
    return {name: [ob.get(ref) for ref in values] for name, values in refs.items()}


@ob.remote
def large_ref(n: int) -> list[Any]:
    return [ob.put(np.full(n, 3.0)), ob.put("small")]


@ob.remote
def wait_for(refs: list[Any]) -> Any:
    return ob.get(refs[0]) + 1


def pool_in_pool(n: int) -> int:
    with Pool(2) as pool:
        return sum(pool.map(abs, range(n)))


def pool_of_pools(n: int) -> int:
    with Pool(2) as pool:
        return sum(pool.map(pool_in_pool, [n, n]))


def test_depth_five(cpus: int) -> None:
    assert ob.get(descend.remote(5, 2), timeout=40) == 32


def test_processes_stay_bounded(cpus: int) -> None:
    assert ob.get([descend.remote(2, 3) for _ in range(6)], timeout=30) == [9] * 6
    assert len(ob.nodes()[0]["workers"]) <= 3 * cpus + 2


def test_pools_in_pools(cpus: int) -> None:
    with Pool(2) as pool:
        assert pool.map(pool_in_pool, [3, 4, 5]) == [3, 6, 10]
        assert pool.map(pool_of_pools, [3, 4]) == [6, 12]


def test_returned_references(cpus: int) -> None:
    for _ in range(5):
        inner = ob.get(child_later.remote(4), timeout=20)
        assert ob.get(inner, timeout=20) == 8
    inner = ob.get(ob.get(child_of_child.remote(5), timeout=20), timeout=20)
    assert ob.get(inner, timeout=20) == 10


@ob.remote
def child_of_child(x: int) -> Any:
    return child_later.remote(x)


def test_returned_reference_as_an_argument(cpus: int) -> None:
    inner = ob.get(child_later.remote(4), timeout=20)
    assert ob.get(add.remote(inner, inner), timeout=20) == 16
    assert ob.get(nested_refs.remote({"a": [inner]}), timeout=20) == {"a": [8]}


def test_references_in_containers(cpus: int) -> None:
    refs = {"a": [ob.put(1), slow_double.remote(2)], "b": [ob.put(np.arange(50_000.0))]}
    got = ob.get(nested_refs.remote(refs), timeout=20)
    assert got["a"] == [1, 4] and got["b"][0].sum() == np.arange(50_000.0).sum()


def test_objects_of_a_task_outlive_it(cpus: int) -> None:
    for _ in range(5):
        large, small = ob.get(large_ref.remote(100_000), timeout=20)
        assert ob.get(small, timeout=20) == "small"
        assert ob.get(add.remote(large, 1.0), timeout=20).sum() == 400_000


def test_chain(cpus: int) -> None:
    ref = ob.put(0)
    for _ in range(500):
        ref = add.remote(ref, 1)
    assert ob.get(ref, timeout=30) == 500


def test_diamond(cpus: int) -> None:
    layer, expected = [add.remote(i) for i in range(4)], list(range(4))
    for _ in range(6):
        layer = [add.remote(layer[i], layer[(i + 1) % 4]) for i in range(4)]
        expected = [expected[i] + expected[(i + 1) % 4] for i in range(4)]
    assert ob.get(layer, timeout=30) == expected


def test_task_waits_for_its_sibling(cpus: int) -> None:
    first = slow_double.remote(1)
    waiting = [wait_for.remote([first]) for _ in range(4)]
    assert ob.get(waiting, timeout=20) == [3] * 4
    # The one that is waited for may also come later.
    assert ob.get(wait_for.remote([wait_for.remote([slow_double.remote(2)])]), timeout=20) == 6


def test_failed_input_fails_what_depends_on_it(cpus: int) -> None:
    bad = add.remote(1, "x")
    chain = add.remote(add.remote(add.remote(bad)))
    with pytest.raises(TypeError, match="unsupported operand"):
        ob.get(chain, timeout=20)
    with pytest.raises(TypeError):
        ob.get([slow_double.remote(1), chain], timeout=20)


def test_dropped_references_of_running_tasks_do_no_harm(cpus: int) -> None:
    for i in range(100):
        add.remote(i)
        child_later.remote(i) if i % 20 == 0 else None
    assert ob.get(add.remote(1, 1), timeout=20) == 2


def test_memory_does_not_grow_with_finished_tasks(cpus: int) -> None:
    def run(count: int) -> int:
        ob.get([add.remote(1, 1) for _ in range(count)])
        return int(psutil.Process().memory_info().rss)

    run(2000)
    before = run(2000)
    for _ in range(5):
        after = run(2000)
    assert after - before < 4 << 20

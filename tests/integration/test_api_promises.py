"""What the documentation of the public calls promises, and arrays that change between calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import outboard as ob
import outboard.errors

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def cluster() -> Iterator[dict[str, Any]]:
    yield ob.init(num_cpus=2, store_memory=64 << 20)
    ob.shutdown()


def first(array: Any) -> float:
    return float(array[0])


def test_init_describes_the_cluster(cluster: dict[str, Any]) -> None:
    assert cluster["resources"] == ob.cluster_resources()
    assert [node["id"] for node in cluster["nodes"]] == [node["id"] for node in ob.nodes()]


def test_cancel_refuses_what_it_cannot_do(cluster: dict[str, Any]) -> None:
    ref = ob.remote(first).remote([1.0])
    with pytest.raises(ValueError, match="recursive=False"):
        ob.cancel(ref, recursive=False)
    assert ob.get(ref) == 1.0


def test_cancel_of_a_foreign_reference_says_so(cluster: dict[str, Any]) -> None:
    import time

    def cancel(refs: list[Any]) -> str:
        try:
            ob.cancel(refs[0])
        except ValueError as error:
            return str(error)
        return "nothing"

    ref = ob.remote(time.sleep).remote(5)
    assert "another process" in ob.get(ob.remote(cancel).remote([ref]))
    ob.cancel(ref)


def test_array_that_changed_between_calls_is_stored_anew(cluster: dict[str, Any]) -> None:
    array, task, refs = np.zeros(200_000), ob.remote(first), []
    for i in range(5):
        array[0] = i
        refs.append(task.remote(array))
    assert ob.get(refs) == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_call_that_finds_no_room_leaves_nothing_behind(cluster: dict[str, Any]) -> None:
    small, large = np.ones(1_000_000), np.zeros(20_000_000)
    for _ in range(20):
        with pytest.raises(ob.errors.StoreFullError):
            ob.remote(max).remote(small, large)
    assert ob.get(ob.remote(first).remote(np.ones(3_000_000))) == 1.0

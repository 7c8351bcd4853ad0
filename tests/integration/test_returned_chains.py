"""Tasks that return references to tasks which still run: whoever follows them gets every value."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest

import outboard as ob
from outboard.errors import OutboardError, OwnerLostError, TaskError, WorkerLostError

pytestmark = pytest.mark.timeout(60)

LARGE = 200_000


@pytest.fixture(autouse=True, params=[1, 2])
def cpus(request: pytest.FixtureRequest) -> Iterator[int]:
    ob.init(num_cpus=request.param)
    yield request.param
    ob.shutdown()


@ob.remote
def add_one(x: Any) -> Any:
    return x + 1


@ob.remote
def descend(depth: int, x: Any) -> Any:
    """Return the reference of a task that has just been started, so many times over."""
    return descend.remote(depth - 1, x) if depth else add_one.remote(x)


@ob.remote
def fan_out(depth: int) -> list[Any]:
    """Return references of two tasks and of an object, level by level."""
    if not depth:
        return []
    return [fan_out.remote(depth - 1), add_one.remote(depth), ob.put(np.full(LARGE, depth))]


@ob.remote
def follow(refs: list[Any]) -> Any:
    value: Any = refs[0]
    while isinstance(value, ob.ObjectRef):
        value = ob.get(value, timeout=20)
    return value


@ob.remote
def pass_through(refs: list[Any]) -> list[Any]:
    """Return the references that it was given, and what the first of them leads to."""
    return [*refs, ob.get(refs[0], timeout=20)]


@ob.remote
def stop_below(depth: int, file: str) -> Any:
    """Name this process, then return a reference to the next one; the last one waits."""
    with open(file, "a") as pids:
        print(os.getpid(), file=pids)
    if depth:
        return stop_below.remote(depth - 1, file)
    signal.pause()
    return None


def end_of(value: Any) -> Any:
    while isinstance(value, ob.ObjectRef):
        value = ob.get(value, timeout=20)
    return value


@pytest.mark.parametrize("depth", [0, 5, 20])
def test_chain_whose_links_are_dropped_at_once(depth: int) -> None:
    for _ in range(3):
        assert end_of(descend.remote(depth, 0)) == 1


def test_chain_whose_links_are_kept() -> None:
    links: list[Any] = [descend.remote(20, 0)]
    while isinstance(links[-1], ob.ObjectRef):
        links.append(ob.get(links[-1], timeout=20))
    assert links[-1] == 1 and len(links) == 23
    assert [end_of(link) for link in links] == [1] * 23


def test_many_chains_together() -> None:
    chains = [descend.remote(depth % 7, depth) for depth in range(40)]
    assert [end_of(chain) for chain in chains] == list(range(1, 41))


def test_chain_that_two_processes_follow() -> None:
    first = descend.remote(8, 1)
    others = [follow.remote([first]) for _ in range(2)]
    assert end_of(first) == 2
    del first
    assert ob.get(others, timeout=20) == [2, 2]


def test_chain_that_goes_on_through_a_task_that_did_not_start_it() -> None:
    passed = pass_through.remote([descend.remote(6, 1)])
    for _ in range(3):
        passed = pass_through.remote([passed])
    value = ob.get(passed, timeout=20)
    while isinstance(value, list):
        assert end_of(value[1]) == end_of(value[-1])
        value = ob.get(value[0], timeout=20)
    assert end_of(value) == 2


def test_chain_of_large_values() -> None:
    array = ob.put(np.zeros(LARGE))
    value = end_of(descend.remote(5, array))
    assert value.sum() == LARGE


def test_lists_of_references_on_every_level() -> None:
    refs = ob.get(fan_out.remote(6), timeout=20)
    for depth in range(6, 0, -1):
        below, number, array = refs
        del refs
        assert ob.get(number, timeout=20) == depth + 1
        assert (ob.get(array, timeout=20) == depth).all()
        refs = ob.get(below, timeout=20)
    assert refs == []


def test_chain_of_which_a_process_is_killed_ends_with_its_loss(tmp_path: Any) -> None:
    """Each process runs links in turn, so that any of them may own what is missing; whoever waits is told."""
    file = tmp_path / "pids"
    caught: list[BaseException] = []
    link = stop_below.options(max_retries=0).remote(3, str(file))
    waiting = threading.Event()

    def wait() -> None:
        value: Any = link
        try:
            while True:
                waiting.set()
                value = ob.get(value, timeout=20)
        except BaseException as error:
            caught.append(error)

    reader = threading.Thread(target=wait)
    reader.start()
    waiting.wait(20)
    while not file.exists() or len(file.read_text().split()) < 4:
        reader.join(0.01)
    for pid in {int(pid) for pid in file.read_text().split()}:
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)
    reader.join(30)
    assert not reader.is_alive()
    (error,) = caught
    while isinstance(error, TaskError) and error.__cause__ is not None:
        error = error.__cause__
    assert isinstance(error, OwnerLostError | WorkerLostError) and isinstance(error, OutboardError)

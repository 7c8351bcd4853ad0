"""Sizes beyond what one message carries: packets, submissions, results; and clusters without CPUs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import outboard as ob

pytestmark = pytest.mark.timeout(60)

#: Nearly the largest value that travels inside messages.
LARGE = b"x" * 90_000


@pytest.fixture
def cluster() -> Iterator[None]:
    ob.init(num_cpus=2)
    yield
    ob.shutdown()


def count(*values: object) -> int:
    return len(values)


def hold(seconds: float) -> None:
    threading.Event().wait(seconds)


def pass_on(value: object) -> object:
    return value


def test_inputs_of_more_bytes_than_a_packet_holds(cluster: None) -> None:
    refs = [ob.put(LARGE) for _ in range(20)]
    assert ob.get(ob.remote(count).remote(*refs), timeout=20) == 20


def test_references_of_more_bytes_than_a_packet_holds(cluster: None) -> None:
    refs = [ob.put(number) for number in range(40_000)]
    assert ob.get(ob.remote(len).remote(refs), timeout=20) == 40_000


def test_long_packets_wait_their_turn_and_can_be_taken_back(cluster: None) -> None:
    refs = [ob.put(LARGE) for _ in range(20)]
    gate = ob.remote(num_cpus=2)(hold).remote(0.5)
    tasks = [ob.remote(count).remote(*refs) for _ in range(10)]
    ob.cancel(tasks[5])
    assert ob.get(tasks[:5] + tasks[6:], timeout=20) == [20] * 9
    with pytest.raises(ob.errors.TaskCancelledError):
        ob.get(tasks[5], timeout=20)
    ob.get(gate)


def test_submissions_of_more_bytes_than_a_message_holds(cluster: None) -> None:
    refs = [ob.put(LARGE) for _ in range(20)]
    function = ob.remote(count)
    assert ob.get([function.remote(*refs) for _ in range(65)], timeout=40) == [20] * 65


def test_call_that_no_message_holds_fails_alone(cluster: None) -> None:
    refs = [ob.put(LARGE) for _ in range(600)]
    with pytest.raises(ob.errors.SerializationError, match="can travel"):
        ob.get(ob.remote(count).remote(*refs), timeout=20)
    assert ob.get(ob.remote(pass_on).remote(3), timeout=20) == 3


def test_results_of_one_task_of_more_bytes_than_a_message_holds(cluster: None) -> None:
    many = ob.remote(num_returns=900)(lambda: [LARGE] * 900)
    refs = many.remote()
    assert all(value == LARGE for value in ob.get(refs, timeout=30))


def test_results_of_a_packet_are_sent_in_parts(cluster: None) -> None:
    function = ob.remote(lambda number: LARGE if number else None)
    ob.get([function.remote(0) for _ in range(2000)], timeout=20)  # quick tasks come in large packets from now on
    assert ob.get([function.remote(1) for _ in range(2000)], timeout=30) == [LARGE] * 2000


def test_cluster_without_cpus_runs_what_asks_for_none() -> None:
    ob.init(num_cpus=0)
    try:
        assert ob.cluster_resources()["CPU"] == 0
        assert ob.get(ob.remote(num_cpus=0)(pass_on).remote(1), timeout=20) == 1
        with pytest.raises(ob.errors.TaskUnschedulableError):
            ob.get(ob.remote(pass_on).remote(1), timeout=20)
    finally:
        ob.shutdown()


def test_background_thread_lives_beside_many_open_files(run_program: Any) -> None:
    out = run_program("""
        import os, resource
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
        kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(1200)]
        import outboard as ob
        @ob.remote
        def one(x):
            return x
        if __name__ == "__main__":
            ob.init(num_cpus=2)
            for i in range(20):
                assert ob.get(one.remote(i), timeout=20) == i
            print(one.remote(5).future().result(timeout=20))
    """)
    assert out == "5\n"

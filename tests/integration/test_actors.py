"""Actors: one process with an object, calls in order, and what its death means."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

import outboard
from outboard import errors


class Counter:
    """Counts."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, amount: int = 1) -> int:
        self.value += amount
        return self.value

    def fail(self) -> None:
        raise KeyError("no such thing")

    def die(self) -> None:
        os._exit(7)

    def pid(self) -> int:
        return os.getpid()

    def nap(self, seconds: float) -> None:
        time.sleep(seconds)


class Bad:
    """Cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no licence")

    def call(self) -> None:
        """Is never reached."""


class Deadly:
    """Ends its process while it is made."""

    def __init__(self) -> None:
        os._exit(7)

    def call(self) -> None:
        """Is never reached."""


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    outboard.init(num_cpus=1)
    yield
    outboard.shutdown()


def test_calls_run_in_order_on_one_object() -> None:
    counter = outboard.remote(Counter).remote(10)
    assert outboard.get([counter.add.remote(i) for i in range(200)], timeout=20)[-1] == 10 + sum(range(200))
    assert len(set(outboard.get([counter.pid.remote() for _ in range(5)], timeout=20))) == 1


def test_actors_are_apart_and_hold_no_cpu() -> None:
    first, second = outboard.remote(Counter).remote(), outboard.remote(Counter).remote()
    nap = first.nap.remote(0.5)
    assert outboard.get(second.add.remote(5), timeout=20) == 5
    assert outboard.get(outboard.remote(abs).remote(-1), timeout=20) == 1
    outboard.get(nap, timeout=20)


def test_exception_of_a_method_leaves_the_actor_alive() -> None:
    counter = outboard.remote(Counter).remote()
    with pytest.raises(KeyError):
        outboard.get(counter.fail.remote(), timeout=20)
    assert outboard.get(counter.add.remote(), timeout=20) == 1


def test_constructor_that_raises_is_shown_by_every_call() -> None:
    bad = outboard.remote(Bad).remote()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no licence"):
            outboard.get(bad.call.remote(), timeout=20)


def test_constructor_that_ends_its_process_is_an_error_with_the_exit_code() -> None:
    deadly = outboard.remote(Deadly).remote()
    with pytest.raises(errors.WorkerLostError, match="exit code 7"):
        outboard.get(deadly.call.remote(), timeout=20)


def test_call_that_ends_the_process_fails_and_names_it() -> None:
    counter = outboard.remote(Counter).remote()
    assert outboard.get(counter.add.remote(), timeout=20) == 1
    with pytest.raises(errors.WorkerLostError, match="exit code 7"):
        outboard.get(counter.die.remote(), timeout=20)


def test_killed_actor_fails_what_was_pending() -> None:
    counter = outboard.remote(Counter).remote()
    pending = counter.nap.remote(60)
    outboard.kill(counter)
    with pytest.raises(errors.TaskError):
        outboard.get(pending, timeout=20)


def test_unknown_method_and_direct_calls_are_refused() -> None:
    counter = outboard.remote(Counter).remote()
    with pytest.raises(AttributeError, match="nothing"):
        counter.nothing  # noqa: B018
    with pytest.raises(TypeError, match="remote"):
        counter.add(1)
    with pytest.raises(TypeError, match="remote"):
        outboard.remote(Counter)(1)


def test_call_on_a_handle_that_nobody_keeps() -> None:
    assert outboard.get(outboard.remote(Counter).remote(4).add.remote(1), timeout=20) == 5

"""Actors: one process with an object, calls in order, and what its death means."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import outboard
from outboard import errors
from tests.integration.counting import Counter


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
        _ = counter.nothing
    with pytest.raises(TypeError, match="remote"):
        counter.add(1)
    with pytest.raises(TypeError, match="remote"):
        outboard.remote(Counter)(1)


def test_call_on_a_handle_that_nobody_keeps() -> None:
    assert outboard.get(outboard.remote(Counter).remote(4).add.remote(1), timeout=20) == 5


def test_resources_are_held_by_calls_only() -> None:
    outboard.shutdown()
    outboard.init(num_cpus=2, resources={"licence": 1})
    Licensed = outboard.remote(num_cpus=2, resources={"licence": 1})(Counter)
    first, second = Licensed.remote(), Licensed.remote()
    assert outboard.get([first.add.remote(1), second.add.remote(2)], timeout=20) == [1, 2]
    assert outboard.available_resources() == {"CPU": 2.0, "licence": 1.0}
    nap = first.nap.remote(60)
    while outboard.available_resources() != {"CPU": 0.0, "licence": 0.0}:
        assert outboard.wait([nap], timeout=0.01) == ([], [nap])
    other = second.add.remote()
    assert outboard.wait([other], timeout=0.3) == ([], [other])  # what it asks for is taken
    outboard.kill(first)
    assert outboard.get(other, timeout=20) == 3


@pytest.mark.parametrize(
    ("options", "asked"),
    [({"num_cpus": 999}, "999 CPU"), ({"num_gpus": 1}, "1 GPU"), ({"resources": {"licenc": 1}}, "1 licenc")],
)
def test_demand_that_nothing_meets_names_the_class_and_both_amounts(options: dict[str, Any], asked: str) -> None:
    outboard.shutdown()
    outboard.init(num_cpus=1, num_gpus=0)
    for made in (outboard.remote(**options)(Counter).remote(), outboard.remote(Counter).options(**options).remote()):
        text = rf"Counter\.add can never run: it asks for {asked}, the cluster has 1 CPU in all"
        with pytest.raises(errors.TaskUnschedulableError, match=text):
            outboard.get(made.add.remote(), timeout=20)


def test_options_that_mean_nothing_for_actors_are_refused() -> None:
    for options in ({"max_retries": 2}, {"max_retries": -1}, {"retry_exceptions": True}):
        with pytest.raises(ValueError, match="no option of an actor"):
            outboard.remote(**options)(Counter)
        with pytest.raises(ValueError, match="no option of an actor"):
            outboard.remote(Counter).options(**options)
        with pytest.raises(ValueError, match="max_task_retries"):
            outboard.remote(Counter).remote().add.options(**options)
    with pytest.raises(ValueError, match=r"actor\.method\.options\(num_returns"):
        outboard.remote(num_returns=2)(Counter)
    with pytest.raises(ValueError, match="unknown actor option"):
        outboard.remote(Counter).options(num_cpu=2)


class Splitter:
    """Has a method with options of its own."""

    @outboard.method(num_returns=2)
    def split(self, text: str) -> list[str]:
        return text.split()


def test_a_method_has_options_of_its_own_and_a_call_may_say_otherwise() -> None:
    splitter = outboard.remote(Splitter).remote()
    assert outboard.get(splitter.split.remote("a b")) == ["a", "b"]
    assert outboard.get(splitter.split.options(num_returns=1).remote("a b c")) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="num_return"):
        outboard.method(num_return=2)


def test_a_name_that_is_no_method_is_refused_with_one_that_is_near() -> None:
    with pytest.raises(AttributeError, match=r"actor Splitter has no method 'splits' \(did you mean 'split'\?\)"):
        outboard.remote(Splitter).remote().splits.remote()

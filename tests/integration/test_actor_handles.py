"""Handles of actors: passed around, counted, found by name; and what ends or restarts an actor."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

import outboard
from outboard import errors
from tests.faults.conftest import eventually
from tests.integration.counting import Counter

__all__ = ["eventually"]


RemoteCounter = outboard.remote(Counter)


@outboard.remote(num_cpus=0)
def add_to(counter: Any, times: int) -> int:
    return int(outboard.get([counter.add.remote() for _ in range(times)])[-1])


@outboard.remote(num_cpus=0)
def make(start: int) -> Any:
    return RemoteCounter.remote(start)


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    outboard.init(num_cpus=1)
    yield
    outboard.shutdown()


def is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_calls_of_different_methods_keep_their_order() -> None:
    class Log:
        def __init__(self) -> None:
            self.said: list[int] = []

        def one(self, number: int) -> None:
            self.said.append(number)

        def two(self, number: int) -> None:
            self.said.append(number)

        def all(self) -> list[int]:
            return self.said

    log = outboard.remote(Log).remote()
    for number in range(600):
        (log.two if number // 3 % 2 else log.one).remote(number)
    slow = outboard.remote(num_cpus=0)(lambda: time.sleep(0.2) or 600)
    log.one.remote(slow.remote())
    log.two.remote(601)
    assert outboard.get(log.all.remote(), timeout=20) == list(range(602))


def test_tasks_and_actors_call_what_they_are_given() -> None:
    counter, other = RemoteCounter.remote(), RemoteCounter.remote(10)
    outboard.get([add_to.remote(counter, 5) for _ in range(3)], timeout=20)
    assert outboard.get(counter.add.remote(0), timeout=20) == 15
    assert outboard.get(other.call.remote(counter), timeout=20) == 16
    assert outboard.get(add_to.remote([counter][0], 1), timeout=20) == 17


def test_a_handle_that_a_task_returns_goes_on() -> None:
    counter = outboard.get(make.remote(5), timeout=20)
    assert outboard.get(counter.add.remote(), timeout=20) == 6
    assert outboard.get(add_to.remote(counter, 2), timeout=20) == 8
    assert counter == outboard.get(outboard.put(counter)) and hash(counter) == hash(outboard.get(outboard.put(counter)))


@pytest.mark.parametrize("made_in_a_task", [False, True])
def test_the_last_handle_ends_the_actor_after_its_calls(made_in_a_task: bool, eventually: Callable[..., Any]) -> None:
    counter = outboard.get(make.remote(0), timeout=20) if made_in_a_task else RemoteCounter.remote()
    pid = outboard.get(counter.pid.remote(), timeout=20)
    kept = outboard.put([counter])
    last = counter.nap.remote(0.2)
    del counter
    outboard.get(last, timeout=20)
    again = outboard.get(kept)[0]
    assert outboard.get(again.pid.remote(), timeout=20) == pid, "an object that contains a handle keeps it"
    result = again.add.remote()
    del again, kept
    assert outboard.get(result, timeout=20) == 1
    # References that were dropped are looked at with the program's next call; those of handles at once.
    eventually(lambda: outboard.nodes() and not is_alive(pid), within=10)


def test_kill_fails_what_was_pending_with_the_reason_wherever_it_is_called() -> None:
    counter = RemoteCounter.remote()
    nap, later = counter.nap.remote(100), counter.add.remote()

    @outboard.remote(num_cpus=0)
    def end(actor: Any) -> None:
        outboard.kill(actor)

    outboard.get(end.remote(counter), timeout=20)
    for ref in (nap, later, counter.add.remote(), add_to.remote(counter, 1)):
        with pytest.raises(errors.ActorDiedError, match=r"actor Counter has ended: it was killed by outboard.kill\(\)"):
            outboard.get(ref, timeout=20)


def test_cancelling_a_call_by_force_is_refused_since_the_actor_would_end() -> None:
    counter = RemoteCounter.remote()
    nap = counter.nap.remote(100)
    with pytest.raises(ValueError, match=r"outboard\.kill\(actor\)"):
        outboard.cancel(nap, force=True)
    outboard.cancel(nap)
    with pytest.raises(errors.TaskCancelledError):
        outboard.get(nap, timeout=20)
    assert outboard.get(counter.add.remote(), timeout=20) == 1


def test_an_actor_may_leave_and_what_it_had_done_is_told() -> None:
    counter = RemoteCounter.options(max_restarts=5).remote(3)
    before, leaving = counter.add.remote(), counter.leave.remote()
    assert outboard.get([before, leaving], timeout=20) == [4, None]
    with pytest.raises(errors.ActorDiedError, match="has called exit_actor"):
        outboard.get(counter.add.remote(), timeout=20)
    with pytest.raises(RuntimeError, match="this is none"):
        outboard.exit_actor()


def test_an_actor_is_made_again_with_its_arguments() -> None:
    counter = RemoteCounter.options(max_restarts=1).remote(5)
    assert outboard.get(counter.add.remote(), timeout=20) == 6
    dying, waiting = counter.die.remote(), counter.add.remote()
    with pytest.raises(
        errors.ActorUnavailableError, match=r"Counter\.die lost: .* exit code 7; it is being started"
    ) as lost:
        outboard.get(dying, timeout=20)
    assert lost.value.task == "Counter.die"
    assert outboard.get(waiting, timeout=20) == 6
    begun = time.monotonic()
    outboard.kill(counter, no_restart=False)
    with pytest.raises(errors.ActorDiedError):
        while time.monotonic() < begun + 10:
            outboard.get(counter.add.remote(), timeout=20)


def test_calls_may_run_again_and_before_those_behind_them(tmp_path: Any) -> None:
    marker = tmp_path / "died"

    class Once:
        def __init__(self) -> None:
            self.said: list[str] = []

        def say(self, word: str) -> list[str]:
            if word == "b" and not marker.exists():
                marker.touch()
                os._exit(3)
            self.said.append(word)
            return self.said

    once = outboard.remote(max_restarts=-1, max_task_retries=1)(Once).remote()
    refs = [once.say.remote(word) for word in "abc"]
    assert outboard.get(refs[2], timeout=20)[-2:] == ["b", "c"]


def test_a_constructor_that_raises_is_the_cause_of_every_error() -> None:
    class Bad:
        def __init__(self) -> None:
            raise ValueError("no licence")

        def call(self) -> None:
            """Is never reached."""

    bad = outboard.remote(max_restarts=3)(Bad).remote()

    @outboard.remote(num_cpus=0)
    def use(actor: Any) -> None:
        outboard.get(actor.call.remote())

    for ref in (bad.call.remote(), use.remote(bad)):
        with pytest.raises(
            errors.ActorDiedError, match="actor Bad has ended: it could not be made: ValueError: no lic"
        ) as info:
            outboard.get(ref, timeout=20)
    assert isinstance(info.value.cause, ValueError)


def test_constructors_take_references_and_say_what_does_not_pickle() -> None:
    counter = RemoteCounter.remote(outboard.put(7))
    assert outboard.get(counter.add.remote(), timeout=20) == 8
    with pytest.raises(errors.SerializationError, match="actor Counter: its class or the arguments"):
        RemoteCounter.remote(__import__("threading").Lock())
    with pytest.raises(errors.SerializationError, match=r"Counter\.add"):
        outboard.get(counter.add.remote(__import__("threading").Lock()), timeout=20)


def test_names_are_found_everywhere_and_end_with_their_actors(eventually: Callable[..., Any]) -> None:
    counter = RemoteCounter.options(name="hits").remote(1)

    @outboard.remote(num_cpus=0)
    def hit() -> int:
        return int(outboard.get(outboard.get_actor("hits").add.remote()))

    assert outboard.get(hit.remote(), timeout=20) == 2
    with pytest.raises(errors.ActorNameError, match="there is an actor named 'hits'"):
        RemoteCounter.options(name="hits").remote()
    same = RemoteCounter.options(name="hits", get_if_exists=True).remote()
    assert same == counter and "'hits'" in repr(counter)
    with pytest.raises(ValueError, match="no actor named 'hits' in namespace 'elsewhere'"):
        outboard.get_actor("hits", namespace="elsewhere")
    del counter, same

    def is_free() -> bool:
        try:
            outboard.get_actor("hits")
        except errors.ActorNameError:
            return True
        return False

    eventually(is_free, within=10)


def test_a_detached_actor_outlives_its_handles_until_it_is_killed(eventually: Callable[..., Any]) -> None:
    options: dict[str, Any] = {"name": "kept", "lifetime": "detached"}
    pid = outboard.get(RemoteCounter.options(**options).remote(1).pid.remote(), timeout=20)
    found = outboard.get_actor("kept")
    assert outboard.get([found.pid.remote(), found.add.remote()], timeout=20) == [pid, 2]
    with pytest.raises(errors.ActorNameError):
        RemoteCounter.options(**options).remote()
    assert outboard.get(RemoteCounter.options(**options, get_if_exists=True).remote().add.remote(), timeout=20) == 3
    assert outboard.get(add_to.remote(found, 2), timeout=20) == 5
    outboard.kill(found)
    with pytest.raises(errors.ActorDiedError):
        outboard.get(found.add.remote(), timeout=20)
    eventually(lambda: not is_alive(pid), within=10)


def test_actors_that_have_ended_leave_no_memory_at_the_node() -> None:
    node = psutil.Process(outboard.nodes()[0]["pid"])

    class Small:  # of no module that each process would have to import
        def call(self) -> None:
            """Do nothing."""

    def make_and_drop(count: int) -> int:
        for _ in range(count // 10):
            actors = [outboard.remote(Small).remote() for _ in range(10)]
            outboard.get([actor.call.remote() for actor in actors], timeout=20)
        return int(node.memory_info().rss)

    before = make_and_drop(20)
    assert make_and_drop(60) - before < 12_000_000, "each would be a third of a megabyte until it is collected"


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"lifetime": "for ever"}, ValueError, 'must be None or "detached"'),
        ({"name": ""}, ValueError, "not empty"),
        ({"name": 3}, TypeError, "not empty"),
        ({"get_if_exists": True}, ValueError, "needs a name"),
        ({"max_restarts": -2}, ValueError, "max_restarts must be -1 or more"),
        ({"max_concurrency": 0}, ValueError, "max_concurrency must be 1 or more"),
        ({"max_restart": 1}, ValueError, "did you mean 'max_restarts'"),
    ],
)
def test_options_are_checked_where_they_are_written(options: dict[str, Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        outboard.remote(Counter).options(**options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lifetime": "for ever"}, 'must be None or "detached"'),
        ({"num_cpus": -1}, "num_cpus must be"),
        ({"num_returns": -1}, "num_returns must be"),
        ({"max_restart": 1}, "did you mean 'max_restarts'"),
    ],
)
def test_a_decorator_checks_its_options_before_what_it_decorates(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        outboard.remote(**options)

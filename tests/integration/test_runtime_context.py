"""What code can learn of where it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import outboard
from outboard.util import list_actors


def look() -> dict[str, Any]:
    return outboard.get_runtime_context().get()


class Looking:
    """An actor that looks around."""

    def look(self) -> dict[str, Any]:
        return look()

    def die(self) -> None:
        os._exit(1)


class Pid:
    """An actor that is dropped at once."""

    def pid(self) -> int:
        return os.getpid()


class AsyncLooking:
    """The same in an event loop."""

    async def look(self) -> dict[str, Any]:
        return look()


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    outboard.init(num_cpus=1, namespace="here")
    yield
    outboard.shutdown()


def test_program_tasks_and_threads_of_tasks() -> None:
    here = look()
    assert here["node_id"] == outboard.nodes()[0]["id"] and here["namespace"] == "here"
    assert here["worker_id"] is here["task_id"] is here["actor_id"] is None
    ref = outboard.remote(look).remote()
    there = outboard.get(ref, timeout=20)
    assert there["task_id"] == ref.hex() == ref.task_id()
    assert (there["job_id"], there["node_id"], there["namespace"]) == (here["job_id"], here["node_id"], "here")
    assert there["worker_id"] and there["actor_id"] is None and there["incarnation"] == 0

    @outboard.remote
    def in_a_thread() -> Any:
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(look).result()["task_id"]

    ref = in_a_thread.remote()
    assert outboard.get(ref, timeout=20) == ref.task_id()


def test_actors_know_their_names_calls_and_how_often_they_were_made() -> None:
    actor = outboard.remote(Looking).options(name="eye", max_restarts=1).remote()
    ref = actor.look.remote()
    seen = outboard.get(ref, timeout=20)
    assert seen["task_id"] == ref.task_id() and seen["actor_name"] == "eye" and seen["incarnation"] == 1
    assert seen["actor_id"] in repr(actor)
    actor.die.remote()
    assert outboard.get(actor.look.remote(), timeout=20)["incarnation"] == 2
    loop = outboard.remote(AsyncLooking).remote()
    refs = [loop.look.remote() for _ in range(3)]
    assert [seen["task_id"] for seen in outboard.get(refs, timeout=20)] == [ref.task_id() for ref in refs]


def test_actors_are_listed_while_they_live() -> None:
    assert list_actors() == []
    actor = outboard.remote(Looking).options(name="eye", max_restarts=1).remote()
    pid = outboard.get(outboard.remote(Pid).remote().pid.remote(), timeout=20)
    outboard.get(actor.look.remote(), timeout=20)
    (eye,) = [found for found in list_actors() if found.name == "eye"]
    assert eye.actor_id in repr(actor) and (eye.class_name, eye.namespace, eye.state) == ("Looking", "here", "ALIVE")
    assert eye.node_id == outboard.nodes()[0]["id"] and eye.pid not in (0, pid) and eye.num_restarts == 0
    actor.die.remote()
    outboard.get(actor.look.remote(), timeout=20)
    (again,) = [found for found in list_actors() if found.name == "eye"]
    assert again.num_restarts == 1 and again.pid != eye.pid

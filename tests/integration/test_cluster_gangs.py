"""Gangs over nodes: two phases at the head, tasks and actors in bundles elsewhere, lost nodes and heads."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable

import pytest

from .clusters import Commands, apart, await_line, commands, finish, join, program

__all__ = ["apart", "commands", "join", "program"]

pytestmark = pytest.mark.timeout(90)

#: What every program here begins with besides: an actor, and what is free.
ACTOR = """
    from outboard.errors import *

    @ob.remote
    class Place:
        def __init__(self): self.calls = 0
        def where(self, seconds=0.0):
            self.calls += 1
            time.sleep(seconds)
            return where()

    def free(): return ob.available_resources().get("CPU", 0)
    def freed(cpus):
        deadline = time.monotonic() + 15
        while free() != cpus:
            assert time.monotonic() < deadline, free()
            time.sleep(0.05)
"""


def test_bundles_on_several_nodes_are_used_by_tasks_and_actors(
    commands: Commands, join: Callable[..., int], program: Callable[..., subprocess.Popen[str]]
) -> None:
    _, node = commands.head()
    other = join()
    lines = finish(program(ACTOR + """
    with ob.gang([{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD") as gang:
        assert len(set(gang.nodes)) == 2
        tasks = [place.options(gang=gang, bundle=b).remote(0.1) for b in (0, 1) * 4]
        found = ob.get(tasks, timeout=30)
        print(*sorted(set(found)), found[::2] == found[:1] * 4)
        print(*sorted(set(ob.get([place.options(gang=gang).remote(0.3) for _ in range(8)], timeout=30))))
        actors = [Place.options(gang=gang, num_cpus=1).remote() for _ in range(2)]
        print(*sorted(ob.get([a.where.remote() for a in actors], timeout=30)))
        print(ob.get(Place.options(gang=gang, bundle=1).remote().where.remote(), timeout=30) == found[1])
    freed(3)
    with ob.gang([{"CPU": 1}] * 3) as gang:
        freed(0)
    freed(3)
    """))  # fmt: skip
    both = " ".join(map(str, sorted((node, other))))
    assert lines == [f"{both} True", both, both, "True"]


def test_two_programs_whose_gangs_fit_only_alone_both_get_theirs(
    commands: Commands, join: Callable[..., int], program: Callable[..., subprocess.Popen[str]]
) -> None:
    commands.head()
    join()
    text = (
        ACTOR
        + """
    for n in range(6):
        with ob.gang([{"CPU": 1}] * 2, timeout=40) as gang:
            assert len(ob.get([place.options(gang=gang).remote(0.02) for _ in range(2)], timeout=20)) == 2
    print("done")
    """
    )
    programs = [program(text) for _ in range(3)]
    assert [finish(one) for one in programs] == [["done"]] * 3


def test_a_lost_node_breaks_its_gang_and_the_program_goes_on(
    commands: Commands, join: Callable[..., int], program: Callable[..., subprocess.Popen[str]]
) -> None:
    commands.head()
    other = join()
    run = program(ACTOR + """
    gang = ob.gang([{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD")
    actors = [Place.options(gang=gang, bundle=b).remote() for b in (0, 1)]
    ob.get([a.where.remote() for a in actors], timeout=20)
    refs = [place.options(gang=gang, bundle=b).remote(60) for b in (0, 1, 0, 1)] + [a.where.remote(60) for a in actors]
    time.sleep(0.3)
    print("running", flush=True)
    for ref in refs:
        try:
            ob.get(ref, timeout=30)
        except (GangBrokenError, ActorDiedError) as error:
            print(type(error).__name__, "is lost" in str(error) or "lost with its machine" in str(error))
    try:
        place.options(gang=gang).remote()
    except GangBrokenError:
        print("over")
    gang.release()
    freed(2)
    with ob.gang([{"CPU": 1}] * 2, timeout=20) as again:
        print(len(set(ob.get([place.options(gang=again).remote() for _ in range(4)], timeout=20))))
    """)  # fmt: skip
    assert await_line(run) == "running"
    os.kill(other, signal.SIGKILL)
    assert finish(run) == ["GangBrokenError True"] * 4 + ["ActorDiedError True"] * 2 + ["over", "1"]


def test_a_program_that_is_killed_gives_its_gang_back(
    commands: Commands, join: Callable[..., int], program: Callable[..., subprocess.Popen[str]]
) -> None:
    commands.head()
    join()
    first = program(ACTOR + """
    gang = ob.gang([{"CPU": 1}] * 3)
    refs = [place.options(gang=gang).remote(60) for _ in range(3)]
    time.sleep(0.5)
    print("held", flush=True)
    time.sleep(60)
    """)  # fmt: skip
    assert await_line(first) == "held"
    second = program(ACTOR + """
    print("asks", flush=True)
    with ob.gang([{"CPU": 1}] * 3, timeout=40) as gang:
        print(len(ob.get([place.options(gang=gang).remote() for _ in range(3)], timeout=20)))
    """)  # fmt: skip
    assert await_line(second) == "asks"
    threading.Event().wait(0.5)
    first.kill()
    assert finish(second) == ["3"]


def test_gangs_outlive_their_head(
    commands: Commands, join: Callable[..., int], program: Callable[..., subprocess.Popen[str]]
) -> None:
    head, _ = commands.head()
    join()
    run = program(ACTOR + """
    gang = ob.gang([{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD")
    print("ready", flush=True)
    sys.stdin.readline()
    print(len(set(ob.get([place.options(gang=gang, bundle=b).remote() for b in (0, 1)], timeout=20))), flush=True)
    sys.stdin.readline()
    print(len(set(ob.get([place.options(gang=gang, bundle=b).remote() for b in (0, 1)], timeout=20))), flush=True)
    gang.release()
    freed(3)
    with ob.gang([{"CPU": 1}] * 3, timeout=30):
        print("again", flush=True)
    """)  # fmt: skip
    assert await_line(run) == "ready"
    address = commands.address
    os.kill(head, signal.SIGKILL)
    say(run)
    assert await_line(run) == "2"
    restarted = commands.run("start", "--head", "--port", address.rpartition(":")[2], "--num-cpus", "0", "--detach")
    assert "pid" in restarted
    threading.Event().wait(2.0)
    say(run)
    assert finish(run) == ["2", "again"]


def test_a_program_without_a_node_of_its_own_has_gangs_too(
    commands: Commands, join: Callable[..., int], program: Callable[..., subprocess.Popen[str]]
) -> None:
    _, node = commands.head()
    other = join()
    lines = finish(program(ACTOR + """
    try:
        ob.gang([{"CPU": 3}])
    except TaskUnschedulableError as error:
        print(error.available)
    with ob.gang([{"CPU": 2}, {"CPU": 1}]) as gang:
        tasks = [place.options(gang=gang, bundle=0, num_cpus=2).remote(), place.options(gang=gang, bundle=1).remote()]
        print(*ob.get(tasks, timeout=20))
    """, slotless=True))  # fmt: skip
    assert lines == ["{'CPU': 2.0}", f"{node} {other}"]


def say(run: subprocess.Popen[str], line: str = "go") -> None:
    """Let a program go on that waits for a line."""
    assert run.stdin is not None
    run.stdin.write(line + "\n")
    run.stdin.flush()

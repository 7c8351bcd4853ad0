"""Actors of a cluster: called from everywhere, found by other programs, started again at other nodes."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.faults.conftest import eventually
from tests.integration.clusters import Commands, apart, await_line, commands, finish, join, program

__all__ = ["apart", "commands", "eventually", "join", "program"]

COUNTER = """
    @ob.remote
    class Counter:
        def __init__(self, start=0):
            self.value = start
        def add(self, amount=1):
            self.value += amount
            return self.value
        def where(self):
            return where()
        def call(self, other):
            return ob.get(other.add.remote())
        def total(self, array):
            return float(array.sum())

    @ob.remote
    def add_to(counter, times):
        return ob.get([counter.add.remote() for _ in range(times)])[-1]

    def show(ref, timeout=20):
        try:
            print(ob.get(ref, timeout=timeout), flush=True)
        except Exception as error:
            print(type(error).__name__, flush=True)
"""


@pytest.mark.parametrize("slotless", [False, True])
def test_tasks_and_actors_call_across_nodes(commands: Commands, join: Any, program: Any, slotless: bool) -> None:
    _, first = commands.head("--resources", "here=1")
    second = join("--resources", "there=1")
    text = (
        COUNTER
        + """
    here = Counter.options(resources={"here": 0.5}).remote(0)
    there = Counter.options(resources={"there": 0.5}).remote(100)
    print(*ob.get([here.where.remote(), there.where.remote()], timeout=20))
    for task, actor in (("here", there), ("there", here), ("there", there)):
        show(add_to.options(resources={task: 0.1}).remote(actor, 3))
    show(here.call.remote(there)), show(there.call.remote(here))
    show(there.total.remote(np.ones(200_000))), show(here.total.remote(ob.put(np.ones(200_000))))
    """
    )
    assert finish(program(text, slotless=slotless)) == [
        f"{first} {second}", "103", "3", "106", "107", "4", "200000.0", "200000.0"
    ]  # fmt: skip


def test_a_killed_node_ends_its_actors_or_they_begin_again_elsewhere(
    commands: Commands, join: Any, program: Any
) -> None:
    commands.head()
    nodes = [join("--resources", "disk=1") for _ in range(2)]
    text = (
        COUNTER
        + """
    sturdy = Counter.options(resources={"disk": 1}, max_restarts=-1, max_task_retries=-1).remote(10)
    place = ob.get(sturdy.where.remote(), timeout=20)
    fragile = Counter.options(resources={"disk": 1}).remote(1)
    while ob.get(fragile.where.remote(), timeout=20) != place:
        fragile = Counter.options(resources={"disk": 1}).remote(1)
    print(place, flush=True)
    user = Counter.remote()
    show(user.call.remote(sturdy))
    sys.stdin.readline()
    show(fragile.add.remote())
    show(user.call.remote(sturdy))
    show(sturdy.add.remote())
    """
    )
    running = program(text)
    place = int(await_line(running))
    assert place in nodes and await_line(running) == "11"
    os.kill(place, signal.SIGKILL)
    assert running.stdin is not None
    running.stdin.write("\n")
    running.stdin.flush()
    assert finish(running) == ["ActorDiedError", "11", "12"]


def test_other_programs_find_actors_by_name_and_detached_ones_stay(
    commands: Commands, join: Any, program: Any, eventually: Any
) -> None:
    commands.head()
    join("--resources", "there=1")
    space = """
    ob.shutdown()
    ob.init(namespace="shop")
    """
    owner = program(
        space
        + COUNTER
        + """
    till = Counter.options(name="till").remote(0)
    stock = Counter.options(name="stock", lifetime="detached", resources={"there": 1}).remote(50)
    show(till.add.remote())
    sys.stdin.readline()
    """
    )
    assert await_line(owner) == "1"
    guest = program(
        space
        + COUNTER
        + """
    till, stock = ob.get_actor("till"), ob.get_actor("stock")
    show(till.add.remote()), show(stock.add.remote())
    show(add_to.remote(till, 5)), show(add_to.remote(stock, 5))
    show(stock.total.remote(np.ones(200_000)))
    from outboard.util import list_actors
    while len(found := list_actors()) < 2:
        time.sleep(0.1)
    print(*sorted(actor.name for actor in found), flush=True)
    sys.stdin.readline()
    show(till.add.remote()), show(stock.add.remote())
    """,
        slotless=True,
    )
    assert [await_line(guest) for _ in range(6)] == ["2", "51", "7", "56", "200000.0", "stock till"]
    finish(owner)
    assert finish(guest) == ["ActorDiedError", "57"]
    last = (
        space
        + COUNTER
        + """
    stock = ob.get_actor("stock")
    show(stock.add.remote())
    ob.kill(stock)
    show(stock.add.remote())
    try:
        ob.get_actor("till")
    except ValueError:
        print("gone")
    """
    )
    assert finish(program(last)) == ["58", "ActorDiedError", "gone"]

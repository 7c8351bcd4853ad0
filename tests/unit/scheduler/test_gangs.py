"""Gangs: the head's machine alone, and with the nodes' machines over links that are slow and break."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outboard.scheduler.bundles import Bundles, Confirmed, Declined, Prepared
from outboard.scheduler.gang_placing import Strategy, resources_of
from outboard.scheduler.gang_words import (
    ConfirmBundles,
    GangBroken,
    GangReady,
    GangRefused,
    GangsTold,
    PrepareBundles,
    ReleaseBundles,
    Report,
    Wish,
)
from outboard.scheduler.gangs import PAUSE_SECONDS, Gangs, Site
from outboard.scheduler.resources import Demand, Resources

pytestmark = pytest.mark.timeout(30)

UNIT = 10_000
PYTHON = "3.11"
A, B, C = 0xA, 0xB, 0xC
CPUS = {"CPU": 2 * UNIT}


def wish(gang: int, *cpus: int, strategy: Strategy = Strategy.PACK, was_ready: bool = False) -> Wish:
    return Wish(gang, tuple(Demand(amount * UNIT, 0, ()) for amount in cpus), strategy, PYTHON, was_ready)


class World:
    """A head and three nodes of two CPUs; what they say to each other waits in order until it is delivered."""

    def __init__(self) -> None:
        self.now = 1.0
        self.epoch = 0
        self.nodes: dict[int, tuple[Resources, Bundles, list[Any]]] = {}
        self.down: dict[int, deque[Any]] = {}
        self.up: dict[int, deque[Any]] = {}
        self.wishes: dict[int, Wish] = {}
        self.told: dict[int, Any] = {}
        self.tasks: list[int] = []
        for node in (A, B, C):
            self.add(node)
        self.restart_head()

    def add(self, node: int) -> None:
        resources, said = Resources(CPUS), []
        self.nodes[node] = resources, Bundles(resources, said), said
        self.down[node], self.up[node] = deque(), deque()

    def restart_head(self, released: int = 0) -> None:
        """Words under way are lost with the links, and nobody is told that a gang is released meanwhile."""
        self.epoch += 1
        self.wishes.pop(released, None)
        self.told.pop(released, None)
        self.commands: list[Any] = []
        self.head = Gangs(self.commands, Counter(), self.epoch)
        for node in self.nodes:
            self.register(node)
        self.head.start_answering()
        self.settle()

    def register(self, node: int) -> None:
        self.down[node].clear()
        self.up[node].clear()
        held = self.nodes[node][1].held()
        reports = [Report(gang, portion.attempt, frozenset(portion.pools)) for gang, portion in held.items()]
        wishes = []
        for gang, wanted in self.wishes.items():
            told = self.told.get(gang)
            if node == A and not isinstance(told, GangRefused):
                wishes.append(wanted._replace(was_ready=isinstance(told, GangReady | GangBroken)))
        self.head.report(node, GangsTold(tuple(reports), tuple(wishes)))

    def settle(self) -> None:
        """Let the head do its next step, and send what has been said."""
        sites = [
            Site(node, PYTHON, resources_of(CPUS, CPUS), resources_of(CPUS, r.free()))
            for node, (r, _, _) in self.nodes.items()
        ]
        self.head.step(lambda: sites, self.now)
        self.head.check()
        for command in self.commands:
            if isinstance(command, GangReady | GangRefused | GangBroken):
                self.told[command.gang] = command
                if isinstance(command, GangReady) and command.gang in self.wishes:
                    self.check_ready(command)
            elif command.node in self.nodes:
                self.down[command.node].append(command)
        self.commands.clear()
        for node, (_, bundles, said) in self.nodes.items():
            bundles.check()
            self.up[node].extend(command for command in said if isinstance(command, Prepared | Confirmed | Declined))
            said.clear()

    def check_ready(self, ready: GangReady) -> None:
        for index, node in enumerate(ready.nodes):
            if node in self.nodes:
                assert self.nodes[node][1].pools(ready.gang, index, Demand(0, 0, ())), "a bundle is not there"

    def ask(self, wanted: Wish) -> None:
        self.wishes[wanted.gang] = wanted
        self.head.ask(A, wanted)
        self.settle()

    def release(self, gang: int) -> None:
        if self.wishes.pop(gang, None):
            self.told.pop(gang, None)
            self.head.release(gang)
            self.settle()

    def lose(self, node: int) -> None:
        """A node dies and another one comes in its place."""
        self.tasks = [other for other in self.tasks if other != node]
        self.add(node)
        self.head.drop_node(node)
        self.settle()

    def start_task(self, node: int) -> None:
        if self.nodes[node][0].free_cpu >= UNIT:
            self.nodes[node][0].take(Demand(UNIT, 0, ()), ())
            self.tasks.append(node)

    def end_task(self) -> None:
        if self.tasks:
            resources, bundles, _ = self.nodes[self.tasks.pop(0)]
            resources.give(Demand(UNIT, 0, ()), ())
            bundles.on_freed(self.now)
            self.settle()

    def deliver(self, node: int) -> None:
        """Deliver a word each way."""
        if self.down[node]:
            bundles, word = self.nodes[node][1], self.down[node].popleft()
            if isinstance(word, PrepareBundles):
                bundles.prepare(word.gang, word.attempt, word.bundles, self.now)
            elif isinstance(word, ConfirmBundles):
                bundles.confirm(word.gang, word.attempt)
            elif isinstance(word, ReleaseBundles):
                bundles.release(word.gang, word.attempt)
                bundles.on_freed(self.now)
            self.settle()
        if self.up[node]:
            word = self.up[node].popleft()
            if isinstance(word, Prepared):
                self.head.prepared(node, *word)
            elif isinstance(word, Confirmed):
                self.head.confirmed(node, *word)
            else:
                self.head.declined(node, *word, self.now)
            self.settle()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for _, bundles, _ in self.nodes.values():
            bundles.on_timer(self.now)
        self.settle()

    def deliver_all(self) -> None:
        """Deliver what there is and what comes of it."""
        while any(self.down.values()) or any(self.up.values()):
            for node in self.nodes:
                self.deliver(node)

    def quiesce(self) -> None:
        """Deliver everything, over some time."""
        for _ in range(20):
            self.deliver_all()
            self.pass_time(1.0)

    def is_ready(self, gang: int) -> bool:
        return isinstance(self.told.get(gang), GangReady)


@pytest.fixture
def world() -> World:
    return World()


def test_gang_is_ready_on_all_its_nodes(world: World) -> None:
    world.ask(wish(1, 2, 2, strategy=Strategy.STRICT_SPREAD))
    assert not world.is_ready(1)
    world.quiesce()
    assert len(set(world.told[1].nodes)) == 2
    world.release(1)
    world.quiesce()
    assert all(resources.free() == CPUS for resources, _, _ in world.nodes.values())


def test_impossible_gang_is_refused_at_once_with_what_there_is(world: World) -> None:
    world.ask(wish(1, 3))
    assert world.told[1] == GangRefused(A, 1, (CPUS, CPUS, CPUS))
    world.ask(wish(2, 1, 1, 1, 1, strategy=Strategy.STRICT_SPREAD))
    assert isinstance(world.told[2], GangRefused)


def test_second_gang_waits_for_the_first_and_holds_nothing(world: World) -> None:
    world.ask(wish(1, 2, 2))
    world.ask(wish(2, 2, 2))
    world.quiesce()
    assert world.is_ready(1) and not world.is_ready(2)
    assert sum(resources.free_cpu for resources, _, _ in world.nodes.values()) == 2 * UNIT
    world.release(1)
    world.quiesce()
    assert world.is_ready(2)


def test_gang_gathers_among_tasks_that_end_one_by_one(world: World) -> None:
    for node in (A, B, C) * 2:
        world.start_task(node)
    world.ask(wish(1, 2, 2, 2))
    for node in (A, B, C):
        world.deliver(node)
    for _ in range(6):
        world.end_task()
        for node in (A, B, C):
            world.start_task(node)  # tasks that wait at the node do not get what has become free
    for _ in range(3):
        for node in (A, B, C):
            world.deliver(node)
    assert world.is_ready(1) and not world.tasks


def test_declined_gang_lets_tasks_run_and_keeps_its_turn(world: World) -> None:
    for _ in range(2):
        world.start_task(A)
    world.ask(wish(1, 2, 2, 2))
    world.ask(wish(2, 1))
    for node in (A, B, C):
        world.deliver(node)
    world.pass_time(2.0)
    for node in (A, B, C) * 2:
        world.deliver(node)
    assert [gang.wish.gang for gang in world.head.waiting()] == [1, 2]
    assert world.nodes[B][0].free_cpu == 2 * UNIT and not world.down[B]
    world.pass_time(PAUSE_SECONDS)
    assert world.down[B]


def test_lost_node_breaks_a_gang_and_the_rest_is_held(world: World) -> None:
    world.ask(wish(1, 2, 2))
    world.quiesce()
    kept, lost = sorted(world.told[1].nodes)  # the asker, and another one
    world.lose(lost)
    assert world.told[1] == GangBroken(A, 1, lost)
    world.quiesce()
    assert world.nodes[kept][0].free_cpu == 0
    world.release(1)
    world.quiesce()
    assert world.nodes[kept][0].free_cpu == 2 * UNIT


def test_a_gang_that_breaks_before_its_asker_heard_of_it_begins_anew(world: World) -> None:
    world.ask(wish(1, 2, 2))
    world.quiesce()
    lost = max(world.told[1].nodes)
    world.lose(lost)
    world.ask(wish(2, 1))
    del world.told[1]
    world.head.ask(A, wish(1, 2, 2))
    assert [gang.wish.gang for gang in world.head.waiting()] == [2, 1]
    world.quiesce()
    assert lost not in world.told[1].nodes


def test_gang_of_a_node_that_is_gone_ends(world: World) -> None:
    world.ask(wish(1, 2, 2, 2))
    world.quiesce()
    world.lose(A)
    world.quiesce()
    assert all(resources.free() == CPUS for resources, _, _ in world.nodes.values())


def test_restarted_head_confirms_whole_gangs_and_releases_halves(world: World) -> None:
    world.ask(wish(1, 2, 2))
    for node in (A, B, C):
        world.deliver(node)
    world.restart_head()
    world.quiesce()
    assert world.is_ready(1)
    world.ask(wish(2, 1, 1))
    world.quiesce()
    del world.wishes[1], world.wishes[2]
    world.restart_head()
    world.quiesce()
    assert all(resources.free() == CPUS for resources, _, _ in world.nodes.values())


STEPS = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, 4), st.lists(st.integers(1, 2), min_size=1, max_size=3)),
    st.tuples(st.just("release"), st.integers(1, 4)),
    st.tuples(st.just("deliver"), st.sampled_from([A, B, C])),
    st.tuples(st.just("deliver"), st.sampled_from([A, B, C])),
    st.tuples(st.just("start_task"), st.sampled_from([A, B, C])),
    st.tuples(st.just("lose"), st.sampled_from([B, C])),
    st.tuples(st.just("register"), st.sampled_from([A, B, C])),
    st.tuples(st.just("pass_time"), st.sampled_from([0.5, 2.0, 11.0])),
    st.tuples(st.just("restart_head"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["end_task", "deliver_all"])),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(STEPS, max_size=30))
def test_gangs_never_wait_for_each_other_with_halves(steps: list[tuple[Any, ...]]) -> None:
    """Whatever happens, in the end each possible gang has had its turn once those before it are released."""
    world = World()
    for name, *arguments in steps:
        if name == "ask":
            gang, cpus = arguments
            if gang not in world.wishes:
                world.ask(wish(gang, *cpus))
        else:
            getattr(world, name)(*arguments)
            world.settle()
    while world.tasks:
        world.end_task()
    world.quiesce()
    for gang in list(world.wishes):
        assert gang in world.told, f"gang {gang} waits for nothing"
        world.release(gang)
        world.quiesce()
    assert all(resources.free() == CPUS for resources, _, _ in world.nodes.values())

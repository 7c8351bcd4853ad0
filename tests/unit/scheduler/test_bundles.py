"""A node's part in gangs: gathering, lapsing, and amounts that come back whole."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from outboard.scheduler.bundles import (
    CONFIRM_SECONDS,
    GATHER_SECONDS,
    BundleCommand,
    Bundles,
    Confirmed,
    Declined,
    Prepared,
)
from outboard.scheduler.resources import Demand, Resources

pytestmark = pytest.mark.timeout(10)

UNIT = 10_000
GANG, OTHER = 0xA, 0xB
ONE = Demand(UNIT, 0, ())


class Node:
    """Four CPUs, two devices and five of a kind; after each call the invariants hold."""

    def __init__(self) -> None:
        self.resources = Resources({"CPU": 4 * UNIT, "GPU": 2 * UNIT, "kind": 5})
        self.whole = self.resources.free()
        self._commands: list[BundleCommand] = []
        self.bundles = Bundles(self.resources, self._commands)

    def prepare(self, gang: int, attempt: int, *demands: Demand, now: float = 0.0) -> list[BundleCommand]:
        self.bundles.prepare(gang, attempt, dict(enumerate(demands)), now)
        return self.said()

    def said(self) -> list[BundleCommand]:
        self.bundles.check()
        commands = self._commands[:]
        self._commands.clear()
        return commands


@pytest.fixture
def node() -> Node:
    return Node()


def test_bundles_are_set_aside_confirmed_and_released_once(node: Node) -> None:
    assert node.prepare(GANG, 1, ONE, ONE) == node.prepare(GANG, 1, ONE, ONE) == [Prepared(GANG, 1)]
    assert node.resources.free_cpu == 2 * UNIT
    assert node.bundles.pools(GANG, -1, ONE) == []
    for _ in range(2):
        node.bundles.confirm(GANG, 1)
        assert node.said() == [Confirmed(GANG, 1)]
    assert [pool.index for pool in node.bundles.pools(GANG, -1, ONE)] == [0, 1]
    node.bundles.release(GANG, 1)
    node.bundles.release(GANG, 1)
    assert node.bundles.take_ended() == [GANG] and node.bundles.take_ended() == []
    assert node.said() == [] and node.resources.free() == node.whole


def test_what_becomes_free_is_gathered_before_tasks_have_it(node: Node) -> None:
    node.resources.take(Demand(3 * UNIT, 0, ()), ())
    assert node.prepare(GANG, 1, Demand(3 * UNIT, 0, ())) == []
    assert node.resources.free_cpu == 0
    for _ in range(2):
        node.resources.give(ONE, ())
        node.bundles.on_freed(1.0)
    assert node.said() == [Prepared(GANG, 1)] and node.resources.free_cpu == 0
    assert node.bundles.due == 1.0 + CONFIRM_SECONDS


def test_gathering_ends_after_a_while_and_the_next_one_gets_it(node: Node) -> None:
    node.resources.take(ONE, ())
    assert node.prepare(GANG, 1, Demand(4 * UNIT, 0, ())) == node.prepare(OTHER, 1, ONE, now=1.0) == []
    assert node.bundles.due == GATHER_SECONDS
    node.bundles.on_timer(GATHER_SECONDS)
    assert node.said() == [Declined(GANG, 1), Prepared(OTHER, 1)]


def test_portion_that_nobody_confirms_lapses(node: Node) -> None:
    node.prepare(GANG, 1, ONE)
    node.bundles.on_timer(CONFIRM_SECONDS)
    assert node.said() == [Declined(GANG, 1)] and node.resources.free() == node.whole
    node.bundles.confirm(GANG, 1)
    assert node.said() == [Declined(GANG, 1)]


def test_late_words_of_an_earlier_attempt_change_nothing(node: Node) -> None:
    node.prepare(GANG, 2, ONE)
    assert node.prepare(GANG, 1, ONE, ONE) == [Declined(GANG, 1)]
    node.bundles.release(GANG, 1)
    node.bundles.confirm(GANG, 1)
    assert node.said() == [Declined(GANG, 1)] and node.resources.free_cpu == 3 * UNIT
    assert node.prepare(GANG, 3, ONE, ONE) == [Prepared(GANG, 3)] and node.resources.free_cpu == 2 * UNIT


def test_more_than_the_node_has_is_declined_at_once(node: Node) -> None:
    assert node.prepare(GANG, 1, ONE, Demand(5 * UNIT, 0, ())) == [Declined(GANG, 1)]
    assert node.prepare(GANG, 2, Demand(0, 0, (("unknown", 1),))) == [Declined(GANG, 2)]
    assert node.resources.free() == node.whole


def test_devices_of_a_bundle_are_devices_of_the_node(node: Node) -> None:
    node.prepare(GANG, 1, Demand(0, 5_000, ()), Demand(UNIT, UNIT, (("kind", 2),)))
    node.bundles.confirm(GANG, 1)
    [whole] = node.bundles.pools(GANG, -1, Demand(0, UNIT, ()))
    [half] = node.bundles.pools(GANG, 0, Demand(0, 5_000, ()))
    assert whole.pick_gpus(Demand(0, UNIT, ())) == whole.gpu_ids != half.gpu_ids
    assert half.pick_gpus(Demand(0, 6_000, ())) is None and half.capacity(Demand(0, 2_500, ())) == 2
    assert node.resources.pick_gpus(Demand(0, UNIT, ())) is None


@pytest.mark.parametrize(
    "demand",
    [Demand(2 * UNIT, 0, ()), Demand(0, 2 * UNIT, ()), Demand(0, 0, (("kind", 3),)), Demand(0, 0, (("x", 1),))],
)
def test_demand_beyond_its_bundle_has_no_pool(node: Node, demand: Demand) -> None:
    node.prepare(GANG, 1, Demand(UNIT, UNIT, (("kind", 2),)))
    node.bundles.confirm(GANG, 1)
    assert node.bundles.pools(GANG, 0, demand) == []


def test_what_tasks_still_have_goes_to_the_node_when_they_end(node: Node) -> None:
    node.prepare(GANG, 1, Demand(2 * UNIT, UNIT, (("kind", 2),)))
    node.bundles.confirm(GANG, 1)
    demand = Demand(UNIT, UNIT, (("kind", 1),))
    [pool] = node.bundles.pools(GANG, 0, demand)
    devices = pool.pick_gpus(demand)
    assert devices is not None
    pool.take(demand, devices)
    node.bundles.release(GANG, 1)
    free: Mapping[str, int] = {"CPU": 3 * UNIT, "GPU": UNIT, "kind": 4}
    assert node.resources.free() == free
    pool.give(demand, devices)
    assert node.resources.free() == node.whole

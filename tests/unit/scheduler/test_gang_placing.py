"""Where bundles go: each strategy, and what is impossible for sure."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outboard.scheduler.gang_placing import Placement, Strategy, place, resources_of
from outboard.scheduler.gangs import BUNDLES
from outboard.scheduler.resources import Demand, Resources

pytestmark = pytest.mark.timeout(20)

UNIT = 10_000


def cpus(*amounts: int) -> list[Demand]:
    return [Demand(amount * UNIT, 0, ()) for amount in amounts]


def nodes(*amounts: int, **others: int) -> dict[int, Resources]:
    return {i + 1: Resources({"CPU": amount * UNIT, **others}) for i, amount in enumerate(amounts)}


@pytest.mark.parametrize(
    ("strategy", "bundles", "amounts", "expected"),
    [
        (Strategy.PACK, (1, 1), (1, 4), (2, 2)),
        (Strategy.PACK, (3, 3, 2, 2), (3, 5, 5), {2, 3}),
        (Strategy.PACK, (2, 2), (2, 2), {1, 2}),
        (Strategy.SPREAD, (1, 1), (1, 4), {1, 2}),
        (Strategy.SPREAD, (1, 1, 1), (4, 1), {1, 2}),
        (Strategy.STRICT_PACK, (1, 1), (1, 2), (2, 2)),
        (Strategy.STRICT_PACK, (2, 2), (3, 3), ()),
        (Strategy.STRICT_SPREAD, (1, 3), (3, 1), (2, 1)),
        (Strategy.STRICT_SPREAD, (1, 1, 1), (8, 8), ()),
    ],
)
def test_strategies(
    strategy: Strategy, bundles: tuple[int, ...], amounts: tuple[int, ...], expected: tuple[int, ...] | set[int]
) -> None:
    found = place(cpus(*bundles), nodes(*amounts), strategy)
    assert found.is_sure
    assert (set(found.nodes) if isinstance(expected, set) else found.nodes) == expected


def test_what_no_node_knows_is_impossible() -> None:
    assert place([Demand(0, 0, (("tpu", 1),))], nodes(4), Strategy.PACK) == Placement((), True)
    assert place(cpus(1), {}, Strategy.SPREAD) == Placement((), True)


def test_devices_are_counted_whole() -> None:
    halves = {1: resources_of({"GPU": 2 * UNIT}, {"GPU": UNIT})}
    assert place([Demand(0, UNIT, ())], halves, Strategy.PACK).nodes == (1,)
    assert place([Demand(0, 6_000, ()), Demand(0, 6_000, ())], halves, Strategy.PACK) == Placement((), True)


def test_hopeless_fit_among_many_ends_soon_and_does_not_pass_for_impossible() -> None:
    found = place(cpus(*[7] * 30, *[5] * 30, *[3] * 30, 9, 9), nodes(*range(5, 5 + 38)), Strategy.SPREAD)
    assert found.nodes or not found.is_sure


@pytest.mark.parametrize("strategy", Strategy)
def test_largest_gang_is_placed(strategy: Strategy) -> None:
    amounts = [1000] + [2] * BUNDLES
    assert len(place(cpus(*[2] * BUNDLES), nodes(*amounts), strategy).nodes) == BUNDLES


def test_largest_gang_that_only_fits_when_all_others_move_is_placed() -> None:
    sites = nodes(*range(BUNDLES, 0, -1))
    assert len(place(cpus(*range(1, BUNDLES + 1)), sites, Strategy.STRICT_SPREAD).nodes) == BUNDLES


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
    st.sampled_from(Strategy),
)
def test_placement_is_exact(bundles: list[int], amounts: list[int], strategy: Strategy) -> None:
    """Against all placements there are."""
    sites = nodes(*amounts)
    found = place(cpus(*bundles), sites, strategy)
    possible = [p for p in product(sites, repeat=len(bundles)) if _holds(p, bundles, amounts, strategy)]
    assert found.is_sure and (found.nodes in possible if possible else not found.nodes)
    if possible and strategy is Strategy.PACK:
        assert len(set(found.nodes)) == min(len(set(p)) for p in possible)
    assert [site.free_cpu for site in sites.values()] == [amount * UNIT for amount in amounts]


def _holds(placed: tuple[int, ...], bundles: list[int], amounts: list[int], strategy: Strategy) -> bool:
    used = [sum(b for b, node in zip(bundles, placed, strict=True) if node == i + 1) for i in range(len(amounts))]
    if any(u > amount for u, amount in zip(used, amounts, strict=True)):
        return False
    apart = len(set(placed))
    return {Strategy.STRICT_PACK: apart == 1, Strategy.STRICT_SPREAD: apart == len(placed)}.get(strategy, True)

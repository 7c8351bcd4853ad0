"""Exact amounts, devices by id, and what can never fit."""

from __future__ import annotations

import pytest

from outboard.ids import RESOURCE_UNIT as UNIT
from outboard.scheduler.resources import CPULESS_PER_SLOT, Demand, Resources

pytestmark = pytest.mark.timeout(10)


def demand(**amounts: float) -> Demand:
    return Demand.of({name: round(amount * UNIT) for name, amount in amounts.items()})


def resources() -> Resources:
    return Resources({"CPU": 4 * UNIT, "GPU": 2 * UNIT, "disk": 3 * UNIT})


def test_zero_amounts_make_no_difference_to_a_demand() -> None:
    assert demand(CPU=1, disk=0) == demand(CPU=1)


def test_ten_tenths_fit_into_one() -> None:
    node = Resources({"CPU": UNIT})
    tenth = demand(CPU=0.1)
    for _ in range(10):
        assert node.fits(tenth)
        node.take(tenth, ())
    assert node.free_cpu == 0 and not node.fits(tenth)


def test_taking_and_giving_leaves_everything_as_it_was() -> None:
    node = resources()
    before = node.free()
    for wanted in (demand(CPU=2, disk=1), demand(GPU=0.5), demand(CPU=1, GPU=2)):
        ids = node.pick_gpus(wanted)
        assert ids is not None
        node.take(wanted, ids)
        assert node.free() != before
        node.give(wanted, ids)
        assert node.free() == before


def test_blocked_task_gives_back_all_but_its_cpus() -> None:
    node = resources()
    wanted = demand(CPU=1, disk=1)
    node.take(wanted, ())
    node.give(wanted, (), with_cpu=False)
    assert node.free_cpu == 3 * UNIT and node.free_others == {"disk": 3 * UNIT}


@pytest.mark.parametrize(
    ("wanted", "capacity"),
    [
        (demand(CPU=1), 4),
        (demand(CPU=3), 1),
        (demand(CPU=5), 0),
        (demand(CPU=1, disk=2), 1),
        (demand(CPU=1, tape=1), 0),
        (demand(GPU=0.5), 4),
        (demand(GPU=0.4), 4),
        (demand(CPU=1, GPU=2), 1),
        (demand(GPU=3), 0),
        (demand(GPU=1.5), 0),
        (demand(), CPULESS_PER_SLOT * 4),
    ],
)
def test_capacity(wanted: Demand, capacity: int) -> None:
    assert resources().capacity(wanted) == capacity


def test_fractions_share_a_device_so_that_whole_ones_stay_free() -> None:
    node = resources()
    half = demand(GPU=0.5)
    first = node.pick_gpus(half)
    assert first is not None
    node.take(half, first)
    assert node.pick_gpus(half) == first
    whole = node.pick_gpus(demand(GPU=1))
    assert whole is not None and whole != first
    node.take(demand(GPU=1), whole)
    assert node.pick_gpus(demand(GPU=1)) is None
    assert node.pick_gpus(half) == first


def test_worker_fits_only_a_demand_for_as_many_devices_as_it_has() -> None:
    node = resources()
    assert node.gpus_fit((1,), demand(GPU=1)) and node.gpus_fit((1,), demand(GPU=0.5))
    assert not node.gpus_fit((), demand(GPU=1)) and not node.gpus_fit((0, 1), demand(GPU=1))
    assert not node.gpus_fit((0,), demand(CPU=1))
    node.take(demand(GPU=0.5), (1,))
    assert not node.gpus_fit((1,), demand(GPU=1)) and node.gpus_fit((1,), demand(GPU=0.5))


def test_number_of_devices_may_be_told_apart_from_totals() -> None:
    node = Resources({"CPU": UNIT}, gpus=3)
    assert node.totals["GPU"] == 3 * UNIT and node.free()["GPU"] == 3 * UNIT

"""Shares of CPUs with which so many processes can run at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis.strategies import integers, lists

from outboard.cpushare import fitting_share


def test_one_machine_is_divided_evenly() -> None:
    assert fitting_share([20_000], 3) == 6_666
    assert fitting_share([20_000], 100_000) == 1


def test_a_share_lies_on_one_node() -> None:
    assert fitting_share([10_000, 30_000], 6) == 6_000
    assert fitting_share([0, 10_000], 2) == 5_000


@given(lists(integers(0, 40_000), min_size=1, max_size=5), integers(1, 60))
def test_all_fit_and_no_larger_share_would_do(nodes: list[int], processes: int) -> None:
    def count(share: int) -> int:
        return sum(units // share for units in nodes)

    share = fitting_share(nodes, processes)
    assert count(share) >= processes or share == 1
    assert count(share + 1) < processes

"""Which node gets which tasks: the dealt blocks are what one by one would come to."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from outboard.scheduler.placing import choose_share, plan_level
from outboard.scheduler.shares import Share

pytestmark = pytest.mark.timeout(30)


def deal_one_by_one(rooms: list[int], count: int) -> list[int]:
    left = list(rooms)
    for _ in range(min(count, sum(rooms))):
        left[left.index(max(left))] -= 1
    return [before - after for before, after in zip(rooms, left, strict=True)]


@settings(max_examples=300, deadline=None)
@given(rooms=st.lists(st.integers(0, 12), min_size=1, max_size=6), count=st.integers(0, 60))
def test_blocks_are_as_large_as_if_each_task_went_where_most_room_is_left(rooms: list[int], count: int) -> None:
    assert plan_level(rooms, count) == deal_one_by_one(rooms, count)


def shares(*nodes: int) -> list[Share]:
    return [Share(node, 9, {}, is_allowed=True) for node in nodes]


def test_task_goes_where_most_bytes_of_its_inputs_lie() -> None:
    assert choose_share(shares(0, 5, 6), [9, 1, 1], {5: 10, 6: 20}) == 2


def test_full_node_gets_nothing_whatever_lies_there() -> None:
    assert choose_share(shares(0, 5), [1, 0], {5: 10}) == 0


def test_most_room_decides_between_equal_bytes_and_the_first_wins_ties() -> None:
    assert choose_share(shares(0, 5, 6), [1, 2, 3], {}) == 2
    assert choose_share(shares(0, 5), [2, 2], {77: 10}) == 0

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from outboard.process.board import SLOTS, Board


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board.create()
    yield made
    made.close()


def test_slot_names_the_running_item_until_cleared(board: Board) -> None:
    slot = board.slot(7)
    assert slot.running() is None
    slot.set_running(2**64 - 1, 2**32 - 1, 0)
    assert slot.running() == (2**64 - 1, 2**32 - 1, 0)
    slot.clear()
    assert slot.running() is None


def test_cancelled_means_the_same_item_only(board: Board) -> None:
    slot = board.slot(0)
    slot.request_cancel(1, 2, 3)
    assert not slot.is_cancelled()
    slot.set_running(1, 2, 4)
    assert not slot.is_cancelled()
    slot.set_running(1, 2, 3)
    assert slot.is_cancelled()
    slot.reset()
    assert (slot.running(), slot.cancel_target()) == (None, None)


def test_neighbours_do_not_touch(board: Board) -> None:
    board.slot(4).set_running(2**64 - 1, 2**32 - 1, 2**63)
    board.slot(4).request_cancel(2**64 - 1, 2**32 - 1, 2**63)
    for number in (3, 5):
        assert board.slot(number).running() is None
        assert board.slot(number).cancel_target() is None


def test_another_mapping_sees_what_is_written(board: Board) -> None:
    other = Board(os.dup(board.fd))
    board.slot(SLOTS - 1).set_running(1, 2, 3)
    assert other.slot(SLOTS - 1).running() == (1, 2, 3)
    other.close()


@pytest.mark.parametrize("number", [-1, SLOTS])
def test_number_beyond_the_board_is_refused(board: Board, number: int) -> None:
    with pytest.raises(IndexError, match="slots 0 to"):
        board.slot(number)

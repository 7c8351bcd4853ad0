"""The window of a generator: what joblib may hear of, in which order, and that nobody waits for ever."""

from __future__ import annotations

import random

import pytest

from outboard.joblib.window import WINDOW_NBYTES, WINDOW_RESULTS, Window


class Finished:
    def __init__(self, number: int, length: int = 1) -> None:
        self.number, self.length = number, length

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"<{self.number}>"


def numbers(batches: list[Finished]) -> list[int]:
    return [batch.number for batch in batches]


def full(window: Window) -> Window:
    window.resize(WINDOW_NBYTES)
    return window


def test_small_results_pass_as_they_finish() -> None:
    window = Window(ordered=False, least=2)
    assert [numbers(window.on_finished(Finished(n))) for n in (1, 0, 2)] == [[1], [0], [2]]


def test_large_results_wait_for_the_consumer() -> None:
    window = full(Window(ordered=False, least=2))
    delivered = [numbers(window.on_finished(Finished(n))) for n in range(4)]
    assert delivered == [[0], [1], [], []]
    assert numbers(window.on_consumed(0)) == [2]
    assert numbers(window.on_consumed(1)) == [3]


def test_what_an_ordered_consumer_needs_next_passes_a_full_window() -> None:
    window = full(Window(ordered=True, least=2))
    assert [numbers(window.on_finished(Finished(n))) for n in (3, 2, 1)] == [[3], [2], []]
    assert numbers(window.on_finished(Finished(0))) == [0]
    assert numbers(window.on_consumed(0)) == [1]


def test_delivery_of_what_is_needed_waits_until_all_before_it_is_consumed() -> None:
    window = full(Window(ordered=True, least=2))
    for number in range(2):
        window.on_finished(Finished(number))
    assert numbers(window.on_finished(Finished(2))) == []
    assert numbers(window.on_consumed(0)) == [2]


def test_a_batch_larger_than_the_window_passes_an_empty_one() -> None:
    window = full(Window(ordered=False, least=2))
    assert numbers(window.on_finished(Finished(0, 50))) == [0]
    assert numbers(window.on_finished(Finished(1, 50))) == []
    assert numbers(window.on_consumed(0, 49)) == []
    assert numbers(window.on_consumed(0)) == [1]


def test_the_room_follows_the_size_of_results_and_keeps_its_bounds() -> None:
    window = Window(ordered=False, least=7)
    window.resize(0)
    assert window.room == WINDOW_RESULTS
    window.resize(WINDOW_NBYTES / 100)
    assert window.room == 100
    window.resize(1e12)
    assert window.room == 7


def test_what_is_held_when_the_consumer_goes_comes_out_once() -> None:
    window = full(Window(ordered=True, least=1))
    assert [numbers(window.on_finished(Finished(n))) for n in (0, 1, 2)] == [[0], [], []]
    assert numbers(window.empty()) == [1, 2]
    assert window.empty() == [] and window.on_consumed(0) == []


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_every_batch_is_delivered_once_whatever_the_order(ordered: bool, seed: int) -> None:
    chance = random.Random(seed)
    window = Window(ordered=ordered, least=chance.randint(1, 4))
    window.resize(WINDOW_NBYTES / chance.randint(1, 20))
    batches = [Finished(number, chance.randint(1, 5)) for number in range(60)]
    running = list(batches)
    ready: dict[int, int] = {}
    arrived: list[int] = []
    left = [len(batch) for batch in batches]
    needed = 0

    def deliver(released: list[Finished]) -> None:
        for batch in released:
            assert batch.number not in ready and left[batch.number]
            ready[batch.number] = len(batch)
            arrived.append(batch.number)

    while any(left):
        takes = [needed] if ordered else [n for n in arrived if left[n]]
        takes = [n for n in takes if n in ready and left[n]]
        if takes and (not running or chance.random() < 0.5):
            number = takes[0]
            left[number] -= 1
            if ordered and not left[number]:
                needed += 1
            deliver(window.on_consumed(number))
        else:
            assert running, "the consumer waits for what is held back"
            running_now = running[: 2 if ordered else 6]  # a program has so many in flight
            batch = chance.choice(running_now)
            running.remove(batch)
            deliver(window.on_finished(batch))
    assert sorted(arrived) == list(range(60))

"""Sizes of batches, from the run times that workers measured."""

from __future__ import annotations

from outboard.joblib.batching import BATCH_SECONDS, BATCH_TASKS, GROWTH, BatchSizer


def test_the_first_batches_are_single_tasks() -> None:
    assert BatchSizer().size == 1


def test_fast_tasks_make_batches_grow_step_by_step_up_to_a_limit() -> None:
    sizer = BatchSizer()
    sizes = [sizer.on_finished(n, n * 1e-6) for n in range(1, 6)]
    assert sizes == [GROWTH, GROWTH**2, BATCH_TASKS, BATCH_TASKS, BATCH_TASKS]


def test_a_batch_lasts_as_long_as_it_should() -> None:
    sizer = BatchSizer()
    sizer.on_finished(10, 10 * BATCH_SECONDS / 8)
    assert sizer.size == 8


def test_slow_tasks_go_one_by_one_at_once() -> None:
    sizer = BatchSizer()
    sizer.on_finished(100, 1e-4)
    assert sizer.on_finished(101, 0.5) == 1


def test_what_came_last_counts_not_the_whole_past() -> None:
    sizer = BatchSizer()
    sizer.on_finished(1000, 100.0)
    sizer.on_finished(1010, 100.0 + 10 * BATCH_SECONDS / 4)
    assert sizer.size == 4


def test_no_news_changes_nothing_and_the_cap_holds() -> None:
    sizer = BatchSizer()
    sizer.on_finished(10, 1e-5)
    size = sizer.size
    assert sizer.on_finished(10, 1e-5) == size
    assert sizer.on_finished(10, 1e-5, most=3) == 3
    assert sizer.on_finished(11, 1.1e-5, most=0) == 1


def test_unmeasurably_short_tasks_divide_by_nothing() -> None:
    assert BatchSizer().on_finished(5, 0.0) == GROWTH

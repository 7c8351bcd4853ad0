"""Arrays whose items share large arguments: stored once, as they were, and only for as long as they are of use."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import outboard as ob
from outboard import engine as engines
from outboard.options import TaskOptions

pytestmark = pytest.mark.timeout(60)

MB = 1 << 20


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """Start a cluster with 256 MB of store."""
    ob.init(num_cpus=2, store_memory=256 * MB)
    yield engines.current()
    ob.shutdown()


def first_of(x: Any) -> tuple[float, bool]:
    first, writable = float(x[0]), bool(x.flags.writeable)
    if writable:
        x += 1
    return first, writable


def total_of(pair: Any) -> float:
    return float(sum(x.sum() for x in pair))


def opened(engine: Any, function: Any = first_of, **options: Any) -> Any:
    return engine.open_array(function, TaskOptions(), share_arguments=True, **options)


def results(array: Any) -> list[Any]:
    done: dict[int, Any] = {}
    while completions := array.take(timeout=30):
        for index, ok, value in completions:
            assert ok, value
            done[index] = value
    return [done[index] for index in sorted(done)]


def stored_nbytes(engine: Any) -> int:
    engine.client.flush()
    used: int = engine.client.values.allocated_nbytes
    return used


def settled_nbytes(engine: Any) -> int:
    """Bytes in use once the node has said what nobody sees any more."""
    engine.client.turns.wait(lambda: engine.client.flush() or engine.client.values.allocated_nbytes < MB, None)
    return stored_nbytes(engine)


def test_an_argument_of_many_extends_is_stored_once_and_its_bytes_are_not_compared(engine: Any) -> None:
    data = np.zeros(MB)
    array = opened(engine)
    got = []
    for number in range(8):
        array.extend([data])
        got += results(array)
        assert stored_nbytes(engine) == pytest.approx(8 * MB, rel=0.01), number
        data[0] = 7  # the program has promised not to: what was stored is what tasks see
    assert got == [(0.0, True)] * 8
    array.close()
    assert settled_nbytes(engine) < MB


@pytest.mark.parametrize("is_closed_first", [False, True])
def test_what_an_array_stored_goes_when_it_ends_though_the_program_is_idle(engine: Any, is_closed_first: bool) -> None:
    data = np.zeros(MB)
    array = opened(engine)
    array.extend([data])
    if is_closed_first:
        array.close()
    assert results(array) == [(0.0, True)]
    array.close()
    idle = threading.Event()  # that the program does nothing is what is looked at
    deadline = time.monotonic() + 10
    while engine.client.values.allocated_nbytes > MB and time.monotonic() < deadline:
        idle.wait(0.01)
    assert engine.client.values.allocated_nbytes < MB


def test_the_next_array_sees_what_has_changed(engine: Any) -> None:
    data = np.zeros(MB)
    for value in (0.0, 1.0):
        data[0] = value
        array = opened(engine, writable=False)
        array.extend([data])
        assert results(array) == [(value, False)]


def test_without_the_flag_bytes_decide(engine: Any) -> None:
    data = np.zeros(MB)
    array = engine.open_array(first_of, TaskOptions())
    got = []
    for value in (0.0, 1.0):
        data[0] = value
        array.extend([data])
        got += results(array)
    assert got == [(0.0, True), (1.0, True)]


def test_a_view_that_is_read_only_arrives_as_one_beside_a_writable_one(engine: Any) -> None:
    data = np.zeros(MB)
    fixed = data.view()
    fixed.flags.writeable = False
    array = opened(engine)
    array.extend([data, fixed, data, fixed])
    assert results(array) == [(0.0, True), (0.0, False)] * 2


@pytest.mark.parametrize("end", ["cancel", "drop", "close"])
def test_the_end_of_an_array_frees_what_it_kept(engine: Any, end: str) -> None:
    kept = np.zeros(MB)
    array = opened(engine)
    array.extend([kept, kept[: MB // 2]])
    results(array)
    assert stored_nbytes(engine) >= 12 * MB
    if end == "drop":
        del array
    else:
        getattr(array, end)()
    assert settled_nbytes(engine) < MB


def test_the_end_of_an_argument_frees_it(engine: Any) -> None:
    array = opened(engine)
    array.extend([np.zeros(MB)])
    results(array)
    assert settled_nbytes(engine) < MB


def test_more_distinct_arguments_than_the_store_holds_pass_through_one_array(engine: Any) -> None:
    array = opened(engine)
    total = 0.0
    for number in range(150):  # 1.2 GB
        array.extend([np.full(MB, float(number))])
        if array.count - array.finished >= 4:
            total += sum(value[0] for _, ok, value in array.take(timeout=30) if ok)
    total += sum(value[0] for value in results(array))
    assert total == sum(range(150))


def test_arguments_that_all_live_on_take_turns_in_the_store(engine: Any) -> None:
    memory = np.arange(80 * MB // 8 + 16 * MB, dtype=np.int8)
    windows = [memory[start : start + 16 * MB] for start in range(0, memory.nbytes - 16 * MB, MB // 8)]
    array = opened(engine, total_of, writable=False)
    array.extend([(window, windows[0]) for window in windows])
    expected = [float(window.sum() + windows[0].sum()) for window in windows]
    assert results(array) == expected


def test_a_call_that_does_not_pickle_gives_back_what_was_stored_for_it(engine: Any) -> None:
    class Odd:
        def __reduce__(self) -> Any:
            raise TypeError("not this one")

    data = np.zeros(MB)
    array = opened(engine, total_of)
    array.extend([(data, Odd())])
    ((_, ok, error),) = array.take(timeout=30)
    assert not ok and "not this one" in str(error)
    array.close()
    assert settled_nbytes(engine) < MB

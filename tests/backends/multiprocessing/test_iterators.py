"""imap and imap_unordered: order, errors, the window, the thread that draws."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from outboard.errors import TaskCancelledError
from outboard.multiprocessing import Pool


def fail_at_three(x: int) -> int:
    if x == 3:
        raise KeyError("three")
    return x


def stop_iteration(_: int) -> None:
    raise StopIteration


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        gate.wait(0.005)


#: Never set: waiting on it yields to other threads for a moment between two looks at a condition.
gate = threading.Event()


def feeders() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "outboard-imap-input"]


class Source:
    """An endless input that counts how often it was asked."""

    def __init__(self) -> None:
        self.pulled = 0

    def __iter__(self) -> Iterator[int]:
        for i in itertools.count():
            self.pulled += 1
            yield i


def test_order(pool_class: Any) -> None:
    with pool_class(2) as p:
        assert list(p.imap(abs, range(-300, 0))) == list(range(300, 0, -1))
        assert list(p.imap(abs, iter(range(-300, 0)), 7)) == list(range(300, 0, -1))
        assert sorted(p.imap_unordered(abs, (i for i in range(300)))) == list(range(300))


def test_error_of_a_task_is_raised_and_iteration_goes_on(pool_class: Any) -> None:
    with pool_class(2) as p:
        it = p.imap(fail_at_three, range(6))
        assert [next(it) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(KeyError, match="three"):
            next(it)
        assert list(it) == [4, 5]
        with pytest.raises(StopIteration):
            next(it)


def test_error_in_a_chunk_ends_the_iteration(pool_class: Any) -> None:
    with pool_class(2) as p:
        it = p.imap(fail_at_three, range(8), chunksize=2)
        assert [next(it), next(it)] == [0, 1]
        with pytest.raises(KeyError):
            next(it)
        assert list(it) == []


def test_error_of_the_input_comes_after_its_items(pool_class: Any) -> None:
    def source() -> Iterator[int]:
        yield from (1, 2, 3)
        raise OSError("disk")

    with pool_class(2) as p:
        for method in (p.imap, p.imap_unordered) if pool_class is Pool else (p.imap,):
            it = method(abs, source())
            assert sorted(next(it) for _ in range(3)) == [1, 2, 3]
            with pytest.raises(OSError, match="disk"):
                next(it)
            with pytest.raises(StopIteration):
                next(it)


def test_next_in_time_and_not(parallel_pool_class: Any) -> None:
    with parallel_pool_class(1) as p:
        it = p.imap(time.sleep, [0.3])
        with pytest.raises(multiprocessing.TimeoutError):
            it.next(timeout=0.01)
        assert it.next(20) is None


def test_stop_iteration_of_a_task_does_not_end_the_iteration_silently(our_pool_class: Any) -> None:
    with our_pool_class(1) as p, pytest.raises(RuntimeError, match="StopIteration"):
        list(p.imap(stop_iteration, [1]))


@pytest.mark.parametrize("method", ["imap", "imap_unordered"])
def test_infinite_input_is_drawn_a_bounded_distance_ahead(our_pool_class: Any, method: str) -> None:
    source = Source()
    with our_pool_class(2) as p:
        it = getattr(p, method)(abs, source)
        taken = [next(it) for _ in range(5)]
        assert taken == [0, 1, 2, 3, 4] if method == "imap" else len(set(taken)) == 5
        wait_until(lambda: source.pulled >= 5 + 4)
        assert source.pulled < 64


def test_window_grows_for_short_tasks_only(our_pool_class: Any) -> None:
    source = Source()
    with our_pool_class(2) as p:
        it = p.imap(abs, source)
        for _ in range(3000):
            next(it)
        wait_until(lambda: source.pulled - 3000 > 100)
        assert source.pulled - 3000 <= 1001


def test_buffersize_fixes_the_distance(our_pool_class: Any) -> None:
    source = Source()
    with our_pool_class(2) as p:
        it = p.imap(abs, source, buffersize=3)
        for _ in range(500):
            next(it)
        wait_until(lambda: source.pulled == 503)
        with pytest.raises(ValueError, match="buffersize"):
            p.imap(abs, [], buffersize=0)


def test_input_may_wait_for_earlier_results(pool_class: Any) -> None:
    consumed = threading.Semaphore(1)

    def source() -> Iterator[int]:
        for i in range(20):
            assert consumed.acquire(timeout=20)
            yield i

    with pool_class(2) as p:
        got = []
        for value in p.imap(abs, source()):
            got.append(value)
            consumed.release()
        assert got == list(range(20))


def test_exactly_full_and_empty_inputs_leave_no_thread(our_pool_class: Any) -> None:
    with our_pool_class(2) as p:
        for count in (0, 1, 8, 48, 1000):
            assert list(p.imap(abs, (i for i in range(count)))) == list(range(count))
            assert list(p.imap(abs, (i for i in range(count)), 8)) == list(range(count))
        wait_until(lambda: not feeders())


@pytest.mark.parametrize("end", ["drop", "close", "terminate", "drop chunks"])
def test_feeder_ends_with_its_iterator(our_pool_class: Any, end: str) -> None:
    with our_pool_class(2) as p:
        it = p.imap(abs, Source(), 3 if end == "drop chunks" else 1)
        next(it)
        assert feeders()
        if end == "close":
            it.close()
        elif end == "terminate":
            p.terminate()
        else:
            it = None
            gc.collect()
        wait_until(lambda: not feeders())


def test_join_draws_the_rest_of_a_finite_input(pool_class: Any) -> None:
    with pool_class(2) as p:
        its = [
            p.imap(abs, range(500)),
            p.imap(abs, (i for i in range(500))),
            p.imap_unordered(abs, (i for i in range(500)), 7),
        ]
        p.close()
        p.join()
        assert [sorted(it) for it in its] == [list(range(500))] * 3


def test_closed_pool_goes_on_feeding_what_is_consumed(pool_class: Any) -> None:
    with pool_class(2) as p:
        its = [p.imap(abs, range(500)), p.imap(abs, (i for i in range(500)))]
        p.close()
        assert [list(it) for it in its] == [list(range(500))] * 2
        p.join()


def test_next_after_terminate_raises_once_and_stops(our_pool_class: Any) -> None:
    with our_pool_class(2) as p:
        it = p.imap(abs, Source())
        next(it)
    cancelled = 0
    while True:
        try:
            next(it)
        except TaskCancelledError:
            cancelled += 1
        except StopIteration:
            break
    assert cancelled >= 1


def test_threads_may_share_an_iterator(our_pool_class: Any) -> None:
    got: list[int] = []
    with our_pool_class(2) as p:
        it = p.imap_unordered(abs, range(200))
        threads = [threading.Thread(target=lambda: got.extend(it)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(got) == list(range(200))

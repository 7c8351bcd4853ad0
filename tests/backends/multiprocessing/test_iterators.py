"""imap and imap_unordered: order, errors, the window, the thread that draws."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import outboard
from outboard.errors import NodeLostError, ShutdownError, TaskCancelledError
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


def boom() -> None:
    raise RuntimeError("no licence file")


def endless(kind: str) -> Any:
    generator = (i for i in itertools.count())
    return {"count": itertools.count(), "repeat": itertools.repeat(-1), "generator": generator}[kind]


def drain(iterator: Iterator[Any]) -> list[BaseException]:
    """Go on after every exception until the iteration ends."""
    failures: list[BaseException] = []
    while True:
        try:
            next(iterator)
        except StopIteration:
            return failures
        except Exception as error:
            failures.append(error)


@pytest.mark.parametrize("kind", ["count", "repeat", "generator"])
@pytest.mark.parametrize("method", ["imap", "imap_unordered"])
def test_endless_input_ends_with_the_error_of_the_initializer(our_pool_class: Any, method: str, kind: str) -> None:
    p = our_pool_class(2, initializer=boom)
    it = getattr(p, method)(abs, endless(kind))
    with pytest.raises(RuntimeError, match="no licence file"):
        next(it)
    p.close()
    p.join()
    assert {str(error) for error in drain(it)} <= {"no licence file"}


@pytest.mark.parametrize("kind", ["count", "generator"])
def test_endless_input_ends_with_the_engine(native_pool_class: Any, kind: str) -> None:
    p = native_pool_class(2)
    it, unread = p.imap(abs, endless(kind)), p.imap(abs, endless(kind))
    assert next(it) == 0
    outboard.shutdown()
    for iterator in (it, unread):
        failures = drain(iterator)
        assert failures and {type(error) for error in failures} <= {ShutdownError, NodeLostError}
    p.close()
    p.join()


def test_join_of_a_failed_pool_does_not_wait_for_an_input_that_blocks(native_pool_class: Any) -> None:
    go = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        go.wait(30)

    p = native_pool_class(1)
    it = p.imap(abs, source())
    assert next(it) == 1
    outboard.shutdown()
    p.close()
    p.join()
    with pytest.raises(RuntimeError, match="before the input had ended"):
        next(it)
    go.set()
    wait_until(lambda: not feeders())


@pytest.mark.parametrize("kind", ["count", "repeat"])
def test_join_draws_no_more_of_what_is_known_to_have_no_end(our_pool_class: Any, kind: str) -> None:
    p = our_pool_class(2)
    it = p.imap(abs, endless(kind))
    first = [next(it) for _ in range(3)]
    p.close()
    p.join()
    assert len(first + list(it)) < 2000


def test_join_draws_the_rest_at_the_pace_of_the_workers(our_pool_class: Any) -> None:
    ahead = []
    p = our_pool_class(2)

    def source() -> Iterator[int]:
        for i in range(3000):
            ahead.append(i - it._array.finished)
            yield i

    it: Any = p.imap(abs, [])
    it = p.imap(abs, source())
    p.close()
    p.join()
    assert len(ahead) == 3000 and max(ahead) < 1001
    assert list(it) == list(range(3000))


def test_join_may_be_interrupted_while_an_endless_generator_is_drawn(native_pool_class: Any) -> None:
    p = native_pool_class(1)
    source = Source()
    it = p.imap(abs, source)
    p.close()
    main = threading.main_thread().ident
    timer = threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        p.join()
    timer.join()
    del it
    p.terminate()
    wait_until(lambda: not feeders())

"""Ctrl-C, and exceptions of the program's own signal handlers, at any moment."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import outboard as ob
from outboard import engine
from outboard.errors import OutboardError
from outboard.multiprocessing import Pool
from tests.faults.bad_objects import same

pytestmark = pytest.mark.timeout(60)

Program = Callable[[], object]


class Alarm(Exception):
    """Raised by the handlers of these tests."""


def is_hit(program: Program, signum: int, raised: type[BaseException]) -> bool:
    """Run a program with a signal let in, which is blocked otherwise; return whether what its handler raises came out.

    Signals come faster than one can be dealt with: others on the way out are part of the first.
    """
    try:
        try:
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})
                program()
            finally:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signum})
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signum})
    except raised:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signum})
        return True
    return False


def hit(program: Program, signum: int, raised: type[BaseException], rng: random.Random, count: int,
        longest: float) -> int:  # fmt: skip
    """Run a program over and over while a signal comes at random moments; return how often it got through."""
    main, ended, pause = threading.get_ident(), threading.Event(), threading.Event()

    def send() -> None:
        for _ in range(count):
            pause.wait(rng.uniform(0.0005, longest))
            signal.pthread_kill(main, signum)
        ended.set()

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signum})
    thread = threading.Thread(target=send)
    thread.start()
    hits = 0
    try:
        while not ended.is_set():
            hits += is_hit(program, signum, raised)
    finally:
        thread.join()
        hits += is_hit(lambda: None, signum, raised)  # one that came last
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return hits


@pytest.fixture
def interrupts() -> Iterator[Callable[[Program, int], int]]:
    """Run a program over and over while SIGINT comes at random moments; return how often it was interrupted."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def run(program: Program, count: int) -> int:
        interrupted = hit(program, signal.SIGINT, KeyboardInterrupt, random.Random(count), count, 0.02)
        try:
            ob.get(ob.put(1))  # raises one that came in a finaliser
        except KeyboardInterrupt:
            interrupted += 1
        return interrupted

    yield run
    signal.signal(signal.SIGINT, before)


def double(x: int) -> int:
    return 2 * x


def check_everything_works() -> None:
    assert ob.get([ob.remote(double).remote(i) for i in range(200)], timeout=20) == [2 * i for i in range(200)]
    array = np.arange(50_000.0)
    assert ob.get(ob.remote(same).remote(ob.put(array)), timeout=20).sum() == array.sum()
    with Pool(2) as pool:
        assert pool.map(double, range(100), chunksize=7) == [2 * i for i in range(100)]


@pytest.mark.alone
def test_interrupt_ends_a_wait_at_once(cluster: Any, interrupts: Any) -> None:
    cluster(num_cpus=2)
    pool = Pool(2)
    waits: list[Program] = [
        lambda: ob.get(ob.remote(time.sleep).remote(60)),
        lambda: ob.wait([ob.remote(time.sleep).remote(60)]),
        lambda: pool.map(time.sleep, [60]),
        lambda: pool.apply(time.sleep, (60,)),
        lambda: next(pool.imap(time.sleep, [60])),
    ]
    for wait in waits:
        timer = threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGINT))
        begun = time.monotonic()
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            wait()
        assert time.monotonic() - begun < 1.0
        timer.join()
    pool.terminate()
    pool.join()


def test_interrupts_while_getting_leave_results_right(cluster: Any, interrupts: Any) -> None:
    cluster(num_cpus=2)
    task = ob.remote(double)

    def program() -> None:
        assert ob.get(task.remote(21)) == 42
        refs = [task.remote(i) for i in range(20)]
        assert ob.get(refs) == [2 * i for i in range(20)]

    assert interrupts(program, 50) >= 20
    check_everything_works()


def test_interrupts_while_submitting_and_putting(cluster: Any, interrupts: Any) -> None:
    cluster(num_cpus=2)
    task = ob.remote(same)
    array = np.ones(300_000)

    def program() -> None:
        refs = [task.remote(array) for _ in range(5)] + [ob.put(array), task.remote(ob.put(array))]
        assert [value.sum() for value in ob.get(refs)] == [300_000] * 7

    assert interrupts(program, 50) >= 20
    check_everything_works()


def test_interrupts_during_maps(cluster: Any, interrupts: Any) -> None:
    cluster(num_cpus=2)
    with Pool(2) as pool:

        def program() -> None:
            assert pool.map(double, range(500)) == [2 * i for i in range(500)]
            assert list(pool.imap(double, range(100))) == [2 * i for i in range(100)]

        assert interrupts(program, 50) >= 10
        assert pool.map(double, range(500)) == [2 * i for i in range(500)]
    check_everything_works()


class Slow:
    """Takes its time to pickle."""

    def __reduce__(self) -> Any:
        time.sleep(2)
        return int, ()


@pytest.mark.alone
def test_interrupt_ends_slow_pickling(cluster: Any, interrupts: Any) -> None:
    cluster(num_cpus=1)
    with Pool(1) as pool:
        calls: list[Program] = [
            lambda: ob.remote(same).remote(Slow()),
            lambda: ob.put(Slow()),
            lambda: pool.map(same, [1, Slow(), 2]),
        ]
        for call in calls:
            timer = threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            begun = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                call()
            assert time.monotonic() - begun < 1
            timer.join()
    check_everything_works()


@pytest.mark.parametrize("seed", range(3))
def test_handler_that_raises_anywhere_never_hangs_the_program(cluster: Any, seed: int) -> None:
    cluster(num_cpus=2)
    task = ob.remote(double)

    def ring(signum: int, frame: Any) -> None:
        current: Any = engine.peek()
        if current is not None and current.client.closed_mark is None:  # a start that it ends leaves processes behind
            raise Alarm

    def program() -> None:
        try:
            assert ob.get([task.remote(i) for i in range(5)], timeout=10) == [2 * i for i in range(5)]
        except OutboardError as error:  # an event was torn: said so, and the next call has a new cluster
            assert not isinstance(error, TimeoutError), error

    before = signal.signal(signal.SIGUSR1, ring)
    try:
        raised = hit(program, signal.SIGUSR1, Alarm, random.Random(seed), 30, 0.01)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert raised
    try:
        check_everything_works()
    except OutboardError as error:
        assert not isinstance(error, TimeoutError), error
        check_everything_works()


def test_other_handlers_of_the_program_stay(cluster: Any) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda signum, frame: heard.append(signum))
    try:
        cluster(num_cpus=1)
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        assert ob.get(ob.remote(nap).remote(0.3), timeout=10) == 0.3
        assert heard == [signal.SIGINT]
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds

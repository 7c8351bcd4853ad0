"""Construction, states, the end of a pool."""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import multiprocessing.pool
import pickle
import threading
import time
import warnings
import weakref
from typing import Any

import pytest

import outboard
from outboard import engine
from outboard.errors import TaskCancelledError
from outboard.multiprocessing import Pool, cpu_count

SCALE: int | None = None


def set_scale(value: int) -> None:
    global SCALE
    SCALE = value


def scaled(x: int) -> int:
    assert SCALE is not None
    return x * SCALE


def boom() -> None:
    raise RuntimeError("no licence file")


@pytest.mark.parametrize(
    ("kwargs", "error", "text"),
    [
        ({"processes": 0}, ValueError, "Number of processes must be at least 1"),
        ({"processes": -2}, ValueError, "Number of processes must be at least 1"),
        ({"processes": "2"}, TypeError, "not supported between|Number of processes must be a whole number .*not '2'"),
        ({"processes": 2.5}, TypeError, "as an integer|Number of processes must be a whole number .*not 2.5"),
        ({"processes": 1, "maxtasksperchild": 0}, ValueError, "maxtasksperchild must be a positive int or None"),
        ({"processes": 1, "maxtasksperchild": 1.5}, ValueError, "maxtasksperchild must be a positive int or None"),
        ({"processes": 1, "initializer": 5}, TypeError, "initializer must be a callable"),
    ],
)
def test_wrong_arguments_are_refused(pool_class: Any, kwargs: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pool_class(**kwargs)


def test_initializer_sets_what_tasks_read(pool_class: Any) -> None:
    with pool_class(2, set_scale, (10,)) as p:
        assert p.map(scaled, range(4)) == [0, 10, 20, 30]


def set_scale_by_a_task() -> None:
    set_scale(outboard.get(outboard.remote(abs).remote(-8)))


def test_initializer_may_wait_for_tasks(native_pool_class: Any) -> None:
    with native_pool_class(4, set_scale_by_a_task) as p:  # more than there are CPUs
        assert p.map(scaled, range(4)) == [0, 8, 16, 24]


def test_initializer_that_raises_ends_every_call_with_its_exception(our_pool_class: Any) -> None:
    with our_pool_class(2, initializer=boom) as p:
        for call in (lambda: p.map(abs, [1]), lambda: p.apply(abs, (1,)), lambda: next(p.imap(abs, [1]))):
            with pytest.raises(RuntimeError, match="no licence file"):
                call()


def test_default_number_of_processes_is_that_of_the_cluster(our_pool_class: Any) -> None:
    with our_pool_class() as p:
        assert p._processes == cpu_count() == int(engine.current().cluster_resources()["CPU"])


def test_all_processes_fit_at_once(our_pool_class: Any) -> None:
    cpus = engine.current().cluster_resources()["CPU"]
    for processes in (1, 3, 7, 1000):
        with our_pool_class(processes) as p:
            assert p._options.demand()["CPU"] * processes <= max(cpus, processes) * 10_000
            if processes > cpus:
                assert p._options.demand()["CPU"] * processes <= cpus * 10_000


def test_pool_of_absurd_size_has_the_processes_that_its_tasks_need(native_pool_class: Any) -> None:
    with native_pool_class(100_000) as p:
        assert p.map(abs, range(-500, 0)) == list(range(500, 0, -1))
        assert 0 < len(p._pool) < 100
        started = time.monotonic()
        p.terminate()
        p.join()
    assert time.monotonic() - started < 10


def test_context_is_ignored_with_a_warning(our_pool_class: Any) -> None:
    with pytest.warns(UserWarning, match="context is ignored"):
        p = our_pool_class(1, context=multiprocessing.get_context("spawn"))
    with p:
        assert p.apply(abs, (-1,)) == 1


def test_states_and_repr(pool_class: Any) -> None:
    p = pool_class(2)
    assert isinstance(p, multiprocessing.pool.Pool)
    assert p._processes == 2 and p._state == "RUN"
    assert repr(p).endswith("Pool state=RUN pool_size=2>")
    with pytest.raises(ValueError, match="Pool is still running"):
        p.join()
    p.close()
    p.close()
    assert p._state == "CLOSE"
    p.join()
    p.join()
    p.terminate()
    assert p._state == "TERMINATE"
    p.close()
    assert p._state == "TERMINATE"
    p.join()


@pytest.mark.parametrize("end", ["close", "terminate"])
def test_ended_pool_refuses_every_call(pool_class: Any, end: str) -> None:
    p = pool_class(1)
    getattr(p, end)()
    calls = [
        lambda: p.apply(abs, (1,)),
        lambda: p.apply_async(abs, (1,)),
        lambda: p.map(abs, [1]),
        lambda: p.map_async(abs, [1]),
        lambda: p.starmap(abs, [(1,)]),
        lambda: p.starmap_async(abs, [(1,)]),
        lambda: p.imap(abs, [1]),
        lambda: p.imap_unordered(abs, [1]),
        p.__enter__,
    ]
    for call in calls:
        with pytest.raises(ValueError, match="Pool not running"):
            call()
    p.join()


def test_pool_cannot_be_pickled(pool_class: Any) -> None:
    with (
        pool_class(1) as p,
        pytest.raises(NotImplementedError, match="pool objects cannot be passed between processes"),
    ):
        pickle.dumps(p)


def test_forgotten_pool_warns_and_names_itself(our_pool_class: Any) -> None:
    p = our_pool_class(1)
    with pytest.warns(ResourceWarning, match="unclosed running multiprocessing pool .*state=RUN"):
        del p
        gc.collect()


def test_pool_whose_constructor_failed_dies_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError):
            Pool(unknown=1)  # type: ignore[call-arg]  # wrong on purpose
        gc.collect()


def test_pool_lives_while_a_result_is_awaited(our_pool_class: Any) -> None:
    p = our_pool_class(1)
    alive = weakref.ref(p)
    r = p.map_async(abs, [-1])
    p.close()
    del p
    gc.collect()
    assert alive() is not None
    assert r.get(10) == [1]
    gc.collect()
    assert alive() is None


def test_closed_pool_finishes_what_it_has(pool_class: Any) -> None:
    p = pool_class(2)
    results = [p.apply_async(abs, (-i,)) for i in range(20)] + [p.map_async(abs, range(20))]
    p.close()
    p.join()
    assert [r.get(10) for r in results] == [*range(20), list(range(20))]


def test_leaving_the_block_drops_what_has_not_finished(parallel_pool_class: Any) -> None:
    begun = time.monotonic()
    with parallel_pool_class(1) as p:
        p.apply_async(time.sleep, (30,))
    assert time.monotonic() - begun < 10


def test_terminate_fails_pending_results(our_pool_class: Any) -> None:
    ran: list[Any] = []
    hold = threading.Event()
    p = our_pool_class(1)
    p.apply_async(abs, (1,), callback=lambda _: hold.wait(10))
    results = [p.map_async(abs, [1] * 50, 1, ran.append, ran.append), p.map_async(abs, [1] * 50, 1)]
    p.terminate()
    hold.set()
    for r in results:
        try:
            r.get(timeout=10)
        except TaskCancelledError:
            assert not r.successful()
    p.join()
    assert ran == []  # no callback runs after it


@pytest.mark.parametrize("method", ["map_async", "apply_async"])
def test_terminate_in_a_callback_many_times(our_pool_class: Any, method: str) -> None:
    for _ in range(20):
        p = our_pool_class(2)
        done = threading.Event()

        def stop(error: BaseException, p: Any = p, done: threading.Event = done) -> None:
            p.terminate()
            p.join()
            done.set()

        if method == "map_async":
            p.map_async(len, range(200), chunksize=1, error_callback=stop)  # numbers have none
        else:
            # The first failure may be heard before the last call is made, which is then refused.
            with contextlib.suppress(ValueError):
                for i in range(20):
                    p.apply_async(len, (i,), error_callback=stop)
        assert done.wait(20)
        p.join()


def test_terminate_under_load_with_an_endless_feeder(our_pool_class: Any) -> None:
    for _ in range(8):
        p = our_pool_class(2)
        p.map_async(time.sleep, [0.2] * 5000, chunksize=1)
        it = p.imap(abs, (i for i in itertools.count()))
        next(it)
        begun = time.monotonic()
        p.terminate()
        p.join()
        assert time.monotonic() - begun < 10


@pytest.mark.parametrize(("kind", "maker"), [("Lock", "Lock"), ("SimpleQueue", "Queue")])
def test_what_needs_inheritance_is_refused_with_what_to_use(native_pool_class: Any, kind: str, maker: str) -> None:
    shared = getattr(multiprocessing.get_context("fork"), kind)()
    text = rf"only be shared between processes through inheritance; .*initargs.*Manager\(\)\.{maker}\(\)"
    with native_pool_class(1) as p:
        for call in (
            lambda: p.map(abs, [shared]),
            lambda: p.apply(abs, (shared,)),
            lambda: next(p.imap(abs, [shared])),
            lambda: native_pool_class(1, abs, (shared,)),
        ):
            with pytest.raises(RuntimeError, match=text):
                call()
        assert p.apply(abs, (-1,)) == 1
    if kind == "SimpleQueue":
        shared.close()


def test_join_ends_when_the_iterator_of_a_blocked_input_is_dropped_meanwhile(native_pool_class: Any) -> None:
    unblock = threading.Event()

    def blocked() -> Any:
        yield 1
        unblock.wait(30)

    pool = native_pool_class(2)
    results = pool.imap(abs, blocked())
    assert next(results) == 1
    pool.close()
    joining = threading.Thread(target=pool.join)
    joining.start()
    joining.join(0.2)
    assert joining.is_alive()
    del results
    gc.collect()
    joining.join(10)
    ended = not joining.is_alive()
    unblock.set()
    joining.join(10)
    assert ended

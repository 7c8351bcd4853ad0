"""Result objects: states, time limits, callbacks."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import pytest


def fail(x: object) -> None:
    raise KeyError(x)


def wait_for(path: str) -> int:
    while not Path(path).exists():
        time.sleep(0.005)
    return 2


def test_result_of_a_call_in_all_its_states(pool_class: Any) -> None:
    with pool_class(2) as p:
        r = p.map_async(abs, [-1])
        assert r.wait(10) is None
        assert r.ready() and r.successful()
        assert r.get() == r.get(0) == [1]
        bad = p.apply_async(fail, ("k",))
        bad.wait(10)
        assert bad.ready() and not bad.successful()
        for _ in range(2):  # the same object each time
            with pytest.raises(KeyError, match="k") as caught:
                bad.get()
            assert type(caught.value) is KeyError


def test_unfinished_result_is_not_ready(parallel_pool_class: Any) -> None:
    with parallel_pool_class(1) as p:
        for r in (p.apply_async(time.sleep, (30,)), p.map_async(time.sleep, [30]), p.apply_async(abs, (1,), {}, print)):
            assert not r.ready()
            assert r.wait(0.01) is None
            with pytest.raises(ValueError, match="not ready"):
                r.successful()
            with pytest.raises(multiprocessing.TimeoutError) as caught:
                r.get(timeout=0.01)
            assert not caught.value.args and not isinstance(caught.value, TimeoutError)


def test_value_comes_after_a_timeout(parallel_pool_class: Any) -> None:
    with parallel_pool_class(1) as p:
        r = p.apply_async(time.sleep, (0.3,))
        with pytest.raises(multiprocessing.TimeoutError):
            r.get(0.01)
        assert r.get(20) is None


def test_empty_map_is_ready_at_once_and_calls_nobody(pool_class: Any) -> None:
    calls: list[Any] = []
    with pool_class(2) as p:
        r = p.map_async(abs, [], callback=calls.append, error_callback=calls.append)
        assert r.ready() and r.successful() and r.get() == []
        p.close()
        p.join()
    assert calls == []


@pytest.mark.parametrize("chunksize", [1, 2])
def test_map_callback_gets_the_whole_list_once_before_get_returns(pool_class: Any, chunksize: int) -> None:
    calls: list[Any] = []
    errors: list[Any] = []
    with pool_class(2) as p:
        r = p.map_async(abs, [-1, -2, -3], chunksize, calls.append, errors.append)
        assert r.get(10) == [1, 2, 3]
        assert calls == [[1, 2, 3]]
        with pytest.raises(KeyError):
            p.map_async(fail, [-1, -2, -3], chunksize, calls.append, errors.append).get(10)
        assert [type(e) for e in errors] == [KeyError]
        p.close()
        p.join()
    assert calls == [[1, 2, 3]] and len(errors) == 1


def test_callbacks_run_serially_in_one_other_thread_before_ready(pool_class: Any) -> None:
    seen: list[tuple[int, bool]] = []
    results: list[Any] = []
    gate = threading.Event()
    with pool_class(2) as p:

        def note(_: Any) -> None:
            gate.wait(10)
            seen.append((threading.get_ident(), results[len(seen)].ready()))

        results += [p.apply_async(abs, (i,), callback=note) for i in range(1)]
        gate.set()
        results[0].get(10)
        for _ in range(5):
            results.append(p.apply_async(abs, (1,), callback=note))
            results[-1].get(10)
    assert len({ident for ident, _ in seen}) == 1 and seen[0][0] != threading.get_ident()
    assert not any(ready for _, ready in seen) and len(seen) == 6


def test_callback_of_a_result_that_nobody_keeps_runs(parallel_pool_class: Any, tmp_path: Path) -> None:
    done: list[int] = []
    with parallel_pool_class(1) as p, parallel_pool_class(1) as other:
        p.map_async(wait_for, [str(tmp_path / "go")] * 2, callback=done.extend)
        other.apply_async(abs, (-1,), callback=done.append).get()  # the thread of the callbacks goes on to this one
        gc.collect()
        (tmp_path / "go").touch()
        p.close()
        p.join()
    assert sorted(done) == [1, 2, 2]


def test_join_returns_after_all_callbacks(pool_class: Any) -> None:
    done: list[int] = []
    with pool_class(2) as p:
        for i in range(20):
            p.apply_async(abs, (-i,), callback=done.append)
        p.map_async(abs, range(5), callback=done.extend)
        p.close()
        p.join()
        assert sorted(done) == sorted([*range(20), *range(5)])


def test_callback_that_raises_is_reported_and_the_pool_goes_on(
    our_pool_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))

    def bad(_: Any) -> None:
        raise OSError("callback")

    p = our_pool_class(2)
    assert p.apply_async(abs, (-1,), callback=bad).get(timeout=10) == 1
    assert p.map_async(abs, [-1], callback=bad).get(timeout=10) == [1]
    with pytest.raises(KeyError):  # the task's own error is what get() shows
        p.apply_async(fail, (1,), error_callback=bad).get(timeout=10)
    assert p.apply_async(abs, (-2,)).get(timeout=10) == 2
    p.close()
    p.join()
    assert reported == [OSError] * 3


def test_results_can_be_typed() -> None:
    from outboard.multiprocessing import AsyncResult

    assert AsyncResult[int] is not None


def test_many_threads_may_wait_for_one_result(pool_class: Any) -> None:
    got: list[Any] = []
    with pool_class(2) as p:
        for r in (p.map_async(abs, range(50), 1), p.apply_async(sum, ([1, 2],))):
            threads = [threading.Thread(target=lambda r=r: got.append(r.get(20))) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert got == [list(range(50))] * 4 + [3] * 4


@pytest.mark.parametrize("length", [100, 8191, 8192, 300_000])
def test_results_are_writable_however_large(pool_class: Any, length: int) -> None:
    numpy = pytest.importorskip("numpy")
    with pool_class(2) as p:
        for array in (p.apply(numpy.zeros, (length,)), *p.map(numpy.zeros, [length] * 2, chunksize=1)):
            array[1] = 7
            assert array.sum() == 7

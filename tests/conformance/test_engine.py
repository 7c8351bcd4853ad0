"""What every engine keeps of the Engine protocol."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from outboard import engine as engines
from outboard.engine import Chunk, Completion, Engine, Spread
from outboard.errors import (
    GetTimeoutError,
    RemoteTraceback,
    SerializationError,
    ShutdownError,
    TaskCancelledError,
    TaskExitError,
)
from outboard.inline import InlineEngine
from outboard.options import TaskOptions
from outboard.refs import ObjectRef

ENGINES = ["inline", "native"]

OPTIONS = TaskOptions()

SCALE: int | None = None


def add(a: int, b: int = 0) -> int:
    return a + b


def double(x: int) -> int:
    return 2 * x


def fail(x: object) -> None:
    raise KeyError(x)


def leave_early() -> None:
    raise RuntimeError("not today")


def leave(code: int) -> None:
    sys.exit(code)


def pair(x: int) -> tuple[int, int]:
    return x, x + 1


def error_value(x: int) -> Exception:
    return ValueError(x)


def is_list_of_refs(values: list[Any]) -> bool:
    return all(type(v).__name__ == "ObjectRef" for v in values)


def set_scale() -> None:
    global SCALE
    SCALE = 10


def scaled(x: int) -> int:
    assert SCALE is not None
    return SCALE * x


def boom() -> None:
    raise RuntimeError("no licence file")


def unpicklable(_: object) -> object:
    return threading.Lock()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    previous = engines.clear()
    if request.param == "inline":
        engines.install(InlineEngine())
    made = engines.current()
    yield made
    engines.clear()
    made.shutdown()
    if previous is not None:
        engines.install(previous)


@pytest.fixture
def native(engine: Engine) -> Engine:
    if isinstance(engine, InlineEngine):
        pytest.skip("calls do not run beside the program")
    return engine


def collect(engine: Engine, ref: Any) -> Completion:
    """Have one completion delivered by callback."""
    arrived = threading.Event()
    got: list[Completion] = []
    engine.add_done_callback(ref, lambda done: (got.append(done), arrived.set()))
    assert arrived.wait(20) and len(got) == 1
    return got[0]


def take_all(array: Any) -> list[Completion]:
    taken: list[Completion] = []
    while batch := array.take(20):
        taken += batch
    return taken


def test_put_and_get(engine: Engine) -> None:
    refs = [engine.put(i) for i in range(5)]
    assert engine.get(refs[3]) == 3
    assert engine.get(refs) == [0, 1, 2, 3, 4]
    assert engine.get([]) == []
    with pytest.raises(TypeError):
        engine.put(refs[0])
    for wrong in (tuple(refs), 5, [1, refs[0]], [refs[0], None]):
        with pytest.raises(TypeError, match=r"get\(\) takes .*ObjectRef.* (tuple \(Obj|int 5|int 1|NoneType None)"):
            engine.get(wrong)  # type: ignore[call-overload]  # wrong on purpose


def test_submit_gives_as_many_references_as_results(engine: Engine) -> None:
    assert engine.get(engine.submit(add, (1,), {"b": 2}, OPTIONS)) == 3
    assert engine.get(engine.submit(pair, (1,), {}, OPTIONS.merged(num_returns=2))) == [1, 2]
    assert engine.submit(double, (1,), {}, OPTIONS.merged(num_returns=0)) is None
    for ref in engine.submit(pair, (1,), {}, OPTIONS.merged(num_returns=3)):
        with pytest.raises(ValueError, match="pair returned 2 values, but num_returns=3"):
            engine.get(ref, 20)
    for ref in engine.submit(double, (1,), {}, OPTIONS.merged(num_returns=2)):
        with pytest.raises(TypeError, match="double returned int, but num_returns=2"):
            engine.get(ref, 20)


def test_references_are_replaced_at_the_top_level_only(engine: Engine) -> None:
    one = engine.put(1)
    assert engine.get(engine.submit(add, (one,), {"b": engine.submit(double, (one,), {}, OPTIONS)}, OPTIONS)) == 3
    assert engine.get(engine.submit(is_list_of_refs, ([one, one],), {}, OPTIONS)) is True


def test_failure_comes_as_itself_with_its_traceback(engine: Engine) -> None:
    ref = engine.submit(fail, ("k",), {}, OPTIONS)
    for _ in range(2):
        with pytest.raises(KeyError) as caught:
            engine.get(ref, 20)
        assert caught.value.args == ("k",)
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        assert "in fail" in str(caught.value.__cause__)


def test_failed_input_fails_the_task_with_the_same_error(engine: Engine) -> None:
    bad = engine.submit(fail, (1,), {}, OPTIONS)
    with pytest.raises(KeyError):
        engine.get(engine.submit(add, (bad,), {}, OPTIONS), 20)


def test_returned_exception_is_a_value(engine: Engine) -> None:
    assert isinstance(engine.get(engine.submit(error_value, (1,), {}, OPTIONS)), ValueError)


def test_exit_is_an_error(engine: Engine) -> None:
    with pytest.raises(TaskExitError) as caught:
        engine.get(engine.submit(leave, (3,), {}, OPTIONS), 20)
    assert caught.value.code == 3


def test_wait_keeps_the_order_and_checks_its_arguments(engine: Engine) -> None:
    refs = [engine.submit(double, (i,), {}, OPTIONS) for i in range(3)] + [engine.submit(fail, (1,), {}, OPTIONS)]
    assert engine.wait(refs, num_returns=4, timeout=20) == (refs, [])
    ready, others = engine.wait(refs, num_returns=2, timeout=20)
    assert len(ready) == 2 and sorted(map(refs.index, ready + others)) == [0, 1, 2, 3]
    assert engine.wait([], 1) == ([], [])
    for bad in (refs[0], 5, None, [5], [refs[0], "x"]):
        with pytest.raises(TypeError, match=r"wait\(\) takes .*ObjectRef.* (ObjectRef Obj|int 5|NoneType|str 'x')"):
            engine.wait(bad)  # type: ignore[arg-type]  # wrong on purpose
    for wrong in ({"num_returns": 0}, {"num_returns": 5}):
        with pytest.raises(ValueError):
            engine.wait(refs, **wrong)
    with pytest.raises(ValueError):
        engine.wait([refs[0], refs[0]])


def test_callbacks_run_once_in_one_thread_of_the_engine(engine: Engine) -> None:
    threads = set()
    engine.add_done_callback(engine.put(1), lambda _: threads.add(threading.get_ident()))
    assert collect(engine, engine.submit(double, (2,), {}, OPTIONS))[1:] == (True, 4)
    failed = collect(engine, engine.submit(fail, (2,), {}, OPTIONS))
    assert not failed.ok and isinstance(failed.value, KeyError)
    engine.add_done_callback(engine.put(1), lambda _: threads.add(threading.get_ident()))
    collect(engine, engine.put(1))
    assert len(threads) == 1 and threading.get_ident() not in threads


def test_callback_that_raises_does_not_stop_the_next(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))

    def bad(_: Completion) -> None:
        raise OSError

    engine.add_done_callback(engine.put(1), bad)
    collect(engine, engine.put(1))
    assert reported == [OSError]


def test_reference_as_future_and_awaited(engine: Engine) -> None:
    assert engine.submit(double, (2,), {}, OPTIONS).future().result(20) == 4
    with pytest.raises(KeyError):
        engine.submit(fail, (2,), {}, OPTIONS).future().result(20)

    async def program() -> Any:
        return await engine.submit(double, (3,), {}, OPTIONS)

    assert asyncio.run(program()) == 6


def test_references_compare_by_id_and_are_no_values(engine: Engine) -> None:
    ref = engine.put(1)
    again = engine.adopt_ref(ref.owner, ref.seq, ObjectRef)
    assert again == ref and hash(again) == hash(ref) and ref.hex() in repr(ref) and len(ref.hex()) == 32
    assert ref != engine.put(1) and ref != 1
    with pytest.raises(TypeError):
        bool(ref)
    with pytest.raises(TypeError):
        iter(ref)
    del ref
    gc.collect()
    engine.put(2)
    assert engine.get(again) == 1


def test_array_runs_each_item_once(engine: Engine) -> None:
    array = engine.open_array(double, OPTIONS)
    assert array.take() == []
    assert array.extend(range(10)) == 10
    assert array.extend(iter(range(10, 300))) == 290
    array.close()
    array.close()
    done = take_all(array)
    assert sorted(done) == [(i, True, 2 * i) for i in range(300)]
    assert array.count == array.finished == 300
    assert array.take() == array.take_nowait() == []
    with pytest.raises(ValueError):
        array.extend([1])


def test_array_tells_when_items_have_finished_without_taking_them(engine: Engine) -> None:
    array = engine.open_array(double, OPTIONS)
    array.extend(range(20))
    array.wait_finished(12)
    assert 12 <= array.finished <= 20
    array.wait_finished(20)
    assert array.finished == 20 and len(take_all(array)) == 20
    assert array.taken_nbytes >= 0 and not array.has_failed


def test_array_knows_that_it_has_failed(engine: Engine) -> None:
    cancelled, of_failed, of_engine = (engine.open_array(double, OPTIONS, b) for b in (None, engine.bind(
        processes=1, initializer=leave_early), None))  # fmt: skip
    cancelled.cancel()
    of_failed.extend([1])
    assert not take_all(of_failed)[0].ok
    engine.shutdown()
    for array in (cancelled, of_failed, of_engine):
        assert array.has_failed
        array.extend([1, 2])
        if array is not cancelled:
            array.wait_finished(array.count)


def test_array_may_be_taken_while_it_grows(engine: Engine) -> None:
    array = engine.open_array(double, OPTIONS)
    for i in range(20):
        array.extend([i])
        assert [done.value for done in array.take(20)] == [2 * i]
    array.close()
    assert array.take() == []


def test_failures_in_an_array_are_completions(engine: Engine) -> None:
    array = engine.open_array(fail, OPTIONS)
    array.extend([1, 2])
    done = sorted(take_all(array), key=lambda c: c.index)
    assert [(c.ok, type(c.value), c.value.args) for c in done] == [(False, KeyError, (1,)), (False, KeyError, (2,))]
    assert all(isinstance(c.value.__cause__, RemoteTraceback) for c in done)


def test_array_delivers_to_a_callback(engine: Engine) -> None:
    got: list[Completion] = []
    threads = set()
    full = threading.Event()

    def note(done: list[Completion]) -> None:
        got.extend(done)
        threads.add(threading.get_ident())
        if len(got) == 50:
            full.set()

    array = engine.open_array(double, OPTIONS)
    array.set_done_callback(note)
    for i in range(50):
        array.extend([i])
    array.close()
    assert full.wait(20)
    assert sorted(got) == [(i, True, 2 * i) for i in range(50)]
    assert len(threads) == 1 and threading.get_ident() not in threads


def test_array_that_has_items_before_its_callback(engine: Engine) -> None:
    full = threading.Event()
    array = engine.open_array(double, OPTIONS)
    array.extend([1])
    array.close()
    array.set_done_callback(lambda done: full.set())
    assert full.wait(20)


def test_cancelled_array_completes_all_the_rest(engine: Engine) -> None:
    array = engine.open_array(time.sleep, OPTIONS)
    array.extend([0.0])
    first = array.take(20)
    assert [(c.index, c.ok) for c in first] == [(0, True)]
    if not isinstance(engine, InlineEngine):
        array.extend([60.0])
    begun = time.monotonic()
    array.cancel()
    array.extend([60.0] * 5)
    rest = take_all(array)
    assert len(rest) == array.count - 1 and array.finished == array.count
    assert all(not c.ok and isinstance(c.value, TaskCancelledError) for c in rest)
    assert time.monotonic() - begun < 15


def test_chunks_and_spread_calls_travel(engine: Engine) -> None:
    array = engine.open_array(Chunk(Spread(add)), OPTIONS)
    array.extend([((1, 2), (3, 4)), ((5, 6),)])
    assert sorted(c.value for c in take_all(array)) == [[3, 7], [11]]
    with pytest.raises(StopIteration):
        Chunk(next)([iter([])])


def test_binding_runs_its_initializer_first(engine: Engine) -> None:
    binding = engine.bind(processes=2, initializer=set_scale, label="b")
    assert binding.processes == 2 and "b" in repr(binding)
    assert engine.get(engine.submit(scaled, (2,), {}, OPTIONS, binding), 20) == 20
    array = engine.open_array(scaled, OPTIONS, binding)
    array.extend(range(5))
    array.close()
    engine.unbind(binding, force=False)
    engine.unbind(binding, force=False)
    assert engine.join_binding(binding, 20)
    assert sorted(c.value for c in take_all(array)) == [0, 10, 20, 30, 40]


def test_failed_initializer_fails_every_call(engine: Engine) -> None:
    binding = engine.bind(processes=1, initializer=boom)
    array = engine.open_array(double, OPTIONS, binding)
    array.extend([1])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no licence file"):
            engine.get(engine.submit(double, (1,), {}, OPTIONS, binding), 20)
    assert [(c.ok, str(c.value)) for c in take_all(array)] == [(False, "no licence file")]
    assert isinstance(binding.failed, RuntimeError)
    engine.unbind(binding, force=True)
    assert engine.join_binding(binding, 20)


def test_forced_unbind_cancels_what_has_not_finished(engine: Engine) -> None:
    binding = engine.bind(processes=1)
    array = engine.open_array(time.sleep, OPTIONS, binding)
    array.extend([60.0] * 3)
    engine.unbind(binding, force=True)
    assert [type(c.value) for c in take_all(array)] == [TaskCancelledError] * 3
    with pytest.raises(TaskCancelledError):
        engine.get(engine.submit(double, (1,), {}, OPTIONS, binding), 20)
    assert engine.join_binding(binding, 20)


def test_resources_and_nodes_are_told(engine: Engine) -> None:
    assert engine.cluster_resources()["CPU"] >= 1
    assert set(engine.available_resources()) <= set(engine.cluster_resources())
    for node in engine.nodes():
        assert {"id", "host", "pid", "resources", "available", "workers"} <= set(node)


def test_shut_down_engine_refuses_calls(engine: Engine) -> None:
    ref = engine.put(1)
    engine.shutdown()
    engine.shutdown()
    calls: list[Callable[[], object]] = [
        lambda: engine.put(1),
        lambda: engine.get(ref),
        lambda: engine.submit(double, (1,), {}, OPTIONS),
        lambda: engine.open_array(double, OPTIONS),
        lambda: engine.bind(processes=1),
    ]
    for call in calls:
        with pytest.raises(ShutdownError):
            call()


def test_there_is_one_engine_per_process(engine: Engine) -> None:
    assert engines.current() is engines.peek() is engine
    with pytest.raises(RuntimeError):
        engines.install(InlineEngine())
    engines.install(engine)


def test_address_inline_starts_the_inline_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    previous = engines.clear()
    monkeypatch.setenv("OUTBOARD_ADDRESS", "inline")
    assert isinstance(engines.current(), InlineEngine)
    engines.clear()
    if previous is not None:
        engines.install(previous)


def test_time_limits(native: Engine) -> None:
    ref = native.submit(time.sleep, (60,), {}, OPTIONS)
    for timeout in (0, 0.05):
        with pytest.raises(GetTimeoutError):
            native.get(ref, timeout)
        assert native.wait([ref], timeout=timeout) == ([], [ref])
    array = native.open_array(time.sleep, OPTIONS)
    array.extend([60])
    with pytest.raises(GetTimeoutError):
        array.take(0.05)
    assert array.take_nowait() == []


def test_cancel_ends_a_running_task(native: Engine) -> None:
    begun = time.monotonic()
    for kwargs in ({}, {"force": True}, {"kill_after": 0.1}):
        ref = native.submit(time.sleep, (60,), {}, OPTIONS)
        native.wait([ref], timeout=0.1)
        native.cancel(ref, **kwargs)
        with pytest.raises(TaskCancelledError):
            native.get(ref, 20)
        native.cancel(ref)
    assert native.get(native.submit(double, (1,), {}, OPTIONS), 20) == 2
    assert time.monotonic() - begun < 20


def test_what_does_not_pickle_is_reported_by_the_reference(native: Engine) -> None:
    lock = threading.Lock()
    for function, args, what in ((double, (lock,), "argument"), (unpicklable, (1,), "result")):
        with pytest.raises(SerializationError) as caught:
            native.get(native.submit(function, args, {}, OPTIONS), 20)
        assert caught.value.what == what
    array = native.open_array(double, OPTIONS)
    array.extend([1, lock, 2])
    assert sorted((c.index, c.ok) for c in take_all(array)) == [(0, True), (1, False), (2, True)]


def test_the_run_time_of_items_adds_up(engine: Engine) -> None:
    array = engine.open_array(time.sleep, OPTIONS)
    assert array.run_seconds == 0
    array.extend([0.02, 0.03])
    take_all(array)
    assert 0.05 <= array.run_seconds < 2
    before = array.run_seconds
    array.extend(["no number", 0.02])  # what fails has run no time, or what it took
    take_all(array)
    assert 0.02 <= array.run_seconds - before < 2


def test_idle_contexts_outside_of_tasks_change_nothing(engine: Engine) -> None:
    with engine.idle(), engine.idle():
        assert engine.get(engine.submit(double, (1,), {}, OPTIONS), 20) == 2

"""What tasks raise, what does not pickle, workers that die, Ctrl-C."""

from __future__ import annotations

import multiprocessing
import multiprocessing.pool
import os
import signal
import sys
import threading
from typing import Any

import pytest

from outboard import engine
from outboard.errors import RemoteTraceback, SerializationError, TaskExitError, WorkerLostError
from outboard.inline import InlineEngine
from outboard.multiprocessing import MaybeEncodingError, Pool
from outboard.multiprocessing.faults import translated


class DbError(Exception):
    """Pickles, but cannot be rebuilt: args has one item, the constructor wants two."""

    def __init__(self, code: int, where: str) -> None:
        super().__init__(f"{code}@{where}")


def raise_db_error(_: object) -> None:
    raise DbError(7, "replica")


def raise_key_error(x: object) -> None:
    raise KeyError(x)


def leave(code: object) -> None:
    sys.exit(code)  # type: ignore[arg-type]  # any object will do


def unpicklable(_: object) -> Any:
    return threading.Lock()


def kill_at_three(x: int) -> int:
    if x == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def process_id(_: object) -> int:
    return os.getpid()


def inner(n: int) -> int:
    with Pool(2) as q:
        return sum(q.map(abs, range(n)))


class Model:
    dumps = 0

    def __reduce__(self) -> Any:
        Model.dumps += 1
        return Model, ()

    def score(self, i: int) -> int:
        return i


def test_exception_comes_as_itself_with_the_remote_traceback_as_cause(pool_class: Any) -> None:
    with pool_class(2) as p:
        calls = [
            lambda: p.apply(raise_key_error, (1,)),
            lambda: p.map(raise_key_error, [1]),
            lambda: p.map(raise_key_error, range(20), 5),
            lambda: next(p.imap(raise_key_error, [1])),
            lambda: p.apply_async(raise_key_error, (1,)).get(10),
        ]
        for call in calls:
            with pytest.raises(KeyError) as caught:
                call()
            cause = caught.value.__cause__
            assert type(cause) is multiprocessing.pool.RemoteTraceback
            assert str(cause).startswith('\n"""\nTraceback') and str(cause).endswith('"""')
            assert "raise_key_error" in str(cause)


def test_error_callback_gets_the_exception_itself(pool_class: Any) -> None:
    errors: list[BaseException] = []
    with pool_class(2) as p, pytest.raises(KeyError):
        p.apply_async(raise_key_error, (1,), error_callback=errors.append).get(10)
    assert type(errors[0]) is KeyError


def test_function_that_is_none_is_a_type_error_of_the_call(pool_class: Any) -> None:
    with pool_class(1) as p:
        r = p.apply_async(None, (1,))
        with pytest.raises(TypeError, match="not callable"):
            r.get(10)


def test_exit_in_a_task_is_an_error_and_the_pool_goes_on(our_pool_class: Any) -> None:
    with our_pool_class(1) as p:
        with pytest.raises(TaskExitError) as caught:
            p.apply(leave, (3,))
        assert caught.value.code == 3
        assert p.apply(abs, (-1,)) == 1


def test_exception_that_cannot_be_rebuilt_is_described(our_pool_class: Any) -> None:
    with our_pool_class(2) as p:
        with pytest.raises(Exception, match="7@replica") as caught:
            p.apply_async(raise_db_error, (0,)).get(timeout=20)
        assert "DbError" in f"{caught.value!r} {caught.value}"
        assert p.apply(abs, (-1,)) == 1


def test_result_that_does_not_pickle(native_pool_class: Any) -> None:
    with native_pool_class(1) as p:
        for call in (
            lambda: p.apply(unpicklable, (1,)),
            lambda: p.map(unpicklable, [1]),
            lambda: p.map(unpicklable, [1] * 9),
        ):
            with pytest.raises(MaybeEncodingError, match=r"Error sending result: .*lock.*Reason: .*pickle"):
                call()
        assert p.apply(abs, (-1,)) == 1


def test_argument_that_does_not_pickle_arrives_with_the_result(native_pool_class: Any) -> None:
    errors: list[BaseException] = []
    with native_pool_class(1) as p:
        results = [
            p.apply_async(abs, (threading.Lock(),), error_callback=errors.append),
            p.map_async(abs, [threading.Lock()]),
        ]
        for r in results:
            with pytest.raises(TypeError, match="pickle"):
                r.get(10)
        assert [type(e) for e in errors] == [TypeError]


@pytest.mark.parametrize("chunksize", [1, 4])
def test_killed_worker_is_an_error_that_names_the_item_and_the_signal(native_pool_class: Any, chunksize: int) -> None:
    with native_pool_class(2) as p:
        with pytest.raises(WorkerLostError, match=r"3.*SIGKILL") as caught:
            p.map_async(kill_at_three, range(8), chunksize=chunksize).get(timeout=20)
        assert caught.value.signal == signal.SIGKILL
        with pytest.raises(WorkerLostError, match=r"kill_at_three\(3\)"):
            p.apply(kill_at_three, (3,))
        with pytest.raises(WorkerLostError, match=r"kill_at_three\(3\) \(item 0\)"):
            next(p.imap(kill_at_three, [3]))
        assert p.map(abs, [-1]) == [1]


def test_worker_is_replaced_after_its_tasks(native_pool_class: Any) -> None:
    with native_pool_class(2, maxtasksperchild=1) as p:
        assert len(set(p.map(process_id, range(6), chunksize=1))) == 6
        results = [p.apply_async(process_id, (i,)) for i in range(20)]
        assert len({r.get(timeout=30) for r in results}) == 20


def test_pool_lists_its_workers(native_pool_class: Any) -> None:
    with native_pool_class(2) as p:
        pids = set(p.map(process_id, range(50), 1))
        assert pids <= {w.pid for w in p._pool}
        assert all(w.is_alive() and w.exitcode is None for w in p._pool)


def test_pool_inside_a_pool(our_pool_class: Any) -> None:
    with our_pool_class(2) as p:
        assert p.map(inner, [3, 4, 5]) == [3, 6, 10]


def test_bound_state_is_pickled_once_per_call(our_pool_class: Any) -> None:
    Model.dumps = 0
    with our_pool_class(2) as p:
        assert p.map(Model().score, range(40), chunksize=1) == list(range(40))
    assert Model.dumps <= 3


class InterruptedEngine(InlineEngine):
    """Raises KeyboardInterrupt where a program would block, and notes what is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled: list[Any] = []

    def get(self, refs: Any, timeout: float | None = None) -> Any:
        raise KeyboardInterrupt

    def cancel(self, ref: Any, **kwargs: Any) -> None:
        self.cancelled.append(kwargs)

    def open_array(self, *args: Any, **kwargs: Any) -> Any:
        array = super().open_array(*args, **kwargs)

        def interrupted(timeout: float | None = None) -> Any:
            raise KeyboardInterrupt

        array.take = interrupted  # type: ignore[method-assign]  # a fault
        array.cancel = lambda **kwargs: self.cancelled.append(kwargs)  # type: ignore[method-assign]  # a spy
        return array


def test_interrupt_cancels_the_call_that_was_waited_for() -> None:
    previous = engine.clear()
    mine = InterruptedEngine()
    engine.install(mine)
    try:
        with Pool(1) as p:
            pending = p.apply_async(abs, (1,))
            iterator = p.imap(abs, [1])
            for call in (lambda: p.apply(abs, (1,)), pending.get, lambda: p.map(abs, [1]), lambda: next(iterator)):
                with pytest.raises(KeyboardInterrupt):
                    call()
            assert mine.cancelled == [{"kill_after": 1.0}] * 4
            assert p._state == "RUN"
    finally:
        engine.clear()
        mine.shutdown()
        if previous is not None:
            engine.install(previous)


def test_errors_are_put_into_the_words_of_the_standard_pool() -> None:
    result = translated(SerializationError("no", what="result", reason=TypeError("lock"), value_repr="<lock>"))
    assert isinstance(result, MaybeEncodingError)
    assert (result.exc, result.value) == ("TypeError('lock')", "<lock>")
    reason = TypeError("cannot pickle")
    assert translated(SerializationError("no", what="argument", reason=reason)) is reason
    with_text_only = SerializationError("no", what="argument")
    assert translated(with_text_only) is with_text_only
    error = KeyError(1)
    error.__cause__ = RemoteTraceback.of("Traceback …\n")
    assert isinstance(translated(error).__cause__, multiprocessing.pool.RemoteTraceback)
    lost = WorkerLostError(pid=7, signal=9)
    assert str(translated(lost, lambda: ("f(3)", 3))).startswith("OB102: f(3) (item 3) lost: worker process 7")

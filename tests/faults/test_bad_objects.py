"""Functions, arguments, results and exceptions that misbehave when they are pickled or rebuilt, on either side."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

import outboard as ob
from outboard.errors import (
    GetTimeoutError,
    OutboardError,
    RemoteError,
    SerializationError,
    TaskCancelledError,
    WorkerLostError,
)
from outboard.multiprocessing import Pool
from tests.faults import bad_objects as bad

pytestmark = pytest.mark.timeout(30)

ONCE = {"max_retries": 0}


@pytest.fixture
def one_cpu(cluster: Any) -> Any:
    """A cluster with one worker, which must go on working after the test."""
    cluster(num_cpus=1)
    yield
    assert ob.get(ob.remote(bad.same).remote(1), timeout=10) == 1


@pytest.mark.parametrize("how", bad.DEADLY)
def test_argument_that_kills_when_rebuilt_is_a_lost_worker(one_cpu: Any, how: str) -> None:
    with pytest.raises(WorkerLostError, match=bad.DEADLY[how]):
        ob.get(ob.remote(bad.same).options(**ONCE).remote(bad.OnLoad(how)), timeout=10)
    with Pool(1) as pool:
        results = pool.imap(bad.same, [1, bad.OnLoad(how), 3])
        assert next(results) == 1
        with pytest.raises(WorkerLostError, match=bad.DEADLY[how]):
            next(results)
        assert next(results) == 3


@pytest.mark.parametrize("how", bad.RAISING)
def test_argument_that_cannot_be_rebuilt_is_reported(one_cpu: Any, how: str) -> None:
    with pytest.raises(SerializationError, match="argument") as caught:
        ob.get(ob.remote(bad.same).remote(bad.OnLoad(how)), timeout=10)
    assert caught.value.what == "argument"


@pytest.mark.parametrize("how", ["raise", "sysexit"])
def test_argument_that_does_not_pickle_is_reported(one_cpu: Any, how: str) -> None:
    task = ob.remote(bad.same)
    if how == "sysexit":  # the program's own exit, in its own process
        with pytest.raises(SystemExit):
            task.remote(bad.OnDump(how))
    else:
        with pytest.raises(SerializationError, match="odd") as caught:
            ob.get(task.remote(bad.OnDump(how)), timeout=10)
        assert caught.value.what == "argument" and isinstance(caught.value.reason, bad.Odd)
    with Pool(1) as pool:
        results = pool.imap(bad.same, [1, bad.OnDump(how), 3])
        assert next(results) == 1
        with pytest.raises((bad.Odd, SystemExit)):
            next(results)
        assert next(results) == 3


@pytest.mark.parametrize("how", bad.DEADLY)
def test_result_that_kills_when_pickled_is_a_lost_worker(one_cpu: Any, how: str) -> None:
    with pytest.raises(WorkerLostError, match=bad.DEADLY[how]):
        ob.get(ob.remote(bad.make).options(**ONCE).remote(bad.OnDump, how), timeout=10)


@pytest.mark.parametrize("how", bad.RAISING)
def test_result_that_does_not_pickle_is_reported(one_cpu: Any, how: str) -> None:
    with pytest.raises(SerializationError, match=r"result .*OnDump") as caught:
        ob.get(ob.remote(bad.make).remote(bad.OnDump, how), timeout=10)
    assert caught.value.what == "result"
    assert ob.wait([ob.remote(bad.make).options(num_returns=0).remote(bad.OnDump, how) or ob.put(1)])[0]


@pytest.mark.parametrize("how", ["raise", "sysexit"])
def test_result_that_cannot_be_rebuilt_is_reported(one_cpu: Any, how: str) -> None:
    ref = ob.remote(bad.make).remote(bad.OnLoad, how)
    for _ in range(2):
        with pytest.raises(SerializationError, match="cannot be rebuilt here") as caught:
            ob.get(ref, timeout=10)
        assert isinstance(caught.value.reason, (bad.Odd, SystemExit))
    with Pool(1) as pool, pytest.raises(Exception, match=r"odd|3"):
        pool.map(bad.OnLoad, [how])


@pytest.mark.parametrize("how", [*bad.DEADLY, *bad.RAISING])
def test_function_that_cannot_be_rebuilt(one_cpu: Any, how: str) -> None:
    expected = WorkerLostError if how in bad.DEADLY else SerializationError
    with pytest.raises(expected, match=bad.DEADLY.get(how, "function")):
        ob.get(ob.remote(bad.BadFunction(how)).options(**ONCE).remote(1), timeout=10)


def test_function_that_does_not_pickle(one_cpu: Any) -> None:
    lock = threading.Lock()

    def holds_a_lock(x: int) -> object:
        return lock, x

    with pytest.raises(SerializationError, match="lock"):
        ob.get(ob.remote(holds_a_lock).remote(1), timeout=10)
    with Pool(1) as pool:
        with pytest.raises(TypeError, match="lock"):
            pool.map(holds_a_lock, [1, 2])
        assert pool.map(bad.same, [1, 2]) == [1, 2]


@pytest.mark.parametrize("how", bad.RAISING)
@pytest.mark.parametrize("kind", [bad.BadReduce, bad.BadText])
def test_exception_that_does_not_pickle_or_show_is_described(one_cpu: Any, kind: type, how: str) -> None:
    with pytest.raises((RemoteError, kind)) as caught:
        ob.get(ob.remote(bad.throw).remote(kind, how), timeout=10)
    if isinstance(caught.value, RemoteError):
        assert kind.__name__ in caught.value.type_name and "throw" in caught.value.traceback


@pytest.mark.parametrize("kind", [bad.BadReduce, bad.BadText])
@pytest.mark.parametrize("how", bad.DEADLY)
def test_exception_that_kills_is_a_lost_worker(one_cpu: Any, kind: type, how: str) -> None:
    with pytest.raises(WorkerLostError, match=bad.DEADLY[how]):
        ob.get(ob.remote(bad.throw).options(**ONCE).remote(kind, how), timeout=10)


@pytest.mark.parametrize("how", ["raise", "sysexit"])
def test_exception_that_fails_in_the_client_alone_is_described(one_cpu: Any, how: str) -> None:
    with pytest.raises(RemoteError, match="BadState") as caught:
        ob.get(ob.remote(bad.throw).remote(bad.BadState, how), timeout=10)
    assert "throw" in caught.value.traceback


def test_exception_with_other_arguments_than_its_constructor(one_cpu: Any) -> None:
    with pytest.raises(Exception, match="7@replica") as caught:
        ob.get(ob.remote(bad.throw).remote(bad.TwoArguments, 7, "replica"), timeout=10)
    assert "TwoArguments" in f"{caught.value!r} {type(caught.value)}"


@pytest.mark.parametrize("kind", [bad.BadReduce, bad.BadText])
def test_exception_that_hangs_in_the_worker_can_be_cancelled(one_cpu: Any, kind: type) -> None:
    ref = ob.remote(bad.throw).remote(kind, "hang")
    with pytest.raises(GetTimeoutError):
        ob.get(ref, timeout=0.3)
    ob.cancel(ref, force=True)
    with pytest.raises(TaskCancelledError):
        ob.get(ref, timeout=10)


def test_argument_that_hangs_when_rebuilt_can_be_cancelled(one_cpu: Any) -> None:
    ref = ob.remote(bad.same).remote(bad.OnLoad("hang"))
    with pytest.raises(GetTimeoutError):
        ob.get(ref, timeout=0.3)
    ob.cancel(ref)
    with pytest.raises(TaskCancelledError):
        ob.get(ref, timeout=10)


def test_put_of_what_does_not_pickle_is_refused(one_cpu: Any) -> None:
    with pytest.raises(SerializationError, match="lock"):
        ob.put(threading.Lock())
    with pytest.raises(SerializationError, match="odd"):
        ob.put([1, bad.OnDump("raise")])


def test_module_that_the_workers_lack_is_named(one_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("only_here")
    exec("def f(x):\n    return x", vars(module))
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(OutboardError, match="only_here"):
        ob.get(ob.remote(module.f).remote(1), timeout=10)


def test_poisoned_items_among_many_are_reported_alone(one_cpu: Any) -> None:
    items: list[Any] = list(range(200))
    for place in (0, 57, 58, 199):
        items[place] = bad.OnDump("raise")
    with Pool(1) as pool:
        got = []
        results = pool.imap(bad.same, items)
        for place in range(200):
            try:
                got.append(next(results))
            except bad.Odd:
                got.append(None)
                assert place in (0, 57, 58, 199)
    assert got == [None if isinstance(item, bad.OnDump) else item for item in items]

"""The module as a whole: what is ours, what is passed on, contexts."""

from __future__ import annotations

import multiprocessing
import multiprocessing.pool
from typing import Any

import pytest

import outboard.multiprocessing as mp

OURS = {"Pool", "TimeoutError", "cpu_count", "get_context"}


def read(queue: Any) -> Any:
    return queue.get()


def test_every_standard_name_is_there() -> None:
    assert set(multiprocessing.__all__) <= set(mp.__all__) and set(mp.__all__) <= set(dir(mp))
    for name in set(multiprocessing.__all__) - OURS:
        assert getattr(mp, name) == getattr(multiprocessing, name), name
    assert issubclass(mp.Pool, multiprocessing.pool.Pool) and mp.Pool is not multiprocessing.Pool
    assert mp.TimeoutError is multiprocessing.TimeoutError


def test_names_come_by_from_import_and_star() -> None:
    found: dict[str, Any] = {}
    exec("from outboard.multiprocessing import *\nfrom outboard.multiprocessing import Manager, shared_memory", found)
    assert found["Pool"] is mp.Pool and found["Process"] is multiprocessing.Process
    assert found["shared_memory"].SharedMemory
    assert mp.managers.SyncManager and mp.current_process().name == "MainProcess"


def test_unknown_names_are_attribute_errors() -> None:
    for name in ("Poool", "_context", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"module 'outboard.multiprocessing' has no attribute {name!r}"):
            getattr(mp, name)
    with pytest.raises(ImportError):
        exec("from outboard.multiprocessing import Poool")


@pytest.mark.parametrize("method", [None, *multiprocessing.get_all_start_methods()])
def test_context_is_the_standard_one_but_for_the_pool(method: str | None) -> None:
    context, standard = mp.get_context(method), multiprocessing.get_context(method)
    assert isinstance(context, type(standard))
    assert context is mp.get_context(method) is context.get_context()
    assert context.get_start_method() == standard.get_start_method()
    assert context.Process is standard.Process
    assert context.get_context("spawn") is mp.get_context("spawn")
    assert context.Queue.__func__ is type(standard).Queue


def test_unknown_start_method_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot find context for 'thread'"):
        mp.get_context("thread")


def test_pool_of_a_context_is_ours(native_pool_class: Any) -> None:
    with mp.get_context("spawn").Pool(2, maxtasksperchild=5) as p:
        assert type(p) is native_pool_class and p._processes == 2
        assert p.map(abs, [-1, -2]) == [1, 2]
    assert mp.get_context().cpu_count() == mp.cpu_count()


def test_queue_of_a_manager_reaches_tasks(native_pool_class: Any) -> None:
    with mp.Manager() as manager, native_pool_class(1) as p:
        queue = manager.Queue()
        queue.put("hello")
        assert p.apply(read, (queue,)) == "hello"

"""What the calling thread has set holds in its tasks, and in no others."""

from __future__ import annotations

import contextvars
import logging
import os
import pickle
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import joblib
import numpy as np
import pytest
import sklearn
import sklearn.utils.parallel
from joblib import Parallel, delayed, parallel_config

import outboard as ob
import outboard.joblib
from outboard.joblib.context import Context, Task

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("COLOUR", default="none")


@contextmanager
def colour(value: Any) -> Iterator[None]:
    token = COLOUR.set(value)
    try:
        yield
    finally:
        COLOUR.reset(token)


def see_colour(_: object = None) -> str:
    return COLOUR.get()


def warn(category: type[Warning] = UserWarning) -> str:
    warnings.warn("a word", category, stacklevel=1)
    return "went on"


def filters(_: object = None) -> list[tuple[str, str]]:
    return [(action, category.__name__) for action, _, category, _, _ in warnings.filters]


def working_memory(_: object = None) -> int:
    found: int = sklearn.get_config()["working_memory"]
    return found


def meddle() -> None:
    COLOUR.set("green")
    sklearn.set_config(working_memory=9)
    warnings.simplefilter("ignore")


def level(name: str) -> int:
    return logging.getLogger(name).level


def threads() -> list[int]:
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def variable(name: str) -> str | None:
    return os.environ.get(name)


def after_a_call_that_did_not_load() -> list[str]:
    """What the tasks of one call find before and after the context of another has come, whose function does not."""
    sent = []
    for who in ("one", "other"):
        os.environ["WHO"] = who
        sent.append(pickle.dumps(Task(Context(outboard.joblib.DistBackend(), 2, None), variable)))
    task = pickle.loads(sent[0])
    before = task((("WHO",), {}))
    pickle.loads(sent[1])
    return [before, task((("WHO",), {}))]


def everywhere(parallel: Callable[..., Any], function: Callable[..., Any], *args: Any) -> set[Any]:
    """What a function returns in tasks of both workers."""
    return set(parallel(batch_size=1)(delayed(function)(*args) for _ in range(20)))


def test_settings_of_scikit_learn(parallel: Callable[..., Any]) -> None:
    with sklearn.config_context(working_memory=123):
        assert everywhere(parallel, working_memory) == {123}
        with parallel_config("dist", n_jobs=2):
            tasks = (sklearn.utils.parallel.delayed(working_memory)() for _ in range(20))
            assert set(sklearn.utils.parallel.Parallel()(tasks)) == {123}
    assert everywhere(parallel, working_memory) == {1024}
    assert ob.get(ob.remote(working_memory).remote()) == 1024


def test_each_thread_has_its_own_settings(parallel: Callable[..., Any]) -> None:
    found: dict[int, set[int]] = {}

    def call(size: int) -> None:
        with sklearn.config_context(working_memory=size), colour(str(size)):
            found[size] = everywhere(parallel, working_memory)
            assert everywhere(parallel, see_colour) == {str(size)}

    callers = [threading.Thread(target=call, args=(size,)) for size in (100, 200, 300)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(30)
    assert found == {100: {100}, 200: {200}, 300: {300}}


def test_settings_reach_tasks_within_tasks(parallel: Callable[..., Any]) -> None:
    def below() -> list[Any]:
        return Parallel(n_jobs=2)([delayed(working_memory)(), delayed(see_colour)()])

    with sklearn.config_context(working_memory=77), colour("red"):
        assert parallel()(delayed(below)() for _ in range(4)) == [[77, "red"]] * 4


def test_a_filter_that_makes_warnings_errors(parallel: Callable[..., Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="a word"):
            parallel()(delayed(warn)() for _ in range(4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert everywhere(parallel, warn) == {"went on"}


def test_filters_with_patterns_and_categories_of_the_program(parallel: Callable[..., Any]) -> None:
    class Own(UserWarning):
        pass

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="a wo.d", category=Own, module=re.escape(__name__))
        with pytest.raises(UserWarning, match="a word"):
            parallel()(delayed(warn)(Own) for _ in range(2))
        assert everywhere(parallel, warn) == {"went on"}


def test_filters_do_not_stay_with_the_worker(parallel: Callable[..., Any]) -> None:
    plain = ob.remote(filters)
    before = ob.get([plain.remote() for _ in range(4)])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=BytesWarning)
        assert all(("error", "BytesWarning") in found for found in parallel()(delayed(filters)() for _ in range(4)))
    assert ob.get([plain.remote() for _ in range(4)]) == before


def test_variables_of_the_context_and_back(parallel: Callable[..., Any]) -> None:
    with colour("blue"):
        assert everywhere(parallel, see_colour) == {"blue"}
    assert everywhere(parallel, see_colour) == {"none"}
    with colour(threading.Lock()):  # does not pickle: stays here
        assert everywhere(parallel, see_colour) == {"none"}


def test_what_a_task_sets_ends_with_it(parallel: Callable[..., Any]) -> None:
    with colour("blue"), sklearn.config_context(working_memory=5):
        before = parallel()(delayed(filters)() for _ in range(4))
        everywhere(parallel, meddle)
        assert everywhere(parallel, see_colour) == {"blue"} and everywhere(parallel, working_memory) == {5}
        assert parallel()(delayed(filters)() for _ in range(4)) == before


def test_levels_of_loggers(parallel: Callable[..., Any]) -> None:
    name = "tests.of.levels"
    for chosen in (logging.DEBUG, logging.ERROR, logging.NOTSET):
        logging.getLogger(name).setLevel(chosen)
        assert everywhere(parallel, level, name) == {chosen}


def test_environment_that_is_set_after_the_start(parallel: Callable[..., Any], monkeypatch: Any) -> None:
    assert everywhere(parallel, variable, "SET_LATER") == {None}
    for value in ("one", "two"):
        monkeypatch.setenv("SET_LATER", value)
        assert everywhere(parallel, variable, "SET_LATER") == {value}
    monkeypatch.delenv("SET_LATER")
    assert everywhere(parallel, variable, "SET_LATER") == {None}
    home = os.environ["HOME"]
    monkeypatch.delenv("HOME")
    assert everywhere(parallel, variable, "HOME") == {None}
    monkeypatch.setenv("HOME", home)
    assert everywhere(parallel, variable, "HOME") == {home}


def test_threads_of_numeric_libraries(cluster: None) -> None:
    for inner in (1, 3, 2):
        with parallel_config("dist", n_jobs=2, inner_max_num_threads=inner):
            found = Parallel()(delayed(threads)() for _ in range(8))
            assert Parallel()(delayed(variable)("OMP_NUM_THREADS") for _ in range(4)) == [str(inner)] * 4
        assert found and all(number == inner for pools in found for number in pools), found
    divided = max(1, (os.cpu_count() or 1) // 2)
    assert all(
        number <= divided for pools in Parallel(2, "dist")(delayed(threads)() for _ in range(8)) for number in pools
    )


def test_environment_of_a_call_whose_function_does_not_load(cluster: None) -> None:
    assert ob.get(ob.remote(after_a_call_that_did_not_load).remote()) == ["one", "one"]


def test_limits_of_a_call_are_not_those_of_the_calls_in_its_tasks(cluster: None, monkeypatch: Any) -> None:
    def below(name: str) -> list[str | None]:
        return Parallel(2, "dist")(delayed(variable)(name) for _ in range(2))

    def found(name: str) -> list[list[str | None]]:
        with parallel_config("dist", n_jobs=2, inner_max_num_threads=3):
            return list(Parallel()(delayed(below)(name) for _ in range(2)))

    divided = str(max(1, joblib.cpu_count() // 2))
    assert found("MKL_NUM_THREADS") == [[divided] * 2] * 2
    monkeypatch.setenv("MKL_NUM_THREADS", "5")
    assert found("MKL_NUM_THREADS") == [["5"] * 2] * 2


def test_threads_that_the_program_chooses_between_calls(parallel: Callable[..., Any], monkeypatch: Any) -> None:
    def found() -> set[int]:
        return {number for pools in parallel(batch_size=1)(delayed(threads)() for _ in range(20)) for number in pools}

    found()  # the libraries are loaded
    for name, value, number in (
        ("OMP_NUM_THREADS", "3", 3),  # for whatever has no setting of its own
        ("OPENBLAS_NUM_THREADS", "2", 2),
        ("OPENBLAS_NUM_THREADS", "?", 3),
    ):
        monkeypatch.setenv(name, value)
        assert found() <= {number}

"""What joblib asks of a backend: how it is made, named and configured, which method comes when."""

from __future__ import annotations

import os
import pickle
from functools import partial
from typing import Any

import joblib
import pytest
from joblib import Parallel, delayed, parallel_backend, parallel_config
from joblib.parallel import FallbackToBackend

from outboard.joblib import DistBackend, register

METHODS = ("configure", "start_call", "submit", "stop_call", "terminate", "abort_everything")


def fail(_: object) -> None:
    raise KeyError("task")


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the methods that joblib calls."""
    called: list[str] = []

    def noting(name: str, method: Any) -> Any:
        def noted(self: DistBackend, *args: Any, **kwargs: Any) -> Any:
            called.append(name)
            return method(self, *args, **kwargs)

        return noted

    for name in METHODS:
        monkeypatch.setattr(DistBackend, name, noting(name, getattr(DistBackend, name)))
    return called


def once(called: list[str]) -> list[str]:
    return [name for before, name in zip([None, *called], called, strict=False) if name != before]


def test_every_way_to_name_the_backend_runs_in_workers(cluster: None) -> None:
    ours = os.getpid()
    assert ours not in Parallel(n_jobs=2, backend="dist")(delayed(os.getpid)() for _ in range(4))
    assert ours not in Parallel(n_jobs=2, backend=DistBackend())(delayed(os.getpid)() for _ in range(4))
    for setting in (parallel_backend, parallel_config, partial(parallel_config, n_jobs=2)):
        with setting("dist"):  # in force from its construction on
            assert ours not in Parallel()(delayed(os.getpid)() for _ in range(4))


def test_constructor_takes_what_joblib_passes() -> None:
    backend = DistBackend(nesting_level=3, inner_max_num_threads=2, other=1)
    assert (backend.nesting_level, backend.inner_max_num_threads) == (3, 2)
    assert backend.backend_kwargs == {"other": 1}
    assert DistBackend().nesting_level is None
    copy = pickle.loads(pickle.dumps(backend))
    assert (copy.nesting_level, copy.inner_max_num_threads) == (3, 2)


def test_attributes_say_what_the_backend_can() -> None:
    backend = DistBackend()
    assert backend.supports_retrieve_callback and backend.supports_return_generator and backend.supports_timeout
    assert backend.supports_inner_max_num_threads and backend.default_n_jobs == -1
    assert not backend.supports_sharedmem and not backend.uses_threads


def test_configure_swallows_whatever_comes(cluster: None) -> None:
    host = type("Host", (), {"n_jobs": 2})()
    backend = DistBackend()
    with pytest.raises(FallbackToBackend) as caught:
        backend.configure(n_jobs=2, parallel=host, verbose=0, temp_folder="/nowhere", context=object(), more=1)
    own = caught.value.backend
    assert own.configure(2, host, None, None, max_nbytes=None, mmap_mode=None, verbose=9, temp_folder=None, more=1) == 2
    assert own.parallel is host
    text = Parallel(n_jobs=2, backend="dist", temp_folder="/nowhere", max_nbytes=10, mmap_mode="c", more=1)
    assert text(delayed(abs)(-x) for x in range(3)) == [0, 1, 2]


def test_order_of_a_plain_call(cluster: None, order: list[str]) -> None:
    Parallel(n_jobs=2, backend="dist")(delayed(abs)(x) for x in range(3))
    assert once(order) == ["configure", "start_call", "submit", "stop_call", "terminate"]


def test_order_of_calls_in_a_context(cluster: None, order: list[str]) -> None:
    with Parallel(n_jobs=2, backend="dist") as parallel:
        for _ in range(2):
            parallel(delayed(abs)(x) for x in range(3))
    assert once(order) == ["configure", *["start_call", "submit", "stop_call"] * 2, "terminate"]


def test_order_of_a_call_that_fails(cluster: None, order: list[str]) -> None:
    with pytest.raises(KeyError, match="task"):
        Parallel(n_jobs=2, backend="dist")(delayed(fail)(x) for x in range(3))
    assert once(order)[-3:] == ["abort_everything", "stop_call", "terminate"]


def test_nested_backends_count_their_levels() -> None:
    backend, n_jobs = DistBackend(nesting_level=1).get_nested_backend()
    assert (backend.nesting_level, n_jobs) == (2, 1)
    assert DistBackend().get_nested_backend()[0].nesting_level == 1


def test_registering_changes_no_default_unless_asked_and_nothing_of_other_backends(cluster: None) -> None:
    register()
    assert type(Parallel()._backend).__name__ == "LokyBackend"
    register(make_default=True)
    try:
        assert type(Parallel()._backend) is DistBackend
        assert os.getpid() in Parallel(n_jobs=2, backend="threading")(delayed(os.getpid)() for _ in range(2))
    finally:
        joblib.register_parallel_backend("loky", joblib.parallel.BACKENDS["loky"], make_default=True)

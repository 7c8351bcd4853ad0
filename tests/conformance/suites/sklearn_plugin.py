"""pytest plugin: scikit-learn's own tests, with every `Parallel` that names no backend on "dist" with two workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import joblib.parallel
import pytest

import outboard
import outboard.joblib
from tests.conformance.suites.backends import MODEL, add_cases
from tests.conformance.suites.expectations import Expectations

EXPECTATIONS = Expectations(Path(__file__).with_name("sklearn.toml"))

outboard.joblib.register(make_default=True)  # for the threads that tests start: contexts are of one thread


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs a part."""
    parser.addoption("--selected", action="store_true", help="only the tests that run with every change")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Add the cases with the backend."""
    add_cases(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is expected of each."""
    items[:] = EXPECTATIONS.apply(items, selected=config.getoption("--selected"))


@pytest.fixture(autouse=True)
def on_dist(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the test in a context as a user would: what says no number of jobs has two."""
    if EXPECTATIONS.has_stand_in(request.node):
        monkeypatch.setitem(joblib.parallel.BACKENDS, MODEL, outboard.joblib.DistBackend)
    with joblib.parallel_config(backend=outboard.joblib.NAME, n_jobs=2):
        yield


def pytest_sessionfinish() -> None:
    """Leave nothing behind."""
    outboard.shutdown()

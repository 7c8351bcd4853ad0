"""pytest plugin: joblib's own tests with "dist", where they name it, and where they leave the choice of the backend."""

from __future__ import annotations

from pathlib import Path

import joblib.parallel
import pytest

import outboard
import outboard.joblib
from tests.conformance.suites.backends import MODEL, add_cases, names_any, names_dist
from tests.conformance.suites.expectations import Expectations

EXPECTATIONS = Expectations(Path(__file__).with_name("joblib.toml"))

#: How scripts that tests start begin, so that they know the backend, by the name of the other one as well.
PREFIX = f"""\
import joblib, outboard.joblib
joblib.register_parallel_backend({MODEL!r}, outboard.joblib.DistBackend)
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs a part."""
    parser.addoption("--selected", action="store_true", help="only the tests that run with every change")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Add the cases with the backend."""
    add_cases(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests that are about the backend."""
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        for name, value in list(vars(module).items()):
            if isinstance(value, str) and "from joblib import" in value:
                setattr(module, name, PREFIX + value)
    about = [item for item in items if names_dist(item) or not names_any(item)]
    items[:] = EXPECTATIONS.apply(about, selected=config.getoption("--selected"))


@pytest.fixture(autouse=True)
def on_dist(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let "dist" be the default of tests that do not name it, and stand in where their code names loky."""
    if not names_dist(request.node):
        monkeypatch.setattr(joblib.parallel, "DEFAULT_BACKEND", joblib.parallel.DEFAULT_BACKEND)
        outboard.joblib.register(make_default=True)
    if EXPECTATIONS.has_stand_in(request.node):
        monkeypatch.setitem(joblib.parallel.BACKENDS, MODEL, outboard.joblib.DistBackend)


def pytest_sessionfinish() -> None:
    """Leave nothing behind."""
    outboard.shutdown()

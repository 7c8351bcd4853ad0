"""pytest plugin: joblib's own tests of `Parallel` with "dist": as the default, and wherever they name loky."""

from __future__ import annotations

from pathlib import Path

import joblib.parallel
import pytest

import outboard
import outboard.joblib
from tests.conformance.suites.backends import MODEL, add_cases, runs_on_dist
from tests.conformance.suites.expectations import Expectations

EXPECTATIONS = Expectations(Path(__file__).with_name("joblib.toml"))

#: What scripts that tests start begin with.
PREFIX = f"""\
import joblib, outboard.joblib
joblib.register_parallel_backend({MODEL!r}, outboard.joblib.DistBackend)
"""

outboard.joblib.register(make_default=True)  # before the tests' modules look which backends there are


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
        for name, value in vars(module).items():
            if isinstance(value, str) and "from joblib import" in value:
                setattr(module, name, PREFIX + value)
    about = [item for item in items if runs_on_dist(item)]
    items[:] = EXPECTATIONS.apply(about, selected=config.getoption("--selected"))


@pytest.fixture(autouse=True)
def stand_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let "dist" stand in where a test's code names loky."""
    if EXPECTATIONS.has_stand_in(request.node):
        monkeypatch.setitem(joblib.parallel.BACKENDS, MODEL, outboard.joblib.DistBackend)


def pytest_sessionfinish() -> None:
    """Leave nothing behind."""
    outboard.shutdown()

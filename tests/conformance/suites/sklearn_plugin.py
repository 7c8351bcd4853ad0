"""pytest plugin: scikit-learn's own tests, with every `Parallel` that names no backend on "dist" with two workers.

usage: python -m pytest -c suites.ini -p tests.conformance.suites.sklearn_plugin --pyargs sklearn.model_selection.tests
"""

from __future__ import annotations

from collections.abc import Iterator

import joblib
import pytest

import outboard.joblib
from tests.conformance.suites.known import expect_failures

#: Tests that fail so, and why.
KNOWN: dict[str, str] = {}


@pytest.fixture(autouse=True)
def on_dist() -> Iterator[None]:
    """Run the test in a context as a user would."""
    with joblib.parallel_config(backend=outboard.joblib.NAME, n_jobs=2):
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect the known failures, and that they do fail."""
    expect_failures(items, KNOWN)

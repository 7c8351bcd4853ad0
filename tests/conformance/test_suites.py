"""Other libraries' own tests, run from their installed packages against our backends; `make conformance` runs more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SUITES = "tests.conformance.suites"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def run_suite(plugin: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-c", f"{SUITES.replace('.', '/')}/suites.ini", "--rootdir", "."]
    done = subprocess.run(
        [*command, "-p", f"{SUITES}.{plugin}", "--pyargs", *arguments],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=380,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_joblib_on_dist() -> None:
    run_suite("joblib_plugin", "joblib.test.test_parallel", "-k", "dist")

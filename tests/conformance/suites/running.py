"""Runs tests of other libraries, from their installed packages, on our backends.

    python -m tests.conformance.suites.running [joblib | sklearn | all] [options of pytest]

All of them by default. `--selected` runs those of every change.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import joblib

ROOT = Path(__file__).parents[3]
PACKAGE = "tests.conformance.suites"

#: The modules that each library's suite consists of.
SUITES: dict[str, tuple[str, ...]] = {
    "joblib": ("joblib.test.test_parallel", "joblib.test.test_config"),
    "sklearn": (
        "sklearn.model_selection.tests",
        "sklearn.ensemble.tests",
        "sklearn.tests.test_multioutput",
        "sklearn.tests.test_multiclass",
        "sklearn.utils.tests.test_parallel",
    ),
}


def command(name: str, *options: str) -> list[str]:
    """Return what runs one suite, from `ROOT`."""
    folder = Path(__file__).parent
    packages = Path(joblib.__file__).parents[1]  # ids of tests begin there
    settings = ["-c", str(folder / "suites.ini"), "--rootdir", str(packages), "-p", f"{PACKAGE}.{name}_plugin"]
    return [sys.executable, "-m", "pytest", *settings, *options, "--pyargs", *SUITES[name]]


def main(arguments: list[str]) -> int:
    """Run them, one after the other; returns 1 if one of them failed."""
    name, *options = arguments or ["all"]
    names = list(SUITES) if name == "all" else [name]
    return int(any([subprocess.call(command(each, *options), cwd=ROOT) for each in names]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

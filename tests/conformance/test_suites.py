"""Other libraries' own tests, from their installed packages, on our backends: a choice of them.

`make conformance` runs all. What is expected of them stands in suites/*.toml.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.conformance.suites.running import ROOT, command

#: Seconds that one suite has.
DEADLINE = 240

pytestmark = [pytest.mark.slow, pytest.mark.timeout(DEADLINE + 20)]


@pytest.mark.parametrize("name", ["joblib", "sklearn"])
def test_selected_tests_of_a_library_come_out_as_expected(name: str) -> None:
    done = subprocess.run(
        command(name, "--selected", "-q"), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=DEADLINE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]
    assert " passed" in done.stdout

"""What stands for pytest in workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "in_workers"

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
import pytest

@pytest.mark.parametrize(("a", "b"), [pytest.param(1, 2, id="x")])
@pytest.mark.slow
def double(x):
    return 2 * x

@pytest.fixture
def one():
    return 1

@pytest.fixture(scope="module")
def two():
    return 2

print(double(4), one(), two(), "_pytest" in sys.modules)
with pytest.raises(ValueError):
    int("x")
print("_pytest" in sys.modules, {folder!r} in sys.path)
"""


def test_marks_and_fixtures_leave_functions_alone_and_the_rest_is_pytests() -> None:
    command = [sys.executable, "-c", PROGRAM.format(folder=str(FOLDER))]
    done = subprocess.run(command, text=True, capture_output=True, timeout=30, check=False)
    assert (done.stdout, done.stderr) == ("8 1 2 False\nTrue True\n", "")

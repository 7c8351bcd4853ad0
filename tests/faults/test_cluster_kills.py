"""Workers that are killed all the time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(90)]


def test_results_are_exact_while_workers_are_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kills", "--minutes", "0.15"],
        cwd=Path(__file__).parents[2], text=True, capture_output=True, timeout=80, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    killed, wrong = re.findall(r"(\d+) workers killed .* (\d+) wrong, 0 failed", done.stdout)[-1]
    assert int(killed) >= 27 and wrong == "0"

"""What `import outboard` costs: it is paid by every program, used or not."""

from __future__ import annotations

import statistics
import subprocess
import sys

import pytest

#: Seconds that the import may add to the start of the interpreter.
MOST_SECONDS = 0.120

#: Modules that only work needs.
HEAVY = ("grpc", "numpy", "torch", "asyncio", "psutil", "rich", "click")

TIMER = "import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"


def run(code: str) -> str:
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    return finished.stdout


@pytest.mark.alone
def test_import_is_fast() -> None:
    seconds = statistics.median(float(run(TIMER.format(module="outboard"))) for _ in range(5))
    assert seconds < MOST_SECONDS


def test_import_brings_nothing_heavy() -> None:
    loaded = run("import sys, outboard; print(*sys.modules)").split()
    assert [name for name in (*HEAVY, "multiprocessing") if name in loaded] == []


def test_pool_module_brings_nothing_heavy() -> None:
    loaded = run("import sys, outboard.multiprocessing; print(*sys.modules)").split()
    assert [name for name in HEAVY if name in loaded] == []

"""What the error about a dead worker says of its memory and its crash."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from outboard.errors import WorkerLostError

GIB = 1 << 30


def text(number: int, **attributes: Any) -> str:
    return str(WorkerLostError(task="train", pid=1, signal=number, **attributes))


def test_kill_of_a_large_process_points_to_memory() -> None:
    for peak in (8 * GIB, 30 * GIB):
        said = text(signal.SIGKILL, peak_nbytes=peak, limit_nbytes=32 * GIB)
        assert f"peaked at {peak // GIB}.0 GiB of 32.0 GiB" in said
        assert "when memory runs out: run fewer at once" in said


@pytest.mark.parametrize(("peak", "limit"), [(23 << 20, 32 * GIB), (7 * GIB, 32 * GIB), (GIB, 0)])
def test_kill_of_a_small_process_says_the_peak_alone(peak: int, limit: int) -> None:
    said = text(signal.SIGKILL, peak_nbytes=peak, limit_nbytes=limit)
    assert "Its memory peaked at" in said and "runs out" not in said


def test_kill_without_figures_says_nothing_of_memory() -> None:
    assert "emory" not in text(signal.SIGKILL)


def test_crash_of_compiled_code_says_how_to_find_the_place() -> None:
    assert "PYTHONFAULTHANDLER=1" in text(signal.SIGSEGV)
    assert "PYTHONFAULTHANDLER" not in text(signal.SIGTERM)


def test_place_of_a_crash_is_shown_when_it_is_known() -> None:
    lines = ["noise", "Fatal Python error: Segmentation fault", "", "Current thread 0x1:", '  File "a.py", line 2 in f']
    tail = "\n".join([*lines, *(f'  File "b.py", line {n} in g' for n in range(50))])
    said = text(signal.SIGSEGV, stderr_tail=tail)
    assert "PYTHONFAULTHANDLER" not in said and "noise" not in said
    assert 'line 2 in f\n  File "b.py", line 0' in said and "line 9" not in said

"""What joblib's tasks print, as they wrote it."""

from __future__ import annotations

import joblib
import pytest

import outboard
import outboard.joblib

pytestmark = pytest.mark.timeout(60)


def test_lines_have_no_prefix_where_those_of_plain_tasks_have_one(capfd: pytest.CaptureFixture[str]) -> None:
    try:
        joblib.Parallel(n_jobs=2, backend="dist")(joblib.delayed(print)("hello", n) for n in range(2))
        joblib.Parallel(n_jobs=3, backend="dist")(joblib.delayed(print)("hello", n) for n in range(2, 4))
        outboard.get(outboard.remote(print).remote("plain"))
        lines = capfd.readouterr().out.splitlines()
    finally:
        outboard.shutdown()
    assert sorted(lines[:4]) == [f"hello {n}" for n in range(4)]
    assert lines[4].endswith("| plain") and "@" in lines[4]

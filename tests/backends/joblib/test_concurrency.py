"""How many tasks run at a time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from joblib import Parallel, delayed

import outboard
import outboard.joblib
from tests.backends.joblib.gauge import Gauge


@pytest.mark.parametrize(("slots", "n_jobs", "peak"), [(4, 2, 2), (4, 3, 3), (2, 4, 4), (4, -1, 4), (4, -2, 3)])
def test_so_many_tasks_run_at_a_time(tmp_path: Path, slots: int, n_jobs: int, peak: int) -> None:
    gauge = Gauge(str(tmp_path / "gauge"))
    outboard.init(num_cpus=slots)
    try:
        Parallel(n_jobs=n_jobs, backend="dist")(delayed(gauge)() for _ in range(6 * peak))
    finally:
        outboard.shutdown()
    assert gauge.peak == peak


def test_calls_with_few_jobs_beside_each_other_keep_their_limits_together_with_the_slots(tmp_path: Path) -> None:
    gauge = Gauge(str(tmp_path / "gauge"))

    def call() -> None:
        Parallel(n_jobs=2, backend="dist")(delayed(gauge)() for _ in range(12))

    outboard.init(num_cpus=3)
    try:
        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
            assert not thread.is_alive()
    finally:
        outboard.shutdown()
    assert gauge.peak <= 3

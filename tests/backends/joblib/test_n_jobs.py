"""How many jobs there are: for joblib, which asks before it decides, and for libraries that divide work by it."""

from __future__ import annotations

import os
import threading

import joblib
import pytest
from joblib import Parallel, delayed, parallel_config

import outboard
from outboard import engine
from outboard.joblib import DistBackend


def test_the_number_of_jobs_is_known_without_starting_a_cluster() -> None:
    assert engine.peek() is None
    with parallel_config("dist"):
        before = joblib.effective_n_jobs(-1)
    assert DistBackend().effective_n_jobs(-1) == before
    assert engine.peek() is None
    outboard.init()
    try:
        assert DistBackend().effective_n_jobs(-1) == before
    finally:
        outboard.shutdown()


def test_number_of_jobs() -> None:
    outboard.init(num_cpus=4)
    asked = {None: 1, 1: 1, 2: 2, 7: 7, -1: 4, -2: 3, -4: 1, -9: 1}
    try:
        assert {n_jobs: DistBackend().effective_n_jobs(n_jobs=n_jobs) for n_jobs in asked} == asked
    finally:
        outboard.shutdown()


def test_no_jobs_at_all_have_no_meaning() -> None:
    with pytest.raises(ValueError, match="n_jobs == 0 in Parallel has no meaning"):
        DistBackend().effective_n_jobs(0)
    with pytest.raises(ValueError, match="n_jobs == 0 in Parallel has no meaning"):
        Parallel(n_jobs=0, backend="dist")(delayed(abs)(x) for x in range(3))


def test_one_slot_is_no_reason_to_run_in_the_calling_process() -> None:
    outboard.init(num_cpus=1)
    try:
        with parallel_config("dist"):
            assert os.getpid() not in Parallel()(delayed(os.getpid)() for _ in range(3))
    finally:
        outboard.shutdown()


def test_one_job_runs_in_the_calling_process_without_a_cluster() -> None:
    here = Parallel(n_jobs=1, backend="dist")(delayed(threading.current_thread)() for _ in range(2))
    assert here == [threading.main_thread()] * 2
    assert engine.peek() is None

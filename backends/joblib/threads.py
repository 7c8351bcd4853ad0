"""How many threads numeric libraries may use in a worker."""

from __future__ import annotations

import os
import sys

import joblib
from joblib.parallel import ParallelBackendBase

#: Settings by which libraries size their thread pools when they are loaded.
VARIABLES: tuple[str, ...] = tuple(ParallelBackendBase.MAX_NUM_THREADS_VARS)

#: Lets the schedulers of several processes that use TBB agree on the CPUs.
_TBB_VARIABLE = ParallelBackendBase.TBB_ENABLE_IPC_VAR


def chosen_by_program() -> dict[str, str]:
    """Return the variables that the calling program has set itself: what it says there counts in workers too."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def limit_threads(n_jobs: int, inner: int | None, chosen: dict[str, str]) -> None:
    """Set this worker's thread pools: `inner` threads each, else this machine's CPUs divided among `n_jobs` workers.

    What a library loads later obeys the environment, what is loaded already `threadpoolctl`, where it is installed.
    """
    number = inner if inner is not None else max(1, joblib.cpu_count() // n_jobs)
    wanted = {name: str(number) for name in VARIABLES} | ({} if inner is not None else chosen)
    os.environ.setdefault(_TBB_VARIABLE, "1")
    if all(os.environ.get(name) == value for name, value in wanted.items()):
        return
    os.environ.update(wanted)
    if "numpy" not in sys.modules or (chosen and inner is None):
        return
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return
    threadpool_limits(number)

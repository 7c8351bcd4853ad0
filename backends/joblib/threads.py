"""How many threads numeric libraries may use in a worker."""

from __future__ import annotations

import os
import sys

import joblib
from joblib.parallel import ParallelBackendBase

#: Settings by which libraries size their thread pools when they are loaded.
VARIABLES: tuple[str, ...] = tuple(ParallelBackendBase.MAX_NUM_THREADS_VARS)

#: The setting that libraries obey which do not find their own.
_GENERAL = "OMP_NUM_THREADS"

#: Libraries that `threadpoolctl` limits, and the setting that each would read when it is loaded.
_LOADED = {
    "openmp": _GENERAL,
    "openblas": "OPENBLAS_NUM_THREADS",
    "mkl": "MKL_NUM_THREADS",
    "blis": "BLIS_NUM_THREADS",
}

#: Lets the schedulers of several processes that use TBB agree on the CPUs.
_TBB_VARIABLE = ParallelBackendBase.TBB_ENABLE_IPC_VAR

_written: dict[str, str] = {}  # what this process has from the call whose tasks it runs,
_chosen: dict[str, str] = {}  # and what that call's program has chosen


def chosen_by_program() -> dict[str, str]:
    """Return the variables that the calling program has set itself: what it says there counts in workers too.

    What is in a worker only as the limit of the call whose tasks it runs was not chosen by anybody.
    """
    now = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    own = {name: value for name, value in now.items() if _written.get(name) != value}
    return {name: value for name, value in _chosen.items() if name in now} | own


def limit_threads(n_jobs: int, inner: int | None, chosen: dict[str, str]) -> None:
    """Set this worker's thread pools: `inner` threads each, else this machine's CPUs divided among `n_jobs` workers.

    What a library loads later obeys the environment, what is loaded already `threadpoolctl`, where it is installed.
    """
    global _written, _chosen
    counts = {} if inner is not None else chosen
    divided = inner if inner is not None else max(1, joblib.cpu_count() // n_jobs)
    number = _as_number(counts.get(_GENERAL)) or divided
    wanted = {name: str(number) for name in VARIABLES} | counts
    _written, _chosen = wanted, chosen
    os.environ.setdefault(_TBB_VARIABLE, "1")
    if all(os.environ.get(name) == value for name, value in wanted.items()):
        return
    os.environ.update(wanted)
    if "numpy" in sys.modules:
        _limit_loaded({kind: _as_number(wanted[name]) or number for kind, name in _LOADED.items()})


def _limit_loaded(numbers: dict[str, int]) -> None:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return
    loaded = ThreadpoolController()
    for kind, number in numbers.items():
        loaded.select(internal_api=kind).limit(limits=number)


def _as_number(value: str | None) -> int | None:
    return int(value) if value is not None and value.isdecimal() and int(value) else None

"""The processes that a subject started, however far they strayed, and what they cost."""

from __future__ import annotations

import os

import psutil

#: The driver sets this for each child; whatever the child starts inherits it.
MARK = "BENCHMARK_CHILD"


def others() -> list[psutil.Process]:
    """List every process that this one started, directly or not, even when it lost its parent."""
    found = set(psutil.Process().children(recursive=True))
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == os.environ[MARK]:
                found.add(process)
        except (psutil.Error, OSError):
            continue
    return [process for process in found if process.pid != os.getpid()]


def proportional_nbytes(found: list[psutil.Process]) -> int:
    """Add up their memory; a page that several of them share counts once (PSS)."""
    return sum(process.memory_full_info().pss for process in found)


def cpu_seconds(found: list[psutil.Process]) -> float:
    """Add up the CPU time that they and this process have used."""
    times = [process.cpu_times() for process in [*found, psutil.Process()]]
    return float(sum(used.user + used.system for used in times))

"""What this process may use: CPUs, memory, GPUs, descriptors, threads.

Containers give less than the machine has; the smallest answer counts. Functions that read the file system take the
path of its root, so tests can lay out a machine of their own.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator

#: Settings by which numeric libraries size their thread pools, as joblib knows them.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def cpu_count(root: str = "/") -> int:
    """CPUs this process may use, at least 1: the least of machine, affinity, cgroup quota and Python's own setting.

    A quota of part of a CPU counts as a whole one. Python's setting is ``PYTHON_CPU_COUNT`` or ``-X cpu_count``.
    """
    counts = [os.cpu_count() or 1]
    if hasattr(os, "sched_getaffinity"):
        counts.append(len(os.sched_getaffinity(0)))
    counts += [math.ceil(quota) for quota in _cpu_quotas(root)]
    configured = sys._xoptions.get("cpu_count") or os.environ.get("PYTHON_CPU_COUNT", "")
    if isinstance(configured, str) and configured.isdigit():
        counts.append(int(configured))
    return max(1, min(counts))


def memory_limit_nbytes(root: str = "/") -> int:
    """Bytes of memory this process may use: the least of the machine's and its cgroups' limits; 0 when unknown."""
    limits = [_physical_nbytes(root), *_memory_limits(root)]
    return min((limit for limit in limits if limit > 0), default=0)


def gpu_count(root: str = "/") -> int:
    """NVIDIA GPUs this process may use, without loading their driver: ``CUDA_VISIBLE_DEVICES`` within what is there."""
    present = len(_list(os.path.join(root, "proc/driver/nvidia/gpus")))
    if not present:
        present = sum(1 for name in _list(os.path.join(root, "dev")) if re.fullmatch(r"nvidia\d+", name))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    named = []
    for entry in (part.strip() for part in visible.split(",")):
        if not entry or entry.startswith("-"):  # CUDA ignores this entry and all after it
            break
        named.append(entry)
    if any(entry.startswith("MIG-") for entry in named):  # several to a GPU
        return len(named) if present else 0
    return min(len(named), present)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one; return the limit now in force."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # macOS refuses its own "unlimited"
            return soft
        soft = hard
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def thread_limit_env(threads: int) -> dict[str, str]:
    """Environment that limits numeric libraries to ``threads`` threads when they load."""
    return dict.fromkeys(THREAD_VARIABLES, str(threads))


def _cpu_quotas(root: str) -> Iterator[float]:
    for folder in _cgroup_folders(root, "cpu"):
        quota, _, period = _read(os.path.join(folder, "cpu.max")).partition(" ")
        if not quota:
            quota = _read(os.path.join(folder, "cpu.cfs_quota_us"))
            period = _read(os.path.join(folder, "cpu.cfs_period_us"))
        if quota.isdigit() and period.isdigit() and int(period):
            yield int(quota) / int(period)


def _memory_limits(root: str) -> Iterator[int]:
    for folder in _cgroup_folders(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _read(os.path.join(folder, name))
            if limit.isdigit():
                yield int(limit)


def _cgroup_folders(root: str, controller: str) -> Iterator[str]:
    """Folders of this process's cgroup and its ancestors, version 2 and 1; each may set a limit of its own."""
    base = os.path.join(root, "sys/fs/cgroup")
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            top = base
        elif controller in controllers.split(","):
            top = os.path.join(base, controller)
            if not os.path.isdir(top):
                top = os.path.join(base, controllers)
        else:
            continue
        # In a container the path may name a folder outside of what is mounted; its top then holds the limit.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield os.path.join(top, *parts[:depth])


def _physical_nbytes(root: str) -> int:
    found = re.search(r"^MemTotal:\s+(\d+) kB", _read(os.path.join(root, "proc/meminfo")), re.MULTILINE)
    if found:
        return int(found[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _list(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []

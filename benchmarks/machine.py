"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil


def processor() -> str:
    """Name the processor as the kernel does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def facts() -> dict[str, object]:
    """Describe the machine; nothing in it names the machine or its user."""
    return {
        "processor": processor(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_nbytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }

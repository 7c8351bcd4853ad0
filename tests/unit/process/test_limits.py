"""Limits of machines laid out in a temporary folder."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from outboard.process import limits


class Machine:
    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def __str__(self) -> str:
        return f"{self.root}/"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    for name in ("PYTHON_CPU_COUNT", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return Machine(tmp_path)


def test_affinity_limits_cpus(machine: Machine) -> None:
    assert limits.cpu_count(str(machine)) == 12


def test_quota_of_any_ancestor_limits_cpus_and_is_rounded_up(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "0::/user/app\n")
    machine.write("sys/fs/cgroup/user/app/cpu.max", "max 100000\n")
    machine.write("sys/fs/cgroup/user/cpu.max", "250000 100000\n")
    assert limits.cpu_count(str(machine)) == 3
    machine.write("sys/fs/cgroup/user/app/cpu.max", "10000 100000\n")
    assert limits.cpu_count(str(machine)) == 1


def test_quota_of_cgroup_version_1(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/c\n")
    machine.write("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n")
    machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n")
    machine.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert limits.cpu_count(str(machine)) == 4


def test_combined_controllers_have_a_combined_folder(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "4:cpu,cpuacct:/\n")
    machine.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n")
    machine.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    assert limits.cpu_count(str(machine)) == 2


def test_pythons_own_setting_limits_cpus(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_CPU_COUNT", "5")
    assert limits.cpu_count(str(machine)) == 5
    monkeypatch.setenv("PYTHON_CPU_COUNT", "default")
    assert limits.cpu_count(str(machine)) == 12


def test_memory_is_the_least_of_machine_and_cgroups(machine: Machine) -> None:
    machine.write("proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n")
    assert limits.memory_limit_nbytes(str(machine)) == 2048 * 1024
    machine.write("proc/self/cgroup", "0::/app\n")
    machine.write("sys/fs/cgroup/app/memory.max", "max\n")
    machine.write("sys/fs/cgroup/memory.max", "1000000\n")
    assert limits.memory_limit_nbytes(str(machine)) == 1_000_000


def test_limit_of_cgroup_version_1_that_means_none_does_not_count(machine: Machine) -> None:
    machine.write("proc/meminfo", "MemTotal: 2048 kB\n")
    machine.write("proc/self/cgroup", "5:memory:/m\n")
    machine.write("sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712\n")
    assert limits.memory_limit_nbytes(str(machine)) == 2048 * 1024


def test_memory_without_proc_comes_from_the_system(machine: Machine) -> None:
    assert limits.memory_limit_nbytes(str(machine)) > 1 << 20


@pytest.mark.parametrize(
    ("visible", "count"),
    [(None, 2), ("", 0), ("-1", 0), ("1", 1), ("0,1,2", 2), ("0,-1,1", 1), ("MIG-a,MIG-b,MIG-c", 3)],
)
def test_gpus_are_those_present_and_visible(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int
) -> None:
    machine.write("dev/nvidia0", "")
    machine.write("dev/nvidia1", "")
    machine.write("dev/nvidiactl", "")
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert limits.gpu_count(str(machine)) == count


def test_driver_lists_gpus(machine: Machine) -> None:
    assert limits.gpu_count(str(machine)) == 0
    machine.write("proc/driver/nvidia/gpus/0000:01:00.0/information", "")
    assert limits.gpu_count(str(machine)) == 1


def test_descriptor_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        assert limits.raise_descriptor_limit() >= min(soft, 512)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_thread_limits_cover_the_usual_libraries() -> None:
    env = limits.thread_limit_env(3)
    assert {env[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")} == {"3"}

"""Tasks that take their process with them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outboard as ob
from outboard.errors import TaskCancelledError, TaskExitError, WorkerLostError
from outboard.multiprocessing import Pool
from tests.faults.bad_objects import DEADLY, act, same

pytestmark = pytest.mark.timeout(30)


def act_at_three(item: tuple[int, str, str]) -> int:
    number, how, folder = item
    (Path(folder) / f"{number}.{os.getpid()}").touch()
    if number == 3:
        act(how)
    return number


def count_and_act(folder: str, how: str, least: int) -> int:
    runs = len(list(Path(folder).iterdir())) + 1
    (Path(folder) / str(runs)).touch()
    if runs < least:
        act(how)
    return runs


def talk_and_die(lines: int) -> None:
    for number in range(lines):
        print(f"line {number}", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGKILL)


def own_pid(_: object = None) -> int:
    return os.getpid()


@pytest.mark.parametrize("how", DEADLY)
def test_lost_worker_is_named_with_its_end(cluster: Any, tmp_path: Path, how: str) -> None:
    cluster(num_cpus=1)
    ref = ob.remote(count_and_act).options(max_retries=0).remote(str(tmp_path), how, 9)
    with pytest.raises(WorkerLostError, match=rf"count_and_act.* lost: .*{DEADLY[how]}") as caught:
        ob.get(ref, timeout=10)
    error = caught.value
    assert error.attempts == 1 and error.pid and error.host
    assert (error.signal, error.exitcode) == {"kill": (9, None), "segfault": (11, None), "exit": (0, 7)}[how]
    assert len(list(tmp_path.iterdir())) == 1
    assert "last words" in error.stderr_tail or how != "exit"
    assert ob.get(ob.remote(same).remote(1), timeout=10) == 1


@pytest.mark.parametrize("how", DEADLY)
def test_task_is_run_again_as_often_as_it_may(cluster: Any, tmp_path: Path, how: str) -> None:
    cluster(num_cpus=1)
    task = ob.remote(count_and_act).options(max_retries=3)
    for name, least in (("recovers", 4), ("does_not", 99)):
        (tmp_path / name).mkdir()
        ref = task.remote(str(tmp_path / name), how, least)
        if name == "recovers":
            assert ob.get(ref, timeout=20) == 4
        else:
            with pytest.raises(WorkerLostError, match="4 runs") as caught:
                ob.get(ref, timeout=20)
            assert caught.value.attempts == 4
        assert len(list((tmp_path / name).iterdir())) == 4


@pytest.mark.parametrize("how", DEADLY)
def test_pool_names_the_item_and_runs_all_others_once(cluster: Any, tmp_path: Path, how: str) -> None:
    cluster(num_cpus=2)
    items = [(number, how, str(tmp_path)) for number in range(40)]
    with Pool(2) as pool:
        with pytest.raises(WorkerLostError, match=rf"item 3\) lost: .*{DEADLY[how]}"):
            pool.map_async(act_at_three, items, chunksize=1).get(timeout=20)
        begun = sorted(int(path.name.partition(".")[0]) for path in tmp_path.iterdir())
        assert begun == list(range(40))
        assert pool.map(abs, [-1, -2]) == [1, 2]


@pytest.mark.parametrize(("how", "code"), [("sysexit", 3), ("interrupt", None)])
def test_exit_and_interrupt_are_errors_of_the_task_alone(cluster: Any, how: str, code: int | None) -> None:
    cluster(num_cpus=1)
    pid = ob.get(ob.remote(own_pid).remote())
    for retries in (0, 3):
        with pytest.raises(TaskExitError) as caught:
            ob.get(ob.remote(act).options(max_retries=retries).remote(how), timeout=10)
        assert caught.value.code == code
    assert ob.get(ob.remote(own_pid).remote(), timeout=10) == pid
    with Pool(1) as pool:
        with pytest.raises(TaskExitError):
            pool.map(act, ["fine", how, "fine"], chunksize=1)
        assert pool.apply(same, (1,)) == 1


def test_last_lines_of_stderr_are_kept(cluster: Any) -> None:
    cluster(num_cpus=1)
    with pytest.raises(WorkerLostError, match="line 999") as caught:
        ob.get(ob.remote(talk_and_die).options(max_retries=0).remote(1000), timeout=10)
    kept = caught.value.stderr_tail.splitlines()
    assert kept[-1] == "line 999" and kept[0].startswith("line ") and len(kept) > 5


def test_stopped_worker_keeps_only_what_it_began(cluster: Any, eventually: Callable[..., Any]) -> None:
    cluster(num_cpus=2)
    pids = set(ob.get([ob.remote(time_and_pid).remote(0.05) for _ in range(20)], timeout=10))
    assert len(pids) == 2
    victim = pids.pop()
    os.kill(victim, signal.SIGSTOP)
    try:
        # Each packet dealt to the stopped worker goes to the other one, save at most the one it had begun.
        refs = [ob.remote(time_and_pid).remote(0.001) for _ in range(300)]
        ready, _ = ob.wait(refs, num_returns=len(refs) - 70, timeout=10)
        assert len(ready) >= len(refs) - 70
    finally:
        os.kill(victim, signal.SIGCONT)
    assert len(ob.get(refs, timeout=10)) == 300


def time_and_pid(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def test_worker_killed_while_idle_is_replaced(cluster: Any, eventually: Callable[..., Any]) -> None:
    cluster(num_cpus=1)
    pid = ob.get(ob.remote(own_pid).remote())
    os.kill(pid, signal.SIGKILL)
    assert ob.get(ob.remote(own_pid).remote(), timeout=10) != pid


def test_killed_pool_worker_while_idle_is_replaced(cluster: Any) -> None:
    cluster(num_cpus=2)
    with Pool(2) as pool:
        for pid in set(pool.map(own_pid, range(8), chunksize=1)):
            os.kill(pid, signal.SIGKILL)
        assert pool.map(same, range(8), chunksize=1) == list(range(8))


def test_function_that_always_kills_fails_its_array_soon(cluster: Any) -> None:
    cluster(num_cpus=2)
    begun = time.monotonic()
    with Pool(2) as pool:
        results = pool.map_async(act, ["exit"] * 500, chunksize=1)
        with pytest.raises(WorkerLostError, match="exit code 7"):
            results.get(timeout=25)
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize("force", [False, True])
def test_cancel_reaches_a_task_that_waits_for_another(cluster: Any, force: bool) -> None:
    cluster(num_cpus=1)
    ref = ob.remote(wait_for_child).remote()
    ob.wait([ref], timeout=0.3)
    ob.cancel(ref, force=force)
    with pytest.raises(TaskCancelledError):
        ob.get(ref, timeout=20)
    assert ob.get(ob.remote(same).remote(2), timeout=20) == 2


def wait_for_child() -> Any:
    return ob.get(ob.remote(time.sleep).remote(60))

"""The node or its template ends or stops."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import outboard as ob
from outboard.errors import NodeLostError, ObjectLostError
from outboard.multiprocessing import Pool
from tests.faults.bad_objects import same
from tests.faults.conftest import node_of

pytestmark = pytest.mark.timeout(30)

Eventually = Callable[..., Any]


def kill_soon(process: psutil.Process, seconds: float = 0.2) -> threading.Timer:
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    return timer


def traces() -> list[Path]:
    return [*Path(os.environ["XDG_RUNTIME_DIR"]).glob("outboard-*"), *Path("/dev/shm").glob("outboard-*")]


def assert_all_gone(processes: list[psutil.Process], eventually: Eventually) -> None:
    eventually(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes))
    eventually(lambda: not traces())


def start_and_sleep(folder: str) -> None:
    child = subprocess.Popen(["sleep", "600"])
    (Path(folder) / str(child.pid)).touch()
    time.sleep(600)


def test_idle_node_killed(cluster: Any, eventually: Eventually) -> None:
    cluster(num_cpus=1)
    assert ob.get(ob.remote(same).remote(1), timeout=10) == 1
    node = node_of()
    processes = [node, *node.children(recursive=True)]
    ref = ob.put(1)
    node.kill()
    assert_all_gone(processes[1:], eventually)
    eventually(lambda: not ob.is_initialized())
    assert ob.get(ob.remote(same).remote(2), timeout=10) == 2
    assert ob.get(ref) == 1  # its bytes were here


@pytest.mark.alone
def test_node_killed_with_tasks_running_and_queued(cluster: Any, eventually: Eventually, tmp_path: Path) -> None:
    cluster(num_cpus=2)
    refs = [ob.remote(start_and_sleep).remote(str(tmp_path)) for _ in range(10)]
    eventually(lambda: len(list(tmp_path.iterdir())) == 2)
    node = node_of()
    processes = node.children(recursive=True)
    assert len(processes) >= 5
    timer = kill_soon(node)
    begun = time.monotonic()
    with pytest.raises(
        NodeLostError, match=r"node [0-9a-f]{16} on \S+, .* has ended; lost with it: 10 unfinished tasks"
    ):
        ob.get(refs)
    assert time.monotonic() - begun < 1.2
    timer.join()
    assert_all_gone(processes, eventually)
    for ref in refs:
        with pytest.raises(NodeLostError):
            ob.get(ref)
    assert ob.get(ob.remote(same).remote(3), timeout=10) == 3


@pytest.mark.alone
def test_node_killed_during_a_map(cluster: Any, eventually: Eventually) -> None:
    cluster(num_cpus=2)
    pool = Pool(2)
    timer = kill_soon(node_of())
    begun = time.monotonic()
    with pytest.raises(NodeLostError):
        pool.map(time.sleep, [0.05] * 1000, chunksize=1)
    assert time.monotonic() - begun < 1.5
    with pytest.raises(NodeLostError):
        pool.map(same, [1])
    pool.terminate()
    pool.join()
    timer.join()
    with Pool(2) as fresh:
        assert fresh.map(same, range(10)) == list(range(10))


def test_node_killed_during_puts_of_large_arrays(cluster: Any, eventually: Eventually) -> None:
    cluster(num_cpus=1)
    node = node_of()
    array = np.ones(12_500_000)
    kept = []
    timer = kill_soon(node, 0.1)
    with pytest.raises((NodeLostError, ObjectLostError)):
        while True:
            kept.append(ob.put(array))
            assert ob.get(kept[-1])[0] == 1.0
            del kept[:-2]
    timer.join()
    kept.clear()
    eventually(lambda: not node.is_running() or node.status() == psutil.STATUS_ZOMBIE)
    assert ob.get(ob.put(array)).sum() == array.size


def test_node_killed_while_tasks_are_submitted(cluster: Any) -> None:
    cluster(num_cpus=1)
    timer = kill_soon(node_of(), 0.1)
    task = ob.remote(same)
    refs = []
    begun = time.monotonic()
    while ob.is_initialized() and time.monotonic() - begun < 5:
        try:
            refs.append(task.remote(1))
        except NodeLostError:
            break
    timer.join()
    with pytest.raises(NodeLostError):
        ob.get(refs)
    assert ob.get(ob.remote(same).remote(1), timeout=10) == 1


def test_threads_that_wait_all_hear_of_a_killed_node(cluster: Any) -> None:
    cluster(num_cpus=1)
    ref = ob.remote(time.sleep).remote(600)
    heard: list[BaseException] = []

    def wait() -> None:
        try:
            ob.get(ref)
        except NodeLostError as error:
            heard.append(error)

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    kill_soon(node_of()).join()
    for thread in threads:
        thread.join(10)
    assert len(heard) == 4


def test_template_killed_and_work_goes_on(cluster: Any, eventually: Eventually) -> None:
    cluster(num_cpus=2)
    task = ob.remote(same)
    assert ob.get([task.remote(i) for i in range(10)], timeout=10) == list(range(10))
    slow = [ob.remote(nap_and_return).remote(i) for i in range(4)]
    template = node_of().children()[0]
    template.kill()
    assert ob.get(slow, timeout=10) == list(range(4))
    assert ob.get([task.remote(i) for i in range(10)], timeout=10) == list(range(10))
    with Pool(2) as pool:
        assert pool.map(same, range(10)) == list(range(10))
    eventually(lambda: not template.is_running())


def nap_and_return(i: int) -> int:
    time.sleep(0.2)
    return i


def test_stopped_node_goes_on_where_it_was(cluster: Any) -> None:
    cluster(num_cpus=2)
    node = node_of()
    task = ob.remote(same)
    with Pool(2) as pool:
        mapped = pool.map_async(nap_and_return, range(10), chunksize=1)
        refs = [task.remote(i) for i in range(500)]
        node.send_signal(signal.SIGSTOP)
        timer = threading.Timer(2.0, node.send_signal, (signal.SIGCONT,))
        timer.start()
        refs += [task.remote(i) for i in range(500, 1000)]
        assert ob.get(refs, timeout=15) == list(range(1000))
        assert mapped.get(timeout=15) == list(range(10))
        timer.join()

"""Programs and tasks that fork: the child may use Outboard or not, and never harms its parent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(60)

HEAD = """
import gc, multiprocessing, os, subprocess, sys, time, warnings
import numpy as np
import outboard as ob
from outboard.multiprocessing import Pool

def double(x):
    return 2 * x

def reap(pid):
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)

def forked(body):
    # Run a function in a forked child; give its exit code.
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            body()
            code = 0
        finally:
            os._exit(code)
    return reap(pid)
"""


@pytest.fixture
def run(run_program: Any) -> Any:
    """Run a program that forks; a warning is an error in it."""

    def run_body(body: str, *, expect: str = "done\n", **options: Any) -> None:
        lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
        assert run_program(f"{HEAD}\nif __name__ == '__main__':\n{lines}    print('done')\n", **options) == expect

    return run_body


def test_child_that_does_not_use_outboard(run: Any) -> None:
    run("""
ob.init(num_cpus=2)
task = ob.remote(double)
ref = task.remote(21)
for _ in range(20):
    assert forked(lambda: None) == 0
    assert ob.get(task.remote(1)) == 2
assert ob.get(ref) == 42
""")


def test_child_uses_what_it_inherited_and_its_own(run: Any) -> None:
    run("""
ob.init(num_cpus=2)
task = ob.remote(double)
small, large, running = ob.put(7), ob.put(np.arange(100_000)), ob.remote(time.sleep).remote(0.3)

def child():
    assert ob.get(small, timeout=10) == 7
    assert ob.get(large, timeout=10).sum() == np.arange(100_000).sum()
    assert ob.get(running, timeout=10) is None
    assert ob.get([task.remote(i) for i in range(50)], timeout=10) == [2 * i for i in range(50)]
    assert ob.get(task.remote(small), timeout=10) == 14
    with Pool(1) as pool:
        assert pool.map(double, range(5)) == [0, 2, 4, 6, 8]

assert forked(child) == 0
assert ob.get([small, task.remote(4)]) == [7, 8]
""")


def test_child_leaves_in_every_way(run: Any) -> None:
    run("""
ob.init(num_cpus=1)
task = ob.remote(double)
assert ob.get(task.remote(1)) == 2
for use in (False, True):
    for leave in ("os._exit(0)", "sys.exit(0)", "raise KeyError('of the child')", "os.kill(os.getpid(), 9)"):
        pid = os.fork()
        if pid == 0:
            sys.stderr = open(os.devnull, "w")
            if use:
                assert ob.get(task.remote(3), timeout=10) == 6
            exec(leave)
        code = reap(pid)
        assert code == {"os": 0, "sy": 0, "ra": 1}.get(leave[:2]) or code == -9, (leave, code)
        assert ob.get(task.remote(2), timeout=10) == 4
""")


def test_fork_before_the_first_use_makes_two_clusters(run: Any) -> None:
    run("""
pid = os.fork()
if pid == 0:
    assert ob.get(ob.remote(double).remote(1), timeout=20) == 2
    nodes = {node["id"] for node in ob.nodes()}
    ob.shutdown()
    os._exit(0)
assert ob.get(ob.remote(double).remote(2), timeout=20) == 4
assert reap(pid) == 0
""")


def test_child_outlives_its_parents_cluster(run: Any) -> None:
    run("""
ob.init(num_cpus=1)
task = ob.remote(double)
assert ob.get(task.remote(1)) == 2
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    os.read(reader, 1)
    code = 1
    try:
        assert ob.get(task.remote(3), timeout=20) == 6
        ob.shutdown()
        code = 0
    finally:
        os._exit(code)
ob.shutdown()
os.write(writer, b"!")
assert reap(pid) == 0
""")


def test_standard_pool_in_the_same_program_and_in_tasks(run: Any) -> None:
    run("""
def with_standard_pool(n):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return sum(pool.map(double, range(n)))

ob.init(num_cpus=2)
task = ob.remote(with_standard_pool)
assert ob.get(task.remote(5), timeout=20) == 20
for _ in range(3):
    assert with_standard_pool(5) == 20
    assert ob.get(task.remote(5), timeout=20) == 20
with Pool(2) as pool:
    assert pool.map(with_standard_pool, [3, 4]) == [6, 12]
""")


def test_forks_in_tasks(run: Any) -> None:
    run("""
def fork_in_task(x):
    inner = ob.put(np.full(100_000, x))
    def child():
        assert ob.get(inner, timeout=10)[0] == x
        free = ob.remote(double).options(num_cpus=0)  # the tasks hold every CPU while they wait for their children
        assert ob.get(free.remote(x), timeout=10) == 2 * x
    return forked(child), subprocess.run(["true"]).returncode, ob.get(ob.remote(double).remote(x))

ob.init(num_cpus=2)
assert ob.get([ob.remote(fork_in_task).remote(i) for i in range(6)], timeout=30) == [(0, 0, 2 * i) for i in range(6)]
""")


def test_subprocesses_do_not_hold_the_connection(run: Any) -> None:
    run("""
ob.init(num_cpus=1)
child = subprocess.Popen(["sleep", "60"], close_fds=False)
kinds = [os.readlink(f"/proc/{child.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{child.pid}/fd")]
child.kill()
child.wait()
assert not [kind for kind in kinds if "socket" in kind or "memfd" in kind], kinds
assert ob.get(ob.remote(double).remote(1)) == 2
""")


def test_array_of_a_forked_reader_never_changes_under_it(run: Any) -> None:
    run("""
def produce(i):
    return np.full(500_000, i)

ob.init(num_cpus=2, store_memory=64 << 20)
for i in range(1, 6):
    array = ob.get(ob.remote(produce).remote(i))
    own = ob.get(ob.put(np.full(500_000, -i)))
    go, wait = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(go[0], 1)
        os._exit(0 if (array == i).all() and (own == -i).all() else 1)
    del array, own
    gc.collect()
    for j in range(100, 112):
        assert ob.get(ob.remote(produce).remote(j)).min() == j
        assert ob.get(ob.put(np.full(500_000, -j))).max() == -j
    os.write(go[1], b"!")
    assert reap(pid) == 0
assert ob.nodes()[0]["store_used_nbytes"] < 64 << 20
""")


def test_grandchild_keeps_the_views_it_inherited(run: Any) -> None:
    run("""
ob.init(num_cpus=1, store_memory=64 << 20)
array = ob.get(ob.put(np.full(500_000, 5)))
go = os.pipe()
result = os.pipe()
pid = os.fork()
if pid == 0:
    if os.fork() == 0:
        os.read(go[0], 1)
        os.write(result[1], b"y" if (array == 5).all() else b"n")
    os._exit(0)
assert reap(pid) == 0
del array
gc.collect()
for j in range(20):
    assert ob.get(ob.put(np.full(500_000, j)))[0] == j
os.write(go[1], b"!")
assert os.read(result[0], 1) == b"y"
""")


def test_children_of_multiprocessing_may_use_outboard(run: Any) -> None:
    run("""
def work(queue, x):
    queue.put(ob.get(ob.remote(double).remote(x), timeout=20))

ob.init(num_cpus=2)
context = multiprocessing.get_context("fork")
queue = context.Queue()
children = [context.Process(target=work, args=(queue, i)) for i in range(4)]
for child in children:
    child.start()
assert sorted(queue.get(timeout=20) for _ in children) == [0, 2, 4, 6]
for child in children:
    child.join()
    assert child.exitcode == 0
""")


def test_no_thread_of_ours_exists_at_a_fork(run: Any) -> None:
    run("""
import threading
seen = []
os.register_at_fork(before=lambda: seen.append("registered first"))
ob.init(num_cpus=1)
ob.get(ob.remote(double).remote(1))
threads = []
real_fork = os.fork
assert threading.active_count() == 2
def child():
    assert threading.active_count() == 1
    assert len(os.listdir("/proc/self/task")) == 1
assert forked(child) == 0
done = threading.Event()
ob.remote(double).remote(2).future().add_done_callback(lambda future: done.set())
assert done.wait(10)
with warnings.catch_warnings():
    warnings.simplefilter("error")
    assert forked(child) == 0
""")


def test_child_that_returns_from_its_task_runs_nothing_further(run_program: Any, tmp_path: Path) -> None:
    text = """
        import os
        from collections import Counter
        from multiprocessing import Value
        from outboard.multiprocessing import Pool

        def be_slow_to_send():
            from outboard import packetpart
            packetpart.PART_SECONDS = packetpart.ITEM_SECONDS = 0.2  # a fork is quick beside it

        def item(job):
            number, path = job
            if path:
                with open(path, "a") as file:
                    file.write(f"{number}\\n")
                if number % 20 == 0:
                    os.fork()
            return number

        if __name__ == "__main__":
            with Pool(1, be_slow_to_send) as pool:
                pool.map(item, [(n, "") for n in range(2000)], chunksize=1)
                jobs = [(n, os.path.abspath("ran.txt")) for n in range(100)]
                assert pool.map(item, jobs, chunksize=1) == list(range(100))
            print(max(Counter(open("ran.txt")).values()))
    """
    assert run_program(text, cwd=tmp_path) == "1\n"

"""Programs as people write them: what `__main__` defines, managers, interrupts, kills."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

BEGIN = """
import os, signal, sys, time
import numpy as np
import joblib
from joblib import Parallel, delayed, parallel_config
import outboard.joblib
"""


def program(text: str) -> str:
    return BEGIN + "\n".join(line[4:] for line in text.splitlines())


def test_what_the_program_defines_itself(run_program: Callable[..., str]) -> None:
    text = """
    FACTOR = 2

    class Point:
        def __init__(self, x): self.x = x
        def scaled(self): return Point(self.x * FACTOR)
        def __eq__(self, other): return type(other) is Point and other.x == self.x

    class Trouble(Exception):
        def __init__(self, code): super().__init__(code); self.code = code

    def make(offset):
        def inner(x): return x + offset + FACTOR
        return inner

    def raising(x): raise Trouble(x)

    run = Parallel(2, "dist")
    print(run(delayed(Point(x).scaled)() for x in range(3)) == [Point(0), Point(2), Point(4)])
    FACTOR = 3
    print(run(delayed(make(10))(x) for x in range(3)), run(delayed(lambda x: x * FACTOR)(x) for x in range(3)))
    try:
        run(delayed(raising)(x) for x in (7,) * 2)
    except Trouble as error:
        print(type(error) is Trouble, error.code)
    """
    assert run_program(program(text)).splitlines() == ["True", "[13, 14, 15] [0, 3, 6]", "True 7"]


def test_proxies_of_managers_work_in_tasks(run_program: Callable[..., str]) -> None:
    text = """
    import multiprocessing

    def put(queue, shared, lock, x):
        with lock:
            shared[x] = x * x
        queue.put(x)

    if __name__ == "__main__":
        with multiprocessing.Manager() as manager:
            queue, shared, lock = manager.Queue(), manager.dict(), manager.Lock()
            Parallel(2, "dist")(delayed(put)(queue, shared, lock, x) for x in range(5))
            print(sorted(queue.get() for _ in range(5)), sum(shared.values()))
    """
    assert run_program(program(text)) == "[0, 1, 2, 3, 4] 30\n"


def test_an_unguarded_script_runs_once(run_program: Callable[..., str]) -> None:
    text = """
    print("begin", flush=True)
    print(Parallel(2, "dist")(delayed(abs)(-x) for x in range(3)))
    """
    assert run_program(program(text)).splitlines() == ["begin", "[0, 1, 2]"]


@pytest.mark.parametrize("whom", ["program", "group"])
def test_one_interrupt_ends_the_call_and_the_next_is_clean(
    start_program: Callable[..., subprocess.Popen[str]], whom: str, tmp_path: Path
) -> None:
    text = """
    def stay(path):
        open(path + str(os.getpid()), "w").close()
        time.sleep(30)

    try:
        print("ready", flush=True)
        Parallel(2, "dist")(delayed(stay)(sys.argv[1]) for _ in range(20))
    except KeyboardInterrupt:
        print(Parallel(2, "dist")(delayed(abs)(-i) for i in range(4)))
    """
    running = start_program(program(text), f"{tmp_path}/t", start_new_session=True)
    while len(list(tmp_path.glob("t*"))) < 2:
        assert running.poll() is None
        pass
    (os.killpg if whom == "group" else os.kill)(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=20)
    assert out.splitlines() == ["ready", "[0, 1, 2, 3]"], err
    assert running.returncode == 0


def test_a_killed_program_leaves_nothing(
    start_program: Callable[..., subprocess.Popen[str]], eventually: Callable[..., Any]
) -> None:
    text = """
    X = np.random.rand(2_000_000)
    print("ready", flush=True)
    while True:
        Parallel(2, "dist")(delayed(np.sum)(X) for _ in range(50))
        print("again", flush=True)
    """
    shared = Path("/dev/shm")
    running = start_program(program(text))
    assert running.stdout is not None
    assert [running.stdout.readline() for _ in range(3)] == ["ready\n", "again\n", "again\n"]
    below = psutil.Process(running.pid).children(recursive=True)
    assert below
    running.kill()
    eventually(lambda: not [child for child in below if child.is_running() and child.status() != "zombie"])
    eventually(lambda: not list(shared.glob(f"outboard-*{running.pid}*")))

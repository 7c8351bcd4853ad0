"""The program is killed, or leaves in an unusual way: nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.conftest import family

pytestmark = pytest.mark.timeout(30)

Start = Callable[..., "subprocess.Popen[str]"]

PROGRAM = """
    import os, subprocess, sys, time
    import numpy as np
    import outboard as ob

    def start_and_sleep(array):
        subprocess.Popen(["sleep", "600"])
        time.sleep(600)

    if __name__ == "__main__":
        ob.init(num_cpus=2)
        refs = [ob.remote(start_and_sleep).remote(np.ones(1_000_000)) for _ in range(2)]
        stored = ob.put(np.ones(2_000_000))
        held = ob.get(stored)
        if "fork" in sys.argv and os.fork() == 0:
            time.sleep(3)
            os._exit(0)
        print("ready", flush=True)
        ob.get(refs)
"""


def traces() -> list[Path]:
    return [*Path(os.environ["XDG_RUNTIME_DIR"]).glob("outboard-*"), *Path("/dev/shm").glob("outboard-*")]


def sleepers(pid: int) -> list[psutil.Process]:
    return [p for p in family(pid) if p.name() == "sleep"]


@pytest.mark.parametrize("fork", ["", "fork"])
def test_killed_program_leaves_nothing(start_program: Start, eventually: Any, fork: str) -> None:
    program = start_program(PROGRAM, fork)
    assert program.stdout is not None and program.stdout.readline() == "ready\n"
    eventually(lambda: len(sleepers(program.pid)) == 2)
    processes = family(program.pid)
    heir = [p for p in processes if p.ppid() == program.pid and "outboard.boot" not in " ".join(p.cmdline())]
    assert len(heir) == (fork == "fork")
    assert traces()
    program.kill()
    program.wait()
    others = [p for p in processes if p not in heir]
    eventually(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in others))
    eventually(lambda: not traces())
    for process in heir:
        process.kill()


def test_program_that_ends_at_once_leaves_nothing(start_program: Start, eventually: Any) -> None:
    for end in ("os._exit(0)", "sys.exit()", "raise KeyError", "os.kill(os.getpid(), 15)", "ob.shutdown()"):
        program = start_program(f"""
            import os, sys
            import outboard as ob
            ob.init(num_cpus=1)
            refs = [ob.remote(abs).remote(-i) for i in range(50)]
            print(*family()) if "family" in globals() else None
            {end}
        """)
        program.communicate(timeout=15)
        eventually(lambda: not traces())


def test_program_that_forgets_to_close_its_pool_ends(run_program: Any) -> None:
    out = run_program("""
        from outboard.multiprocessing import Pool
        pool = Pool(2)
        results = pool.imap(abs, iter(int, 1))
        print(next(results))
    """)
    assert out == "0\n"


def test_program_interrupted_by_ctrl_c_ends_like_any_other(start_program: Start, eventually: Any) -> None:
    program = start_program(PROGRAM, start_new_session=True)
    assert program.stdout is not None and program.stdout.readline() == "ready\n"
    os.killpg(program.pid, signal.SIGINT)
    _, err = program.communicate(timeout=20)
    assert "KeyboardInterrupt" in err and program.returncode == -signal.SIGINT
    eventually(lambda: not traces())

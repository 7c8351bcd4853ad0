"""Forks while other threads use Outboard, and forks of threads that are not the main one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(60)


def test_fork_while_another_thread_starts_the_engine(run_program: Any) -> None:
    out = run_program("""
        import os, signal, threading
        import outboard as ob
        from outboard import api, engine

        def double(x):
            return 2 * x

        started, real_start = threading.Event(), engine.start

        def start(settings):
            started.set()
            return real_start(settings)

        engine.start = start
        thread = threading.Thread(target=lambda: ob.get(ob.put(1)))
        thread.start()
        started.wait()
        pid = os.fork()
        if pid == 0:
            signal.alarm(15)  # a child that hangs ends
            os._exit(0 if ob.get(ob.remote(double).remote(4)) == 8 else 1)
        assert os.waitpid(pid, 0)[1] == 0
        thread.join()
        print(ob.get(ob.remote(double).remote(3)))
    """)
    assert out == "6\n"


def test_child_gets_a_free_lock_even_if_a_start_takes_longer_than_a_fork_waits(run_program: Any) -> None:
    out = run_program("""
        import os, signal, threading
        import outboard as ob
        from outboard import api, engine

        engine.FORK_PATIENCE = 0.05
        starting, go_on = threading.Event(), threading.Event()
        real_start = engine.start

        def start(settings):
            starting.set()
            go_on.wait()
            return real_start(settings)

        engine.start = start
        thread = threading.Thread(target=lambda: ob.get(ob.put(1)))
        thread.start()
        starting.wait()
        pid = os.fork()
        if pid == 0:
            signal.alarm(15)
            engine.start = real_start
            os._exit(0 if ob.get(ob.put(5)) == 5 else 1)
        assert os.waitpid(pid, 0)[1] == 0
        go_on.set()
        thread.join()
        print(ob.get(ob.put(2)))
    """)
    assert out == "2\n"


def test_callback_comes_after_a_fork_of_another_thread_while_the_main_one_rests(
    run_program: Any, tmp_path: Path
) -> None:
    text = """
        import os, threading, time
        from outboard.multiprocessing import Pool

        def work(path):
            with open(path) as pipe:
                return pipe.read()

        if __name__ == "__main__":
            os.mkfifo("go.fifo")
            pool = Pool(1)
            pool.apply(abs, (1,))
            came = threading.Event()
            pool.apply_async(work, (os.path.abspath("go.fifo"),), callback=lambda value: came.set())

            def fork():
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)
                with open("go.fifo", "w") as pipe:
                    pipe.write("go")

            thread = threading.Timer(0.2, fork)  # when the main thread rests already
            thread.start()
            print(came.wait(10))
            thread.join()
            pool.terminate()
    """
    assert run_program(text, cwd=tmp_path) == "True\n"

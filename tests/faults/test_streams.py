"""Standard streams that programs and tasks have put something odd in place of, or write to without end."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(60)


def test_loud_children_of_a_task_do_not_stop_the_node(start_program: Any) -> None:
    program = start_program("""
        import os, subprocess, sys, time
        import outboard as ob
        @ob.remote
        def start():
            for _ in range(2):
                subprocess.Popen(["yes", "a line of a child that writes without end"])
            time.sleep(0.05)
        @ob.remote
        def one():
            return 1
        ob.init(num_cpus=2)
        ob.get(start.remote(), timeout=30)
        print(ob.get([one.remote() for _ in range(4)], timeout=30), file=sys.stderr)
        os._exit(0)
    """, stdout=subprocess.DEVNULL)  # fmt: skip
    _, err = program.communicate(timeout=50)
    assert "[1, 1, 1, 1]" in err


def test_client_whose_stdout_has_only_write(start_program: Any) -> None:
    program = start_program("""
        import os, sys, time
        import outboard as ob
        class Tee:
            def write(self, text):
                os.write(2, text.encode())
                return len(text)
        @ob.remote
        def say(x):
            print("p", x)
            return x
        if __name__ == "__main__":
            ob.init(num_cpus=2)
            stdout, sys.stdout = sys.stdout, Tee()
            values = ob.get([say.remote(i) for i in range(5)], timeout=20)
            futures = [say.remote(i).future() for i in range(5)]
            values += [future.result(timeout=20) for future in futures]
            sys.stdout = stdout
            print(values)
    """)
    out, _ = program.communicate(timeout=50)
    assert out == "[0, 1, 2, 3, 4, 0, 1, 2, 3, 4]\n"


@pytest.mark.parametrize("stream", ["None", "OnlyWrite()"])
def test_task_that_replaces_its_stdout(start_program: Any, stream: str) -> None:
    program = start_program(f"""
        import sys, time
        import outboard as ob
        class OnlyWrite:
            def write(self, text):
                return len(text)
        @ob.remote
        def late():
            time.sleep(0.5)
            return "late"
        @ob.remote
        def odd(x):
            if x == 1:
                print("hi", file=sys.stderr)
                return [late.remote()]
            if x == 2:
                print("hi", file=sys.stderr)
                sys.stdout = {stream}
                time.sleep(0.1)
            return x
        if __name__ == "__main__":
            ob.init(num_cpus=1)
            ob.get([odd.remote(0) for _ in range(3000)])
            values = ob.get([odd.remote(i) for i in range(4)], timeout=20)
            print(values[0], ob.get(values[1][0], timeout=20), values[2:])
    """)
    out, _ = program.communicate(timeout=50)
    assert out == "0 late [2, 3]\n"


def test_workers_of_a_forked_client_that_ends_while_they_print(start_program: Any) -> None:
    program = start_program("""
        import os, sys, time
        import outboard as ob
        @ob.remote
        def noisy(i):
            end = time.perf_counter() + 0.002
            while time.perf_counter() < end:
                pass
            print("x", i)
            return i
        if __name__ == "__main__":
            ob.init(num_cpus=2)
            ob.get(noisy.remote(0))
            for _ in range(4):
                pid = os.fork()
                if not pid:
                    refs = [noisy.remote(i) for i in range(500)]
                    ob.get(refs[20])
                    os._exit(0)
                os.waitpid(pid, 0)
            print("done", ob.get(noisy.remote(1), timeout=20), file=sys.stderr)
    """)
    _, err = program.communicate(timeout=50)
    assert err == "done 1\n"

"""Whole programs: how they find their modules, what their tasks print, how they are written."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(60)

TALK = """
import os, sys, time
import outboard as ob

def talk(i):
    print(f"line {i} " + "x" * 200)
    print(f"error {i}", file=sys.stderr)
    sys.stdout.write("part ")
    sys.stdout.write(f"whole {i}\\n")
    os.write(1, f"raw {i}\\n".encode())
    return i

if __name__ == "__main__":
    ob.init(num_cpus=2)
    ob.get([ob.remote(talk).remote(i) for i in range(50)])
    ob.shutdown()
"""


def test_lines_of_tasks_arrive_whole_on_the_right_stream(start_program: Any) -> None:
    program = start_program(TALK)
    out, err = program.communicate(timeout=20)
    assert program.returncode == 0
    expected = [f"line {i} " + "x" * 200 for i in range(50)] + [f"part whole {i}" for i in range(50)]
    expected += [f"raw {i}" for i in range(50)]
    assert sorted(line.rpartition(" | ")[2] for line in out.splitlines()) == sorted(expected)
    assert sorted(line.rpartition(" | ")[2] for line in err.splitlines()) == sorted(f"error {i}" for i in range(50))


@pytest.mark.parametrize("prefix", ["0", "1"])
def test_prefix_can_be_chosen(start_program: Any, prefix: str) -> None:
    out, _ = start_program(TALK, env={**os.environ, "OUTBOARD_LOG_PREFIX": prefix}).communicate(timeout=20)
    lines = [line for line in out.splitlines() if "raw" in line]
    assert len(lines) == 50
    assert all((" | " in line) == (prefix == "1") for line in lines)
    assert all(line.startswith("raw ") for line in lines) == (prefix == "0")


def test_what_a_task_printed_is_there_when_its_result_is(run_program: Any) -> None:
    out = run_program("""
        import outboard as ob
        def say(i):
            print("task", i)
        if __name__ == "__main__":
            ob.init(num_cpus=1)
            for i in range(20):
                ob.get(ob.remote(say).remote(i))
                print("got", i, flush=True)
    """)
    lines = [line.rpartition(" | ")[2] for line in out.splitlines()]
    assert sorted(lines) == sorted([f"task {i}" for i in range(20)] + [f"got {i}" for i in range(20)])
    assert lines == [line for i in range(20) for line in (f"task {i}", f"got {i}")]


def test_last_line_without_an_end_arrives(run_program: Any) -> None:
    out = run_program("""
        import sys
        import outboard as ob
        def shout(i):
            sys.stdout.write(f"no end {i}")
        if __name__ == "__main__":
            ob.init(num_cpus=1)
            ob.get(ob.remote(shout).remote(1))
            ob.shutdown()
    """)
    assert out.rpartition(" | ")[2] == "no end 1\n"


def test_program_without_a_guard(run_program: Any) -> None:
    out = run_program("""
        import outboard as ob
        from outboard.multiprocessing import Pool

        FACTOR = 3

        class Model:
            def __init__(self, bias):
                self.bias = bias
            def __eq__(self, other):
                return type(self) is type(other) and self.bias == other.bias
            def score(self, x):
                return FACTOR * x + self.bias

        def use(model, x):
            return model.score(x), model, type(model)

        def recursive(n):
            return 0 if n == 0 else 1 + ob.get(ob.remote(recursive).remote(n - 1))

        model = Model(5)
        value, same, kind = ob.get(ob.remote(use).remote(model, 2))
        assert value == 11 and same == model and kind is Model, (value, same, kind)
        with Pool(2) as pool:
            assert pool.map(model.score, range(3)) == [5, 8, 11]
            assert pool.map(lambda x: x + FACTOR, range(3)) == [3, 4, 5]
        FACTOR = 4
        assert ob.get(ob.remote(use).remote(model, 2))[0] == 13
        assert ob.get(ob.remote(recursive).remote(3)) == 3
        print("once")
    """)
    assert out == "once\n"


def test_program_given_on_the_command_line(run_program: Any) -> None:
    text = "import outboard as ob\nclass C: x = 4\ndef f(c): return c.x + 1\nprint(ob.get(ob.remote(f).remote(C())))\n"
    assert run_program("", command=[sys.executable, "-c", text]) == "5\n"


def test_program_on_standard_input(start_program: Any) -> None:
    program = start_program("", command=[sys.executable, "-"])
    text = "import outboard as ob\ndef f(x): return x + 1\nprint(ob.get(ob.remote(f).remote(1)))\n"
    assert program.communicate(text, timeout=20) == ("2\n", "")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package, a module beside the script, and a module elsewhere."""
    folder = tmp_path / "app"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "__init__.py").write_text("")
    (folder / "pkg" / "helper.py").write_text("def triple(x):\n    return 3 * x\n")
    (folder / "beside.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "remote_module.py").write_text("def quadruple(x):\n    return 4 * x\n")
    return folder


MODULES = """
import os, sys
import outboard as ob
import beside
from pkg import helper

def local(x):
    import beside
    return beside.double(x) + 1

def here(x):
    return os.getcwd()

if __name__ == "__main__":
    {before}
    ob.init(num_cpus=1)
    assert ob.get(ob.remote(beside.double).remote(2)) == 4
    assert ob.get(ob.remote(helper.triple).remote(2)) == 6
    assert ob.get(ob.remote(local).remote(2)) == 5
    assert ob.get(ob.remote(here).remote(2)) == os.getcwd()
    {after}
    print("done")
"""

FAR = "sys.path.insert(0, {path!r}); import remote_module"
USE_FAR = "assert ob.get(ob.remote(remote_module.quadruple).remote(2)) == 8"


@pytest.mark.parametrize("when", ["never", "before", "after"])
def test_modules_are_found(run_program: Any, package: Path, tmp_path: Path, when: str) -> None:
    insert = FAR.format(path=str(tmp_path / "far"))
    before = insert if when == "before" else "pass"
    after = {"never": "pass", "before": USE_FAR, "after": f"{insert}; {USE_FAR}"}[when]
    text = MODULES.format(before=before, after=after)
    (package / "main.py").write_text(text)
    (package / "pkg" / "main.py").write_text(text)
    assert run_program("", command=[sys.executable, str(package / "main.py")], cwd=tmp_path) == "done\n"
    assert run_program("", command=[sys.executable, "-m", "pkg.main"], cwd=package) == "done\n"


def test_missing_module_is_named(start_program: Any) -> None:
    program = start_program("""
        import sys, types
        import outboard as ob
        module = types.ModuleType("nowhere_to_be_found")
        exec("def f(x):\\n    return x", vars(module))
        sys.modules["nowhere_to_be_found"] = module
        ob.get(ob.remote(module.f).remote(1))
    """)
    _, err = program.communicate(timeout=20)
    assert program.returncode == 1 and "nowhere_to_be_found" in err


def test_program_with_threads(run_program: Any) -> None:
    out = run_program("""
        import threading
        import outboard as ob
        def double(x):
            return 2 * x
        def use(k):
            for i in range(100):
                assert ob.get(task.remote(k * i)) == 2 * k * i
            refs = [task.remote(i) for i in range(100)]
            assert ob.get(refs) == [2 * i for i in range(100)]
            done.append(k)
        if __name__ == "__main__":
            task, done = ob.remote(double), []
            threads = [threading.Thread(target=use, args=(k,)) for k in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(sorted(done))
    """)
    assert out == "[0, 1, 2, 3, 4, 5, 6, 7]\n"

"""What users see of their workers: what these print, tracebacks, warnings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(60)

#: Ways to print without a newline. What passes by Python is looked for after tasks of half a millisecond.
UNFINISHED = """
import ctypes, os, subprocess, sys, time
import outboard as ob
from outboard.multiprocessing import Pool

def text(i): sys.stdout.write(f"text {i}")
def underlying(i): sys.stdout.buffer.write(b"underlying %d" % i)
def original(i): sys.__stdout__.write(f"original {i}")
def descriptor(i): os.write(1, b"descriptor %d" % i); time.sleep(0.001)
def child(i): subprocess.run([sys.executable, "-S", "-c", f"print('child {i}', end='')"])
def compiled(i): ctypes.CDLL(None).printf(b"compiled %d", i); time.sleep(0.001)

ALL = (text, underlying, original, descriptor, child, compiled)
"""


def without_prefix(text: str) -> str:
    return re.sub(r"\b[a-z]+@[\w.-]+:\d+ \| ", "", text)


def test_what_has_no_newline_arrives_with_the_result(run_program: Any) -> None:
    out = run_program(
        UNFINISHED
        + """
ob.init(num_cpus=1)
for function in ALL:
    ob.get(ob.remote(function).remote(7))
ob.shutdown()
"""
    )
    assert [line.partition("@")[0] for line in out.splitlines()] == [
        "text", "underlying", "original", "descriptor", "child", "compiled",
    ]  # fmt: skip
    assert without_prefix(out) == ("text 7\nunderlying 7\noriginal 7\ndescriptor 7\nchild 7\ncompiled 7\n")


def test_pool_shows_text_as_its_workers_write_it(run_program: Any) -> None:
    out = run_program(
        UNFINISHED
        + """
with Pool(1) as pool:
    for function in ALL:
        pool.map(function, [7, 8])
"""
    )
    assert out == (
        "text 7text 8underlying 7underlying 8original 7original 8descriptor 7descriptor 8child 7child 8"
        "compiled 7compiled 8"
    )


def test_progress_is_shown_while_a_task_runs(start_program: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go_on")
    program = start_program("""
        import sys
        import outboard as ob
        def work(go_on):
            sys.stderr.write("\\rhalf")
            sys.stderr.flush()
            with open(go_on) as pipe:
                pipe.read()
            sys.stderr.write("\\rwhole\\n")
        ob.init(num_cpus=1)
        ref = ob.remote(work).remote(sys.argv[1])
        sys.stdin.readline()
        open(sys.argv[1], "w").close()
        ob.get(ref)
    """, str(tmp_path / "go_on"))  # fmt: skip
    shown = b""
    while not shown.endswith(b"half"):
        shown += os.read(program.stderr.fileno(), 1)
    program.stdin.write("go on\n")
    program.stdin.flush()
    while piece := os.read(program.stderr.fileno(), 1000):
        shown += piece
    assert program.wait(20) == 0
    assert without_prefix(shown.decode()) == "half\rwhole\n"


def test_last_words_of_a_worker_that_dies_arrive(start_program: Any) -> None:
    program = start_program("""
        import os
        import outboard as ob
        from outboard import errors
        def die():
            os.write(1, b"last words")
            os._exit(3)
        try:
            ob.get(ob.remote(max_retries=0)(die).remote())
        except errors.WorkerLostError as error:
            print("then", error.exitcode)
    """)
    out, _ = program.communicate(timeout=20)
    assert without_prefix(out) == "last words\nthen 3\n"


def test_long_line_stays_one_line(run_program: Any) -> None:
    out = run_program("""
        import outboard as ob
        def long():
            print("x" * 300_000)
        ob.init(num_cpus=1)
        ob.get(ob.remote(long).remote())
    """)
    assert out.partition(" | ")[2] == "x" * 300_000 + "\n"


ACTOR = """
import sys
import outboard as ob
class Counter:
    def __init__(self):
        print("made")
    def add(self):
        print("added")
def task():
    print("ran")
if __name__ == "__main__":
    ob.init(num_cpus=1, **eval(sys.argv[1]))
    counter = ob.remote(Counter).remote()
    ob.get(counter.add.remote())
    ob.get(ob.remote(task).remote())
"""


@pytest.mark.parametrize(
    ("settings", "variable", "has_prefix"),
    [({}, None, True), ({"log_prefix": False}, None, False), ({}, "0", False), ({"log_prefix": True}, "0", True)],
)
def test_lines_of_actors_say_who_wrote_them(
    run_program: Any, settings: dict[str, bool], variable: str | None, has_prefix: bool
) -> None:
    env = {name: value for name, value in os.environ.items() if name != "OUTBOARD_LOG_PREFIX"}
    if variable is not None:
        env["OUTBOARD_LOG_PREFIX"] = variable
    out = run_program(ACTOR, repr(settings), env=env)
    if has_prefix:
        assert re.fullmatch(r"Counter@\S+:(\d+) \| made\nCounter\.add@\S+:\1 \| added\ntask@\S+:\d+ \| ran\n", out)
    else:
        assert out == "made\nadded\nran\n"


def test_lines_name_the_function_that_runs_not_one_that_waits(run_program: Any) -> None:
    out = run_program("""
        import time
        import outboard as ob
        def first():
            time.sleep(0.1)  # the second one is queued behind this one now
            print("1st")
            time.sleep(0.1)  # and does not print before this line has been read
        def second():
            print("2nd")
        ob.init(num_cpus=1)
        ob.get([f.remote() for f in map(ob.remote, (first, second))])
    """)
    assert re.fullmatch(r"first@\S+ \| 1st\nsecond@\S+ \| 2nd\n", out)


# -- tracebacks

SCRIPT = """
import sys
import outboard as ob
from outboard.multiprocessing import Pool

class Model:
    def fit(self, x):
        return 1 / x  # fit

def nested(x):
    def inner():
        return 1 / x  # inner
    return inner()

shifted = lambda x: 1 / x  # lambda

def cause(call):
    try:
        call()
    except ZeroDivisionError as error:
        print(error.__cause__)

if __name__ == "__main__":
    for function in (Model().fit, nested, shifted):
        cause(lambda: ob.get(ob.remote(function).remote(0)))
    with Pool(1) as pool:
        cause(lambda: pool.map(nested, [0]))
"""


def test_tracebacks_show_file_line_and_text_of_the_script(run_program: Any, tmp_path: Path) -> None:
    out = run_program(SCRIPT)
    path, lines = tmp_path / "program.py", SCRIPT.splitlines()
    for mark, name, times in (("fit", "fit", 1), ("inner", "inner", 2), ("lambda", "<lambda>", 1)):
        number = next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))
        text = lines[number - 1].partition("  #")[0].strip()
        assert out.count(f'  File "{path}", line {number}, in {name}\n    {text}') == times


def test_tracebacks_of_a_program_without_a_file_name_line_and_function(start_program: Any) -> None:
    for command, name in (([sys.executable, "-c", SCRIPT], "<string>"), ([sys.executable, "-"], "<stdin>")):
        out, err = start_program("", command=command).communicate(SCRIPT, timeout=20)
        assert not err
        assert out.count(f'  File "{name}", line 12, in inner\n') == 2


# -- warnings

EVERYTHING = """
import gc, os, sys
import outboard as ob
from outboard import errors
from outboard.multiprocessing import Pool

def task(x):
    gc.collect()
    return x

def nested(x):
    return ob.get(ob.remote(task).remote(x))

def die():
    os._exit(1)

class Actor:
    def method(self):
        return bytearray(300_000)

if __name__ == "__main__":
    ob.init(num_cpus=2)
    assert ob.get(ob.remote(nested).remote(ob.put(bytearray(300_000)))) == bytes(300_000)
    actor = ob.remote(Actor).remote()
    large = ob.get(actor.method.remote())
    try:
        ob.get(ob.remote(max_retries=1)(die).remote())
    except errors.WorkerLostError:
        pass
    with Pool(2, maxtasksperchild=2) as pool:
        assert pool.map(task, range(9), chunksize=1) == list(range(9))
    pool = Pool(1)
    assert pool.apply(task, (1,)) == 1
    child = os.fork()
    if child == 0:
        assert ob.get(ob.remote(task).remote(1)) == 1
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    if sys.argv[1] == "shutdown":
        pool.close()
        pool.join()
        ob.shutdown()
"""


@pytest.mark.parametrize("end", ["shutdown", "exit"])
@pytest.mark.parametrize("flags", [["-X", "dev"], ["-W", "error::ResourceWarning"]])
def test_nothing_of_outboard_is_left_to_warn_of(start_program: Any, flags: list[str], end: str, tmp_path: Path) -> None:
    command = [sys.executable, *flags, str(tmp_path / "program.py")]
    program = start_program(EVERYTHING, end, command=command, stderr=subprocess.STDOUT)
    out, _ = program.communicate(timeout=40)
    assert (program.returncode, out) == (0, "")


def test_node_says_in_one_line_whom_it_gives_up(start_program: Any) -> None:
    program = start_program("""
        import outboard as ob
        from outboard import engine, errors
        from outboard.rpc.codec import Frame
        ob.init(num_cpus=1)
        client = engine.current().client
        with client.lock:
            client.link.send(Frame.SUBMIT, b"nonsense")
        try:
            ob.get(ob.remote(abs).remote(-1), timeout=10)
        except errors.OutboardError as error:
            print(type(error).__name__)
    """, env={**os.environ, "PYTHONUNBUFFERED": "1"})  # fmt: skip
    out, err = program.communicate(timeout=20)
    assert out == "NodeLostError\n"
    assert re.fullmatch(rf"outboard node: client {program.pid} is given up: .*DecodeError.*\n", err)

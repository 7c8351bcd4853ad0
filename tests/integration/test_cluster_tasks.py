"""Programs whose tasks run on several nodes, and what becomes of their work when some of them come, go and die.

Every program says with each result which node made it; nodes are told apart by a resource of their own.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from tests.faults.conftest import eventually
from tests.integration.clusters import Commands, apart, await_end, await_line, commands, finish, join, program

__all__ = ["apart", "commands", "eventually", "join", "program"]

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(120)]


@pytest.mark.parametrize("slotless", [False, True])
def test_tasks_run_on_all_nodes(commands: Commands, join: Any, program: Any, slotless: bool) -> None:
    _, first = commands.head()
    second = join()
    text = """
    found = collections.Counter(ob.get([place.remote(0.2) for _ in range(24)]))
    print(*sorted(found))
    """
    assert finish(program(text, slotless=slotless)) == [" ".join(map(str, sorted((first, second))))]


@pytest.mark.parametrize("slotless", [False, True])
def test_what_only_another_node_has_is_found_there(commands: Commands, join: Any, program: Any, slotless: bool) -> None:
    commands.head()
    special = join("--resources", "special=2")
    text = """
    print(ob.get(place.options(resources={"special": 1}).remote()))
    try:
        ob.get(place.options(resources={"unknown": 1}).remote())
    except ob.errors.TaskUnschedulableError as error:
        print("unknown" in str(error))
    """
    assert finish(program(text, slotless=slotless)) == [str(special), "True"]


@pytest.mark.parametrize("slotless", [False, True])
def test_large_objects_go_where_they_are_needed_and_come_back(
    commands: Commands, join: Any, program: Any, slotless: bool
) -> None:
    commands.head()
    join("--resources", "special=2")
    text = """
    @ob.remote(resources={"special": 1})
    def double(array):
        return array * 2

    given = np.arange(3_000_000)
    ref = ob.put(given)
    refs = [double.remote(ref) for _ in range(3)] + [double.remote(given)]
    print(all((ob.get(r) == given * 2).all() for r in refs))
    chained = double.remote(double.remote(double.remote(ref)))
    print((ob.get(chained) == given * 8).all())

    @ob.remote
    def total(array):
        return int(array.sum())
    print(ob.get([total.remote(r) for r in refs]) == [int(given.sum()) * 2] * 4)
    """
    assert finish(program(text, slotless=slotless)) == ["True"] * 3


def test_nested_tasks_and_references_cross_nodes(commands: Commands, join: Any, program: Any) -> None:
    commands.head()
    join("--resources", "special=2")
    text = """
    @ob.remote
    def child(array):
        return array + 1

    @ob.remote(resources={"special": 1})
    def parent(refs):
        import numpy as np
        here = ob.put(np.ones(200_000))
        return [child.remote(here), here, *ob.get([child.remote(refs[0]) for _ in range(8)])]

    made, here, *values = ob.get(parent.remote([ob.put(np.zeros(200_000))]))
    print((ob.get(made) == 2).all(), (ob.get(here) == 1).all(), all((v == 1).all() for v in values))

    @ob.remote(num_cpus=1)
    def fan(depth):
        return 1 if depth == 0 else sum(ob.get([fan.remote(depth - 1) for _ in range(3)]))
    print(ob.get(fan.remote(4)))
    """
    assert finish(program(text)) == ["True True True", "81"]


def test_pool_of_a_slotless_program_works_on_the_nodes(commands: Commands, join: Any, program: Any) -> None:
    commands.head()
    join()
    text = """
    def square(x):
        return x * x
    with Pool(3) as pool:
        print(pool.map(square, range(1000)) == [x * x for x in range(1000)])
        print(sum(pool.imap_unordered(square, range(1000))) == sum(x * x for x in range(1000)))
        print(pool.apply(square, (7,)))
    """
    assert finish(program(text, slotless=True)) == ["True", "True", "49"]


def test_the_first_pool_of_a_program_works_on_all_nodes(commands: Commands, join: Any, program: Any) -> None:
    commands.head("--num-cpus", "1")
    join()
    text = """
    def square(x):
        time.sleep(0.1)
        return x * x, where()
    with Pool(2) as pool:
        found = pool.map(square, range(20))
    print([value for value, _ in found] == [x * x for x in range(20)], len({at for _, at in found}))
    """
    assert finish(program(text)) == ["True 2"]


def test_a_node_that_joins_gets_work_of_a_program_that_runs(commands: Commands, join: Any, program: Any) -> None:
    commands.head()
    text = """
    refs = [place.remote(0.5) for _ in range(30)]
    print("running", flush=True)
    print(*set(ob.get(refs)))
    """
    running = program(text)
    assert await_line(running) == "running"
    late = join()
    assert str(late) in finish(running)[0].split()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_work_of_a_lost_node_runs_elsewhere(commands: Commands, join: Any, program: Any, how: signal.Signals) -> None:
    commands.head()
    second = join("--num-cpus", "2")
    text = """
    @ob.remote
    def work(i):
        time.sleep(0.3)
        return i, where()
    refs = [work.remote(i) for i in range(40)]
    done, _ = ob.wait(refs, num_returns=4)
    print("running", flush=True)
    got = ob.get(refs)
    print([i for i, _ in got] == list(range(40)))
    """
    running = program(text)
    assert await_line(running) == "running"
    os.kill(second, how)
    try:
        assert finish(running) == ["True"]
    finally:
        if how == signal.SIGSTOP:
            os.kill(second, signal.SIGCONT)


def test_objects_of_a_lost_node_are_made_again(commands: Commands, join: Any, program: Any) -> None:
    commands.head()
    second = join("--resources", "special=2")
    join("--resources", "special=2")
    text = """
    @ob.remote(resources={"special": 1})
    def make(i):
        return np.full(300_000, i), where()

    @ob.remote(resources={"special": 1})
    def add(one, other):
        return one[0] + other[0], where()

    parts = [make.remote(i) for i in range(6)]
    sums = [add.remote(parts[i], parts[i + 1]) for i in range(5)]
    ob.wait(sums, num_returns=5)
    print("made", flush=True)
    sys.stdin.readline()
    print([int(ob.get(s)[0][0]) for s in sums] == [1, 3, 5, 7, 9])
    print([int(ob.get(p)[0][0]) for p in parts] == list(range(6)))
    """
    running = program(text)
    assert await_line(running) == "made"
    os.kill(second, signal.SIGKILL)
    await_end(second)
    assert running.stdin is not None
    running.stdin.write("\n")
    assert finish(running) == ["True", "True"]


def test_work_that_must_not_run_twice_says_that_its_machine_was_lost(
    commands: Commands, join: Any, program: Any
) -> None:
    commands.head()
    second = join("--resources", "special=2")
    text = """
    @ob.remote(resources={"special": 1}, max_retries=0)
    def wait():
        print("here", flush=True)
        time.sleep(60)
    ref = wait.remote()
    try:
        ob.get(ref)
    except ob.errors.WorkerLostError as error:
        print("lost", error.may_have_run)
    """
    running = program(text)
    assert "here" in await_line(running)
    os.kill(second, signal.SIGKILL)
    assert finish(running) == ["lost True"]


def test_nothing_is_lost_while_the_head_is_away(commands: Commands, join: Any, program: Any) -> None:
    head, _ = commands.head()
    join()
    text = """
    refs = [place.remote(0.1) for _ in range(60)]
    ob.wait(refs, num_returns=6)
    print("running", flush=True)
    print(len(ob.get(refs)))
    print("first", flush=True)
    sys.stdin.readline()
    print(len(set(ob.get([place.remote(0.2) for _ in range(24)]))))
    """
    running = program(text)
    assert await_line(running) == "running"
    os.kill(head, signal.SIGKILL)
    await_end(head)
    assert await_line(running) == "60"
    assert await_line(running) == "first"
    commands.run("start", "--head", "--no-node", "--detach")
    assert running.stdin is not None
    running.stdin.write("\n")
    assert finish(running) == ["2"]


def test_a_gateway_that_dies_is_replaced_and_nothing_else_runs_again(
    commands: Commands, join: Any, program: Any, tmp_path: Any
) -> None:
    _, first = commands.head("--num-cpus", "1")
    second = join()
    text = """
    @ob.remote(max_retries=3)
    def note(i):
        with open(f"{sys.argv[1]}/{i}.{where()}", "a") as file:
            file.write("x")
        time.sleep(0.2)
        return i
    refs = [note.remote(i) for i in range(40)]
    ob.wait(refs, num_returns=8)
    print("running", flush=True)
    print(ob.get(refs) == list(range(40)))
    """
    runs = tmp_path / "runs"
    runs.mkdir()
    running = program(text.replace("sys.argv[1]", repr(str(runs))), slotless=True)
    assert await_line(running) == "running"
    os.kill(first, signal.SIGKILL)
    assert finish(running) == ["True"]
    on_second = [path for path in runs.iterdir() if path.name.endswith(f".{second}")]
    assert on_second and all(path.read_text() == "x" for path in on_second)


def test_a_node_that_leaves_gives_its_work_back_and_hands_its_objects_over(
    commands: Commands, join: Any, program: Any, eventually: Any
) -> None:
    commands.head()
    leaving = join("--resources", "special=2", "--grace", "30")
    text = """
    @ob.remote(resources={"special": 1}, max_retries=0)
    def make(i):
        time.sleep(0.2)
        return np.full(300_000, i)
    made = [make.remote(i) for i in range(3)]
    ob.wait(made, num_returns=3)
    refs = [place.remote(0.3) for _ in range(20)]
    print("running", flush=True)
    sys.stdin.readline()
    print(len(ob.get(refs)), [int(ob.get(m)[0]) for m in made])
    """
    running = program(text)
    assert await_line(running) == "running"
    os.kill(leaving, signal.SIGTERM)
    await_end(leaving, within=20.0)
    assert running.stdin is not None
    running.stdin.write("\n")
    assert finish(running) == ["20 [0, 1, 2]"]


def test_the_end_of_a_program_ends_its_work_on_all_nodes(
    commands: Commands, join: Any, program: Any, eventually: Any
) -> None:
    commands.head()
    join()
    running = program(
        """
    refs = [place.remote(60.0) for _ in range(3)]
    print("running", flush=True)
    ob.get(refs)
    """
    )
    assert await_line(running) == "running"
    eventually(lambda: sum(node["running"] for node in commands.nodes().values()) == 3)
    begun = time.monotonic()
    running.kill()
    eventually(lambda: sum(node["running"] for node in commands.nodes().values()) == 0)
    assert time.monotonic() - begun < 5


def test_cancel_reaches_tasks_at_other_nodes(commands: Commands, join: Any, program: Any) -> None:
    commands.head()
    join("--resources", "special=2")
    text = """
    @ob.remote(resources={"special": 1})
    def wait():
        print("here", flush=True)
        time.sleep(60)
    ref = wait.remote()
    while sys.stdin.readline() != "go\\n":
        pass
    begun = time.monotonic()
    ob.cancel(ref)
    try:
        ob.get(ref)
    except ob.errors.TaskCancelledError:
        pass
    print(ob.get(place.options(resources={"special": 2}).remote()) > 0, time.monotonic() - begun < 5)
    """
    running = program(text)
    assert "here" in await_line(running)
    assert running.stdin is not None
    running.stdin.write("go\n")
    running.stdin.flush()
    assert finish(running) == ["True True"]

"""Programs on clusters that are killed, interrupted, or ask for what goes wrong: nodes live on and keep nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.conftest import eventually
from tests.integration.clusters import Commands, apart, await_end, await_line, commands, finish, is_alive, join, program

__all__ = ["apart", "commands", "eventually", "join", "program"]

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(90)]

#: Seconds in which a node has ended and freed all that a program had there; it tells about it every second.
FREED_SECONDS = 5.0

FAR = """
    far = ob.remote(resources={"special": 1})
"""


def holds_nothing(commands: Commands) -> bool:
    """Whether no node has work, workers, clients or stored bytes."""
    counted = ("running", "queued", "workers", "clients", "store_used_nbytes")
    return not any(node[what] for node in commands.nodes().values() for what in counted)


@pytest.mark.parametrize("slotless", [False, True])
@pytest.mark.parametrize("way", ["there", "back"])
def test_program_that_is_killed_in_the_middle_of_a_transfer_leaves_nothing(
    commands: Commands, join: Any, program: Any, eventually: Any, way: str, slotless: bool
) -> None:
    commands.head("--store-memory", "300MB")
    join("--resources", "special=1", "--store-memory", "300MB")
    text = """
    @far
    def total(array):
        return float(array.sum())

    @far
    def make():
        return np.ones(20_000_000)

    if sys.argv[1] == "there":
        ref = ob.put(np.ones(20_000_000))
        ob.get(total.remote(np.ones(1)))
        use = lambda: ob.get(total.remote(ref))
    else:
        ref = make.remote()
        ob.wait([ref])
        use = lambda: ob.get(ref)
    print("ready", flush=True)
    sys.stdin.readline()
    use()
    time.sleep(60)
    """
    for delay in (0.02, 0.06):
        running = program(FAR + text, way, slotless=slotless)
        assert await_line(running) == "ready"
        running.stdin.write("\n")
        running.stdin.flush()
        time.sleep(delay)
        running.kill()
        running.wait()
    eventually(lambda: holds_nothing(commands), within=FREED_SECONDS)
    text = """
    print(ob.get(far(abs).remote(-5)))
    """
    assert finish(program(FAR + text, slotless=slotless)) == ["5"]


@pytest.mark.parametrize("slotless", [False, True])
def test_interrupt_ends_waits_and_maps_and_the_program_goes_on(
    commands: Commands, join: Any, program: Any, slotless: bool
) -> None:
    commands.head("--num-cpus", "1")
    join()
    text = """
    def nap(seconds):
        time.sleep(seconds)
        return seconds

    def interrupted(wait):
        print("waiting", flush=True)
        try:
            wait()
        except KeyboardInterrupt:
            return True

    refs = [place.remote(1.0) for _ in range(2)]
    print(interrupted(lambda: ob.get(refs)), flush=True)
    print(len(ob.get(refs)), flush=True)
    with Pool(2) as pool:
        print(pool.map(nap, [0.0] * 4), flush=True)
        print(interrupted(lambda: pool.map(nap, [60.0] * 4)), flush=True)
        begun = time.monotonic()
        print(pool.map(nap, [0.1] * 4), time.monotonic() - begun < 10)
    """
    running = program(text, slotless=slotless)
    said = []
    while line := running.stdout.readline().strip():
        said.append(line)
        if line == "waiting":
            time.sleep(0.3)
            running.send_signal(signal.SIGINT)
    naps = ["[0.0, 0.0, 0.0, 0.0]", "waiting", "True", "[0.1, 0.1, 0.1, 0.1] True"]
    assert said == ["waiting", "True", "2", *naps], finish(running)
    assert finish(running) == []


def test_processes_that_tasks_started_end_with_the_program_and_with_the_node(
    commands: Commands, join: Any, program: Any, eventually: Any, tmp_path: Path
) -> None:
    _, first = commands.head("--num-cpus", "1")
    second = join()
    text = """
    import subprocess
    @ob.remote(max_retries=0)
    def start_and_wait(folder):
        child = subprocess.Popen(["sleep", "600"])
        open(f"{folder}/{child.pid}.{os.getpid()}", "w").close()
        child.wait()
    refs = [start_and_wait.remote(sys.argv[1]) for _ in range(2)]
    ob.wait(refs, num_returns=2)
    """

    def started(folder: Path) -> list[int]:
        folder.mkdir()
        processes.append(program(text, str(folder)))
        eventually(lambda: len(list(folder.iterdir())) == 2)
        return [int(pid) for path in folder.iterdir() for pid in path.name.split(".")]

    processes: list[subprocess.Popen[str]] = []
    pids = started(tmp_path / "one")
    processes[-1].kill()
    await_end(*pids, within=FREED_SECONDS)
    assert is_alive(first) and is_alive(second)
    eventually(lambda: holds_nothing(commands), within=FREED_SECONDS)

    pids = started(tmp_path / "two")
    there = [pid for pid in pids if second in [parent.pid for parent in psutil.Process(pid).parents()]]
    assert len(there) == 2
    os.kill(second, signal.SIGKILL)
    await_end(*there, within=FREED_SECONDS)
    assert all(map(is_alive, set(pids) - set(there)))
    processes[-1].kill()
    await_end(*pids, within=FREED_SECONDS)


def test_cancel_stops_what_sleeps_and_what_waits_at_another_node(commands: Commands, join: Any, program: Any) -> None:
    commands.head()
    join("--resources", "special=1")
    text = """
    @far
    def nap(seconds):
        if seconds:
            print("napping", flush=True)
        time.sleep(seconds)

    refs = [nap.remote(60) for _ in range(11)]
    while sys.stdin.readline() != "go\\n":
        pass
    begun = time.monotonic()
    for ref in reversed(refs):  # the one that runs last: else the next one begins before its turn to be cancelled
        ob.cancel(ref)
    for ref in refs:
        try:
            ob.get(ref, timeout=10)
        except ob.errors.TaskCancelledError:
            continue
        print("not cancelled")
    ob.get(nap.remote(0), timeout=10)
    print(time.monotonic() - begun < 10)
    """
    running = program(FAR + text)
    assert "napping" in await_line(running)
    running.stdin.write("go\n")
    running.stdin.flush()
    assert finish(running) == ["True"]  # and no other one began


def test_actor_at_another_node_that_dies_says_how(commands: Commands, join: Any, program: Any) -> None:
    commands.head()
    second = join("--resources", "special=2")
    text = """
    def said(ref):
        try:
            ob.get(ref, timeout=20)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    class Exits:
        def __init__(self):
            os._exit(7)
        def call(self):
            return 1

    class Raises(Exits):
        def __init__(self):
            raise ValueError("no such table")

    class Lives(Exits):
        def __init__(self):
            pass
        def wait(self):
            print("here", flush=True)
            time.sleep(60)

    greedy = ob.remote(num_gpus=999)(Lives).remote()
    print(said(greedy.call.remote()).split(":")[0])
    print("7" in said(far(Exits).remote().call.remote()), "no such table" in said(far(Raises).remote().call.remote()))
    lives = far(Lives).remote()
    print(ob.get(lives.call.remote()), flush=True)
    waiting = lives.wait.remote()
    print(said(waiting).split(":")[0], said(lives.call.remote()).split(":")[0])
    """
    running = program(FAR + text)
    assert [await_line(running) for _ in range(3)] == ["TaskUnschedulableError", "True True", "1"]
    assert "here" in await_line(running)
    os.kill(second, signal.SIGKILL)
    assert finish(running) == ["ActorDiedError ActorDiedError"]


@pytest.mark.parametrize("slotless", [False, True])
def test_modules_beside_the_script_are_found_at_all_nodes(
    commands: Commands, join: Any, program: Any, tmp_path: Path, slotless: bool
) -> None:
    commands.head()
    join("--resources", "special=1")
    (tmp_path / "beside.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "further.py").write_text("def triple(x):\n    return 3 * x\n")
    text = """
    import beside
    print(ob.get(far(beside.double).remote(4)), ob.get(ob.remote(beside.double).remote(5)))
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "late"))
    import further
    print(ob.get(far(further.triple).remote(4)))

    @far
    def misses():
        import nowhere_to_be_found
    try:
        ob.get(misses.remote())
    except ModuleNotFoundError as error:
        print(error.name)
    """
    assert finish(program(FAR + text, slotless=slotless)) == ["8 10", "12", "nowhere_to_be_found"]


def test_full_store_of_one_node_is_an_error_there_and_nowhere_else(commands: Commands, join: Any, program: Any) -> None:
    commands.head("--store-memory", "1GB")
    join("--resources", "special=1", "--store-memory", "50MB")
    text = """
    @far
    def make(n):
        return np.ones(n)

    @far
    def total(*arrays):
        return float(sum(a.sum() for a in arrays))

    def said(call):
        try:
            return call()
        except ob.errors.StoreFullError as error:
            return type(error).__name__

    print(said(lambda: ob.get(make.remote(10_000_000), timeout=30)))
    print(said(lambda: ob.get(total.remote(*[ob.put(np.ones(2_500_000)) for _ in range(4)]), timeout=30)))
    kept = [make.remote(1_250_000) for _ in range(8)]
    print({said(lambda: float(ob.get(ref, timeout=30).sum())) for ref in kept} <= {1_250_000.0, "StoreFullError"})
    near = ob.remote(lambda: np.ones(10_000_000))
    print(float(ob.get(near.options(num_cpus=2).remote()).sum()))
    del kept
    print(float(ob.get(make.remote(1_250_000), timeout=30).sum()))
    """
    lines = ["StoreFullError", "StoreFullError", "True", "10000000.0", "1250000.0"]
    assert finish(program(FAR + text)) == lines


def test_program_whose_own_node_is_killed_is_told_and_joins_anew(commands: Commands, join: Any, program: Any) -> None:
    _, first = commands.head()
    second = join()
    text = """
    refs = [place.remote(60.0), place.remote(60.0)]
    print("running", flush=True)
    for ref in refs:
        try:
            ob.get(ref)
        except ob.errors.NodeLostError as error:
            print(type(error).__name__)
    print(ob.get(place.remote()))
    """
    running = program(text)
    assert await_line(running) == "running"
    os.kill(first, signal.SIGKILL)
    assert finish(running) == ["NodeLostError", "NodeLostError", str(second)]


def test_arrays_of_other_nodes_are_read_only_and_those_of_pools_are_not(
    commands: Commands, join: Any, program: Any
) -> None:
    commands.head("--num-cpus", "1")
    join("--resources", "special=1")
    text = """
    @far
    def bump(array):
        array += 1

    @far
    def make():
        return np.zeros(200_000)

    given, made = ob.put(np.zeros(200_000)), make.remote()
    for call in (lambda: ob.get(bump.remote(given)), lambda: ob.get(made).__iadd__(1)):
        try:
            call()
        except ValueError as error:
            print("read-only" in str(error))
    print(float(ob.get(given).sum()), float(ob.get(made).sum()))

    def bumped(array):
        time.sleep(0.2)
        array += 1
        return float(array.sum()), where()

    zeros = np.zeros(200_000)
    with Pool(2) as pool:
        found = pool.map(bumped, [zeros] * 8, chunksize=1)
    print({total for total, _ in found}, len({node for _, node in found}), float(zeros.sum()))
    """
    lines = ["True", "True", "0.0 0.0", "{200000.0} 2 0.0"]
    assert finish(program(FAR + text)) == lines


def test_node_offers_the_cpus_that_it_may_use(commands: Commands) -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        printed = commands.run("start", "--head", "--port", "0", "--detach")
    finally:
        os.sched_setaffinity(0, allowed)
    assert "with 1 slot " in printed
    commands.run("stop")

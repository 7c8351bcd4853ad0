"""Gangs of an embedded cluster: asked for, used, waited for, refused, released."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import outboard
from outboard.errors import ActorDiedError, GangBrokenError, GetTimeoutError, TaskUnschedulableError

pytestmark = pytest.mark.timeout(60)

CPUS = 3


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    outboard.init(num_cpus=CPUS, resources={"disk": 2})
    yield
    outboard.shutdown()


@pytest.fixture(autouse=True)
def all_given_back(eventually: Callable[..., Any]) -> Iterator[None]:
    yield
    eventually(lambda: outboard.available_resources() == {"CPU": CPUS, "disk": 2})


@outboard.remote
def pid_after(seconds: float = 0.0) -> int:
    time.sleep(seconds)
    return os.getpid()


@outboard.remote
def parent(seconds: float = 0.0) -> list[int]:
    """Its children need a bundle that it holds itself."""
    assert outboard.get_runtime_context().gang is not None
    return [os.getpid(), *outboard.get([pid_after.remote(seconds) for _ in range(3)])]


@outboard.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count

    def pid_after(self, seconds: float = 0.0) -> int:
        time.sleep(seconds)
        return os.getpid()

    def meet(self, folder: Path, name: str) -> bool:
        """Wait until another one is here at the same time."""
        (folder / name).touch()
        while len(list(folder.iterdir())) < 2:
            time.sleep(0.01)
        return True


@outboard.remote
def asks(bundles: int) -> int:
    with outboard.gang([{"CPU": 1}] * bundles) as gang:
        return len(outboard.get([pid_after.options(gang=gang).remote() for _ in range(bundles)]))


def test_a_task_asks_for_a_gang_beside_its_own_cpu() -> None:
    assert outboard.get(asks.remote(CPUS - 1), timeout=20) == CPUS - 1
    assert outboard.get(asks.options(num_cpus=0).remote(CPUS), timeout=20) == CPUS


def test_bundles_are_set_aside_used_and_given_back() -> None:
    assert outboard.get_runtime_context().gang is None
    with outboard.gang([{"CPU": 1}, {"CPU": 1, "disk": 1}]) as gang:
        assert outboard.available_resources() == {"CPU": 1, "disk": 1}
        assert len(gang) == 2 and set(gang.nodes) == {node["id"] for node in outboard.nodes()}
        in_gang = pid_after.options(gang=gang)
        busy = [in_gang.options(bundle=bundle).remote(0.2) for bundle in (0, 1, 0, 1)]
        assert len(set(outboard.get(busy))) == 2
        alone = in_gang.options(resources={"disk": 1})
        begun = time.monotonic()
        outboard.get([alone.remote(0.3), alone.remote(0.3)])
        assert time.monotonic() - begun >= 0.6, "two had a disk at a time, of which one bundle has one"


def test_a_full_node_serves_the_gang_and_the_gang_the_node(tmp_path: Path) -> None:
    @outboard.remote
    def wait_for(path: Path) -> bool:
        while not path.exists():
            time.sleep(0.01)
        return True

    with outboard.gang([{"CPU": 2}]) as gang:
        long = wait_for.remote(tmp_path / "go")  # the last CPU
        assert outboard.get(pid_after.options(gang=gang, num_cpus=2).remote(), timeout=20)
        (tmp_path / "go").touch()
        assert outboard.get(long, timeout=20)


def test_children_run_in_the_gang_of_their_task_and_do_not_wait_for_it() -> None:
    with outboard.gang([{"CPU": CPUS}]) as gang:
        pids = outboard.get(parent.options(gang=gang, num_cpus=CPUS).remote(), timeout=20)
        assert pids[0] not in pids[1:]


def test_an_actor_keeps_to_its_bundle_and_actors_take_turns(tmp_path: Path) -> None:
    with outboard.gang([{"CPU": 1}, {"CPU": 1}]) as gang:
        actors = [Counter.options(gang=gang, num_cpus=1).remote() for _ in range(2)]
        calls = [actor.meet.remote(tmp_path, str(n)) for n, actor in enumerate(actors)]
        assert outboard.get(calls, timeout=20) == [True, True], "both are in one bundle"
        one = Counter.options(gang=gang, bundle=0, num_cpus=1).remote()
        assert outboard.get([one.add.remote() for _ in range(3)]) == [1, 2, 3]


def test_an_actor_of_a_gang_starts_again_within_it(eventually: Callable[..., Any]) -> None:
    with outboard.gang([{"CPU": 1}]) as gang:
        actor = Counter.options(gang=gang, num_cpus=1, max_restarts=1, max_task_retries=1).remote()
        os.kill(outboard.get(actor.pid_after.remote()), signal.SIGKILL)
        assert outboard.get(actor.add.remote(), timeout=20) == 1


def test_a_handle_travels_to_tasks_and_only_its_owner_releases_it() -> None:
    @outboard.remote(num_cpus=0)
    def use(gang: outboard.Gang) -> Any:
        try:
            gang.release()
        except ValueError as error:
            refusal = str(error)
        return gang, refusal, outboard.get(pid_after.options(gang=gang, bundle=0).remote())

    with outboard.gang([{"CPU": 1}]) as gang:
        found, refusal, pid = outboard.get(use.remote(gang))
        assert found == gang and hash(found) == hash(gang) and found.bundles == ({"CPU": 1.0},)
        assert "another process" in refusal and pid != os.getpid()
        assert pickle.loads(pickle.dumps(gang)).places == gang.places


def test_release_ends_what_runs_and_fails_what_waits() -> None:
    gang = outboard.gang([{"CPU": 1}])
    actor = Counter.options(gang=gang).remote()
    pid = outboard.get(actor.pid_after.remote())
    running = [pid_after.options(gang=gang).remote(60) for _ in range(3)]
    call = actor.pid_after.remote(60)
    worker = psutil.Process(pid)
    gang.release()
    gang.release()
    for ref in running:
        with pytest.raises(GangBrokenError, match="released"):
            outboard.get(ref, timeout=10)
    with pytest.raises(ActorDiedError, match="its gang is over: it was released"):
        outboard.get(call, timeout=10)
    with pytest.raises(GangBrokenError):
        pid_after.options(gang=gang).remote()
    worker.wait(10)


def test_what_others_hold_is_waited_for_and_people_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    first = outboard.gang([{"CPU": 2}])
    release = threading.Timer(2.5, first.release)
    release.start()
    with outboard.gang([{"CPU": 1}, {"CPU": 1}]) as second:
        assert outboard.get(pid_after.options(gang=second).remote())
    release.join()
    assert "waiting for a gang of 2 bundles, PACK: 2 CPU (1 free)" in capfd.readouterr().err


def test_what_tasks_hold_is_gathered_before_later_tasks_get_it() -> None:
    tasks = [pid_after.remote(0.3) for _ in range(12)]
    with outboard.gang([{"CPU": 1}] * CPUS, timeout=20) as gang:
        assert len(outboard.wait(tasks, num_returns=12, timeout=0)[0]) < 12
        assert len(set(outboard.get([pid_after.options(gang=gang).remote(0.2) for _ in range(CPUS)]))) == CPUS
    outboard.get(tasks)


def test_a_timeout_leaves_nothing_behind() -> None:
    with outboard.gang([{"CPU": CPUS}]), pytest.raises(GetTimeoutError):
        outboard.gang([{"CPU": 1}], timeout=0.2)


@pytest.mark.parametrize(
    ("bundles", "strategy"),
    [([{"CPU": CPUS + 1}], "PACK"), ([{"CPU": 2}, {"CPU": 2}], "PACK"), ([{"x": 1}], "PACK"),
     ([{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD")],
)  # fmt: skip
def test_what_can_never_be_is_refused_at_once(bundles: list[dict[str, float]], strategy: str) -> None:
    begun = time.monotonic()
    with pytest.raises(TaskUnschedulableError, match=r"could ever have .* a node has of each is \{'CPU': 3.0"):
        outboard.gang(bundles, strategy)
    assert time.monotonic() - begun < 1


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (([],), ValueError, "at least one bundle"),
        (([{}],), ValueError, "bundle 0 asks for nothing"),
        (([{"CPU": 0}],), ValueError, "bundle 0 asks for nothing"),
        (([{"CPU": -1}],), ValueError, "bundle 0: .*0 or more"),
        (([{"CPU": "1"}],), TypeError, "bundle 0: .*number"),
        (([{"GPU": 1.5}],), ValueError, "bundle 0: .*whole number"),
        (({"CPU": 1},), TypeError, "list of amounts"),
        ((3,), TypeError, "list of amounts"),
        (([1],), TypeError, "bundle 0 must be amounts"),
        (([{"CPU": 1}], "pack"), ValueError, "strategy must be one of"),
        (([{"CPU": 0.001}] * 251,), ValueError, "1 to 250 bundles"),
    ],
)
def test_bad_requests_say_what_is_wrong(arguments: tuple[Any, ...], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        outboard.gang(*arguments)


def test_bad_options_are_refused_where_they_are_written() -> None:
    with outboard.gang([{"CPU": 1}, {"disk": 1}]) as gang:
        for options, error, match in (
            ({"bundle": 0}, ValueError, "needs gang="),
            ({"gang": 3}, TypeError, "outboard.gang"),
            ({"gang": gang, "bundle": 2}, ValueError, "between 0 and 1"),
            ({"gang": gang, "bundle": True}, TypeError, "index"),
            ({"gang": gang, "bundle": 1}, ValueError, "does not fit into bundle 1"),
            ({"gang": gang, "num_cpus": 2}, ValueError, "fits into no bundle"),
        ):
            with pytest.raises(error, match=match):
                pid_after.options(**options)
        with pytest.raises(ValueError, match="does not fit"):
            Counter.options(gang=gang, bundle=1, num_cpus=1)
        with pytest.raises(ValueError, match="detached"):
            Counter.options(gang=gang, lifetime="detached", name="x")


def test_a_gang_of_a_task_ends_with_the_process_that_asked(eventually: Callable[..., Any]) -> None:
    @outboard.remote(num_cpus=0)
    def ask_and_die() -> None:
        outboard.gang([{"CPU": 1}])
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(outboard.errors.WorkerLostError):
        outboard.get(ask_and_die.options(max_retries=0).remote())


def test_a_gang_ends_with_an_interrupt_of_its_program(start_program: Callable[..., subprocess.Popen[str]]) -> None:
    program = start_program("""
        import outboard as ob
        ob.init(num_cpus=1)
        first = ob.gang([{"CPU": 1}])
        print("ready", flush=True)
        try:
            ob.gang([{"CPU": 1}])
        except KeyboardInterrupt:
            first.release()
        with ob.gang([{"CPU": 1}], timeout=10):
            print("again", flush=True)
    """)
    assert program.stdout is not None and program.stdout.readline() == "ready\n"
    time.sleep(0.3)
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=30)
    assert (program.returncode, out) == (0, "again\n"), err


@pytest.mark.parametrize("how", ["shutdown", "kill"])
def test_the_end_of_the_cluster_ends_the_wait_and_the_block(
    how: str, run_program: Callable[..., str], eventually: Callable[..., Any]
) -> None:
    out = run_program("""
        import os, signal, sys, threading, time
        import outboard as ob
        ob.init(num_cpus=1)
        node = ob.nodes()[0]["pid"]
        def end():
            time.sleep(0.3)
            ob.shutdown() if sys.argv[1] == "shutdown" else os.kill(node, signal.SIGKILL)
        threading.Thread(target=end).start()
        try:
            with ob.gang([{"CPU": 1}]):
                ob.gang([{"CPU": 1}])
        except (ob.errors.ShutdownError, ob.errors.NodeLostError) as error:
            print(type(error).__name__, ob.is_initialized())
    """, how, quiet=False)  # fmt: skip
    assert out.split() == [{"shutdown": "ShutdownError", "kill": "NodeLostError"}[how], "False"]


def test_inline_there_is_nothing_to_wait_for() -> None:
    code = """
import outboard as ob
ob.init("inline")
f = ob.remote(lambda x: x + 1)
with ob.gang([{"CPU": 1}]) as gang:
    print(ob.get(f.options(gang=gang).remote(1)))
try:
    f.options(gang=gang).remote(1)
except ob.errors.GangBrokenError as error:
    print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, timeout=30, check=False)
    assert done.stdout.split() == ["2", "GangBrokenError"], done.stderr

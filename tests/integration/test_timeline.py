"""The timeline: what ran where and when, from one node and from several."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import outboard
from outboard.errors import WorkerLostError
from outboard.multiprocessing import Pool

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def cluster() -> Iterator[None]:
    outboard.init(num_cpus=2)
    yield
    outboard.shutdown()


@outboard.remote
def rest(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


@outboard.remote
def parent() -> list[int]:
    return outboard.get([rest.remote(0.01) for _ in range(2)])


@outboard.remote(max_retries=0)
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@outboard.remote
class Bell:
    def ring(self) -> int:
        return os.getpid()


@outboard.remote
class Choir:
    async def sing(self) -> None:
        await asyncio.sleep(0.2)


def double(x: int) -> int:
    return 2 * x


def of(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["name"] == name]


def test_tasks_calls_children_and_deaths_are_on_it(cluster: None) -> None:
    begun = time.time() * 1e6
    bell = Bell.remote()
    pids = outboard.get([rest.remote(0.05) for _ in range(3)])
    outboard.get(parent.remote())
    ringer = outboard.get([bell.ring.remote() for _ in range(5)])[0]
    with pytest.raises(WorkerLostError):
        outboard.get(die.remote())
    with Pool(2) as pool:
        pool.map(double, range(1000))
    events = outboard.timeline()
    assert events is not None
    rests = of(events, "rest")
    assert sum(event["args"]["tasks"] for event in rests) == 5
    assert {event["tid"] for event in rests} >= set(pids)
    assert max(event["dur"] for event in rests) == pytest.approx(0.05e6, rel=0.9)
    assert [event["cat"] for event in of(events, "parent")] == ["task"]
    rung = of(events, "Bell.ring")
    assert sum(event["args"]["tasks"] for event in rung) == 5
    assert {(event["cat"], event["tid"]) for event in rung} == {("actor", ringer)}
    assert [(event["ph"], event["args"]) for event in of(events, "die")] == [("i", {"died": True})]
    assert of(events, "double")
    names = of(events, "process_name")
    assert [name["args"]["name"].split()[1] for name in names] == [node["id"] for node in outboard.nodes()]
    for event in events:
        if event["ph"] == "X":
            assert begun <= event["ts"] <= event["ts"] + event["dur"] <= time.time() * 1e6 + 1e3


def test_calls_at_the_same_time_are_not_added_up(cluster: None) -> None:
    begun = time.time() * 1e6
    choir = Choir.remote()
    outboard.get([choir.sing.remote() for _ in range(20)])
    sung = of(outboard.timeline() or [], "Choir.sing")
    assert sum(event["args"]["tasks"] for event in sung) == 20
    assert min(event["ts"] for event in sung) >= begun


def test_a_worker_is_shown_to_do_one_thing_at_a_time(cluster: None) -> None:
    bell = Bell.remote()
    for _ in range(20):
        outboard.get([bell.ring.remote() for _ in range(20)])
    rung = sorted((event["ts"], event["dur"]) for event in of(outboard.timeline() or [], "Bell.ring"))
    for (begin, length), (following, _) in itertools.pairwise(rung):
        assert begin + length <= following + 1  # a double holds a quarter of a microsecond here


def test_threads_that_ask_at_once_are_all_answered(cluster: None) -> None:
    outboard.get([rest.remote(0) for _ in range(3)])
    counts: list[int] = []

    def ask() -> None:
        for _ in range(300):
            counts.append(sum(event["args"]["tasks"] for event in of(outboard.timeline() or [], "rest")))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert Counter(counts) == {3: 1800}


def test_a_task_may_ask(cluster: None) -> None:
    outboard.get(rest.remote(0))

    @outboard.remote
    def names() -> set[str]:
        return {event["name"] for event in outboard.timeline() or [] if event["ph"] == "X"}

    assert outboard.get(names.remote()) == {"rest"}


def test_it_is_written_as_a_whole_or_not_at_all(cluster: None, tmp_path: Path) -> None:
    outboard.get(rest.remote(0))
    path = tmp_path / "trace.json"
    assert outboard.timeline(path) is None and outboard.timeline(str(path)) is None
    assert of(json.loads(path.read_text()), "rest")
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        outboard.timeline(tmp_path / "nowhere" / "trace.json")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        outboard.timeline(folder)
    assert sorted(tmp_path.iterdir()) == [folder, path]


def test_programs_see_their_own_and_a_new_one_has_none(cluster: None) -> None:
    assert [event for event in outboard.timeline() or [] if event["ph"] != "M"] == []


def test_it_is_small_and_stays_so(cluster: None) -> None:
    outboard.get([rest.remote(0) for _ in range(2000)])
    events = outboard.timeline() or []
    assert Counter(event["name"] for event in events)["rest"] <= 2000
    assert sum(event["args"]["tasks"] for event in of(events, "rest")) == 2000


def test_inline_nothing_is_kept(run_program: Callable[..., str]) -> None:
    assert (
        run_program("""
        import outboard as ob
        ob.init("inline")
        ob.get(ob.remote(lambda: 1).remote())
        print(ob.timeline())
    """)
        == "[]\n"
    )


def test_a_node_that_is_stopped_does_not_hold_it_up(start_program: Callable[..., subprocess.Popen[str]]) -> None:
    program = start_program("""
        import os, signal, time
        import outboard as ob
        from outboard import timelines
        timelines.ANSWER_SECONDS = 0.5
        ob.init(num_cpus=1)
        node = ob.nodes()[0]["pid"]
        os.kill(node, signal.SIGSTOP)
        begun = time.monotonic()
        print(ob.timeline(), time.monotonic() - begun < 3)
        os.kill(node, signal.SIGCONT)
    """)
    out, err = program.communicate(timeout=30)
    assert (out, program.returncode) == ("[] True\n", 0), err


def test_a_node_that_ends_while_it_is_asked_is_said_to_have(
    start_program: Callable[..., subprocess.Popen[str]],
) -> None:
    program = start_program("""
        import os, signal, threading
        import outboard as ob
        ob.init(num_cpus=1)
        node = ob.nodes()[0]["pid"]
        os.kill(node, signal.SIGSTOP)
        threading.Timer(0.2, os.kill, (node, signal.SIGKILL)).start()
        try:
            ob.timeline()
        except ob.errors.NodeLostError as error:
            print(error.ob_code)
    """)
    out, err = program.communicate(timeout=30)
    assert (out, program.returncode) == ("OB302\n", 0), err

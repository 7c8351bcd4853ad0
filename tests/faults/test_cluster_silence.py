"""Processes that fall silent and come back: nodes that were stopped, heads that cannot be heard, gateways that die."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.conftest import eventually
from tests.faults.middleman import Middleman
from tests.integration.clusters import (
    LOSS_SECONDS,
    Commands,
    apart,
    await_end,
    await_line,
    commands,
    finish,
    join,
    program,
)

__all__ = ["apart", "commands", "eventually", "join", "program"]

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(90)]

#: Seconds for which a stopped node is away: the others have given it up by the middle of that.
STOPPED_SECONDS = 10.0

#: Seconds in which nodes are back with a head that has come back, on a machine under load.
RETURN_SECONDS = 10.0

#: Work of two parts; with each result comes where it was made. Nodes whose pids are read must get work in time.
WORK = """
    @ob.remote
    def work(i):
        time.sleep(0.15)
        return i, where()

    def await_work_at(*wanted, within=20.0):
        by, missing = time.monotonic() + within, set(wanted)
        while missing and time.monotonic() < by:
            missing -= set(ob.get([place.remote(0.1) for _ in range(12)]))
        return missing or "all"
"""


def tell(program: Any, line: object) -> None:
    program.stdin.write(f"{line}\n")
    program.stdin.flush()


def family(pid: int) -> list[psutil.Process]:
    node = psutil.Process(pid)
    return [node, *node.children(recursive=True)]


def test_stopped_node_comes_back_as_another_one_and_its_late_results_do_not_count(
    commands: Commands, join: Any, program: Any, eventually: Any
) -> None:
    commands.head()
    second = join("--num-cpus", "2")
    before = commands.nodes()[second]["node"]
    text = """
    refs = [work.remote(i) for i in range(40)]
    ob.wait(refs, num_returns=8)
    print("running", flush=True)
    got = ob.get(refs)
    print([i for i, _ in got] == list(range(40)), flush=True)
    back = int(sys.stdin.readline())
    print(await_work_at(back), ob.get(refs) == got)
    """
    running = program(WORK + text)
    assert await_line(running) == "running"
    stopped, begun = family(second), time.monotonic()
    for process in stopped:
        process.suspend()
    try:
        assert await_line(running) == "True"
        assert time.monotonic() - begun < 3 * STOPPED_SECONDS
        time.sleep(max(0.0, begun + STOPPED_SECONDS - time.monotonic()))
    finally:
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):  # one that was ending when it was stopped
                process.resume()
    tell(running, second)
    assert finish(running) == ["all True"]
    after = commands.nodes()[second]
    assert (after["state"], after["pid"]) == ("ready", second) and after["node"] != before
    assert not [process for process in stopped[1:] if process.is_running()]  # its workers have ended with it


@pytest.fixture
def middleman(commands: Commands) -> Iterator[Callable[[], Middleman]]:
    """Stand between the head and who dials the middleman's address instead."""
    made: list[Middleman] = []

    def start() -> Middleman:
        made.append(Middleman(commands.address))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_node_between_which_and_the_head_links_are_cut(
    commands: Commands, apart: str, program: Any, middleman: Any, eventually: Any
) -> None:
    """What reaches the head is what counts, and silence within the grace does not."""
    commands.head()
    between = middleman()
    printed = commands.run(
        "start", "--address", between.address, "--num-cpus", "2", "--detach", TMPDIR=apart, XDG_RUNTIME_DIR=apart
    )
    second = int(re.findall(r"\(pid (\d+)", printed)[0])
    before = commands.nodes()[second]["node"]
    text = """
    refs = [work.options(max_retries=0).remote(i) for i in range(100)]
    print("running", flush=True)
    print(len(set(ob.get(refs))), flush=True)
    refs = [work.remote(i) for i in range(40)]
    print("running", flush=True)
    print([i for i, _ in ob.get(refs)] == list(range(40)), flush=True)
    print(await_work_at(int(sys.stdin.readline())))
    """
    running = program(WORK + text)
    assert await_line(running) == "running"
    between.back = False  # the head hears it
    time.sleep(1.5)
    between.back, between.there = True, False
    time.sleep(1.5)
    between.there = True
    assert await_line(running) == "100"
    assert commands.nodes()[second]["node"] == before
    assert await_line(running) == "running"
    between.there = False  # the head does not hear it any more
    eventually(lambda: second not in commands.nodes(), within=LOSS_SECONDS)
    assert await_line(running) == "True"
    between.there = True
    eventually(lambda: second in commands.nodes())
    assert commands.nodes()[second]["node"] != before
    tell(running, second)
    assert finish(running) == ["all"]


def test_head_that_is_killed_and_started_again_loses_no_task_and_finds_its_nodes(
    commands: Commands, join: Any, program: Any, eventually: Any
) -> None:
    head, first = commands.head()
    second = join()
    before = {pid: node["node"] for pid, node in commands.nodes().items()}
    text = """
    refs = [work.options(max_retries=0).remote(i) for i in range(60)]
    ob.wait(refs, num_returns=6)
    print("running", flush=True)
    found = ob.get(refs)
    print([i for i, _ in found] == list(range(60)), *sorted({node for _, node in found}))
    """
    running = program(WORK + text, slotless=True)
    assert await_line(running) == "running"
    os.kill(head, signal.SIGKILL)
    await_end(head)
    commands.run("start", "--head", "--no-node", "--detach")

    def back() -> bool:
        found = commands.nodes()
        return {pid: node["node"] for pid, node in found.items() if node["state"] == "ready"} == before

    eventually(back, within=RETURN_SECONDS)
    assert finish(running) == [" ".join(map(str, ["True", *sorted((first, second))]))]


def gateway_of(program: Any, nodes: dict[int, dict[str, Any]]) -> int | None:
    """The process of the node that relays for a program."""
    (own,) = psutil.Process(program.pid).children()
    dialled = {c.raddr.port for c in own.net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED and c.raddr}
    return next((pid for pid, node in nodes.items() if int(node["address"].rpartition(":")[2]) in dialled), None)


def test_gateways_that_die_one_after_the_other(
    commands: Commands, join: Any, program: Any, eventually: Any, tmp_path: Path
) -> None:
    commands.head("--num-cpus", "1")
    join()
    join()
    text = """
    @ob.remote
    def note(i):
        with open(f"RUNS/{i}.{where()}", "a") as file:
            file.write("x")
        time.sleep(0.2)
        return i

    refs = [note.remote(i) for i in range(40)]
    for count in (8, 18):
        ob.wait(refs, num_returns=count)
        print("running", flush=True)
    print(ob.get(refs) == list(range(40)))
    """
    runs = tmp_path / "runs"
    runs.mkdir()
    running = program(text.replace("RUNS", str(runs)), slotless=True)
    left = commands.nodes()
    for _ in range(2):
        assert await_line(running) == "running"
        gateway = eventually(lambda: gateway_of(running, left))
        os.kill(gateway, signal.SIGKILL)
        await_end(gateway)
        del left[gateway]
    assert finish(running) == ["True"]
    (last,) = left
    there = [path.read_text() for path in runs.iterdir() if path.name.endswith(f".{last}")]
    assert there and set(there) == {"x"}

"""The timeline of a program whose tasks ran on several nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from .clusters import Commands, apart, commands, finish, join, program

__all__ = ["apart", "commands", "join", "program"]


@pytest.mark.timeout(60)
def test_all_nodes_say_what_they_ran(
    commands: Commands, join: Callable[..., int], program: Callable[..., subprocess.Popen[str]]
) -> None:
    commands.head()
    join()
    lines = finish(program("""
    with ob.gang([{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD") as gang:
        ob.get([place.options(gang=gang, bundle=b).remote() for b in (0, 1) for _ in range(3)])
        events = ob.timeline()
        tasks = {e["args"]["name"].split()[1]: sum(t["args"]["tasks"] for t in events
                 if t["name"] == "place" and t["pid"] == e["pid"]) for e in events if e["name"] == "process_name"}
        print([tasks[node] for node in gang.nodes])
    """))  # fmt: skip
    assert lines == ["[3, 3]"]

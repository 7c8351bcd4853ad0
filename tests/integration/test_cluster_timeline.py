"""The timeline of a program whose tasks ran on several nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from .clusters import Commands, apart, await_line, commands, finish, join, program

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


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["SIGSTOP", "SIGKILL"])
def test_what_others_say_comes_without_the_one_that_says_nothing(
    commands: Commands, join: Callable[..., int], program: Callable[..., subprocess.Popen[str]], how: str
) -> None:
    commands.head()
    second = join()
    lines = finish(program(f"""
    import signal
    from outboard import timelines
    timelines.ANSWER_SECONDS = 2.0
    with ob.gang([{{"CPU": 1}}, {{"CPU": 1}}], "STRICT_SPREAD") as gang:
        ob.get([place.options(gang=gang, bundle=b).remote() for b in (0, 1)])
        count = lambda: sum(event["name"] == "place" for event in ob.timeline())
        print(count())
        os.kill({second}, signal.SIGSTOP)
        threading.Timer(0.3, os.kill, ({second}, signal.{how})).start()
        begun = time.monotonic()
        print(count(), time.monotonic() - begun < 10)
        os.kill({second}, signal.SIGKILL)
    """))  # fmt: skip
    assert lines == ["2", "1 True"]


@pytest.mark.timeout(60)
def test_another_program_at_the_same_node_is_not_on_it(
    commands: Commands, start_program: Callable[..., subprocess.Popen[str]],
    program: Callable[..., subprocess.Popen[str]],
) -> None:  # fmt: skip
    commands.head()
    other = program("""
    @ob.remote
    def secret():
        return 1

    ob.get([secret.remote() for _ in range(4)])
    print("ready", flush=True)
    sys.stdin.readline()
    """)
    assert await_line(other) == "ready"
    lines = finish(
        program("""
    ob.get(place.remote())
    print(sorted({event["name"] for event in ob.timeline() if event["ph"] != "M"}))
    """)
    )
    other.kill()
    other.communicate()
    assert lines == ["['place']"]

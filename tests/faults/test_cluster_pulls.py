"""Values whose bytes lie at a node that does not answer, has gone, or has them for many at once."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.integration.clusters import Commands, apart, await_end, await_line, commands, finish, join, program

__all__ = ["apart", "commands", "join", "program"]

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(90)]

#: What the programs make at the second node, and how they tell how long something took.
MAKE = """
    far = ob.remote(resources={"special": 1})

    @far
    def make(i):
        return np.full(500_000, i)

    def timed(call, *errors):
        begun = time.monotonic()
        try:
            found = call()
        except errors as error:
            found = type(error).__name__
        return found, time.monotonic() - begun

    def told():
        print("made", flush=True)
        sys.stdin.readline()
"""


def test_bytes_that_do_not_come_are_waited_for_until_the_deadline(commands: Commands, join: Any, program: Any) -> None:
    commands.head("--num-cpus", "0")
    second = join("--num-cpus", "2", "--resources", "special=2")
    text = f"""
    {MAKE}
    import multiprocessing

    refs = [make.remote(i) for i in range(3)]
    pool = Pool(1)
    one, several = pool.apply_async(np.ones, (500_000,)), pool.map_async(np.ones, [500_000] * 3)
    ob.wait(refs, num_returns=3)
    while not (ob.wait([one._ref], timeout=0)[0] and several._array.finished == 3):
        time.sleep(0.01)
    told()
    for found, seconds in (
        timed(lambda: ob.get(refs[0], timeout=0.3), ob.errors.GetTimeoutError),
        timed(lambda: ob.get(refs, timeout=0.3), ob.errors.GetTimeoutError),
        timed(lambda: one.get(timeout=0.3), multiprocessing.TimeoutError),
        timed(lambda: several.get(timeout=0.3), multiprocessing.TimeoutError),
        timed(lambda: one.wait(0.3)),
        timed(lambda: several.wait(0.3)),
    ):
        print(found, 0.25 < seconds < 10)
    print(timed(one.ready)[1] < 5, one.ready(), several.ready(), flush=True)
    told()
    print([int(a[0]) for a in ob.get(refs, timeout=30)], one.get(30).sum() == 500_000, len(several.get(30)))
    del refs, one, several
    pool.terminate()
    pool.join()
    while any(node["store_used_nbytes"] for node in ob.nodes()):
        time.sleep(0.05)
    """
    running = program(text)
    assert await_line(running) == "made"
    os.kill(second, signal.SIGSTOP)
    running.stdin.write("\n")
    running.stdin.flush()
    said = [await_line(running) for _ in range(8)]
    os.kill(second, signal.SIGCONT)
    timeouts = ["GetTimeoutError True"] * 2 + ["TimeoutError True"] * 2 + ["None True"] * 2
    assert said == [*timeouts, "True False False", "made"]
    running.stdin.write("\n")
    assert finish(running) == ["[0, 1, 2] True 3"]


@pytest.mark.parametrize("slotless", [False, True])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_values_lost_with_a_node_are_found_lost_together(
    commands: Commands, join: Any, program: Any, how: signal.Signals, slotless: bool
) -> None:
    commands.head("--num-cpus", "0")
    second = join("--num-cpus", "2", "--resources", "special=2")
    text = f"""
    {MAKE}
    refs = [make.remote(i) for i in range(40)]
    ob.wait(refs, num_returns=40)
    told()
    got, seconds = timed(lambda: ob.get(refs))
    print([int(a[0]) for a in got] == list(range(40)), seconds)
    """
    running = program(text, slotless=slotless)
    assert await_line(running) == "made"
    join("--num-cpus", "2", "--resources", "special=2")
    os.kill(second, how)
    running.stdin.write("\n")
    is_right, seconds = finish(running)[0].split()
    assert is_right == "True" and float(seconds) < 12.0
    if how is signal.SIGSTOP:
        os.kill(second, signal.SIGKILL)
        await_end(second)


def test_values_of_a_killed_node_are_missed_at_once_without_a_head(commands: Commands, join: Any, program: Any) -> None:
    head, _ = commands.head("--num-cpus", "0")
    second = join("--num-cpus", "2", "--resources", "special=2")
    text = f"""
    {MAKE}
    @far
    def store(i):
        return [ob.put(np.full(500_000, i)) for i in range(3)]

    refs = ob.get(store.remote(0))
    told()
    for ref in refs:
        found, seconds = timed(lambda: ob.get(ref), ob.errors.ObjectLostError)
        print(found, seconds < 1.0)
    """
    running = program(text, slotless=True)
    assert await_line(running) == "made"
    os.kill(head, signal.SIGSTOP)
    os.kill(second, signal.SIGKILL)
    running.stdin.write("\n")
    assert finish(running) == ["ObjectLostError True"] * 3
    os.kill(head, signal.SIGCONT)


@pytest.mark.parametrize("slotless", [False, True])
def test_results_of_pools_go_through_small_stores(commands: Commands, join: Any, program: Any, slotless: bool) -> None:
    commands.head("--num-cpus", "2", "--store-memory", "64MB")
    for _ in range(2):
        join("--num-cpus", "2", "--store-memory", "64MB")
    text = """
    def made(i):
        return np.full(575_000, i)

    with Pool(6) as pool:
        for _ in range(3):
            print(sorted(int(a[0]) for a in pool.imap_unordered(made, range(40))) == list(range(40)))
            print([int(a[0]) for a in pool.imap(made, range(40))] == list(range(40)))
        if sys.argv[1] == "True":  # its own node has a larger store than those where the results are made
            print([int(a[0]) for a in pool.map(made, range(60), chunksize=1)] == list(range(60)))
    """
    assert finish(program(text, str(slotless), slotless=slotless)) == ["True"] * (7 if slotless else 6)

"""Objects that lie at another node than who uses them: small stores, forks, views that outlive their object."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable

import pytest

from tests.integration.clusters import Commands, commands

__all__ = ["commands"]

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(120)]

#: What programs begin with; tasks of `far` run at the second node, whose store is small.
BEGIN = """
    import os
    import numpy as np
    import outboard as ob

    far = ob.remote(resources={"special": 1})
    ob.init()
"""


@pytest.fixture
def run(commands: Commands, start_program: Callable[..., subprocess.Popen[str]]) -> Callable[[str], list[str]]:
    """Run a program in a cluster of two nodes, the first of which is its own, and return what it prints."""
    commands.head("--store-memory", "2GB")
    env, elsewhere = commands.env, tempfile.mkdtemp(prefix="far-")  # where programs do not look; sockets need it short
    commands.env = env | {"TMPDIR": elsewhere, "XDG_RUNTIME_DIR": elsewhere}
    commands.join("--resources", "special=2", "--num-cpus", "2", "--store-memory", "96MB")
    commands.env = env

    def run(text: str) -> list[str]:
        program = start_program(BEGIN + text, env=commands.env | {"OUTBOARD_ADDRESS": commands.address})
        out, err = program.communicate(timeout=90)
        assert program.returncode == 0, f"{out}\n{err}"
        return out.splitlines()

    return run


def test_far_more_goes_through_a_small_store_than_fits(run: Callable[[str], list[str]]) -> None:
    text = """
    @far
    def total(array):
        return int(array.sum())

    @far
    def made(i):
        return np.full(1_000_000, i)

    given = [ob.put(np.full(2_000_000, i)) for i in range(20)]
    print(ob.get([total.remote(ref) for ref in given]) == [2_000_000 * i for i in range(20)])
    print(ob.get([total.remote(ref) for ref in given]) == [2_000_000 * i for i in range(20)])
    print(all(int(ob.get(made.remote(i))[-1]) == i for i in range(30)))
    """
    assert run(text) == ["True"] * 3


def test_input_that_is_larger_than_the_store_is_refused(run: Callable[[str], list[str]]) -> None:
    text = """
    @far
    def total(array):
        return int(array.sum())

    try:
        ob.get(total.remote(np.ones(20_000_000)))
    except ob.errors.StoreFullError as error:
        print("no room for a copy" in str(error))
    print(ob.get(total.remote(np.ones(1_000_000))))
    """
    assert run(text) == ["True", "1000000"]


def test_views_outlive_the_object_and_are_seen_by_forked_children(run: Callable[[str], list[str]]) -> None:
    text = """
    class Keeper:
        def keep(self, array):
            self.array = array

        def look(self):
            pid = os.fork()
            if pid == 0:
                os._exit(int(not (self.array == 7).all()))
            return os.waitpid(pid, 0)[1] == 0 and bool((self.array == 7).all())

    keeper = far(Keeper).remote()
    given = ob.put(np.full(1_000_000, 7))
    ob.get(keeper.keep.remote(given))
    del given

    @far
    def total(array):
        return int(array.sum())

    for i in range(15):
        assert ob.get(total.remote(np.full(1_000_000, i))) == 1_000_000 * i
    print(ob.get(keeper.look.remote()))
    """
    assert run(text) == ["True"]


def test_function_and_items_with_large_values_reach_other_nodes(run: Callable[[str], list[str]]) -> None:
    text = """
    table = np.arange(500_000)

    @far
    def look(i):
        return int(table[i])

    @far
    def sums(arrays, scale=1):
        return [int(a.sum()) * scale for a in arrays]

    print(ob.get([look.remote(i) for i in range(5)]))
    print(ob.get(sums.remote([table, table], scale=2)) == [2 * int(table.sum())] * 2)
    """
    assert run(text) == ["[0, 1, 2, 3, 4]", "True"]

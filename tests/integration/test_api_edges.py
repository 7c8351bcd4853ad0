"""The edges of the public calls: wrong arguments, other threads, limits, and what the guides show."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import outboard as ob
from outboard import errors

pytestmark = pytest.mark.timeout(60)

DOCS = Path(__file__).parents[2] / "docs"

#: What the guides show: their names, and each snippet's place in them.
SNIPPETS = [
    (guide, number)
    for guide in ("actors.md", "api.md", "gangs.md", "iterators.md", "joblib.md")
    for number in range(len(re.findall(r"```python\n", (DOCS / guide).read_text())))
]


@pytest.fixture(autouse=True)
def no_engine_left() -> Iterator[None]:
    yield
    ob.shutdown()


def three() -> tuple[int, int, int]:
    return 1, 2, 3


def five() -> int:
    return 5


def test_what_is_no_reference_is_named() -> None:
    ob.init("inline")
    ref = ob.put(1)
    for call, text in (
        (lambda: ob.get(5), r"get\(\) takes a reference .* not int 5"),
        (lambda: ob.get([1, ref]), r"get\(\) takes references .*item 0 is int 1"),
        (lambda: ob.wait(ref), r"wait\(\) takes a list of references .* not ObjectRef"),
        (lambda: ob.wait([5]), r"wait\(\) takes references .*item 0 is int 5"),
        (lambda: ob.wait(5), r"wait\(\) takes a list of references .* not int 5"),
        (lambda: ob.remote(5), r"remote\(\) takes a function or a class, not int 5"),
    ):
        with pytest.raises(TypeError, match=text):
            call()


def test_wrong_number_of_results_names_the_function_and_both_numbers() -> None:
    ob.init(num_cpus=1)
    with pytest.raises(ValueError, match="three returned 3 values, but num_returns=2"):
        ob.get(ob.remote(num_returns=2)(three).remote())
    with pytest.raises(TypeError, match="five returned int, but num_returns=2"):
        ob.get(ob.remote(num_returns=2)(five).remote())


def test_store_memory_reaches_the_node_as_bytes_or_fraction(monkeypatch: pytest.MonkeyPatch) -> None:
    described = ob.init(num_cpus=1, store_memory=32 << 20)
    assert described["nodes"][0]["store_nbytes"] == 32 << 20
    ob.shutdown()
    whole = ob.init(num_cpus=1, store_memory=1.0)["nodes"][0]["store_nbytes"]
    assert whole > 100 << 20
    ob.shutdown()
    monkeypatch.setenv("OUTBOARD_STORE_MEMORY", "0.25")
    assert ob.init(num_cpus=1)["nodes"][0]["store_nbytes"] == whole // 4
    ob.shutdown()
    with pytest.raises(ValueError, match="setting store_memory: 1 bytes is too little"):
        ob.init(store_memory=1)
    assert not ob.is_initialized()


def test_threads_that_initialise_at_once_share_one_engine() -> None:
    go, seen = threading.Barrier(4), []

    def begin() -> None:
        go.wait()
        seen.append(ob.init(num_cpus=1, ignore_reinit_error=True)["nodes"][0]["id"])

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4 and len(set(seen)) == 1


SHUTDOWNS = """
import sys, threading
import numpy as np
import outboard as ob
from outboard.errors import ShutdownError
from outboard.multiprocessing import Pool

def same(x):
    return x

def large(x):
    return np.ones(50_000)

def pool(call):
    with Pool(1) as p:
        while True:
            call(p)

CALLS = {
    "get": lambda: ob.get(ob.remote(same).remote(1)),
    "wait": lambda: ob.wait([ob.remote(same).remote(i) for i in range(3)], num_returns=3),
    "put": lambda: ob.get(ob.put(np.ones(50_000))),
    "map": lambda: pool(lambda p: p.map(same, range(10))),
    "large": lambda: pool(lambda p: p.map(large, range(3))),
    "imap": lambda: pool(lambda p: list(p.imap(same, iter(range(100))))),
}
stop, wrong, progress = threading.Event(), [], {name: threading.Event() for name in CALLS}

def loop(name, call):
    while not stop.is_set():
        try:
            call()
        except ShutdownError:
            pass
        except BaseException as error:
            wrong.append((name, repr(error)))
        progress[name].set()

if __name__ == "__main__":
    reported = []
    threading.excepthook = reported.append
    threads = [threading.Thread(target=loop, args=item) for item in CALLS.items()]
    for thread in threads:
        thread.start()
    for _ in range(6):
        ob.init(num_cpus=2, ignore_reinit_error=True)
        progress["put"].clear()
        progress["put"].wait(2)
        ob.shutdown()
    stop.set()
    while any(thread.is_alive() for thread in threads):
        ob.shutdown()
        for thread in threads:
            thread.join(0.2)
    ob.shutdown()
    print(wrong, reported, [t.name for t in threading.enumerate()])
"""


def test_shutdown_under_threads_that_wait_is_a_shutdown_error_for_each(run_program: Any) -> None:
    assert run_program(SHUTDOWNS) == "[] [] ['MainThread']\n"


def test_waiting_threads_hear_of_a_shutdown_at_once() -> None:
    ob.init(num_cpus=1)
    slow = ob.remote(time.sleep).remote(50)
    seen: list[str] = []
    calls = [lambda: ob.get(slow), lambda: ob.wait([slow]), lambda: slow.future().result(), lambda: ob.get([slow])]

    def run(call: Any) -> None:
        try:
            call()
        except errors.OutboardError as error:
            seen.append(type(error).__name__)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    assert ob.wait([slow], timeout=0.2) == ([], [slow])
    begun = time.monotonic()
    ob.shutdown()
    for thread in threads:
        thread.join()
    assert time.monotonic() - begun < 5
    assert seen == ["ShutdownError"] * 4


@pytest.mark.parametrize(("guide", "number"), SNIPPETS)
def test_snippets_of_the_guides_run(run_program: Any, guide: str, number: int) -> None:
    """Each stands for itself; what a line gives is checked where ``# →`` tells it."""
    snippet = re.findall(r"```python\n(.*?)```", (DOCS / guide).read_text(), re.DOTALL)[number]
    checked = re.sub(r"^( *)(\w.*?\S) +# → (.*)$", r"\1assert (\2) == (\3), (\2)", snippet, flags=re.MULTILINE)
    assert checked.count("assert") == snippet.count("# →")
    run_program(checked, timeout=50.0)

"""Shutting down and asking the node while other threads wait: nobody waits for what another one waits for."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.timeout(60)

HEAD = """
import threading, time
import numpy as np
import outboard as ob
from outboard.multiprocessing import Pool

def within(seconds, call):
    begin = time.monotonic()
    value = call()
    assert time.monotonic() - begin < seconds, time.monotonic() - begin
    return value
"""


def test_shutdown_does_not_wait_for_a_callback_that_waits(run_program: Any) -> None:
    out = run_program(
        f"""{HEAD}
if __name__ == "__main__":
    ob.init(num_cpus=2)
    ref = ob.remote(time.sleep).remote(25)
    began, seen = threading.Event(), []

    def callback(value):
        began.set()
        try:
            ob.get(ref)
        except ob.errors.ShutdownError:
            seen.append("shut down")

    pool = Pool(1)
    pool.apply_async(abs, (1,), callback=callback)
    assert began.wait(10)
    within(8, ob.shutdown)
    print(seen)
""".replace("import outboard as ob", "import outboard as ob, outboard.errors")
    )
    assert out == "['shut down']\n"


def test_callbacks_queued_before_a_shutdown_still_run(run_program: Any) -> None:
    out = run_program(f"""{HEAD}
def make(n):
    return np.ones(n)

if __name__ == "__main__":
    ob.init(num_cpus=1)
    sums = []
    future = ob.remote(make).remote(200_000).future()
    ready, go = threading.Event(), threading.Event()
    future.add_done_callback(lambda f: (ready.set(), go.wait()))
    second = ob.remote(make).remote(100_000)
    second.future().add_done_callback(lambda f: sums.append(float(f.result().sum())))
    assert ready.wait(10)
    ob.wait([second])
    threading.Timer(0.2, go.set).start()
    ob.shutdown()
    print(sums)
""")
    assert out == "[100000.0]\n"


def test_callback_that_exits_does_not_end_the_callbacks(run_program: Any) -> None:
    out = run_program(
        f"""{HEAD}
import sys
if __name__ == "__main__":
    came = threading.Event()
    with Pool(1) as pool:
        pool.apply_async(abs, (1,), callback=lambda value: sys.exit(3)).wait()
        pool.apply_async(abs, (2,), callback=lambda value: came.set())
        print(came.wait(10))
""",
        quiet=False,
    )
    assert out == "True\n"


def test_put_that_waits_for_room_holds_up_no_other_question(run_program: Any) -> None:
    out = run_program(
        f"""{HEAD}
if __name__ == "__main__":
    ob.init(num_cpus=1, store_memory="64MiB")
    large = ob.put(np.ones(1_000_000))
    ref = ob.remote(time.sleep).remote(20)
    while not any(w["state"] == "BUSY" for w in ob.nodes()[0]["workers"]):
        pass
    ended = []

    def fill():
        kept = []
        try:
            while True:
                kept.append(ob.put(np.zeros(2_000_000)))
        except ob.errors.OutboardError as error:
            ended.append(type(error).__name__)

    thread = threading.Thread(target=fill)
    thread.start()
    while ob.nodes()[0]["store_used_nbytes"] < 50 << 20:
        pass
    time.sleep(0.3)  # it waits for room now, or will while the questions below are asked
    for _ in range(5):
        within(2, ob.nodes)
    within(2, lambda: ob.get(large).sum())
    within(6, ob.shutdown)
    thread.join(10)
    print(ended)
""".replace("import outboard as ob", "import outboard as ob, outboard.errors")
    )
    assert out == "['ShutdownError']\n"

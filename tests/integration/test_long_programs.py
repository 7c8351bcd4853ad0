"""Programs that go on for long: what they make over and over leaves nothing behind in any process."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.timeout(60)

HEAD = """
import gc, time
import outboard as ob
from outboard import engine, kindkeeper
from outboard.multiprocessing import Pool

def double(x):
    return 2 * x

def eventually(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        ob.get(ob.put(1))
        time.sleep(0.01)
"""


def test_options_made_anew_for_each_call_share_a_kind(run_program: Any) -> None:
    out = run_program(f"""{HEAD}
ob.init(num_cpus=1)
task = ob.remote(double)
for i in range(50):
    assert ob.get(task.options(num_cpus=1, resources={{}}).remote(i)) == 2 * i
ob.get(task.options(num_cpus=0.5).remote(1))
print(len(engine.peek().client.owner.kinds))
""")
    assert out == "2\n"


def test_functions_made_in_a_loop_are_forgotten(run_program: Any) -> None:
    out = run_program(f"""{HEAD}
kindkeeper.KINDS_KEPT = 8
ob.init(num_cpus=1)
for i in range(60):
    assert ob.get(ob.remote(lambda i=i: (lambda: i)()).remote()) == i
    assert ob.get(ob.remote((lambda k: lambda: k)(i)).remote()) == i
client = engine.peek().client

def kinds():
    return len(client.owner.kinds), len(client.kind_binding), len(client.kinds)

eventually(lambda: max(kinds()) <= 8)

def in_worker():
    import gc
    from outboard.worker import Worker
    return max(len(o.kinds) for o in gc.get_objects() if isinstance(o, Worker))

print(ob.get(ob.remote(in_worker).remote()) <= 10)
""")
    assert out == "True\n"


def test_kind_with_tasks_left_outlives_its_place_in_the_cache(run_program: Any) -> None:
    out = run_program(f"""{HEAD}
kindkeeper.KINDS_KEPT = 2
ob.init(num_cpus=2)

def make(k):
    return lambda x=0: k + x

refs, last = [], ob.remote(time.sleep).remote(0.3)
last = ob.remote(lambda x: 0).remote(last)
for k in range(30):
    refs.append(ob.remote(make(k)).remote(last))  # waits for its input
    refs.append(ob.remote(make(k)).remote())
assert ob.get(refs) == [k for k in range(30) for _ in range(2)]
eventually(lambda: len(engine.peek().client.owner.kinds) <= 3)
print("done")
""")
    assert out == "done\n"


def test_pools_leave_nothing_behind(run_program: Any) -> None:
    out = run_program(f"""{HEAD}
def fail():
    raise ValueError("of the initialiser")

if __name__ == "__main__":
    ob.init(num_cpus=2)
    for i in range(6):
        with Pool(1) as pool:
            assert pool.map(double, range(3)) == [0, 2, 4]
        pool.join()
        pool = Pool(1)
        assert pool.apply(double, (i,)) == 2 * i
        pool.close()
        pool.join()
    del pool
    engine = engine.peek()
    client = engine.client
    eventually(lambda: not client.kind_binding and not engine._bindings)
    print(len(client.owner.kinds), client.labels, client.failed_bindings, client.leaving)
""")
    assert out == "0 {} {} {}\n"


def test_calls_on_a_binding_that_has_gone_fail(run_program: Any) -> None:
    out = run_program(f"""{HEAD}
from outboard.options import TaskOptions
ob.init(num_cpus=1)
engine = engine.current()
binding = engine.bind(processes=1)
assert ob.get(engine.submit(double, (1,), {{}}, TaskOptions(), binding)) == 2
for force in (False, True, False):
    engine.unbind(binding, force=force)
assert engine.join_binding(binding, 10)
for function in (double, abs):
    try:
        ob.get(engine.submit(function, (1,), {{}}, TaskOptions(), binding), timeout=10)
    except Exception as error:
        print(type(error).__name__)
print(ob.get(ob.remote(double).remote(4)))
""")
    assert out == "TaskCancelledError\nTaskCancelledError\n8\n"

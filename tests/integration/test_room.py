"""Room in the store: what nobody needs is there for whoever does, and what failed leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.timeout(60)

HEAD = """
import gc, time
import numpy as np
import outboard as ob, outboard.errors
from functools import partial
from outboard.multiprocessing import Pool
"""


def test_idle_workers_give_back_their_empty_segments(run_program: Any) -> None:
    out = run_program(f"""{HEAD}
def large(until):
    time.sleep(max(0.0, until - time.time()))  # so that each worker gets one
    return np.zeros(150_000)

ob.init(num_cpus=8, store_memory="128MiB")
until = time.time() + 1.5
refs = [ob.remote(large).remote(until) for _ in range(8)]
assert sum(a.sum() for a in ob.get(refs)) == 0
del refs
gc.collect()
assert ob.nodes()[0]["store_used_nbytes"] >= 64 << 20
ref = ob.put(np.ones(12_000_000))  # 96 MB
print(ob.get(ref).sum())
""")
    assert out == "12000000.0\n"


@pytest.mark.parametrize("way", ["map", "apply", "initializer", "task", "array argument"])
def test_functions_over_large_arrays_do_not_fill_the_store(run_program: Any, way: str) -> None:
    out = run_program(f"""{HEAD}
def first(array, i):
    return float(array[0]) + i

def ignore(array):
    pass

def run(way, array, k):
    if way == "map":
        assert pool.map(partial(first, array), range(4))[1] == k + 1
    elif way == "apply":
        assert pool.apply(partial(first, array), (2,)) == k + 2
    elif way == "initializer":
        with Pool(1, ignore, (array,)) as own:
            assert own.apply(abs, (-1,)) == 1
    elif way == "task":
        assert ob.get(ob.remote(lambda: float(array[0])).remote()) == k
    else:
        assert ob.get(ob.remote(first).remote(array, 1)) == k + 1

if __name__ == "__main__":
    ob.init(num_cpus=2, store_memory="256MiB")
    pool = Pool(2)
    for k in range(12):
        run("{way}", np.full(4_000_000, k, float), k)  # 32 MB each
    pool.terminate()
    pool.join()
    print("done")
""")
    assert out == "done\n"


def test_room_that_only_the_program_knew_of_is_found_before_anyone_is_refused(run_program: Any) -> None:
    out = run_program(f"""{HEAD}
@ob.remote
def large():
    return bytes(20_000_000)

ob.init(num_cpus=2, store_memory=50_000_000)
try:
    kept = [ob.put(bytes(20_000_000)) for _ in range(4)]
except outboard.errors.StoreFullError:
    print("full")
gc.collect()
for _ in range(3):
    print(len(ob.get(large.remote(), timeout=20)))
print(len(ob.get(ob.put(bytes(20_000_000)))))
""")
    assert out == "full\n" + "20000000\n" * 4


def test_room_beside_a_small_object_is_given_up_where_others_need_it(run_program: Any) -> None:
    out = run_program(f"""{HEAD}
@ob.remote
def make(i):
    return np.full(500_000, i)

ob.init(num_cpus=2, store_memory="256MB")
ob.put(np.ones(24_000_000))  # 192 MB, let go at once
gc.collect()
small = ob.put(np.arange(50_000))  # where that lay
refs = [make.remote(i) for i in range(40)]
print(sum(int(ref[0]) for ref in ob.get(refs)), ob.get(small).sum())
""")
    assert out == f"{sum(range(40))} {sum(range(50_000))}\n"


def test_what_the_program_let_go_is_room_for_its_next_task(run_program: Any) -> None:
    out = run_program(f"""{HEAD}
def make():
    return np.ones(1_250_000)

ob.init(num_cpus=1, store_memory="50MB")
make = ob.remote(make)
for _ in range(20):
    refs = [make.remote() for _ in range(4)]
    assert sum(float(ob.get(refs[i]).sum()) for i in range(4)) == 5_000_000
    del refs
    assert float(ob.get(make.remote()).sum()) == 1_250_000
print("done")
""")
    assert out == "done\n"


def test_threads_that_need_room_at_once_do_not_wait_for_each_other(run_program: Any) -> None:
    out = run_program(f"""{HEAD}

def first(array):
    return float(array[0])

if __name__ == "__main__":
    ob.init(num_cpus=2, store_memory="64MiB")
    with Pool(2) as pool:
        pool.map(first, [np.ones(1)] * 500, chunksize=1)
        for _ in range(6):
            hold = ob.remote(num_cpus=2)(time.sleep).remote(0.1)
            results = pool.map_async(first, [np.full(200_000, float(n)) for n in range(24)], chunksize=1)
            assert results.get(30) == [float(n) for n in range(24)]
            ob.get(hold)
    print("done")
""")
    assert out == "done\n"


def test_what_a_task_did_not_open_is_let_go_when_an_argument_before_it_fails(run_program: Any) -> None:
    out = run_program(f"""{HEAD}
def fail():
    raise ValueError("cannot be rebuilt")

class Fails:
    def __reduce__(self):
        return fail, ()

@ob.remote
def total(first, array):
    return float(array.sum())

ob.init(num_cpus=1, store_memory="64MB")
for n in range(12):
    try:
        ob.get(total.remote(ob.put(Fails()), ob.put(np.ones(1_000_000))))
    except outboard.errors.SerializationError:
        pass
print(ob.get(total.remote(0, ob.put(np.ones(1_000_000)))))
""")
    assert out == "1000000.0\n"

"""Two processes that share one interpreter: each has its own ``__main__``, exchange and table of classes."""

from __future__ import annotations

import linecache
import math
import sys
import textwrap
import traceback
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cloudpickle import cloudpickle

from outboard.store import main_module
from outboard.store.serialize import Pickled, decode_exception, dumps, encode_exception, loads


class Process:
    """What of a process takes part; everything else of this interpreter stands for the installed modules."""

    def __init__(self, source: str = "", *, adopts: bool = False) -> None:
        self.main = types.ModuleType("__main__")
        self.exchange = main_module._Exchange(adopted=False)
        self.by_class: Any = weakref.WeakKeyDictionary()
        self.by_id: Any = weakref.WeakValueDictionary()
        with self.running():
            if adopts:
                main_module.adopt_main("script.py")
        self.run(source)

    @contextmanager
    def running(self) -> Iterator[dict[str, Any]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "__main__", self.main)
            patch.setattr(main_module, "_exchange", self.exchange)
            patch.setattr(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", self.by_class)
            patch.setattr(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", self.by_id)
            yield vars(self.main)
            self.main, self.exchange = sys.modules["__main__"], main_module._exchange

    def run(self, source: str) -> None:
        with self.running() as names:
            exec(textwrap.dedent(source), names)

    def dumps(self, expression: str, **options: bool) -> Pickled:
        with self.running() as names:
            return dumps(eval(expression, names), **options)

    def call(self, pickled: Pickled, *args: Any) -> Any:
        with self.running():
            return loads(*pickled[:2])(*args)

    def load(self, pickled: Pickled, name: str = "loaded") -> None:
        with self.running() as names:
            names[name] = loads(*pickled[:2])

    def eval(self, expression: str) -> Any:
        with self.running() as names:
            return eval(expression, names)


POOL = """
    SCALE = None
    def init(v):
        global SCALE
        SCALE = v
    def f(x):
        return x * SCALE
"""


@pytest.fixture
def worker() -> Process:
    return Process(adopts=True)


def test_initializer_and_function_share_their_globals(worker: Process) -> None:
    client = Process(POOL)
    worker.call(client.dumps("init"), 10)
    assert [worker.call(client.dumps("f"), x) for x in range(4)] == [0, 10, 20, 30]


def test_changed_global_arrives_and_unchanged_one_does_not_overwrite(worker: Process) -> None:
    client = Process(POOL)
    worker.call(client.dumps("init"), 10)
    client.run("SCALE = 3")
    assert worker.call(client.dumps("f"), 2) == 6
    worker.call(client.dumps("init"), 5)
    assert worker.call(client.dumps("f"), 2) == 10


def test_global_changed_in_place_arrives(worker: Process) -> None:
    client = Process("TABLE = [1]\ndef total(): return sum(TABLE)")
    assert worker.call(client.dumps("total")) == 1
    client.run("TABLE.append(5)")
    assert worker.call(client.dumps("total")) == 6


def test_redefined_function_arrives_through_its_caller(worker: Process) -> None:
    client = Process("def g(): return 1\ndef f(): return g()")
    assert worker.call(client.dumps("f")) == 1
    client.run("def g(): return 2")
    assert worker.call(client.dumps("f")) == 2


def test_lambda_recursion_modules_and_cached_functions(worker: Process) -> None:
    client = Process(
        """
        import functools
        import math
        fact = lambda n: 1 if n < 2 else n * fact(n - 1)
        @functools.lru_cache(maxsize=None)
        def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
        def even(n): return n == 0 or odd(n - 1)
        def odd(n): return n != 0 and even(n - 1)
        """
    )
    assert worker.call(client.dumps("lambda n: fact(n) + math.floor(0.5)"), 5) == math.factorial(5)
    assert worker.call(client.dumps("fib"), 50) == 12586269025
    assert worker.call(client.dumps("even"), 10) is True


CLASSES = """
    import dataclasses, enum
    class Base:
        limit = 5
        def name(self): return f"{PREFIX}{type(self).__name__}"
    PREFIX = "a "
    class Child(Base):
        class Inner:
            value = 3
        def name(self): return super().name() + "!"
        def __setstate__(self, state): self.__dict__.update(state, restored=PREFIX)
    CONFIG = Child()
    CONFIG.depth = 1
    class Node:
        root = None
    Node.root = Node()
    class A: pass
    class B: pass
    A.partner = B
    B.partner = A
    class Colour(enum.Enum):
        RED = 1
    @dataclasses.dataclass
    class Point:
        x: int
        colour: Colour = Colour.RED
"""


def test_classes_instances_and_their_cycles_arrive(worker: Process) -> None:
    client = Process(CLASSES)
    worker.load(client.dumps("[CONFIG, Child.Inner(), Node(), A(), Point(2), Colour.RED, CONFIG.name]"))
    assert worker.eval("loaded[0].name() + str(loaded[0].depth) + str(loaded[0].restored)") == "a Child!1a "
    assert worker.eval("loaded[1].value") == 3
    assert worker.eval("type(loaded[2].root) is type(loaded[2]) is Node")
    assert worker.eval("loaded[3].partner.partner is A")
    assert worker.eval("loaded[4] == Point(2, Colour.RED) and loaded[5] is Colour.RED")
    assert worker.eval("loaded[6]()") == "a Child!"


def test_class_attribute_set_by_the_initializer_stays(worker: Process) -> None:
    client = Process(CLASSES + "\n    def init(): Base.limit = 9\n    def f(): return Base.limit\n")
    worker.call(client.dumps("init"))
    assert worker.call(client.dumps("f")) == 9
    assert worker.call(client.dumps("lambda base: base.limit"), worker.eval("Base()")) == 9
    client.run("Base.limit = 7")
    assert worker.call(client.dumps("f")) == 7


def test_client_gets_its_own_things_back_unchanged(worker: Process) -> None:
    client = Process(CLASSES + POOL)
    worker.load(client.dumps("[CONFIG, f, init]"))
    worker.run("init = loaded[2]; init(4); Child.limit = 99; EXTRA = 5\nloaded.append(lambda: EXTRA)")
    client.load(worker.dumps("loaded", to_origin=True))
    assert client.eval("type(loaded[0]) is Child and loaded[1] is f and loaded[2] is init")
    assert client.eval("SCALE is None and Child.limit == 5")
    assert client.eval("loaded[3]()") == 5


def test_results_to_the_origin_do_not_carry_what_came_from_there(worker: Process) -> None:
    client = Process(CLASSES)
    worker.load(client.dumps("CONFIG"))
    assert len(worker.dumps("loaded", to_origin=True).stream) < 300 < len(worker.dumps("loaded").stream)


def test_result_of_one_worker_is_loaded_by_another(worker: Process) -> None:
    client, other = Process(CLASSES + POOL), Process(adopts=True)
    for each, scale in ((worker, 10), (other, 20)):
        each.call(client.dumps("init"), scale)
    worker.load(client.dumps("[CONFIG, f]"))
    other.load(worker.dumps("loaded"))
    assert other.eval("loaded[0].name()") == "a Child!"
    assert other.eval("loaded[1](2)") == 40
    assert other.call(client.dumps("f"), 2) == 40


def test_worker_can_load_what_it_pickled_itself(worker: Process) -> None:
    client = Process(POOL + "    class Oops(Exception): pass\n")
    worker.call(client.dumps("init"), 10)
    worker.load(client.dumps("(f, Oops('no'))"))
    with worker.running() as names:
        pickled = encode_exception(names["loaded"][1])[0]
        assert type(decode_exception(pickled)) is names["Oops"]
        assert loads(*dumps(names["loaded"])[:2])[0](2) == 20
    assert worker.call(client.dumps("f"), 2) == 20
    with client.running() as names:
        assert type(decode_exception(pickled)) is names["Oops"]


def test_stranger_loads_into_a_namespace_of_its_own() -> None:
    client, stranger = Process(POOL), Process("SCALE = 'mine'")
    client.run("SCALE = 2")
    assert stranger.call(client.dumps("f"), 4) == 8
    assert stranger.eval("SCALE") == "mine" and "f" not in vars(stranger.main)


def test_large_global_leaves_the_stream_and_is_compared(worker: Process) -> None:
    client = Process("import numpy as np\nBIG = np.ones(100_000)\ndef f(): return float(BIG.sum())")
    pickled = client.dumps("f")
    assert len(pickled.stream) < 5000 and len(pickled.buffers) == 1
    assert worker.call(pickled) == 100_000
    worker.run("import numpy as np\nBIG = np.zeros(3)")
    assert worker.call(client.dumps("f")) == 0
    client.run("BIG[0] = 2")
    assert worker.call(client.dumps("f")) == 100_001


def test_error_names_the_global_that_cannot_be_pickled() -> None:
    client = Process("import threading\nLOCK = threading.Lock()\ndef f(): return LOCK")
    with pytest.raises(TypeError, match="lock") as caught:
        client.dumps("f")
    assert "'LOCK'" in caught.value.__notes__[0]


def test_functions_of_other_modules_are_left_to_cloudpickle(worker: Process) -> None:
    base = np.arange(3)
    assert worker.call(dumps(lambda: int(base.sum()))) == 3


def test_name_missing_in_the_origin_is_an_error_that_says_so(worker: Process) -> None:
    client = Process(CLASSES)
    worker.load(client.dumps("CONFIG"))
    pickled = worker.dumps("loaded", to_origin=True)
    client.run("del Child")
    with pytest.raises(AttributeError, match="'Child'"):
        client.load(pickled)


def test_adopted_main_is_empty(worker: Process) -> None:
    assert set(vars(worker.main)) <= set(vars(types.ModuleType("x"))) | {"__builtins__", "__file__"}
    assert worker.eval("__file__") == "script.py"


CELL = """\
class C:
    def method(self):
        return [1 / 0 for _ in range(1)]
def outer():
    def inner():
        return C().method()
    return inner()
"""


def compiled_there(name: str, *, source: str = CELL) -> Process:
    client = Process()
    with client.running() as names:
        exec(compile(source, name, "exec"), names)
    return client


def failure(worker: Process, pickled: Pickled) -> str:
    with pytest.raises(ZeroDivisionError) as caught:
        worker.call(pickled)
    return "".join(traceback.format_exception(caught.value))


def test_traceback_names_the_file_where_the_code_was_written(worker: Process, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(CELL)
    text = failure(worker, compiled_there(str(path)).dumps("outer"))
    for line, name in ((7, "outer"), (6, "inner"), (3, "method")):
        assert f'File "{path}", line {line}, in {name}\n    {CELL.splitlines()[line - 1].strip()}\n' in text


def test_text_that_lies_in_no_file_travels_with_the_code(worker: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "<cell 3>"
    client = compiled_there(name)
    with monkeypatch.context() as patch:
        patch.setitem(linecache.cache, name, (len(CELL), None, CELL.splitlines(True), name))
        pickled = client.dumps("outer")
    assert 'File "<cell 3>", line 6, in inner\n    return C().method()\n' in failure(worker, pickled)
    del linecache.cache[name]


def test_text_that_is_here_is_not_replaced_by_what_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "<cell 4>"
    client = compiled_there(name)
    monkeypatch.setitem(linecache.cache, name, (len(CELL), None, CELL.splitlines(True), name))
    client.run("local = (lambda: outer.__code__.co_consts)()")
    pickled = client.dumps("local")
    now = (1, None, ["redefined"], name)
    monkeypatch.setitem(linecache.cache, name, now)
    client.load(pickled)
    assert linecache.cache[name] == now


def test_equal_code_gives_equal_bytes(worker: Process) -> None:
    client = compiled_there("<cell 5>")
    first = client.dumps("outer").stream
    client.run("outer.__code__ = outer.__code__.replace(co_filename=''.join(['<cell', ' 5>']))")
    client.exchange.known.clear()
    assert client.dumps("outer").stream == first

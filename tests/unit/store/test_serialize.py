from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest

from outboard.ids import ObjectId
from outboard.store import serialize
from outboard.store.serialize import BUFFER_MIN, dumps, dumps_small, loads


class Reference:
    """Stands for an ObjectRef."""

    def __init__(self, oid: ObjectId) -> None:
        self.oid = oid

    def __reduce__(self) -> Any:
        serialize.note_reference(self.oid)
        return Reference, (self.oid,)


def copied(value: Any) -> Any:
    pickled = dumps(value)
    return loads(pickled.stream, [bytearray(buffer) for buffer in pickled.buffers])


@pytest.mark.parametrize("value", [((1,), {}), None, "text", {"a": [1.5, b"x"]}, np.float64(2), "x" * BUFFER_MIN])
def test_small_values_take_the_short_way(value: Any) -> None:
    stream = dumps_small(value)
    assert stream is not None and stream[0] == 0x80
    assert loads(stream) == value
    assert dumps(value) == (stream, [], [])


@pytest.mark.parametrize(
    "value",
    [np.zeros(BUFFER_MIN), np.zeros((BUFFER_MIN, 2))[:, 0], "__main__", lambda: 1, Reference(ObjectId(1, 2))],
)
def test_other_values_are_left_to_the_full_way(value: Any) -> None:
    assert dumps_small(value) is None
    dumps(value)


def test_only_large_buffers_leave_the_stream() -> None:
    small, large = np.arange(10), np.arange(BUFFER_MIN)
    pickled = dumps([small, large])
    assert [buffer.raw().nbytes for buffer in pickled.buffers] == [large.nbytes]
    assert len(pickled.stream) < 1000
    first, second = loads(pickled.stream, pickled.buffers)
    assert np.array_equal(first, small) and np.shares_memory(second, large)


def test_arrays_over_read_only_memory_are_read_only() -> None:
    pickled = dumps(np.zeros(BUFFER_MIN))
    assert not loads(pickled.stream, [bytes(buffer) for buffer in pickled.buffers]).flags.writeable


@pytest.mark.parametrize("array", [np.arange(10**5).reshape(100, -1)[:, ::2], np.arange(10**5)[::-1]])
def test_strided_arrays_leave_the_stream(array: Any) -> None:
    pickled = dumps({"key": [array]})
    assert len(pickled.stream) < 1000 and len(pickled.buffers) == 1
    assert np.array_equal(loads(*pickled[:2])["key"][0], array)


def test_strided_arrays_in_closures_leave_the_stream() -> None:
    array = np.arange(10**5)[::2]
    pickled = dumps(lambda: array)
    assert len(pickled.buffers) == 1
    assert np.array_equal(loads(*pickled[:2])(), array)


def test_torch_tensors_leave_the_stream() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.arange(10**5).to(dtype).reshape(100, -1).t()
        pickled = dumps([tensor])
        assert len(pickled.stream) < 2000 and len(pickled.buffers) == 1
        assert torch.equal(loads(*pickled[:2])[0], tensor)


def test_references_are_collected_once_also_when_pickled_twice() -> None:
    oid = ObjectId(3, 4)
    reference = Reference(oid)
    assert dumps([reference]).refs == [oid]
    assert dumps([reference, lambda: 1]).refs == [oid]
    serialize.note_reference(oid)
    assert dumps([1]).refs == []


def test_references_of_another_thread_are_not_collected() -> None:
    class Busy:
        def __reduce__(self) -> Any:
            thread = threading.Thread(target=serialize.note_reference, args=(ObjectId(9, 9),))
            thread.start()
            thread.join(10)
            return int, ()

    assert dumps(Busy()).refs == []


def test_dumps_within_dumps_keeps_references_apart() -> None:
    class Outer:
        def __reduce__(self) -> Any:
            inner = dumps(Reference(ObjectId(1, 1)))
            assert inner.refs == [ObjectId(1, 1)]
            serialize.note_reference(ObjectId(2, 2))
            return int, ()

    assert dumps(Outer()).refs == [ObjectId(2, 2)]


def test_error_names_what_cannot_be_pickled() -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="lock"):
        dumps([lock])
    with pytest.raises(TypeError, match="lock"):
        dumps(lambda: lock)


def test_memory_error_is_not_tried_again() -> None:
    calls = []

    class Hungry:
        def __reduce__(self) -> Any:
            calls.append(1)
            raise MemoryError

    with pytest.raises(MemoryError):
        dumps(Hungry())
    assert calls == [1]


class WrongArguments(Exception):
    def __init__(self, code: int, where: str) -> None:
        super().__init__(f"{code}@{where}")
        self.code = code


class ChangesText(Exception):
    def __init__(self, text: str, where: str = "?") -> None:
        super().__init__(f"{text} at {where}")


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("with a lock", threading.Lock())


class Exits(Exception):
    def __reduce__(self) -> Any:
        raise SystemExit(3)


class BadText(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    "error", [KeyError("k"), OSError(2, "gone", "f"), WrongArguments(7, "db"), ChangesText("t", "w"), Exits(5)]
)
def test_exceptions_come_back_as_themselves(error: Exception) -> None:
    pickled, name, text, _ = serialize.encode_exception(error)
    back = serialize.decode_exception(pickled)
    assert type(back) is type(error) and str(back) == str(error) == text
    assert name.endswith(type(error).__name__)
    assert vars(back) == vars(error)


def test_exception_that_does_not_pickle_is_described() -> None:
    try:
        try:
            raise ValueError("first")
        except ValueError as cause:
            raise Unpicklable from cause
    except Exception as raised:
        pickled, name, text, trace = serialize.encode_exception(raised)
    assert pickled == b"" and serialize.decode_exception(pickled) is None
    assert name.endswith("Unpicklable") and "lock" in text
    assert "ValueError: first" in trace and "direct cause" in trace


def test_exception_whose_text_fails_is_described() -> None:
    _, name, text, trace = serialize.encode_exception(BadText())
    assert name.endswith("BadText") and "ValueError" in text and "BadText" in trace


def test_bytes_that_give_no_exception_decode_to_none() -> None:
    assert serialize.decode_exception(b"\x80nonsense") is None
    assert serialize.decode_exception(pickle.dumps(5)) is None

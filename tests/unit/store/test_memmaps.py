"""Memmaps by file and by content: whatever arrives shows the bytes that were sent, or says what is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outboard.errors import SerializationError
from outboard.store import memmaps, serialize

COUNT = 40_000

VIEWS: list[Callable[[Any], Any]] = [
    lambda m: m, lambda m: m[123:], lambda m: m[::2], lambda m: m[::-1], lambda m: m[-9:7:-2],
    lambda m: m.reshape(200, 200).T, lambda m: m.reshape(200, 200)[5:, ::-3], lambda m: m.view(np.int32)[1:],
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write a file of numbers."""
    path = tmp_path / "numbers"
    np.arange(COUNT, dtype=np.int64).tofile(path)
    return path


def sent(value: Any, *, readonly_by_file: bool = True) -> serialize.Pickled:
    reducers = memmaps.reducers(readonly_by_file=readonly_by_file)
    return serialize.dumps(value, reducers=reducers, reduces=memmaps.lie_in(value))


def loaded(pickled: serialize.Pickled) -> Any:
    return serialize.loads(pickled.stream, [bytearray(buffer.raw()) for buffer in pickled.buffers])


def is_by_file(pickled: serialize.Pickled) -> bool:
    return not pickled.buffers and len(pickled.stream) < 4096


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("offset", [0, 8, 4096 * 3 + 16])
@pytest.mark.parametrize("view", VIEWS)
def test_each_view_arrives_as_it_was(path: Path, mode: Any, offset: int, view: Callable[[Any], Any]) -> None:
    with open(path, "ab") as file:
        file.write(bytes(offset))
    array = view(np.memmap(path, np.int64, mode, offset, (COUNT,)))
    pickled = sent([array])
    (copy,) = loaded(pickled)
    assert is_by_file(pickled) == (mode != "c")
    assert type(copy) is np.memmap
    assert (copy.dtype, copy.shape) == (array.dtype, array.shape)
    assert np.array_equal(copy, array)
    if mode != "c":
        assert copy.strides == array.strides
        assert copy.flags.writeable == (mode == "r+")


def test_writes_reach_the_file_and_flush_works(path: Path) -> None:
    array = np.memmap(path, np.int64, "r+")
    copy = loaded(sent((array[100:],)))[0]
    copy[0] = -1
    copy.flush()
    assert array[100] == -1
    again = loaded(sent((copy,)))[0]
    assert again[0] == -1 and again.offset == 800


def test_a_new_file_is_not_emptied_by_those_who_are_given_it(tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "new", np.int64, "w+", 0, (COUNT,))
    array[:] = 3
    copy = loaded(sent({"a": array}))["a"]
    assert copy.mode == "r+" and copy[-1] == 3 and array[-1] == 3


def test_readonly_ones_go_by_content_where_other_machines_may_be_meant(path: Path) -> None:
    array = np.memmap(path, np.int64, "r")
    pickled = sent([array], readonly_by_file=False)
    assert [buffer.raw().nbytes for buffer in pickled.buffers] == [array.nbytes]
    assert np.array_equal(loaded(pickled)[0], array)
    assert is_by_file(sent([np.memmap(path, np.int64, "r+")], readonly_by_file=False))


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_was_deleted_or_replaced_goes_by_content(path: Path, mode: Any, is_replaced: bool) -> None:
    array = np.memmap(path, np.int64, mode)
    if is_replaced:
        other = path.with_name("other")
        np.zeros(COUNT, np.int64).tofile(other)
        other.rename(path)
    else:
        path.unlink()
    pickled = sent([array])
    assert not is_by_file(pickled)
    assert np.array_equal(loaded(pickled)[0], np.arange(COUNT))


@pytest.mark.parametrize("change", ["deleted", "shorter", "replaced"])
def test_a_file_that_changed_on_the_way_is_named(path: Path, change: str) -> None:
    pickled = sent([np.memmap(path, np.int64, "r")])
    if change == "deleted":
        path.unlink()
    elif change == "shorter":
        os.truncate(path, 8)
    else:
        path.rename(path.with_name("kept"))
        np.zeros(COUNT, np.int64).tofile(path)
    with pytest.raises(SerializationError, match=str(path)) as caught:
        loaded(pickled)
    assert caught.value.what == "argument"


def test_results_of_arithmetic_and_small_readonly_ones_are_plain_content(path: Path) -> None:
    writable, readonly = np.memmap(path, np.int64, "r+"), np.memmap(path, np.int64, "r")
    for value in (writable + 1, writable[[1, 2]], writable[:0], readonly[:10], np.asarray(readonly)):
        assert np.array_equal(loaded(sent([value]))[0], value)
        assert b"numbers" not in sent([value]).stream


@pytest.mark.parametrize("view", [lambda m: m[7:17], lambda m: m[30:7:-3], lambda m: m[:40].reshape(4, 10).T[2:]])
@pytest.mark.parametrize("kind", [np.asarray, np.asanyarray, lambda m: np.asarray(m)[...]])
def test_writes_to_few_values_and_to_plain_views_reach_the_file(path: Path, view: Any, kind: Any) -> None:
    array = np.memmap(path, np.int64, "r+")
    part = view(kind(array))
    (copy,) = loaded(sent([part]))
    assert type(copy) is type(part) and np.array_equal(copy, part)
    copy[...] = -5
    assert (part == -5).all() and (array == -5).sum() == part.size


def test_a_small_new_file_and_a_plain_view_that_is_readonly(tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "numbers", float, "w+", shape=(10,))
    loaded(sent(array))[3] = 2
    assert array[3] == 2
    view = np.asarray(array)[:]
    view.flags.writeable = False
    assert b"numbers" not in sent([view]).stream


def test_small_ones_deep_inside_an_object_are_found_once_it_is_pickled(path: Path) -> None:
    array = np.memmap(path, np.int64, "r+")
    value = [[[[[array[:10], np.zeros(COUNT)]]]]]
    assert not memmaps.lie_in(value)
    loaded(sent(value))[0][0][0][0][0][5] = 77
    assert array[5] == 77


def test_one_deep_inside_an_object_is_found_while_it_is_pickled(path: Path) -> None:
    array = np.memmap(path, np.int64, "r+")
    value = [[[[[array]]]]]
    assert not memmaps.lie_in(value)
    pickled = sent(value)
    assert is_by_file(pickled)
    loaded(pickled)[0][0][0][0][0][5] = 77
    assert array[5] == 77


def test_a_value_that_is_no_argument_goes_by_content(path: Path) -> None:
    array = np.memmap(path, np.int64, "r+")
    copy = loaded(serialize.dumps([array]))[0]
    copy[0] = 5
    assert array[0] == 0

"""Every method of the Pool: arguments, order, chunk sizes, inputs of every kind."""

from __future__ import annotations

import inspect
import itertools
import math
import multiprocessing.pool
from collections.abc import Iterator
from typing import Any

import pytest

from outboard.multiprocessing import Pool

METHODS = ["apply", "apply_async", "map", "map_async", "starmap", "starmap_async", "imap", "imap_unordered"]


class Rows:
    """Iterable without a length that is no iterator."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


def add(a: int, b: int = 0) -> int:
    return a + b


def fail_at_three(x: int) -> int:
    if x == 3:
        raise KeyError("three")
    return x


def returned_error(x: int) -> Exception:
    return ValueError(x)


@pytest.mark.parametrize("method", [*METHODS, "close", "terminate", "join", "__init__"])
def test_signatures_are_the_standard_ones(method: str) -> None:
    def shape(cls: type) -> list[tuple[str, Any, Any]]:
        parameters = inspect.signature(getattr(cls, method)).parameters.values()
        # buffersize is new in 3.16
        return [(p.name, p.kind, p.default) for p in parameters if p.name != "buffersize"]

    assert shape(Pool) == shape(multiprocessing.pool.Pool)


def test_apply_takes_args_and_kwds(pool_class: Any) -> None:
    with pool_class(2) as p:
        assert p.apply(add, (1,), {"b": 2}) == 3
        assert p.apply(add, args=(1,), kwds={"b": 4}) == 5
        assert p.apply_async(add, args=(1,), kwds={"b": 2}).get(10) == 3


@pytest.mark.parametrize("chunksize", [None, 1, 3, 100])
def test_map_keeps_the_order_for_every_chunk_size(pool_class: Any, chunksize: int | None) -> None:
    with pool_class(2) as p:
        assert p.map(abs, range(-20, 0), chunksize) == list(range(20, 0, -1))
        assert p.map_async(abs, range(-20, 0), chunksize).get(10) == list(range(20, 0, -1))
        assert p.starmap(add, [(i, i) for i in range(20)], chunksize) == list(range(0, 40, 2))
        assert p.starmap_async(add, zip(range(20), range(20), strict=True), chunksize).get(10) == list(range(0, 40, 2))


@pytest.mark.parametrize("kind", [set, frozenset, tuple, list, iter, dict.fromkeys])
def test_map_takes_any_iterable(pool_class: Any, kind: Any) -> None:
    with pool_class(2) as p:
        assert sorted(p.map(abs, kind([-3, -2, -1]))) == [1, 2, 3]
        assert p.map(str.upper, "abc") == ["A", "B", "C"]


def test_iterables_without_length_and_empty_ones(pool_class: Any) -> None:
    want = [0, 1, 2, 3, 4]
    with pool_class(2) as p:
        assert p.map(abs, (i for i in range(5))) == want
        assert list(p.imap(abs, iter(range(5)))) == want
        assert list(p.imap(abs, Rows())) == want
        assert sorted(p.imap_unordered(abs, Rows(), chunksize=2)) == want
        assert p.map(abs, []) == []
        assert p.starmap(add, []) == []
        assert list(p.imap(abs, iter([]))) == []
        assert list(p.imap(abs, [], chunksize=3)) == []


@pytest.mark.parametrize("bad", [5, None])
def test_what_is_not_iterable_is_a_type_error(pool_class: Any, bad: Any) -> None:
    with pool_class(2) as p:
        with pytest.raises(TypeError):
            p.map(abs, bad)
        it = p.imap(abs, bad)  # fails at the first next, not here
        with pytest.raises(TypeError):
            next(it)
        with pytest.raises(TypeError):
            list(p.imap_unordered(abs, bad, chunksize=2))


@pytest.mark.parametrize("chunksize", [0, -1])
def test_imap_refuses_chunk_sizes_below_one(pool_class: Any, chunksize: int) -> None:
    with pool_class(1) as p, pytest.raises(ValueError, match="Chunksize must be 1"):
        p.imap(abs, [1], chunksize)


@pytest.mark.parametrize("chunksize", [0, -1])
def test_map_refuses_chunk_sizes_below_one(our_pool_class: Any, chunksize: int) -> None:
    with our_pool_class(1) as p:
        for method in (p.map, p.map_async, p.starmap, p.starmap_async):
            with pytest.raises(ValueError, match="Chunksize must be 1"):
                method(abs, [1], chunksize)


def test_input_that_raises_in_map_raises_at_the_call(pool_class: Any) -> None:
    def source() -> Iterator[int]:
        yield 1
        raise OSError("disk")

    with pool_class(1) as p, pytest.raises(OSError, match="disk"):
        p.map_async(abs, source())


def test_first_error_of_a_map_is_raised(pool_class: Any) -> None:
    with pool_class(2) as p:
        for chunksize in (1, 2, None):
            with pytest.raises(KeyError, match="three"):
                p.map(fail_at_three, range(8), chunksize)
        assert p.map(fail_at_three, [1, 2]) == [1, 2]


def test_returned_exception_is_a_value(pool_class: Any) -> None:
    with pool_class(2) as p:
        assert [type(v) for v in p.map(returned_error, range(3), 1)] == [ValueError] * 3
        assert isinstance(p.apply(returned_error, (1,)), ValueError)
        assert [type(v) for v in p.imap(returned_error, range(3))] == [ValueError] * 3


def test_default_chunk_size_counts_processes(our_pool_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with our_pool_class(2) as p:
        seen = []
        monkeypatch.setattr(p, "_open_array", lambda call, size: seen.append(size) or Pool._open_array(p, call, size))
        for count in (1, 8, 9, 100):
            p.map(abs, range(count))
        assert seen == [math.ceil(count / 8) for count in (1, 8, 9, 100)]


def test_starmap_over_an_infinite_zip_partner(pool_class: Any) -> None:
    with pool_class(2) as p:
        assert p.starmap(add, zip([1, 2, 3], itertools.count(), strict=False)) == [1, 3, 5]

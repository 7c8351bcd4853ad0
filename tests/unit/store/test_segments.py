from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from outboard.ids import ObjectId
from outboard.store import memory
from outboard.store.extent import extent_nbytes
from outboard.store.segments import SegmentReader, SegmentWriter, StaleDescriptorError

NBYTES = 4 << 20
OID = ObjectId(11, 22)
Fields = tuple[int, int, int, int, int, int]


class Store:
    """One segment with its writer and one reading process."""

    def __init__(self) -> None:
        fd = memory.create_segment(NBYTES)
        self.writer = SegmentWriter(1, fd, NBYTES)
        self.reader = SegmentReader()
        self.reader.add(1, memory.readonly_fd(fd), NBYTES)

    def put(self, offset: int, stream: bytes, *buffers: Any, seq: int = 22, version: int = 0, fresh: bool) -> Fields:
        self.writer.write(offset, ObjectId(11, seq), version, stream, buffers, fresh=fresh)
        nbytes = extent_nbytes(len(stream), [memoryview(buffer).nbytes for buffer in buffers])
        return 11, seq, version, 1, offset, nbytes


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.writer.close()
    store.reader.forget()


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("count", [100, 50_000, 400_000])
def test_object_comes_back_as_written(store: Store, fresh: bool, count: int) -> None:
    array = np.arange(count, dtype=np.float64)
    fields = store.put(4096, b"stream", array, b"fixed", fresh=fresh)
    stream, buffers = store.reader.open(*fields)
    assert bytes(stream) == b"stream"
    assert np.array_equal(np.frombuffer(buffers[0]), array)
    assert bytes(buffers[1]) == b"fixed"
    assert stream.readonly and all(buffer.readonly for buffer in buffers)


@pytest.mark.parametrize("count", [100, 50_000])
def test_writable_views_stay_private_and_fixed_buffers_read_only(store: Store, count: int) -> None:
    array = np.zeros(count)
    fields = store.put(0, b"s", array, bytes(10), fresh=True)
    _, (mine, fixed) = store.reader.open(*fields, writable=True)
    assert fixed.readonly and not mine.readonly
    np.frombuffer(mine)[:] = 1
    _, (other, _) = store.reader.open(*fields)
    assert not np.frombuffer(other).any()
    assert store.writer.equal_to(0, b"s", [array, bytes(10)])


def test_extent_is_live_until_the_last_derived_view_ends(store: Store) -> None:
    fields = store.put(0, b"s", np.arange(50_000.0), fresh=True)
    stream, buffers = store.reader.open(*fields)
    part = np.frombuffer(buffers[0]).reshape(2, -1)[1, 5:9]
    del stream, buffers
    gc.collect()
    assert store.reader.collect() == [] and store.reader.live_count == 1
    assert part[0] == 25_005
    del part
    gc.collect()
    assert store.reader.collect() == [(1, 0, 11, 22, 0)]
    assert store.reader.live_count == 0


def test_opens_of_one_extent_are_given_back_together(store: Store) -> None:
    fields = store.put(0, b"s", np.zeros(50_000), fresh=True)
    first = store.reader.open(*fields)
    second = store.reader.open(*fields)
    del first
    gc.collect()
    assert store.reader.collect() == []
    del second
    gc.collect()
    assert store.reader.collect() == [(1, 0, 11, 22, 0)] * 2


def test_small_objects_are_copied_and_end_at_once(store: Store) -> None:
    fields = store.put(0, b"s", b"small", fresh=True)
    _, (buffer,) = store.reader.open(*fields)
    assert store.reader.collect() == [(1, 0, 11, 22, 0)]
    store.put(0, b"s", b"other", seq=23, fresh=False)
    assert bytes(buffer) == b"small"


def test_view_may_end_in_any_thread(store: Store) -> None:
    held = [store.reader.open(*store.put(0, b"s", np.zeros(50_000), fresh=True))]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join(10)
    gc.collect()
    assert len(store.reader.collect()) == 1


@pytest.mark.skipif(not memory.PRIVATE_VIEWS, reason="no private views on this system")
def test_reused_extent_shows_new_bytes_after_a_dirty_private_view(store: Store) -> None:
    fields = store.put(8192, b"s", np.zeros(50_000), fresh=True)
    neighbour = store.put(8192 + fields[5], b"s", np.full(50_000, 3.0), seq=30, fresh=True)
    _, (kept,) = store.reader.open(*neighbour, writable=True)
    np.frombuffer(kept)[0] = 4
    array = np.frombuffer(store.reader.open(*fields, writable=True)[1][0])
    array[:] = 9
    del array
    gc.collect()
    assert len(store.reader.collect()) == 1
    again = store.put(8192, b"s", np.ones(50_000), seq=23, fresh=False)
    _, (buffer,) = store.reader.open(*again, writable=True)
    assert (np.frombuffer(buffer) == 1).all()
    assert np.frombuffer(kept)[0] == 4


def test_stale_descriptor_is_told_and_pins_nothing(store: Store) -> None:
    fields = store.put(0, b"s", np.zeros(50_000), fresh=True)
    store.put(0, b"s", np.zeros(50_000), version=1, fresh=False)
    with pytest.raises(StaleDescriptorError, match=r"version 0: found .* version 1"):
        store.reader.open(*fields)
    with pytest.raises(StaleDescriptorError, match="no extent begins"):
        store.reader.open(11, 22, 0, 1, 4096, fields[5])
    assert store.reader.live_count == 0 and store.reader.collect() == []


@pytest.mark.parametrize("fresh", [True, False])
def test_comparison_sees_any_difference(store: Store, fresh: bool) -> None:
    array = np.arange(100_000.0)
    store.put(0, b"stream", array, fresh=fresh)
    assert store.writer.equal_to(0, b"stream", [array])
    assert not store.writer.equal_to(0, b"streaM", [array])
    assert not store.writer.equal_to(0, b"stream", [array[:-1]])
    assert not store.writer.equal_to(0, b"stream", [array, array])
    array[-1] = 0
    assert not store.writer.equal_to(0, b"stream", [array])


def test_second_descriptor_of_a_segment_is_closed(store: Store) -> None:
    fd = memory.create_segment(NBYTES)
    store.reader.add(1, fd, NBYTES)
    with pytest.raises(OSError):
        os.fstat(fd)
    assert store.reader.has(1) and not store.reader.has(2)


def test_views_outlive_the_reader_and_the_writer(store: Store) -> None:
    fields = store.put(0, b"s", np.full(50_000, 2.0), fresh=True)
    _, (buffer,) = store.reader.open(*fields)
    store.reader.forget()
    store.writer.close()
    assert np.frombuffer(buffer)[49_999] == 2
    del buffer
    gc.collect()
    assert store.reader.collect() == [] and not store.reader.has(1)

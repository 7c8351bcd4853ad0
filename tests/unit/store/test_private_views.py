"""Writable views of one extent: no two of them share what they write."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from outboard.ids import ObjectId
from outboard.store import memory
from outboard.store.extent import extent_nbytes
from outboard.store.segments import SegmentReader, SegmentWriter

pytestmark = pytest.mark.timeout(20)

NBYTES = 1 << 20
SIZE = extent_nbytes(0, [NBYTES])


@pytest.fixture
def reader() -> Iterator[SegmentReader]:
    fd = memory.create_segment(4 << 20)
    reader = SegmentReader()
    writer = SegmentWriter(1, fd, 4 << 20)
    reader.add(1, memory.readonly_fd(fd), 4 << 20)
    writer.write(0, ObjectId(7, 1), 0, b"", [bytearray(NBYTES)], fresh=True)
    yield reader
    reader.forget()
    writer.close()


def view(reader: SegmentReader, *, writable: bool = True) -> memoryview:
    return reader.open(7, 1, 0, 1, 0, SIZE, writable=writable)[1][0]


def test_second_writable_view_shows_nothing_of_the_first(reader: SegmentReader) -> None:
    first = view(reader)
    first[0] = 1
    second = view(reader)
    assert second[0] == 0
    second[0] = 2
    assert (first[0], view(reader, writable=False)[0]) == (1, 0)


def test_view_after_one_that_ended_shows_the_segments_bytes(reader: SegmentReader) -> None:
    kept = view(reader, writable=False)  # so that the extent's views do not all end
    for value in range(1, 4):
        writable = view(reader)
        assert writable[0] == 0
        writable[0] = value
        del writable
        gc.collect()
    assert kept[0] == 0


def test_every_open_is_collected_once(reader: SegmentReader) -> None:
    views = [view(reader) for _ in range(3)]
    assert reader.collect() == []
    views.clear()
    gc.collect()
    assert len(reader.collect()) == 3
    assert reader.live_count == 0

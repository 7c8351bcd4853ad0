"""Writable views of one extent: no two of them share what they write."""

from __future__ import annotations

import gc
import mmap
import os
import resource
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
def writer() -> Iterator[SegmentWriter]:
    """Lease a segment and store one object of zeros there."""
    writer = SegmentWriter(1, memory.create_segment(4 << 20), 4 << 20)
    writer.write(0, ObjectId(7, 1), 0, b"", [bytearray(NBYTES)], fresh=True)
    yield writer
    writer.close()


@pytest.fixture
def reader(writer: SegmentWriter) -> Iterator[SegmentReader]:
    """Map it."""
    reader = SegmentReader()
    reader.add(1, memory.readonly_fd(writer._fd), 4 << 20)
    yield reader
    reader.forget()


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


@pytest.mark.parametrize("can_look", [True, False])
@pytest.mark.parametrize("written", [[], [0], [NBYTES - 1], [5000, 700_000], range(0, NBYTES, 4096)])
def test_whatever_was_written_to_a_view_the_next_shows_what_lies_there(
    writer: SegmentWriter, reader: SegmentReader, monkeypatch: pytest.MonkeyPatch, written: list[int], can_look: bool
) -> None:
    if not can_look:
        monkeypatch.setattr(os, "pread", lambda fd, nbytes, offset: b"")
    first = view(reader)
    bytes(first)
    for offset in written:
        first[offset] = 9
    del first
    gc.collect()
    reader.collect()
    writer.write(0, ObjectId(7, 1), 0, b"", [bytearray(b"\x05" * NBYTES)], fresh=False)
    assert bytes(view(reader)) == b"\x05" * NBYTES


@pytest.mark.skipif(not os.path.exists("/proc/self/pagemap"), reason="the system does not tell what was written to")
def test_pages_that_were_only_read_stay_mapped() -> None:
    nbytes = 32 << 20
    fd = memory.create_segment(nbytes)
    os.pwrite(fd, bytes(nbytes), 0)
    mapping = memory.Mapping(fd, nbytes, private=True)
    os.close(fd)
    data = mapping.view(0, nbytes)
    faults = []
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        assert not any(data[:: mmap.PAGESIZE])
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        memory.drop_private_pages(mapping, 0, nbytes)
    assert faults[1] < faults[0] / 2

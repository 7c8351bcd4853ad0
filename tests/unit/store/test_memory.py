from __future__ import annotations

import gc
import mmap
import os
import weakref
from collections.abc import Iterator

import pytest

from outboard.store import memory

NBYTES = 16 * mmap.PAGESIZE

private_views = pytest.mark.skipif(not memory.PRIVATE_VIEWS, reason="no private views on this system")


@pytest.fixture
def fd() -> Iterator[int]:
    fd = memory.create_segment(NBYTES)
    yield fd
    os.close(fd)


def test_new_segment_is_zero_and_not_inherited(fd: int) -> None:
    assert os.fstat(fd).st_size == NBYTES
    assert not os.get_inheritable(fd)
    assert bytes(memory.Mapping(fd, NBYTES).view(0, NBYTES)) == bytes(NBYTES)


def test_segment_without_memfd_is_an_unlinked_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    fd = memory.create_segment(NBYTES)
    try:
        assert os.fstat(fd).st_nlink == 0
        assert os.fstat(fd).st_size == NBYTES
    finally:
        os.close(fd)


def test_readonly_descriptor_refuses_writes_and_writable_mappings(fd: int) -> None:
    reading = memory.readonly_fd(fd)
    try:
        with pytest.raises(OSError):
            os.pwrite(reading, b"x", 0)
        with pytest.raises(PermissionError):
            memory.Mapping(reading, NBYTES, writable=True)
    finally:
        os.close(reading)


def test_shared_mapping_shows_what_is_written(fd: int) -> None:
    view = memory.Mapping(fd, NBYTES).view(0, NBYTES)
    memory.write_at(fd, 10, [b"abc", memoryview(b"defg")])
    assert bytes(view[10:17]) == b"abcdefg"
    memory.copy(memory.Mapping(fd, NBYTES, writable=True), 12, b"XY")
    assert bytes(view[10:17]) == b"abXYefg"


@private_views
def test_private_pages_keep_their_bytes_until_dropped(fd: int) -> None:
    mapping = memory.Mapping(fd, NBYTES, private=True)
    view = mapping.view(0, NBYTES)
    view[0] = 7
    memory.write_at(fd, 0, [b"new"])
    assert view[0] == 7
    assert os.pread(fd, 1, 0) == b"n"
    memory.drop_private_pages(mapping, 0, mmap.PAGESIZE)
    assert bytes(view[:3]) == b"new"


def test_mapping_lives_as_long_as_a_view(fd: int) -> None:
    mapping = memory.Mapping(fd, NBYTES)
    gone = weakref.ref(mapping)
    part = mapping.view(0, 100)[10:20]
    del mapping
    gc.collect()
    assert gone() is not None and bytes(part) == bytes(10)
    del part
    gc.collect()
    assert gone() is None


def test_outside_of_the_segment_is_refused(fd: int) -> None:
    mapping = memory.Mapping(fd, NBYTES, writable=True)
    with pytest.raises(ValueError, match="exceed"):
        mapping.array(NBYTES - 1, 2)
    with pytest.raises(ValueError, match="exceed"):
        memory.copy(mapping, NBYTES - 1, b"ab")


@pytest.mark.parametrize("other", [b"abcd", bytearray(b"abcd"), memoryview(b"xabcd")[1:]])
def test_equal_compares_bytes_of_any_buffer(other: object) -> None:
    assert memory.equal(b"abcd", other)
    assert not memory.equal(b"abce", other)
    assert not memory.equal(b"abc", other)


def test_populate_and_release_change_no_bytes_in_use(fd: int) -> None:
    memory.write_at(fd, 0, [b"abc"])
    memory.write_at(fd, mmap.PAGESIZE, [b"def"])
    mapping = memory.Mapping(fd, NBYTES, writable=True)
    memory.populate(mapping, 0, NBYTES)
    if memory.release(fd, 0, mmap.PAGESIZE):
        assert os.pread(fd, 3, 0) == bytes(3)
    assert os.pread(fd, 3, mmap.PAGESIZE) == b"def"

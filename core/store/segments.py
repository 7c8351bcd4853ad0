"""Segments in use: one writer lays extents into each, any number of processes read them without a copy.

A reader's view of an extent is a ctypes array over the mapping. The weak reference that tells its end is on that
array, because every consumer (ndarray, memoryview, torch tensor) keeps it and none replaces it. Its callback may run
in any thread and under any lock, so it only appends to a deque, which ``SegmentReader.collect`` drains later.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

from ..ids import ObjectId
from . import memory
from .extent import ExtentHeader, encode_header, parse_header, plan_layout

#: Objects below this many bytes are copied out of the store instead of mapped. A copy takes less time than the pages'
#: faults and the later unpin; larger values would pin fewer objects and copy more.
COPY_OUT_NBYTES = 64 * 1024

#: Unit in bytes in which a writer remembers which pages its mapping has. Smaller units ask the kernel more often.
_MAPPED_UNIT = 2 << 20


class StaleDescriptorError(ValueError):
    """The extent holds another object, or another version, than its descriptor says; ask its owner again."""


class SegmentWriter:
    """Lays extents into one leased segment; owns ``fd``. One thread at a time per extent."""

    def __init__(self, segment: int, fd: int, nbytes: int) -> None:
        self.segment = segment
        self.nbytes = nbytes
        self._fd = fd
        self._mapping: memory.Mapping | None = None
        self._units: set[int] = set()

    def __repr__(self) -> str:
        return f"<SegmentWriter {self.segment} nbytes={self.nbytes}>"

    def write(
        self, offset: int, oid: ObjectId, version: int, stream: Any, buffers: Sequence[Any], *, fresh: bool
    ) -> None:
        """Lay one object at ``offset``, with the GIL released while bytes are copied.

        Pages never used before (``fresh``) are written by ``pwrite``, which makes them about twice as fast as faults
        through a mapping do; used ones are copied to through the mapping, at memcpy's speed.

        Raises:
            OSError: the system has no memory for new pages.
        """
        views = [memory.bytes_view(buffer) for buffer in buffers]
        stream_offset, offsets, size = plan_layout(len(stream), [view.nbytes for view in views])
        table = [(at, view.nbytes, view.readonly) for at, view in zip(offsets, views, strict=True)]
        header = encode_header(oid.owner, oid.seq, version, len(stream), table)
        pieces = [(0, header), (stream_offset, stream), *zip(offsets, views, strict=True)]
        if fresh:
            for at, piece in pieces:
                memory.write_at(self._fd, offset + at, (piece,))
        else:
            mapping = self._mapped()
            self._map_pages(mapping, offset, size)
            for at, piece in pieces:
                memory.copy(mapping, offset + at, piece)

    def equal_to(self, offset: int, stream: Any, buffers: Sequence[Any]) -> bool:
        """Tell whether the extent at ``offset`` holds exactly these bytes, GIL released."""
        mapping = self._mapped()
        header = parse_header(mapping.view(offset, self.nbytes - offset))
        places = [header.stream, *((at, nbytes) for at, nbytes, _ in header.buffers)]
        pieces = [stream, *(memory.bytes_view(buffer) for buffer in buffers)]
        if [nbytes for _, nbytes in places] != [len(piece) for piece in pieces]:
            return False
        return all(
            memory.equal(mapping.array(offset + at, nbytes), piece)
            for (at, nbytes), piece in zip(places, pieces, strict=True)
        )

    def _map_pages(self, mapping: memory.Mapping, offset: int, nbytes: int) -> None:
        """Enter the pages of a large extent into the mapping at once: a third of the time of a fault for each."""
        if nbytes >= _MAPPED_UNIT:
            units = range(offset // _MAPPED_UNIT, (offset + nbytes - 1) // _MAPPED_UNIT + 1)
            if not self._units.issuperset(units):
                memory.populate(mapping, offset, nbytes)
                self._units.update(units)

    def close(self) -> None:
        """Close the descriptor; the mapping goes with the last view of it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._mapping = None

    def _mapped(self) -> memory.Mapping:
        if self._mapping is None:
            self._mapping = memory.Mapping(self._fd, self.nbytes, writable=True)
        return self._mapping


class _Segment:
    """One segment mapped for reading: shared always, privately once a writable view was asked for."""

    __slots__ = ("fd", "nbytes", "private", "shared", "view")

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        self.nbytes = nbytes
        self.shared = memory.Mapping(fd, nbytes)
        self.view = self.shared.view(0, nbytes).toreadonly()
        self.private: memory.Mapping | None = None


class _Opened:
    """One extent with views in this process; ``live`` of its ``opens`` have not ended."""

    __slots__ = ("live", "mapping", "name", "nbytes", "opens", "writable")

    def __init__(self, name: tuple[int, int, int, int, int], nbytes: int) -> None:
        self.name = name
        self.nbytes = nbytes
        self.opens = 0
        self.live = 0
        self.mapping: memory.Mapping | None = None  # the private one, once a writable view was made
        self.writable: weakref.ref[Any] | None = None  # of the last writable view


class _Lifetime(weakref.ref[Any]):
    """Weak reference to the array of one ``open``."""

    __slots__ = ("opened",)
    opened: _Opened


class SegmentReader:
    """All segments that this process has mapped for reading. Thread-safe; ``collect`` tells which pins may end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._segments: dict[int, _Segment] = {}
        self._opened: dict[tuple[int, int], _Opened] = {}
        self._lifetimes: dict[int, _Lifetime] = {}  # a weak reference calls back only while it exists itself
        self.ended: deque[_Lifetime | _Opened] = deque()

    def __repr__(self) -> str:
        return f"<SegmentReader segments={len(self._segments)} live={self.live_count}>"

    @property
    def live_count(self) -> int:
        """Number of extents with views that were not collected yet."""
        return len(self._opened)

    def add(self, segment: int, fd: int, nbytes: int) -> None:
        """Map a segment; takes ownership of ``fd``. A segment that is there already stays, and ``fd`` is closed."""
        with self._lock:
            if segment in self._segments:
                os.close(fd)
                return
            try:
                self._segments[segment] = _Segment(fd, nbytes)
            except OSError:
                os.close(fd)
                raise

    def remove(self, segment: int) -> None:
        """Forget a segment of which no view is open."""
        with self._lock:
            mapped = self._segments.pop(segment, None)
            if mapped is not None:
                os.close(mapped.fd)

    def has(self, segment: int) -> bool:
        """Whether the segment is mapped here."""
        return segment in self._segments

    def open(
        self, owner: int, seq: int, version: int, segment: int, offset: int, nbytes: int, *, writable: bool = False
    ) -> tuple[memoryview, list[memoryview]]:
        """Return the stream and the buffers of a stored object, without a copy when it has 64 KiB or more.

        Views are read-only; ``writable`` makes those of buffers that were writable copy-on-write views, whose
        changes nobody else sees: an extent has one of them at a time, others are copied out. The caller holds a pin for
        each call; ``collect`` gives it back.

        Raises:
            KeyError: the segment was not added.
            StaleDescriptorError: another object or version lies there; nothing is pinned then.
        """
        mapped = self._segments[segment]
        header = _checked_header(mapped, offset, nbytes, (owner, seq, version))
        with self._lock:
            opened = self._opened.get((segment, offset))
            if opened is None:
                opened = _Opened((segment, offset, owner, seq, version), nbytes)
                self._opened[segment, offset] = opened
            opened.opens += 1
            opened.live += 1
            if nbytes < COPY_OUT_NBYTES or (writable and not self._may_view_privately(opened)):
                whole = memory.bytes_view(bytearray(mapped.view[offset : offset + nbytes]))
                self.ended.append(opened)
            else:
                whole = self._map(mapped, opened, offset, nbytes, writable)
        readonly = whole.toreadonly()
        start, length = header.stream
        stream = readonly[start : start + length]
        return stream, [
            (whole if writable and not fixed else readonly)[at : at + size] for at, size, fixed in header.buffers
        ]

    @staticmethod
    def _may_view_privately(opened: _Opened) -> bool:
        """Whether the private pages of an extent show its bytes: not while a view may have written to them."""
        if opened.mapping is None or opened.writable is None:
            return memory.PRIVATE_VIEWS
        if opened.writable() is not None:
            return False
        memory.drop_private_pages(opened.mapping, opened.name[1], opened.nbytes)
        return True

    def _map(self, mapped: _Segment, opened: _Opened, offset: int, nbytes: int, writable: bool) -> memoryview:
        mapping = mapped.shared
        if writable:
            if mapped.private is None:
                mapped.private = memory.Mapping(mapped.fd, mapped.nbytes, private=True)
            mapping = opened.mapping = mapped.private
        array = mapping.array(offset, nbytes)
        lifetime = _Lifetime(array, self.ended.append)
        lifetime.opened = opened
        self._lifetimes[id(lifetime)] = lifetime
        if writable:
            opened.writable = lifetime
        return memory.bytes_view(array)

    def collect(self) -> list[tuple[int, int, int, int, int]]:
        """Return (segment, offset, owner, seq, version) of what may be unpinned, one entry per ``open``.

        The entries of one extent come together once its last view has ended, after the pages that were written
        to through private views have been dropped. Must not be called from a destructor or signal handler.
        """
        if not self.ended:
            return []
        done = []
        with self._lock:
            while self.ended:
                item = self.ended.popleft()
                if isinstance(item, _Lifetime):
                    if self._lifetimes.pop(id(item), None) is None:
                        continue  # of before a `forget`
                    item = item.opened
                item.live -= 1
                if item.live == 0:
                    if item.mapping is not None:
                        memory.drop_private_pages(item.mapping, item.name[1], item.nbytes)
                    del self._opened[item.name[:2]]
                    done += [item.name] * item.opens
        return done

    def forget(self) -> None:
        """Close the descriptors and forget all segments (at exit, or in a forked child); views stay valid."""
        self._lock = threading.Lock()  # after a fork the old one may be held by a thread that is not here
        for segment in self._segments.values():
            os.close(segment.fd)
        self._segments = {}
        self._opened = {}
        self._lifetimes = {}
        self.ended.clear()


def _checked_header(mapped: _Segment, offset: int, nbytes: int, wanted: tuple[int, int, int]) -> ExtentHeader:
    """Read a header through the shared mapping: a private one may show what lay there before."""
    try:
        header = parse_header(mapped.view[offset : offset + nbytes])
    except ValueError as error:
        raise StaleDescriptorError(f"object {ObjectId(*wanted[:2]).hex()}: {error}") from error
    if header[:3] != wanted:
        found = f"{ObjectId(header.owner, header.seq).hex()} version {header.version}"
        raise StaleDescriptorError(f"object {ObjectId(*wanted[:2]).hex()} version {wanted[2]}: found {found}")
    return header

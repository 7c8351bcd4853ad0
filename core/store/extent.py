"""The layout of one stored object.

::

    header (magic, owner, seq, version, number of buffers, stream nbytes; per buffer offset, nbytes, flags)
    stream            from the next multiple of 64
    buffer, buffer …  each from the next multiple of 64
    (unused)          up to the end of the page

Offsets count from the extent's begin. Extents begin and end on a page: a process that wrote to its private copy of a
page no longer sees what is put on it later, so two objects never share one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

#: Streams and buffers begin on multiples of this, a cache line: what numpy's and BLAS's vector code likes best.
ALIGNMENT = 64

#: Extents begin and end on multiples of this. 16 KiB pages (Apple silicon) are larger, but have no private views.
EXTENT_PAGE = 4096

_MAGIC = b"OUTBEXT1"
_HEAD = struct.Struct("<8sQQIIQ")
_BUFFER = struct.Struct("<QQQ")
_READONLY = 1


class ExtentHeader(NamedTuple):
    """What an extent says about itself; places are (offset, nbytes[, readonly]) from the extent's begin."""

    owner: int
    seq: int
    version: int
    stream: tuple[int, int]
    buffers: list[tuple[int, int, bool]]


def _aligned(offset: int) -> int:
    return (offset + ALIGNMENT - 1) & -ALIGNMENT


def plan_layout(stream_nbytes: int, buffer_nbytes: Sequence[int]) -> tuple[int, list[int], int]:
    """Place a stream and its buffers: offset of the stream, offsets of the buffers, size of the extent."""
    stream_offset = _aligned(_HEAD.size + _BUFFER.size * len(buffer_nbytes))
    end = stream_offset + stream_nbytes
    offsets = []
    for nbytes in buffer_nbytes:
        offset = _aligned(end)
        offsets.append(offset)
        end = offset + nbytes
    return stream_offset, offsets, (end + EXTENT_PAGE - 1) & -EXTENT_PAGE


def extent_nbytes(stream_nbytes: int, buffer_nbytes: Sequence[int]) -> int:
    """Size of the extent that holds such a stream and such buffers, header included, in whole pages."""
    return plan_layout(stream_nbytes, buffer_nbytes)[2]


def encode_header(
    owner: int, seq: int, version: int, stream_nbytes: int, buffers: Sequence[tuple[int, int, bool]]
) -> bytes:
    """Encode a header; ``buffers`` are (offset, nbytes, readonly) as ``plan_layout`` placed them."""
    head = _HEAD.pack(_MAGIC, owner, seq, version, len(buffers), stream_nbytes)
    return head + b"".join(_BUFFER.pack(offset, nbytes, readonly) for offset, nbytes, readonly in buffers)


def parse_header(view: memoryview) -> ExtentHeader:
    """Read the header at the begin of ``view``, which ends where the extent ends.

    Raises:
        ValueError: no extent begins there, or it does not end within ``view``.
    """
    if len(view) < _HEAD.size:
        raise ValueError(f"{len(view)} bytes cannot hold an extent")
    magic, owner, seq, version, count, stream_nbytes = _HEAD.unpack_from(view)
    table_end = _HEAD.size + _BUFFER.size * count
    if magic != _MAGIC or table_end > len(view):
        raise ValueError(f"no extent begins here: found {magic!r}")
    buffers = [
        (offset, nbytes, bool(flags & _READONLY))
        for offset, nbytes, flags in _BUFFER.iter_unpack(view[_HEAD.size : table_end])
    ]
    stream = (_aligned(table_end), stream_nbytes)
    last_offset, last_nbytes = buffers[-1][:2] if buffers else stream
    if last_offset + last_nbytes > len(view):
        raise ValueError(f"the extent ends after its {len(view)} bytes")
    return ExtentHeader(owner, seq, version, stream, buffers)

"""The store's bytes: writing an object into shared memory, and opening it."""

from __future__ import annotations

import os
import time

from outboard.ids import ObjectId
from outboard.store import extent, memory, segments

from .timing import best_of

NBYTES = 100_000_000
OID = ObjectId(1, 1)


def speed(label: str, seconds: float) -> None:
    """Print one line."""
    print(f"{label:<58} {NBYTES / seconds / 1e9:10.2f} GB/s")


def new_pages(buffer: bytearray, size: int) -> float:
    """Return the seconds of one write where nothing was before."""
    writer = segments.SegmentWriter(1, memory.create_segment(size), size)
    started = time.perf_counter()
    writer.write(0, OID, 0, b"", [buffer], fresh=True)
    took = time.perf_counter() - started
    writer.close()
    return took


def main() -> None:
    """Print the table."""
    buffer = bytearray(b"x") * NBYTES
    size = extent.extent_nbytes(0, [NBYTES])
    speed("100 MB into new pages", min(new_pages(buffer, size) for _ in range(5)))
    fd = memory.create_segment(size)
    writer, reader = segments.SegmentWriter(1, fd, size), segments.SegmentReader()
    writer.write(0, OID, 0, b"", [buffer], fresh=True)
    fastest, _ = best_of(lambda: writer.write(0, OID, 0, b"", [buffer], fresh=False))
    speed("100 MB into recycled, mapped pages", fastest)
    reader.add(1, os.dup(fd), size)
    fastest, _ = best_of(lambda: reader.open(OID.owner, OID.seq, 0, 1, 0, size))
    print(f"{'open it for reading':<58} {fastest * 1e6:10.2f} µs")
    writer.close()


if __name__ == "__main__":
    main()

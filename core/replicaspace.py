"""Where a node puts copies of objects of other nodes: segments that it leases from itself."""

from __future__ import annotations

import threading
from typing import NamedTuple

from .scheduler.allocator import Allocator, Extent
from .store import memory

#: Pages that were never used are made ahead of the bytes, by a thread, when there are so many bytes of them: a fault
#: takes longer than the copy into the page. Larger leaves more to the loop; for less a thread is not worth its start.
POPULATE_MIN = 4 << 20

#: Bytes that are populated at a time; the thread stops between two when the room was given up.
POPULATE_NBYTES = 16 << 20


class Room(NamedTuple):
    """Room for one object, and its bytes to write to."""

    extent: Extent
    view: memoryview


class ReplicaSpace:
    """Room in the node's own segments. Used in the loop's thread."""

    def __init__(self) -> None:
        self._allocator = Allocator()
        self._mappings: dict[int, memory.Mapping] = {}
        self._given_up: dict[tuple[int, int], threading.Event] = {}  # by place, of what is populated

    def __repr__(self) -> str:
        return f"<ReplicaSpace {self._allocator!r}>"

    @property
    def used_nbytes(self) -> int:
        """Bytes of all rooms."""
        return self._allocator.used_nbytes

    def add(self, segment: int, fd: int, nbytes: int) -> None:
        """Add a segment that was leased for this. Raises OSError when it cannot be mapped."""
        self._mappings[segment] = memory.Mapping(fd, nbytes, writable=True)
        self._allocator.add_segment(segment, nbytes)

    def take(self, nbytes: int) -> Room | None:
        """Return room for so many bytes, None when the segments have none in one piece."""
        extent = self._allocator.allocate(nbytes)
        if extent is None:
            return None
        mapping = self._mappings[extent.segment]
        if extent.fresh and nbytes >= POPULATE_MIN:
            given_up = self._given_up[extent.segment, extent.offset] = threading.Event()
            threading.Thread(target=_populate, args=(mapping, extent.offset, nbytes, given_up), daemon=True).start()
        return Room(extent, mapping.view(extent.offset, nbytes))

    def free(self, segment: int, offset: int) -> None:
        """Take room back."""
        given_up = self._given_up.pop((segment, offset), None)
        if given_up is not None:
            given_up.set()
        self._allocator.free(segment, offset)

    def part_with_idle(self) -> list[int]:
        """Forget the segments in which nothing lies, and say which."""
        idle = self._allocator.idle_segments()
        for segment in idle:
            self._allocator.remove_segment(segment)
            del self._mappings[segment]
        return idle


def _populate(mapping: memory.Mapping, offset: int, nbytes: int, given_up: threading.Event) -> None:
    from .rpc.object_sockets import stand_behind  # which loads gRPC: only nodes with peers come here

    stand_behind()
    for at in range(offset, offset + nbytes, POPULATE_NBYTES):
        if given_up.is_set():
            return
        memory.populate(mapping, at, min(POPULATE_NBYTES, offset + nbytes - at))

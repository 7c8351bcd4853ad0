"""The board: shared memory in which each worker names what it runs and the node names what it wants ended.

One slot of 64 bytes a worker, two entries a slot: *running*, written by the worker, and *cancel*, written by the node.
An entry is (owner u64, stream u32, index + 1 u64); the last field is 0 for none and is stored last, so a process that
is killed while it writes has named nothing. An entry read while a live process changes it may be torn; decide only
on one whose writer is dead or waits.
"""

from __future__ import annotations

import mmap
import os
import struct

#: Slots of a board. The memory is sparse: only pages with used slots exist (64 slots a page).
SLOTS = 65536

SLOT_NBYTES = 64

# Native alignment: each field is one store.
_ENTRY = struct.Struct("@QIQ")
_CANCEL_OFFSET = 32

_pack_into = _ENTRY.pack_into
_unpack_from = _ENTRY.unpack_from

Entry = tuple[int, int, int]


class Slot:
    """One worker's entries. Cheap enough to write for every task: one ``pack_into``."""

    __slots__ = ("_cancel", "_memory", "_running")

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        self._memory = memory
        self._running = offset
        self._cancel = offset + _CANCEL_OFFSET

    def set_running(self, owner: int, stream: int, index: int) -> None:
        """Name the item that is run from now on."""
        _pack_into(self._memory, self._running, owner, stream, index + 1)

    def clear(self) -> None:
        """Say that no item is being run."""
        _pack_into(self._memory, self._running, 0, 0, 0)

    def running(self) -> Entry | None:
        """The item being run as (owner, stream, index), None for none."""
        return self._read(self._running)

    def request_cancel(self, owner: int, stream: int, index: int) -> None:
        """Name the item that is to be ended; the worker compares it with what it runs."""
        _pack_into(self._memory, self._cancel, owner, stream, index + 1)

    def cancel_target(self) -> Entry | None:
        """The item that is to be ended as (owner, stream, index), None for none."""
        return self._read(self._cancel)

    def is_cancelled(self) -> bool:
        """Whether what is being run is what is to be ended."""
        running = self.running()
        return running is not None and running == self.cancel_target()

    def reset(self) -> None:
        """Empty both entries, for the slot's next worker."""
        self._memory[self._running : self._running + SLOT_NBYTES] = bytes(SLOT_NBYTES)

    def _read(self, offset: int) -> Entry | None:
        owner, stream, after = _unpack_from(self._memory, offset)
        return (owner, stream, after - 1) if after else None


class Board:
    """Shared slots, created by the node and inherited, mapped or by descriptor, by template and workers."""

    __slots__ = ("_memory", "fd", "slots")

    def __init__(self, fd: int) -> None:
        """Map the board behind ``fd``, which then belongs to this object."""
        #: Descriptor of the memory, to pass on.
        self.fd = fd
        self._memory = mmap.mmap(fd, os.fstat(fd).st_size)
        self.slots = len(self._memory) // SLOT_NBYTES

    @classmethod
    def create(cls, slots: int = SLOTS) -> Board:
        """Create an empty board; nothing of it outlives its processes."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("outboard-board", os.MFD_CLOEXEC)
        else:
            import tempfile

            with tempfile.TemporaryFile(prefix="outboard-") as file:
                fd = os.dup(file.fileno())
        os.ftruncate(fd, slots * SLOT_NBYTES)
        return cls(fd)

    def slot(self, number: int) -> Slot:
        """The slot with ``number``; raises IndexError beyond ``slots``: numbers of ended workers are reused."""
        if not 0 <= number < self.slots:
            raise IndexError(f"the board has slots 0 to {self.slots - 1}, not {number}")
        return Slot(self._memory, number * SLOT_NBYTES)

    def close(self) -> None:
        """Unmap the board and close its descriptor; its slots must not be used any more."""
        self._memory.close()
        os.close(self.fd)

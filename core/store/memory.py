"""Shared memory as the kernel offers it: segments, mappings, and copies that let other threads run.

The one place for platform tricks. A segment is an anonymous file (memfd where it exists, else an unlinked file), so
nothing is left behind however a process ends. Mappings are made by ``mmap(2)`` directly: ``mmap.mmap`` would hold a
second descriptor each and cannot lay a ctypes array over read-only pages.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Sequence
from pickle import PickleBuffer
from typing import Any

#: Whether dirty pages of a private mapping can be given back, without which a private view would show old bytes.
PRIVATE_VIEWS = sys.platform == "linux"

_MADV_DONTNEED = 4
_MADV_POPULATE_WRITE = 23  # Linux 5.14; the mmap module does not name it
_PUNCH_HOLE_KEEP_SIZE = 3
_MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

#: Freed memory that a process which passes on large messages keeps, and the largest block it keeps. Without it each
#: message of 256 KiB costs new pages: 1.2 CPU seconds a GB over gRPC instead of 0.8.
KEPT_NBYTES = 64 << 20
KEPT_BLOCK_NBYTES = 4 << 20

#: Bytes from which on it is looked up which pages of a private view were written to. That takes about 15 µs and 10 µs
#: a megabyte; to map a megabyte again takes about 40 µs.
_LOOK_NBYTES = 1 << 20

_PAGEMAP_ENTRY = 8
# By an entry's highest byte: pages in memory (bit 63) or swapped out (62) that are not the file's own (61).
_IS_WRITTEN = bytes(bits & 0xC0 != 0 and bits & 0x20 == 0 for bits in range(256))

_MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _PyBuffer(ctypes.Structure):
    """CPython's ``Py_buffer``; the address of a read-only buffer cannot be had in another way without numpy."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None


class Mapping:
    """A whole segment mapped into this process: shared, or private (copy on write).

    It is unmapped when the last array or view over it is gone. Copies through it are not synchronised.
    """

    __slots__ = ("__weakref__", "address", "nbytes")

    def __init__(self, fd: int, nbytes: int, *, writable: bool = False, private: bool = False) -> None:
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable or private else 0)
        flags = mmap.MAP_PRIVATE | _MAP_NORESERVE if private else mmap.MAP_SHARED
        address = _libc.mmap(None, nbytes, prot, flags, fd, 0)
        self.nbytes = nbytes
        self.address: int = 0 if address is None or address == _MAP_FAILED else address
        if not self.address:
            raise _last_error("mmap")

    def __del__(self, _munmap: Any = _libc.munmap) -> None:
        if getattr(self, "address", 0):  # an interrupt may have ended __init__ before it was there
            _munmap(self.address, self.nbytes)

    def array(self, offset: int, nbytes: int) -> ctypes.Array[ctypes.c_ubyte]:
        """Lay a ctypes array over part of the mapping; whatever is derived from it keeps it, and it the mapping."""
        if offset < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"{nbytes} bytes at {offset} exceed the segment of {self.nbytes} bytes")
        array = (ctypes.c_ubyte * nbytes).from_address(self.address + offset)
        array.mapping = self  # type: ignore[attr-defined]
        return array

    def view(self, offset: int, nbytes: int) -> memoryview:
        """View part of the mapping as bytes; the caller makes it read-only where the mapping is."""
        return bytes_view(self.array(offset, nbytes))


def bytes_view(buffer: Any) -> memoryview:
    """View a contiguous buffer of any format as flat bytes."""
    return PickleBuffer(buffer).raw()


def create_segment(nbytes: int) -> int:
    """Create an anonymous segment of zero bytes and return its descriptor; pages exist once they are written."""
    fd = os.memfd_create("outboard", os.MFD_CLOEXEC) if hasattr(os, "memfd_create") else _unlinked_file()
    try:
        os.ftruncate(fd, nbytes)
    except OSError:
        os.close(fd)
        raise
    return fd


def _unlinked_file() -> int:
    import tempfile

    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    fd, path = tempfile.mkstemp(prefix="outboard-", dir=folder)
    os.unlink(path)
    return fd


def readonly_fd(fd: int) -> int:
    """Return a new descriptor of the segment that cannot be written through, where the system can make one."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return os.dup(fd)


def drop_private_pages(mapping: Mapping, offset: int, nbytes: int) -> None:
    """Forget what was written to part of a private mapping, so that it shows the segment's bytes again.

    Of a large part only what lies between the first and the last page that were written to: the others show the
    segment's bytes as they are, and mapping them again takes a third of the time of reading them.
    """
    if nbytes >= _LOOK_NBYTES:
        first, end = _written_part(mapping.address + offset, nbytes)
        offset, nbytes = offset + first, end - first
    if nbytes and _libc.madvise(mapping.address + offset, nbytes, _MADV_DONTNEED):
        raise _last_error("madvise")


def _written_part(address: int, nbytes: int) -> tuple[int, int]:
    """Offsets of the begin and the end of what was written to in a private mapping; all of it where nobody knows."""
    count = -(-nbytes // mmap.PAGESIZE)
    try:
        # Opened each time: it shows the process that opened it, and this one may have been forked since.
        with open("/proc/self/pagemap", "rb", buffering=0) as file:
            entries = os.pread(file.fileno(), count * _PAGEMAP_ENTRY, address // mmap.PAGESIZE * _PAGEMAP_ENTRY)
    except OSError:
        return 0, nbytes
    if sys.byteorder != "little" or len(entries) != count * _PAGEMAP_ENTRY:
        return 0, nbytes
    written = entries[_PAGEMAP_ENTRY - 1 :: _PAGEMAP_ENTRY].translate(_IS_WRITTEN)
    first = written.find(1)
    return (0, 0) if first < 0 else (first * mmap.PAGESIZE, min(nbytes, (written.rfind(1) + 1) * mmap.PAGESIZE))


def populate(mapping: Mapping, offset: int, nbytes: int) -> None:
    """Make the pages of a writable mapping ahead of use, GIL released; does nothing where the system cannot."""
    _libc.madvise(mapping.address + offset, nbytes, _MADV_POPULATE_WRITE)


def keep_freed_memory() -> None:
    """Let this process use the memory of one large message again for the next; for as long as it lives."""
    if sys.platform == "linux" and hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_TRIM_THRESHOLD, KEPT_NBYTES)
        _libc.mallopt(_M_MMAP_THRESHOLD, KEPT_BLOCK_NBYTES)


def write_at(fd: int, offset: int, buffers: Sequence[Any]) -> None:
    """Write buffers one after the other from ``offset`` on, GIL released; raises ``OSError`` when memory is out."""
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        while view.nbytes:
            written = os.pwrite(fd, view, offset)
            offset += written
            view = view[written:]


def copy(mapping: Mapping, offset: int, source: Any) -> None:
    """Copy a contiguous buffer into a writable mapping, GIL released."""
    held = _PyBuffer()
    _get_buffer(source, held, 0)
    try:
        if offset < 0 or offset + held.len > mapping.nbytes:
            raise ValueError(f"{held.len} bytes at {offset} exceed the segment of {mapping.nbytes} bytes")
        ctypes.memmove(mapping.address + offset, held.buf, held.len)
    finally:
        _release_buffer(held)


def address_of(source: Any) -> int:
    """Give the address of a contiguous buffer's first byte; it stays valid only while the buffer's owner lives."""
    held = _PyBuffer()
    _get_buffer(source, held, 0)
    address: int = held.buf or 0
    _release_buffer(held)
    return address


def equal(first: Any, second: Any) -> bool:
    """Tell whether two contiguous buffers hold the same bytes, GIL released."""
    one, two = _PyBuffer(), _PyBuffer()
    _get_buffer(first, one, 0)
    try:
        _get_buffer(second, two, 0)
        try:
            return bool(one.len == two.len and not _libc.memcmp(one.buf, two.buf, one.len))
        finally:
            _release_buffer(two)
    finally:
        _release_buffer(one)


def release(fd: int, offset: int, nbytes: int) -> bool:
    """Give the pages of part of a segment back to the system; False where the system cannot (they stay)."""
    if sys.platform != "linux":
        return False
    punch = _libc.fallocate
    punch.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return not punch(fd, _PUNCH_HOLE_KEEP_SIZE, offset, nbytes)


def _last_error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")

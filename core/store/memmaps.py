"""Arguments that are numpy memmaps: the process that runs the task opens the file itself.

What a task writes to such an argument must reach the file, so writable ones always go that way, whatever their size,
and so do plain arrays that show part of one. Large read-only ones do while no other machine may be meant; else, and
where the file is not what the array shows any more (deleted, replaced), their contents go as those of any array.
Copy-on-write ones (mode ``c``) show what no file has and go by content too.
"""

from __future__ import annotations

import importlib
import mmap
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import SerializationError
from . import memory, serialize

#: Read-only memmaps below this many bytes stay in the stream: to open a file takes longer than to copy them.
FILE_MIN = 64 * 1024

#: How many levels of containers, and values in one, are looked through for memmaps before a call is pickled: about 1 µs
#: for a call without. Memmaps elsewhere are found once it is pickled, but then their contents have been read; plain
#: arrays that show one are not.
_LOOK_LEVELS = 4
_LOOK_LENGTH = 32
_CONTAINERS = (tuple, list, dict)

#: Modes whose changes reach the file.
WRITABLE = ("r+", "w+")

_inodes: weakref.WeakKeyDictionary[mmap.mmap, int] = weakref.WeakKeyDictionary()


class _Layout(NamedTuple):
    """How an array lies in its file: `begin` and `nbytes` of what is mapped, `first`: its first element there."""

    begin: int
    nbytes: int
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def reducers(*, readonly_by_file: bool) -> dict[type, Callable[[Any], Any]]:
    """Reducers for memmaps, if this process may have any."""
    wanted, plain = _array_types()
    if wanted is None or plain is None:
        return {}
    return {wanted: lambda array: _reduce(array, readonly_by_file=readonly_by_file), plain: _reduce_plain}


def lie_in(value: Any) -> bool:
    """Whether a value holds a memmap where arguments are usually found; none found does not mean that there is none."""
    wanted, plain = _array_types()
    if wanted is None or plain is None:
        return False
    level = [value]
    for _ in range(_LOOK_LEVELS):
        below: list[Any] = []
        for part in level:
            kind = type(part)
            if kind is wanted or (kind is plain and part.base is not None and _shows_writable(part)):
                return True
            if kind in _CONTAINERS and len(part) <= _LOOK_LENGTH:
                below += part.values() if kind is dict else part
        if not below or len(below) > _LOOK_LENGTH:
            return False
        level = below
    return False


def _array_types() -> tuple[Any, Any]:
    """Return numpy's types of memmaps and of arrays; None for those that this process cannot have yet."""
    numpy = sys.modules.get("numpy")
    return getattr(numpy, "memmap", None), getattr(numpy, "ndarray", None)


def _shows_writable(array: Any) -> bool:
    root = _root_of(array)
    return root is not None and root.mode in WRITABLE and array.flags.writeable


def _reduce(array: Any, *, readonly_by_file: bool) -> Any:
    root = _root_of(array)
    is_large = array.nbytes >= FILE_MIN
    if root is not None and (root.mode in WRITABLE or (readonly_by_file and is_large)):
        place = _find_file(array, root)
        if place is not None:
            return _open, place
    return (_as_memmap, (sys.modules["numpy"].asarray(array),)) if is_large else array.__reduce_ex__(5)


def _reduce_plain(array: Any) -> Any:
    place = _find_file(array, _root_of(array)) if array.base is not None and _shows_writable(array) else None
    return serialize.reduce_array(array) if place is None else (_open_plain, place)


def _root_of(array: Any) -> Any:
    """Return the memmap that made the mapping which an array shows; None when it shows other memory."""
    numpy = sys.modules["numpy"]
    root = array
    while isinstance(root.base, numpy.ndarray):
        root = root.base
    return root if isinstance(root, numpy.memmap) and isinstance(root.base, mmap.mmap) else None


def _find_file(array: Any, root: Any) -> tuple[Any, ...] | None:
    """Find the file whose bytes an array shows, as `_open` takes it; None when nobody can tell, or it shows others."""
    mapping = root.base
    if not root.filename or root.mode == "c" or not array.size:
        return None
    try:
        status = os.stat(root.filename)
        if status.st_ino != _inode_of(mapping) or status.st_size != mapping.size():
            return None
    except (OSError, ValueError):  # it has gone, or the map is closed
        return None
    steps = [stride * (length - 1) for stride, length in zip(array.strides, array.shape, strict=True)]
    before = -sum(step for step in steps if step < 0)
    nbytes = before + sum(step for step in steps if step > 0) + array.itemsize
    # The mapping begins on a unit of the system's; numpy notes where its first array begins behind that.
    begin = root.offset - root.offset % mmap.ALLOCATIONGRANULARITY
    begin += array.__array_interface__["data"][0] - memory.address_of(mapping) - before
    layout = _Layout(begin, nbytes, before, array.shape, array.strides)
    mode = "r+" if root.mode in WRITABLE else "r"
    return str(root.filename), mode, status.st_ino, layout, array.dtype, array.flags.writeable


def _inode_of(mapping: mmap.mmap) -> int:
    """The file behind a mapping, as the system knows it; an OSError where it does not tell."""
    inode = _inodes.get(mapping)
    if inode is None:
        inode = _inodes[mapping] = _inode_at(memory.address_of(mapping))
    return inode


def _inode_at(address: int) -> int:
    with open("/proc/self/maps", "rb") as file:
        for line in file:
            fields = line.split(maxsplit=5)
            begin, _, end = fields[0].partition(b"-")
            if int(begin, 16) <= address < int(end, 16):
                return int(fields[4])
    raise OSError(f"nothing is mapped at {address:#x}")


def _as_memmap(array: Any) -> Any:
    return array.view(sys.modules["numpy"].memmap)


def _open(filename: str, mode: str, inode: int, layout: _Layout, dtype: Any, is_writable: bool) -> Any:
    """Map an array's file in the process that was given it."""
    numpy = importlib.import_module("numpy")

    try:
        with open(filename, "rb" if mode == "r" else "r+b") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != inode or status.st_size < layout.begin + layout.nbytes:
                raise SerializationError(
                    f"an argument is a memmap of {filename}, which is another file here", what="argument"
                )
            raw = numpy.memmap(file, numpy.uint8, mode, layout.begin, (layout.nbytes,))
    except OSError as error:
        raise SerializationError(
            f"an argument is a memmap of {filename}, which this machine cannot open ({error.strerror}). Put it where "
            "all machines see it, or pass a copy of the array.", what="argument", reason=error
        ) from error  # fmt: skip
    array = numpy.ndarray.__new__(numpy.memmap, layout.shape, dtype, raw, layout.first, layout.strides)
    array._mmap, array.filename, array.mode = raw._mmap, raw.filename, mode
    array.offset = layout.begin + layout.first
    array.flags.writeable = is_writable
    return array


def _open_plain(*place: Any) -> Any:
    return importlib.import_module("numpy").asarray(_open(*place))

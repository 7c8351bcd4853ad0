"""The model of shared memory, and the values of a simulated process over it.

`Values`, its allocator and its bookkeeping are the real ones; only the segments behind them are a table here. The table
knows every live view, so bytes that change under one are seen at once.
"""

from __future__ import annotations

import pickle
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..client import Client
from ..clientvalues import ClientValues
from ..errors import ObjectLostError
from ..ids import ObjectId
from ..rpc.protos import outboard_pb2 as pb
from ..sharing import SharedArguments
from ..store.extent import extent_nbytes
from ..values import Batch, Encoded

if TYPE_CHECKING:
    from .machine import Machine

PAGE = 4096


class Cell(NamedTuple):
    """What lies in one extent."""

    oid: ObjectId
    version: int
    nbytes: int
    stream: bytes


class Memory:
    """All segments of one node's store. `views` counts the live views of each extent, whoever has them."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.segments: dict[int, dict[int, Cell]] = {}
        self.views: Counter[tuple[int, int]] = Counter()

    def write(self, segment: int, offset: int, cell: Cell) -> None:
        """A process writes an extent that its allocator gave it."""
        cells = self.segments.setdefault(segment, {})
        for at in [at for at, old in cells.items() if at < offset + cell.nbytes and offset < at + old.nbytes]:
            self._check_unused(segment, at, f"{cell.oid.hex()} was written over it")
            del cells[at]
        cells[offset] = cell

    def release(self, segment: int, offset: int) -> None:
        """The node gives the pages of an extent back."""
        self._check_unused(segment, offset, "its pages were given back")
        self.segments.get(segment, {}).pop(offset, None)

    def reclaim(self, segment: int, offset: int) -> None:
        """The node tells the writer that it may use the space again; the bytes stay until it does."""
        self._check_unused(segment, offset, "its writer was told that nobody sees it")

    def _check_unused(self, segment: int, offset: int, what: str) -> None:
        cell = self.segments[segment].get(offset) if segment in self.segments else None
        assert not self.views[segment, offset], f"{cell and cell.oid} has live views, and {what}"
        pins = self._machine.pins_of(cell.oid, cell.version, segment, offset) if cell is not None else 0
        assert not pins, f"{cell and cell.oid} is pinned {pins} times, and {what}"

    def read(self, d: Any) -> Cell | None:
        """What a descriptor names, if it still lies there."""
        cell = self.segments.get(d.segment, {}).get(d.offset)
        if cell is None or cell.oid != (d.owner, d.seq) or cell.version != d.version:
            return None
        return cell


class Reader:
    """Maps segments and counts views, as `SegmentReader`. Views end when the program says so."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._mapped: set[int] = set()
        self._opens: Counter[tuple[int, int]] = Counter()
        self._total: Counter[tuple[int, int]] = Counter()
        self._seen: dict[tuple[int, int], Cell] = {}  # what each view showed when it was opened
        self.opened: list[tuple[int, int]] = []  # views that nobody has taken charge of yet
        self.ended: list[tuple[int, int]] = []

    def has(self, segment: int) -> bool:
        """Whether it can be read: in this world every segment that is written can."""
        return True

    def open(self, owner: int, seq: int, version: int, segment: int, offset: int, nbytes: int, *,
             writable: bool) -> tuple[bytes, list[memoryview]]:  # fmt: skip
        """Give a view of an extent after comparing its header."""
        wanted = pb.Descriptor(owner=owner, seq=seq, version=version, segment=segment, offset=offset)
        cell = self._memory.read(wanted)
        if cell is None:
            raise ObjectLostError(f"extent {segment}:{offset} holds something else")
        key = segment, offset
        self._opens[key] += 1
        self._total[key] += 1
        self._memory.views[key] += 1
        self._seen[key] = cell
        self.opened.append(key)
        return cell.stream, [memoryview(cell.stream)]

    def look_again(self, key: tuple[int, int]) -> None:
        """Read through a view: the bytes under it are those of its object, however long it has been kept."""
        segment, offset = key
        found = self._memory.segments.get(segment, {}).get(offset)
        assert found is self._seen[key], f"a view of {self._seen[key].oid} shows {found and found.oid}"

    def end_view(self, key: tuple[int, int]) -> None:
        """A view has ended."""
        self._memory.views[key] -= 1
        self.ended.append(key)

    def collect(self) -> list[tuple[int, int]]:
        """Entries of extents without views, one for each time they were opened; those of an extent come together."""
        done = []
        for key in self.ended:
            self._opens[key] -= 1
            if not self._opens[key]:
                del self._opens[key], self._seen[key]
                done += [key] * self._total.pop(key)
        self.ended.clear()
        return done

    def add(self, segment: int, fd: int, nbytes: int) -> None:
        """A segment was leased."""
        self._mapped.add(segment)

    def remove(self, segment: int) -> None:
        """A segment was given back."""
        self._mapped.discard(segment)

    def forget(self) -> None:
        """The process ends, and its views with it."""
        self.collect()
        for key, count in self._opens.items():
            self._memory.views[key] -= count
        self._opens.clear()


class Writer:
    """Writes to a leased segment, as `SegmentWriter`."""

    def __init__(self, memory: Memory, segment: int) -> None:
        self._memory = memory
        self._segment = segment

    def write(self, offset: int, oid: ObjectId, version: int, stream: bytes, raws: Any, *, fresh: bool) -> None:
        """Store one object."""
        self._memory.write(self._segment, offset, Cell(oid, version, extent_nbytes(len(stream), []), stream))

    def close(self) -> None:
        """Nothing here has descriptors."""


class SimValues(ClientValues):
    """The values of a simulated process; what is encoded is (token, attempt, references)."""

    def __init__(self, client: Client, node: int, memory: Memory) -> None:
        super().__init__(client, node)
        self.memory = memory
        self.reader: Any = Reader(memory)
        self.pulled: dict[tuple[int, int, int], list[pb.Descriptor]] = {}
        self._pull = self._take_pulled

    def has_room(self, pages: int) -> bool:
        """Whether an object of so many pages fits into what is leased."""
        extent = self._allocator.allocate(pages * PAGE)
        if extent is not None:
            self._allocator.free(extent.segment, extent.offset)
        return extent is not None

    def _take_pulled(self, d: pb.Descriptor, deadline: float | None) -> pb.Descriptor:
        """The copy that was asked for before the value is opened; see `Calls.bring`."""
        return self.pulled[d.owner, d.seq, d.version].pop()

    def add_lease(self, segment: int, fd: int, nbytes: int) -> None:
        """Write to one more segment."""
        self._writers[segment] = Writer(self.memory, segment)  # type: ignore[assignment]
        self._allocator.add_segment(segment, nbytes)

    def store(self, oid: ObjectId, version: int, value: Any, pages: int) -> pb.Descriptor:
        """Store a value in so many pages, for which `has_room` holds."""
        stream = pickle.dumps(value, 5)
        return self._store(oid, version, stream.ljust(pages * PAGE - 256, b"\0"), [])

    def encode(self, value: Any, oid: ObjectId, version: int, refs: tuple[ObjectId, ...], pages: int) -> Encoded:
        """Encode a result or a put."""
        wire = [pb.Ref(owner=r.owner, seq=r.seq) for r in refs]
        if pages:
            d = self.store(oid, version, value, pages)
            parcel = pb.Parcel(stored=d, refs=wire)
            return Encoded(pb.Outcome(value=parcel).SerializeToString(), (d,), refs, d.nbytes)
        stream = pickle.dumps(value, 5)
        if not refs:
            return Encoded(stream)
        return Encoded(pb.Outcome(value=pb.Parcel(stream=stream, refs=wire)).SerializeToString(), (), refs)

    def encode_arguments(self, value: Any, refs: tuple[ObjectId, ...], buffers: tuple[pb.Descriptor, ...],
                         inputs: int = 0) -> Encoded:  # fmt: skip
        """Encode a call: references inside it, stored buffers beside it."""
        stream = pickle.dumps(value, 5)
        if not (refs or buffers or inputs):
            return Encoded(stream)
        parcel = pb.Parcel(stream=stream, refs=[pb.Ref(owner=r.owner, seq=r.seq) for r in refs],
                           buffers=[pb.Buffer(stored=d, readonly=True) for d in buffers])  # fmt: skip
        return Encoded(parcel.SerializeToString(), buffers, refs, sum(d.nbytes for d in buffers))

    def encode_call(self, call: Any, inputs: int = 0, batch: Batch | None = None,
                    shared: SharedArguments | None = None, are_arguments: bool = False) -> Encoded:  # fmt: skip
        """Encode an item of an array; it is (value, references) here."""
        value, refs = call
        return self.encode_arguments(value, refs, ())

"""Values of one process: from Python objects to the bytes that travel, and back.

Small values are pickle streams inline. Large buffers go to shared memory and only descriptors travel. A buffer that is
already stored and still in use is not stored again: its address finds the candidate, its bytes confirm it, so an array
that changed in place is never stale.

Threads: `encode_*` and `decode` may run in any thread and call user code (pickling), so never under the client's lock.
`space` guards the allocator alone.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from .ids import ObjectId
from .rpc.protos import outboard_pb2 as pb
from .scheduler.allocator import Allocator, Extent
from .store import memory, serialize
from .store.extent import extent_nbytes
from .store.segments import SegmentReader, SegmentWriter

#: Values up to this size travel inside messages; larger ones go to the store. 100 KiB as in Ray: below it a copy
#: through two sockets is cheaper than an extent, a mapping and its pin.
INLINE_MAX = 100 << 10


class Encoded(NamedTuple):
    """An encoded value. `objects`: stored objects inside it, `refs`: references inside it, `nbytes`: newly stored."""

    body: bytes
    objects: tuple[pb.Descriptor, ...] = ()
    refs: tuple[ObjectId, ...] = ()
    nbytes: int = 0


class Input:
    """Placeholder for a top-level argument that was a reference; its value travels beside the call."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position

    def __reduce__(self) -> tuple[type[Input], tuple[int]]:
        return Input, (self.position,)


class _Stored(NamedTuple):
    descriptor: pb.Descriptor
    epoch: int


class _Live:
    """Views of one extent that are alive here, and what to do when the last has ended."""

    __slots__ = ("descriptor", "opens", "pinned")

    def __init__(self, descriptor: pb.Descriptor) -> None:
        self.descriptor = descriptor
        self.opens = 0  # references held for the views
        self.pinned = 0  # pins of the node to give back


class Ended(NamedTuple):
    """Views that ended: drop so many references, give back so many pins."""

    oid: ObjectId
    version: int
    opens: int
    pins: int


class Values:
    """The objects of one process.

    `lease(nbytes)` and `fetch(segment)` ask the node and wait; they raise `StoreFullError` or `ObjectLostError`.
    `take_seq()` reserves a number for a new object; `hold(oid) -> bool` counts a reference if the object still lives.
    """

    def __init__(self, incarnation: int, node: int, *, lease: Callable[[int], None],
                 fetch: Callable[[int], None], take_seq: Callable[[], int],
                 hold: Callable[[ObjectId], bool]) -> None:  # fmt: skip
        self.incarnation = incarnation
        self.node = node
        self.reader = SegmentReader()
        self.epoch = 0  # while it stands still, a buffer met again needs no comparison
        self._allocator = Allocator()
        self._writers: dict[int, SegmentWriter] = {}
        self._extents: dict[ObjectId, Extent] = {}
        self._unannounced: dict[ObjectId, pb.Descriptor] = {}
        self._stored: dict[tuple[int, int], _Stored] = {}
        self._address_of: dict[ObjectId, tuple[int, int]] = {}
        self._live: dict[tuple[int, int], _Live] = {}
        self._space = threading.RLock()
        self._lease, self._fetch, self._take_seq, self._hold = lease, fetch, take_seq, hold

    # -- encoding -----------------------------------------------------------------------------------------------------

    def encode_value(self, value: Any, make_id: Callable[[], ObjectId], version: int, *,
                     to_origin: bool = False) -> Encoded:  # fmt: skip
        """Encode a result or a `put`: one extent for stream and buffers when it is large.

        `to_origin`: only the client whose `__main__` this process adopted will rebuild it.
        """
        small = serialize.dumps_small(value)
        if small is not None and len(small) <= INLINE_MAX:
            return Encoded(small)
        pickled = serialize.Pickled(small, [], []) if small is not None else serialize.dumps(value, to_origin=to_origin)
        total = len(pickled.stream) + sum(b.raw().nbytes for b in pickled.buffers)
        refs = tuple(pickled.refs)
        if total <= INLINE_MAX:
            if not pickled.buffers and not refs:
                return Encoded(pickled.stream)
            buffers = [self._inline(b) for b in pickled.buffers]
            return Encoded(_outcome(pb.Parcel(stream=pickled.stream, buffers=buffers, refs=_refs(refs))), refs=refs)
        descriptor = self._store(make_id(), version, pickled.stream, pickled.buffers)
        return Encoded(_outcome(pb.Parcel(stored=descriptor, refs=_refs(refs))), (descriptor,), refs, total)

    def encode_call(self, call: Any, inputs: int = 0) -> Encoded:
        """Encode the arguments of a task; each large buffer is an object of its own, stored once while in use."""
        small = serialize.dumps_small(call) if not inputs else None
        if small is not None and len(small) <= INLINE_MAX:
            return Encoded(small)
        pickled = serialize.Pickled(small, [], []) if small is not None else serialize.dumps(call)
        refs = tuple(pickled.refs)
        if len(pickled.stream) > INLINE_MAX:
            oid = ObjectId(self.incarnation, self._take_seq())
            descriptor = self._store(oid, 0, pickled.stream, pickled.buffers)
            return Encoded(pb.Parcel(stored=descriptor, refs=_refs(refs)).SerializeToString(), (descriptor,), refs,
                           descriptor.nbytes)  # fmt: skip
        if not (pickled.buffers or refs or inputs):
            return Encoded(pickled.stream)
        parcel = pb.Parcel(stream=pickled.stream, refs=_refs(refs))
        objects, nbytes = [], 0
        for buffer in pickled.buffers:
            descriptor, fresh = self._store_once(buffer)
            parcel.buffers.add(stored=descriptor, readonly=buffer.raw().readonly)
            objects.append(descriptor)
            nbytes += fresh
        return Encoded(parcel.SerializeToString(), tuple(objects), refs, nbytes)

    @staticmethod
    def _inline(buffer: pickle.PickleBuffer) -> pb.Buffer:
        raw = buffer.raw()
        return pb.Buffer(inline=raw.tobytes(), readonly=raw.readonly)

    def _store_once(self, buffer: pickle.PickleBuffer) -> tuple[pb.Descriptor, int]:
        """Return the stored copy of a buffer with one reference held for the caller, and how many bytes are new."""
        raw = buffer.raw()
        key = (memory.address_of(raw), raw.nbytes)
        with self._space:
            stored = self._stored.get(key)
            if stored is not None:
                oid = ObjectId(self.incarnation, stored.descriptor.seq)
                extent = self._extents.get(oid)
                if extent is not None and self._hold(oid):
                    if stored.epoch == self.epoch or self._writers[extent.segment].equal_to(extent.offset, b"", [raw]):
                        self._stored[key] = _Stored(stored.descriptor, self.epoch)
                        return stored.descriptor, 0
                    self.release_hold(oid)
        oid = ObjectId(self.incarnation, self._take_seq())
        descriptor = self._store(oid, 0, b"", [buffer])
        self._stored[key] = _Stored(descriptor, self.epoch)
        self._address_of[oid] = key
        return descriptor, descriptor.nbytes

    def release_hold(self, oid: ObjectId) -> None:
        """Overridden by the client: drop the reference that `hold` counted."""
        raise NotImplementedError

    def _store(self, oid: ObjectId, version: int, stream: bytes, buffers: list[pickle.PickleBuffer]) -> pb.Descriptor:
        raws = [b.raw() for b in buffers]
        nbytes = extent_nbytes(len(stream), [raw.nbytes for raw in raws])
        extent = self._allocate(nbytes)
        self._writers[extent.segment].write(extent.offset, oid, version, stream, raws, fresh=extent.fresh)
        descriptor = pb.Descriptor(owner=oid.owner, seq=oid.seq, version=version, segment=extent.segment,
                                   offset=extent.offset, nbytes=nbytes, node=self.node)  # fmt: skip
        with self._space:
            self._extents[oid] = extent
            self._unannounced[oid] = descriptor
        return descriptor

    def _allocate(self, nbytes: int) -> Extent:
        with self._space:
            extent = self._allocator.allocate(nbytes)
        while extent is None:
            self._lease(nbytes)
            with self._space:
                extent = self._allocator.allocate(nbytes)
        return extent

    def add_lease(self, segment: int, fd: int, nbytes: int) -> None:
        """Take over a segment that the node has leased to this process."""
        with self._space:
            self.reader.add(segment, os.dup(fd), nbytes)
            self._writers[segment] = SegmentWriter(segment, fd, nbytes)
            self._allocator.add_segment(segment, nbytes)

    def take_unannounced(self, objects: tuple[pb.Descriptor, ...]) -> list[pb.Descriptor]:
        """Return those of `objects` that the node must hear of with this message."""
        found = []
        for descriptor in objects:
            if self._unannounced.pop(ObjectId(descriptor.owner, descriptor.seq), None) is not None:
                found.append(descriptor)
        return found

    def free(self, oid: ObjectId) -> bool:
        """Nobody refers to an object any more; True: the node never heard of it and the room is free at once."""
        with self._space:
            address = self._address_of.pop(oid, None)
            stored = self._stored.get(address) if address is not None else None
            if address is not None and stored is not None and stored.descriptor.seq == oid.seq:
                del self._stored[address]
            if self._unannounced.pop(oid, None) is None:
                return False
            extent = self._extents.pop(oid)
            self._allocator.free(extent.segment, extent.offset)
            return True

    def reclaim(self, segment: int, offset: int) -> None:
        """The node says that nobody sees this extent any more."""
        with self._space:
            self._allocator.free(segment, offset)

    @property
    def allocated_nbytes(self) -> int:
        """Bytes of extents in use that this process wrote."""
        return self._allocator.used_nbytes

    # -- decoding -----------------------------------------------------------------------------------------------------

    def decode(self, body: bytes, *, writable: bool = False, pinned: bool = False) -> Any:
        """Rebuild a value from value bytes that are no error; its views keep the extent (see `collect`)."""
        if body[0] == 0x80:
            return pickle.loads(body)
        return self.open_parcel(pb.Outcome.FromString(body).value, writable=writable, pinned=pinned)

    def decode_call(self, body: bytes, *, writable: bool) -> tuple[Any, list[bytes]]:
        """Rebuild a task's arguments: (value, value bytes of its inputs). Extents are pinned by the node."""
        if body[0] == 0x80:
            return pickle.loads(body), []
        parcel = pb.Parcel.FromString(body)
        return self.open_parcel(parcel, writable=writable, pinned=True), list(parcel.inputs)

    def open_parcel(self, parcel: pb.Parcel, *, writable: bool, pinned: bool) -> Any:
        """Rebuild a value from its parcel."""
        if parcel.HasField("stored"):
            stream, buffers = self._open(parcel.stored, writable=writable, pinned=pinned)
            return serialize.loads(stream, buffers)
        buffers = []
        for buffer in parcel.buffers:
            if buffer.HasField("stored"):
                opened = self._open(buffer.stored, writable=writable, pinned=pinned)[1][0]
                buffers.append(opened.toreadonly() if buffer.readonly else opened)
            else:
                buffers.append(
                    memoryview(buffer.inline if buffer.readonly or not writable else bytearray(buffer.inline))
                )
        return serialize.loads(parcel.stream, buffers)

    def _open(self, d: pb.Descriptor, *, writable: bool, pinned: bool) -> tuple[memoryview, list[memoryview]]:
        if not self.reader.has(d.segment):
            self._fetch(d.segment)
        key = (d.segment, d.offset)
        with self._space:
            opened = self.reader.open(d.owner, d.seq, d.version, d.segment, d.offset, d.nbytes, writable=writable)
            live = self._live.get(key)
            if live is None:
                live = self._live[key] = _Live(d)
            if pinned:
                live.pinned += 1
            elif self._hold(ObjectId(d.owner, d.seq)):
                live.opens += 1
        return opened

    def close(self) -> None:
        """Close the descriptors of all segments (at the end, or in a forked child); views stay valid."""
        self.reader.forget()
        for writer in list(self._writers.values()):
            writer.close()

    def live(self) -> list[pb.Descriptor]:
        """Descriptors of the extents that views of this process show now."""
        with self._space:
            return [live.descriptor for live in self._live.values()]

    def collect(self) -> list[Ended]:
        """Return what ended since the last call: the references and pins of views that nobody holds any more."""
        if not self.reader.ended:
            return []
        ended = []
        with self._space:
            for segment, offset, *_ in self.reader.collect():  # one entry per open, those of an extent together
                live = self._live.pop((segment, offset), None)
                if live is not None:
                    d = live.descriptor
                    ended.append(Ended(ObjectId(d.owner, d.seq), d.version, live.opens, live.pinned))
        return ended


def _outcome(parcel: pb.Parcel) -> bytes:
    return pb.Outcome(value=parcel).SerializeToString()


def _refs(refs: tuple[ObjectId, ...]) -> list[pb.Ref]:
    return [pb.Ref(owner=r.owner, seq=r.seq) for r in refs]

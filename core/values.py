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
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .ids import ObjectId
from .rpc.protos import outboard_pb2 as pb
from .scheduler.allocator import Allocator, Extent
from .sharing import Place, SharedArguments, memory_owner
from .store import memmaps, memory, serialize
from .store.extent import extent_nbytes
from .store.segments import SegmentReader, SegmentWriter

#: Values up to this size travel inside messages; larger ones go to the store. 100 KiB as in Ray: below it a copy
#: through two sockets is cheaper than an extent, a mapping and its pin.
INLINE_MAX = 100 << 10


#: Buffers met while many values are encoded at once. They are kept, so that no other takes the place of one meanwhile;
#: what the program changes in them at the same time is its own affair.
Batch = dict[Place, memoryview]


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


class _Live:
    """Views of one extent that are alive here, and what to do when the last has ended."""

    __slots__ = ("descriptor", "opens", "pinned", "pulled")

    def __init__(self, descriptor: pb.Descriptor) -> None:
        self.descriptor = descriptor
        self.opens = 0  # references held for the views
        self.pinned = 0  # pins of the node to give back
        self.pulled = 0  # pins of a copy that the node pulled for us, to give back


class Ended(NamedTuple):
    """Views that ended: drop so many references, give back so many pins, and so many of what was pulled."""

    oid: ObjectId
    version: int
    opens: int
    pins: int
    pulled: int


class Values:
    """The objects of one process.

    `lease(nbytes)`, `fetch(segment)` and `pull(descriptor, deadline)` ask the node and wait; they raise
    `StoreFullError` or `ObjectLostError`. `pull` returns the descriptor of a copy at this node, which is pinned for us.
    `take_seq()` reserves a number for a new object; `hold(oid) -> bool` counts a reference if the object still lives.
    """

    def __init__(self, incarnation: int, node: int, *, lease: Callable[[int], None],
                 fetch: Callable[[int], None], pull: Callable[[pb.Descriptor, float | None], pb.Descriptor],
                 take_seq: Callable[[], int], hold: Callable[[ObjectId], bool]) -> None:  # fmt: skip
        self.incarnation = incarnation
        self.node = node
        self.reader = SegmentReader()
        self._allocator = Allocator()
        self._writers: dict[int, SegmentWriter] = {}
        self._extents: dict[ObjectId, Extent] = {}
        self._unannounced: dict[ObjectId, pb.Descriptor] = {}
        self._stored: dict[Place, pb.Descriptor] = {}
        self._place_of: dict[ObjectId, Place] = {}
        self._live: dict[tuple[int, int], _Live] = {}
        self._live_nbytes = 0  # of the extents that views show
        self.taken: list[tuple[ObjectId, int]] = []  # pins of the node's that the running task has taken over
        self.most_viewed = sys.maxsize  # bytes of results to be shown as views; what comes beyond is copied
        self._space = threading.RLock()
        self._leasing = 0  # threads that wait for a segment
        self._lease, self._fetch, self._pull, self._take_seq, self._hold = lease, fetch, pull, take_seq, hold

    # -- encoding -----------------------------------------------------------------------------------------------------

    def encode_value(self, value: Any, make_id: Callable[[], ObjectId], version: int, *,
                     to_origin: bool = False, inline: int = INLINE_MAX) -> Encoded:  # fmt: skip
        """Encode a result or a `put`: one extent for stream and buffers when it is large.

        `to_origin`: only the client whose `__main__` this process adopted will rebuild it. `inline`: bytes up to which
        it is not large.
        """
        small = serialize.dumps_small(value)
        if small is not None and len(small) <= inline:
            return Encoded(small)
        pickled = serialize.Pickled(small, [], []) if small is not None else serialize.dumps(value, to_origin=to_origin)
        total = len(pickled.stream) + sum(b.raw().nbytes for b in pickled.buffers)
        refs = tuple(pickled.refs)
        if total <= inline:
            if not pickled.buffers and not refs:
                return Encoded(pickled.stream)
            buffers = [self._inline(b) for b in pickled.buffers]
            return Encoded(_outcome(pb.Parcel(stream=pickled.stream, buffers=buffers, refs=_refs(refs))), refs=refs)
        descriptor = self._store(make_id(), version, pickled.stream, pickled.buffers)
        return Encoded(_outcome(pb.Parcel(stored=descriptor, refs=_refs(refs))), (descriptor,), refs, total)

    def encode_call(self, call: Any, inputs: int = 0, batch: Batch | None = None,
                    shared: SharedArguments | None = None, are_arguments: bool = False) -> Encoded:  # fmt: skip
        """Encode the arguments of a task; each large buffer is an object of its own, stored once while in use.

        A buffer that is in `batch` or `shared` already needs no comparison with what was stored; the others are added.
        Memmaps travel as the names of their files; read-only ones only if `are_arguments`: what is for one task alone
        does not reach machines that join later, as functions may.
        """
        has_memmap = memmaps.lie_in(call)
        small = serialize.dumps_small(call) if not (inputs or has_memmap) else None
        if small is not None and serialize.names_memmap(small):
            small, has_memmap = None, True
        if small is not None and len(small) <= INLINE_MAX:
            return Encoded(small)
        if small is not None:
            pickled = serialize.Pickled(small, [], [])
        else:
            reducers = memmaps.reducers(readonly_by_file=are_arguments and self.is_alone())
            pickled = serialize.dumps(call, reducers=reducers, reduces=has_memmap)
        refs = tuple(pickled.refs)
        if len(pickled.stream) > INLINE_MAX:
            oid = ObjectId(self.incarnation, self._take_seq())
            descriptor = self._store(oid, 0, pickled.stream, pickled.buffers)
            return Encoded(pb.Parcel(stored=descriptor, refs=_refs(refs)).SerializeToString(), (descriptor,), refs,
                           descriptor.nbytes)  # fmt: skip
        if not (pickled.buffers or refs or inputs):
            return Encoded(pickled.stream)
        parcel = pb.Parcel(stream=pickled.stream, refs=_refs(refs))
        stored: list[tuple[pb.Descriptor, int]] = []
        try:
            for buffer in pickled.buffers:
                stored.append(self._store_once(buffer, batch, shared))
                parcel.buffers.add(stored=stored[-1][0], readonly=buffer.raw().readonly)
        except BaseException:
            self._abandon(stored, are_owned=shared is not None)
            raise
        return Encoded(parcel.SerializeToString(), tuple(d for d, _ in stored), refs, sum(new for _, new in stored))

    def _abandon(self, stored: list[tuple[pb.Descriptor, int]], *, are_owned: bool) -> None:
        """Take back what was stored, or counted, for a call that will not be sent."""
        for descriptor, fresh in stored:
            oid = ObjectId(descriptor.owner, descriptor.seq)
            if fresh and not are_owned:
                self.free(oid)
            else:
                self.release_hold(oid)

    @staticmethod
    def _inline(buffer: pickle.PickleBuffer) -> pb.Buffer:
        raw = buffer.raw()
        return pb.Buffer(inline=raw.tobytes(), readonly=raw.readonly)

    def _store_once(self, buffer: pickle.PickleBuffer, batch: Batch | None,
                    shared: SharedArguments | None) -> tuple[pb.Descriptor, int]:  # fmt: skip
        """Return the stored copy of a buffer with one reference held for the caller, and how many bytes are new."""
        raw = buffer.raw()
        place = Place(memory.address_of(raw), raw.nbytes, raw.readonly)
        owner = memory_owner(raw) if shared is not None else None
        with self._space:
            stored = shared.find(place, owner) if shared is not None else None
            if stored is not None and self._hold(ObjectId(self.incarnation, stored.seq)):
                return stored, 0
            stored = self._find_equal(place, raw, is_known=batch is not None and place in batch)
            if stored is not None and shared is not None:
                shared.keep(place, owner, stored, self._hold)
        is_fresh = stored is None
        if stored is None:
            oid = ObjectId(self.incarnation, self._take_seq())
            stored = self._store(oid, 0, b"", [buffer])
            with self._space:
                self._stored[place] = stored
                self._place_of[oid] = place
                if shared is not None:
                    self.own(stored)
                    shared.keep(place, owner, stored, self._hold)
        if batch is not None:
            batch[place] = raw
        return stored, stored.nbytes if is_fresh else 0

    def _find_equal(self, place: Place, raw: memoryview, *, is_known: bool) -> pb.Descriptor | None:
        """Return what was stored from a place and still has its bytes, with one reference held."""
        stored = self._stored.get(place)
        if stored is None:
            return None
        oid = ObjectId(self.incarnation, stored.seq)
        extent = self._extents.get(oid)
        if extent is None or not self._hold(oid):
            return None
        if is_known or self._writers[extent.segment].equal_to(extent.offset, b"", [raw]):
            return stored
        self.release_hold(oid)
        return None

    def is_alone(self) -> bool:
        """Overridden by the client: whether all processes that may be given a value run on this machine."""
        return False

    def own(self, descriptor: pb.Descriptor) -> None:
        """Overridden by the client: make a new stored object known, with one reference."""
        raise NotImplementedError

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
            self._leasing += extent is None
        if extent is not None:
            return extent
        try:
            while True:
                self._lease(nbytes)
                with self._space:
                    extent = self._allocator.allocate(nbytes)
                    if extent is not None:
                        return extent
        finally:
            with self._space:
                self._leasing -= 1

    def add_lease(self, segment: int, fd: int, nbytes: int) -> None:
        """Take over a segment that the node has leased to this process."""
        with self._space:
            self.reader.add(segment, os.dup(fd), nbytes)
            self._writers[segment] = SegmentWriter(segment, fd, nbytes)
            self._allocator.add_segment(segment, nbytes)

    def give_back(self, wanted: Sequence[int]) -> tuple[list[int], list[pb.Extent]]:
        """Part with those of the wanted segments that hold nothing, and with what is not used of the others."""
        with self._space:
            # New ones are not given away under the threads that asked for them.
            idle = self._allocator.idle_segments(used_before=self._leasing > 0)
            empty = [segment for segment in idle if segment in wanted]
            for segment in empty:
                self._allocator.remove_segment(segment)
                self._writers.pop(segment).close()
                self.reader.remove(segment)
            parts = [
                pb.Extent(segment=segment, offset=offset, nbytes=nbytes)
                for segment in wanted
                for offset, nbytes in self._allocator.trim(segment)
            ]
        return empty, parts

    def take_unannounced(self, objects: tuple[pb.Descriptor, ...]) -> list[pb.Descriptor]:
        """Return those of `objects` that the node must hear of with this message."""
        found = []
        for descriptor in objects:
            oid = ObjectId(descriptor.owner, descriptor.seq)
            if self._unannounced.pop(oid, None) is not None:
                found.append(descriptor)
                if oid.owner != self.incarnation:
                    self._extents.pop(oid, None)  # its owner will not ask us for it, and the node tells its place
        return found

    def free(self, oid: ObjectId) -> bool:
        """Nobody refers to an object any more; True: the node never heard of it and the room is free at once."""
        with self._space:
            place = self._place_of.pop(oid, None)
            stored = self._stored.get(place) if place is not None else None
            if place is not None and stored is not None and stored.seq == oid.seq:
                del self._stored[place]
            extent = self._extents.pop(oid, None)
            if self._unannounced.pop(oid, None) is None or extent is None:
                return False
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

    def decode(self, body: bytes, *, writable: bool = False, pinned: bool = False,
               deadline: float | None = None) -> Any:  # fmt: skip
        """Rebuild a value from value bytes that are no error; its views keep the extent (see `collect`).

        What lies at another node is waited for until the deadline.
        """
        if body[0] == 0x80:
            return pickle.loads(body)
        return self.open_parcel(pb.Outcome.FromString(body).value, writable=writable, pinned=pinned, deadline=deadline)

    def decode_call(self, body: bytes, *, writable: bool) -> tuple[Any, list[bytes]]:
        """Rebuild a task's arguments: (value, value bytes of its inputs). Extents are pinned by the node."""
        if body[0] == 0x80:
            return pickle.loads(body), []
        parcel = pb.Parcel.FromString(body)
        return self.open_parcel(parcel, writable=writable, pinned=True), list(parcel.inputs)

    def open_parcel(self, parcel: pb.Parcel, *, writable: bool, pinned: bool, deadline: float | None = None) -> Any:
        """Rebuild a value from its parcel."""
        if parcel.HasField("stored"):
            stream, buffers = self._open(parcel.stored, writable=writable, pinned=pinned, deadline=deadline)
            return serialize.loads(stream, buffers)
        buffers = []
        for buffer in parcel.buffers:
            if buffer.HasField("stored"):
                opened = self._open(buffer.stored, writable=writable, pinned=pinned, deadline=deadline)[1][0]
                buffers.append(opened.toreadonly() if buffer.readonly else opened)
            else:
                buffers.append(
                    memoryview(buffer.inline if buffer.readonly or not writable else bytearray(buffer.inline))
                )
        return serialize.loads(parcel.stream, buffers)

    def _open(self, d: pb.Descriptor, *, writable: bool, pinned: bool,
              deadline: float | None) -> tuple[memoryview, list[memoryview]]:  # fmt: skip
        is_pulled = d.node != self.node
        if is_pulled:
            d = self._pull(d, deadline)
        try:
            if not self.reader.has(d.segment):
                self._fetch(d.segment)
            with self._space:
                opened = self.reader.open(d.owner, d.seq, d.version, d.segment, d.offset, d.nbytes, writable=writable)
                self._note_opened(d, pinned=pinned, is_pulled=is_pulled)
                is_copied = writable and not pinned and self._live_nbytes > self.most_viewed
        except BaseException:
            if is_pulled:
                self.give_back_pulled(d)
            raise
        if is_copied:  # the store is for what runs, a program may collect results beyond its size
            stream, buffers = opened
            return memoryview(bytes(stream)), [memoryview(bytearray(buffer)) for buffer in buffers]
        return opened

    def _note_opened(self, d: pb.Descriptor, *, pinned: bool, is_pulled: bool) -> None:
        key = (d.segment, d.offset)
        live = self._live.get(key)
        if live is None:
            live = self._live[key] = _Live(d)
            self._live_nbytes += d.nbytes
        if is_pulled:
            live.pulled += 1
        elif pinned:
            live.pinned += 1
            self.taken.append((ObjectId(d.owner, d.seq), d.version))
        elif self._hold(ObjectId(d.owner, d.seq)):
            live.opens += 1

    def give_back_pulled(self, d: pb.Descriptor) -> None:
        """Overridden by the client: give back the pin of a copy that was pulled and will not be opened."""
        raise NotImplementedError

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
                    self._live_nbytes -= d.nbytes
                    ended.append(Ended(ObjectId(d.owner, d.seq), d.version, live.opens, live.pinned, live.pulled))
        return ended


def _outcome(parcel: pb.Parcel) -> bytes:
    return pb.Outcome(value=parcel).SerializeToString()


def _refs(refs: tuple[ObjectId, ...]) -> list[pb.Ref]:
    return [pb.Ref(owner=r.owner, seq=r.seq) for r in refs]

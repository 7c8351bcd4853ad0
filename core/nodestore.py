"""The node's side of the object store: segments, who may see them, and who waits for room."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .ids import NO_EXTENT, ObjectId
from .replicas import Replicas
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler.extents import DropSegment, Extents, Place, Reclaim, ReleasePages
from .scheduler.pulls import Key
from .store import memory

if TYPE_CHECKING:
    from .node import Node, Peer

#: Bytes of a segment when the budget allows. Segments are sparse, so unused bytes cost address space alone; larger ones
#: mean fewer descriptors.
SEGMENT_NBYTES = 256 << 20

#: A segment takes at most this part of the budget, so that several writers share a small store.
SEGMENT_SHARE = 16

#: Bytes of a segment for which replicas are dropped, where less is needed. Larger makes fewer segments, smaller keeps
#: more replicas.
HANDY_NBYTES = 16 << 20

#: Seconds between two looks whether others still take what lies here, while somebody waits for room. Longer delays the
#: word that there is none, shorter costs more.
LOOK_SECONDS = 0.25

#: Seconds since objects came or went last after which no owner is expected to let go of more by itself: a program that
#: takes results copies them one after the other. Longer delays the word that there is no room, shorter refuses those
#: who wait for a program that a busy machine holds up.
STILL_SECONDS = 1.0

#: States of workers that may come to free room without anybody's help.
_PROGRESSING = ("STARTING", "BUSY", "RESUMING")


class Waiting:
    """A writer that waits for room. `is_last`: this is the last time that others are asked for it.

    `key`: the writer is this node itself, for a copy of that object.
    """

    __slots__ = ("is_last", "key", "needed", "writer")

    def __init__(self, writer: int, needed: int, key: Key | None = None) -> None:
        self.writer = writer
        self.needed = needed
        self.key = key
        self.is_last = False


class NodeStore:
    """Drives the extents machine.

    `waiting` holds the writers that wait for room, oldest first. When one comes, and once more before one is refused,
    all writers are asked for their empty segments, then for what is not used of others: `_asked` holds those that have
    not answered, `_kept` the segments that were asked for since then and in which nothing has ended that the node knows
    of.
    """

    def __init__(self, node: Node, budget_nbytes: int) -> None:
        self.node = node
        self.extents = Extents(budget_nbytes)
        self.waiting: deque[Waiting] = deque()
        self._segments: dict[int, tuple[int, int]] = {}
        self._mappings: dict[int, memory.Mapping] = {}  # of segments that this node has read
        self._asked: set[int] = set()
        self._kept: set[int] = set()
        self._heirs = 0
        self._is_looking = False
        self._moved = 0.0  # when objects came or went last
        self.replicas = Replicas(self)

    def execute(self, ordered: Iterable[Any]) -> None:
        """Do what the machine commands."""
        reclaimed: dict[int, list[pb.Extent]] = {}
        was_copy = False
        for command in ordered:
            if type(command) is Reclaim:
                self._kept.discard(command.segment)
                if command.writer == self.node.incarnation:
                    self.replicas.space.free(command.segment, command.offset)
                    was_copy = True
                    continue
                extent = pb.Extent(segment=command.segment, offset=command.offset)
                reclaimed.setdefault(command.writer, []).append(extent)
            elif type(command) is ReleasePages:
                memory.release(self._segments[command.segment][0], command.offset, command.nbytes)
            elif type(command) is DropSegment:
                self._drop(command.segment)
        for writer, extents in reclaimed.items():
            self.node.send(writer, Frame.RECLAIM, pb.Reclaim(extents=extents).SerializeToString())
            self._look_again(writer)
        if was_copy:
            self.rest()

    def rest(self) -> None:
        """With nobody here, and so nobody to copy for, give the room of copies back to the system."""
        if not self.node.peers and self._part_with_idle():
            self.execute(self.extents.take_commands())

    def _drop(self, segment: int) -> None:
        fd, nbytes = self._segments.pop(segment)
        self._mappings.pop(segment, None)
        self._kept.discard(segment)
        memory.release(fd, 0, nbytes)  # readers may keep their mappings of it for long
        os.close(fd)

    def _look_again(self, writer: int) -> None:
        """A writer that waits for room may find it in what came back to it."""
        for entry in [entry for entry in self.waiting if entry.writer == writer]:
            self.waiting.remove(entry)
            self.node.send(writer, Frame.SEGMENT, pb.Segment(segment=0).SerializeToString())

    # -- frames -------------------------------------------------------------------------------------------------------

    def on_lease(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """A process wants a segment to write to."""
        needed = pb.Lease.FromString(body).nbytes
        if not self._grant(peer.incarnation, needed):
            self._kept.clear()
            self.waiting.append(Waiting(peer.incarnation, needed))

    def wait_for_room(self, key: Key, needed: int) -> None:
        """This node wants room for a copy of an object."""
        self._kept.clear()
        self.waiting.append(Waiting(self.node.incarnation, needed, key))
        self.node.flush_soon()

    def _grant(self, writer: int, needed: int) -> bool:
        usual = self._usual_nbytes()
        handy = min(usual, HANDY_NBYTES)
        for nbytes, may_evict in ((usual, False), (needed, False), (handy, True), (needed, True)):
            made = self._make_segment(writer, max(needed, nbytes), may_evict=may_evict)
            if made is not None:
                segment, fd, nbytes = made
                body = pb.Segment(segment=segment, nbytes=nbytes, writable=True).SerializeToString()
                self.node.send(writer, Frame.SEGMENT, body, 0, (fd,))
                return True
        return False

    def _usual_nbytes(self) -> int:
        return min(SEGMENT_NBYTES, self.extents.budget_nbytes // SEGMENT_SHARE)

    def _make_segment(self, writer: int, nbytes: int, *, may_evict: bool) -> tuple[int, int, int] | None:
        """Lease a segment: its number, descriptor and size; None when there is no room."""
        nbytes = -(-nbytes // 4096) * 4096
        if nbytes > self.extents.budget_nbytes:
            return None
        segment = self.extents.on_lease(writer, nbytes)
        while segment is None and may_evict and self._shrink():
            segment = self.extents.on_lease(writer, nbytes)
        if segment is None:
            return None
        fd = memory.create_segment(nbytes)
        self._segments[segment] = (fd, nbytes)
        return segment, fd, nbytes

    def lease_own(self, needed: int, *, may_evict: bool) -> bool:
        """Get a segment for copies of objects; False when there is no room."""
        for nbytes in sorted({max(needed, self._usual_nbytes()), needed}, reverse=True):
            is_last = nbytes == needed
            made = self._make_segment(self.node.incarnation, nbytes, may_evict=may_evict and is_last)
            if made is not None:
                self.replicas.space.add(*made)
                return True
        return False

    def _shrink(self) -> bool:
        """Give up a segment of replicas, and the replicas that lie in it; False when none can be given up."""
        while True:
            idle = self._part_with_idle()
            if not idle and not self.extents.evict():
                return False
            self.execute(self.extents.take_commands())
            if idle:
                return True

    def _part_with_idle(self) -> bool:
        """Give up the segments for copies in which none lies; False when there are none such."""
        idle = self.replicas.space.part_with_idle()
        for segment in idle:
            self.extents.on_given_back(self.node.incarnation, segment)
        return bool(idle)

    def review_waiting(self) -> None:
        """Serve those who wait for room, or tell them that none will come."""
        for _ in range(len(self.waiting)):
            entry = self.waiting.popleft()
            if not self._still_waits(entry) or self._serve(entry):
                continue
            if entry.needed <= self.extents.budget_nbytes and self._may_come(entry):
                self.waiting.append(entry)
            elif entry.key is not None:
                self.replicas.on_no_room(entry.key, self._free_nbytes())
            else:
                self._refuse(entry.writer, entry.needed)

    def _still_waits(self, entry: Waiting) -> bool:
        return entry.writer in self.node.peers if entry.key is None else entry.key in self.replicas.wanting

    def _serve(self, entry: Waiting) -> bool:
        if entry.key is not None:
            return self.replicas.find_room(entry.key)
        return self._grant(entry.writer, entry.needed)

    def _free_nbytes(self) -> int:
        return max(0, self.extents.budget_nbytes - self.extents.used_nbytes)

    def _may_come(self, entry: Waiting) -> bool:
        """Whether room may come: writers have still to answer, or something runs that may free some."""
        if self._ask_back(entry):
            return True
        if self._may_free(entry.writer) or self._is_moving():
            entry.is_last = False
            return True
        if entry.is_last:
            return False
        entry.is_last = True
        self._kept.clear()  # writers do not say when they let go of what only they knew
        return self._ask_back(entry)

    def _ask_back(self, entry: Waiting) -> bool:
        """Ask writers for their empty segments, or else for room in used ones; True while an answer is due."""
        wanted: dict[int, list[int]] = {}
        for segment, writer in self.extents.empty_segments():
            self._want(segment, writer, wanted)
        if not wanted and not self._asked:
            self._want_parts(entry, wanted)
        for writer, segments in wanted.items():
            if self.node.send(writer, Frame.GIVE_BACK, pb.GiveBack(segments=segments).SerializeToString()):
                self._asked.add(writer)
        return bool(self._asked)

    def _want(self, segment: int, writer: int, wanted: dict[int, list[int]]) -> bool:
        if segment in self._kept or writer == self.node.incarnation:
            return False
        self._kept.add(segment)
        wanted.setdefault(writer, []).append(segment)
        return True

    def _want_parts(self, entry: Waiting, wanted: dict[int, list[int]]) -> None:
        """Choose the segments with most unused room, as many as it takes: writers need new leases afterwards.

        At first only those with very much of it, for of others a writer is just making use; before one is refused all.
        """
        least = max(entry.needed, self._usual_nbytes())
        missing = entry.needed - self._free_nbytes()
        for nbytes, segment, writer in self.extents.slack_segments():
            if not entry.is_last and (missing <= 0 or nbytes < least):
                break
            if self._want(segment, writer, wanted):
                missing -= nbytes

    def on_give_back(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """A writer says what of the segments it was asked for is empty; it has forgotten that."""
        self._asked.discard(peer.incarnation)
        given = pb.GiveBack.FromString(body)
        for segment in given.segments:
            self.extents.on_given_back(peer.incarnation, segment)
        for part in given.parts:
            self.extents.on_trimmed(peer.incarnation, part.segment, part.offset, part.nbytes)

    def _may_free(self, writer: int) -> bool:
        """Whether a worker that does not itself wait, for room or for another task, can still free some.

        What is queued does not count: it runs only when one of these workers has ended what it does.
        """
        asking = (writer, *(entry.writer for entry in self.waiting))
        waiting = {self.node.peers[w].worker for w in asking if w in self.node.peers}
        workers = self.node.dispatch.snapshot().workers
        return any(w.state in _PROGRESSING and w.worker not in waiting for w in workers)

    def _is_moving(self) -> bool:
        """Whether objects may end soon, since others do now, or other nodes take some; looks again when not."""
        if not self.replicas.giving.is_giving and self.node.now() - self._moved > STILL_SECONDS:
            return False
        if not self._is_looking:
            self._is_looking = True
            self.node.loop.call_later(LOOK_SECONDS, self._look)
        return True

    def _look(self) -> None:
        self._is_looking = False
        if not self.node.ending:
            self.node.settle()

    def _refuse(self, writer: int, needed: int) -> None:
        extents = self.extents
        held = [(f"objects of {self._describe(owner)}", nbytes) for owner, nbytes in extents.holders()]
        held += [(f"what only {self._describe(writer)} uses", nbytes) for writer, nbytes in extents.leased()]
        held.sort(key=lambda item: -item[1])
        holders = [pb.Holder(what=what, nbytes=nbytes) for what, nbytes in held[:5]]
        full = pb.StoreFull(needed_nbytes=needed, free_nbytes=self._free_nbytes(),
                            capacity_nbytes=extents.budget_nbytes, holders=holders)  # fmt: skip
        self.node.send(writer, Frame.STORE_FULL, full.SerializeToString())

    def _describe(self, owner: int) -> str:
        peer = self.node.peers.get(owner)
        if owner == self.node.incarnation:
            return "the node, for copies of objects of other nodes"
        if peer is None:
            return f"process {owner:016x}"
        return f"worker {peer.worker}" if peer.worker is not None else f"client {peer.hello.pid}"

    def on_map(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """A process wants to read a segment."""
        segment = pb.Map.FromString(body).segment
        found = self._segments.get(segment)
        if found is None:
            self.node.send(peer.incarnation, Frame.SEGMENT, pb.Segment(segment=segment).SerializeToString())
            return
        fd = memory.readonly_fd(found[0])
        body = pb.Segment(segment=segment, nbytes=found[1]).SerializeToString()
        self.node.send(peer.incarnation, Frame.SEGMENT, body, 0, (fd,))
        os.close(fd)  # the link keeps its own until it is sent

    def announce(self, peer: Peer, descriptors: Iterable[pb.Descriptor]) -> None:
        """Extents exist for others from now on."""
        for d in descriptors:
            self._moved = self.node.now()
            self.extents.on_announced(d.owner, d.seq, d.version, d.segment, d.offset, d.nbytes, peer.incarnation)

    def on_announce(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """Announcements that ride with no other message."""
        self.announce(peer, pb.Announce.FromString(body).announced)

    def on_free(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """An owner's counts are zero."""
        for ref in pb.Refs.FromString(body).refs:
            if ref.version != NO_EXTENT:
                self._moved = self.node.now()
                self.extents.on_freed(ref.owner, ref.seq, ref.version)
                self.replicas.on_freed((ref.owner, ref.seq, ref.version))
            self.node.exchange.adopted.pop(ObjectId(ref.owner, ref.seq), None)

    def on_unpin(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """Views of a process have ended."""
        for ref in pb.Refs.FromString(body).refs:
            self.extents.unpin(ObjectId(ref.owner, ref.seq), ref.version, peer.incarnation)

    # -- objects of other nodes ---------------------------------------------------------------------------------------

    def on_pull(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """A process must open an object that lies at another node."""
        self.replicas.want(pb.Pull.FromString(body).object, peer.incarnation, peer.root)

    def on_pulled(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """Views of what a process had pulled have ended."""
        for ref in pb.Refs.FromString(body).refs:
            self.extents.unpin(ObjectId(ref.owner, ref.seq), ref.version, peer.incarnation, pulled=True)

    def pull_ahead(self, descriptors: Iterable[Any], root: int) -> None:
        """Tasks were sent here that will need these objects."""
        self.replicas.pull_ahead(descriptors, root)

    def read(self, place: Place) -> memoryview:
        """View an extent, which must be kept where it is as long as the view is used."""
        mapping = self._mappings.get(place.segment)
        if mapping is None:
            mapping = self._mappings[place.segment] = memory.Mapping(*self._segments[place.segment])
        return mapping.view(place.offset, place.nbytes).toreadonly()

    # -- forks and ends -----------------------------------------------------------------------------------------------

    def new_heir(self) -> int:
        """Draw a number that stands for somebody who keeps extents and is no process."""
        self._heirs -= 1
        return self._heirs

    def on_forked(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """A process forks while it has views: they stay pinned until the pipe's last writer is gone."""
        if not fds:
            return
        heir, fd = self.new_heir(), fds[0]
        for ref in pb.Refs.FromString(body).refs:
            self.extents.inherit(ObjectId(ref.owner, ref.seq), ref.version, heir)
        self.node.loop.add_reader(fd, self._heirs_ended, fd, heir)

    def _heirs_ended(self, fd: int, heir: int) -> None:
        self.node.loop.remove_reader(fd)
        os.close(fd)
        self.process_died(heir)
        self.node.settle()

    def free_orphans(self, finished: pb.Finished, owner: int) -> None:
        """The owner of these results has gone."""
        for d in finished.announced:
            if d.owner == owner:
                self.extents.on_freed(d.owner, d.seq, d.version)

    def process_died(self, process: int) -> None:
        """Drop what a process wrote, held and owned."""
        self._asked.discard(process)
        self.extents.on_process_died(process)
        self.replicas.on_process_died(process)
        self.rest()

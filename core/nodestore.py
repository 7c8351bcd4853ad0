"""The node's side of the object store: segments, who may see them, and who waits for room."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .ids import NO_EXTENT, ObjectId
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler.extents import DropSegment, Extents, Reclaim, ReleasePages
from .store import memory

if TYPE_CHECKING:
    from .node import Node, Peer

#: Bytes of a segment when the budget allows. Segments are sparse, so unused bytes cost address space alone; larger ones
#: mean fewer descriptors.
SEGMENT_NBYTES = 256 << 20

#: A segment takes at most this part of the budget, so that several writers share a small store.
SEGMENT_SHARE = 16


#: States of workers that may come to free room without anybody's help.
_PROGRESSING = ("STARTING", "BUSY", "RESUMING")


class Waiting:
    """A writer that waits for room. `is_last`: this is the last time that others are asked for it."""

    __slots__ = ("is_last", "needed", "writer")

    def __init__(self, writer: int, needed: int) -> None:
        self.writer = writer
        self.needed = needed
        self.is_last = False


class NodeStore:
    """Drives the extents machine.

    `waiting` holds the writers that wait for room, oldest first. When one comes, and once more before one is refused,
    all writers are asked for their empty segments: `_asked` holds those that have not answered, `_kept` the segments
    that were asked for since then and in which nothing has ended that the node knows of.
    """

    def __init__(self, node: Node, budget_nbytes: int) -> None:
        self.node = node
        self.extents = Extents(budget_nbytes)
        self.waiting: deque[Waiting] = deque()
        self._segments: dict[int, tuple[int, int]] = {}
        self._asked: set[int] = set()
        self._kept: set[int] = set()
        self._heirs = 0

    def execute(self, ordered: Iterable[Any]) -> None:
        """Do what the machine commands."""
        reclaimed: dict[int, list[pb.Extent]] = {}
        for command in ordered:
            if type(command) is Reclaim:
                self._kept.discard(command.segment)
                extent = pb.Extent(segment=command.segment, offset=command.offset)
                reclaimed.setdefault(command.writer, []).append(extent)
            elif type(command) is ReleasePages:
                memory.release(self._segments[command.segment][0], command.offset, command.nbytes)
            elif type(command) is DropSegment:
                self._drop(command.segment)
        for writer, extents in reclaimed.items():
            self.node.send(writer, Frame.RECLAIM, pb.Reclaim(extents=extents).SerializeToString())
            self._look_again(writer)

    def _drop(self, segment: int) -> None:
        fd, nbytes = self._segments.pop(segment)
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

    def _grant(self, writer: int, needed: int) -> bool:
        usual = min(SEGMENT_NBYTES, self.extents.budget_nbytes // SEGMENT_SHARE)
        for nbytes in sorted({max(needed, usual), needed}, reverse=True):
            nbytes = -(-nbytes // 4096) * 4096
            segment = self.extents.on_lease(writer, nbytes)
            if segment is not None:
                fd = memory.create_segment(nbytes)
                self._segments[segment] = (fd, nbytes)
                body = pb.Segment(segment=segment, nbytes=nbytes, writable=True).SerializeToString()
                self.node.send(writer, Frame.SEGMENT, body, 0, (fd,))
                return True
        return False

    def review_waiting(self) -> None:
        """Serve those who wait for room, or tell them that none will come."""
        for _ in range(len(self.waiting)):
            entry = self.waiting.popleft()
            if entry.writer not in self.node.peers or self._grant(entry.writer, entry.needed):
                continue
            if entry.needed <= self.extents.budget_nbytes and self._may_come(entry):
                self.waiting.append(entry)
            else:
                self._refuse(entry.writer, entry.needed)

    def _may_come(self, entry: Waiting) -> bool:
        """Whether room may come: writers have still to answer, or something runs that may free some."""
        if self._ask_back():
            return True
        if self._may_free(entry.writer):
            entry.is_last = False
            return True
        if entry.is_last:
            return False
        entry.is_last = True
        self._kept.clear()  # writers do not say when they let go of what only they knew
        return self._ask_back()

    def _ask_back(self) -> bool:
        """Ask writers for their empty segments; True while an answer is due."""
        wanted: dict[int, list[int]] = {}
        for segment, writer in self.extents.empty_segments():
            if segment not in self._kept:
                self._kept.add(segment)
                wanted.setdefault(writer, []).append(segment)
        for writer, segments in wanted.items():
            if self.node.send(writer, Frame.GIVE_BACK, pb.GiveBack(segments=segments).SerializeToString()):
                self._asked.add(writer)
        return bool(self._asked)

    def on_give_back(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """A writer says which of the segments it was asked for are empty; it has forgotten them."""
        self._asked.discard(peer.incarnation)
        for segment in pb.GiveBack.FromString(body).segments:
            self.extents.on_given_back(peer.incarnation, segment)

    def _may_free(self, writer: int) -> bool:
        """Whether a worker that does not itself wait, for room or for another task, can still free some.

        What is queued does not count: it runs only when one of these workers has ended what it does.
        """
        asking = (writer, *(entry.writer for entry in self.waiting))
        waiting = {self.node.peers[w].worker for w in asking if w in self.node.peers}
        workers = self.node.dispatch.snapshot().workers
        return any(w.state in _PROGRESSING and w.worker not in waiting for w in workers)

    def _refuse(self, writer: int, needed: int) -> None:
        extents = self.extents
        held = [(f"objects of {self._describe(owner)}", nbytes) for owner, nbytes in extents.holders()]
        held += [(f"what only {self._describe(writer)} uses", nbytes) for writer, nbytes in extents.leased()]
        held.sort(key=lambda item: -item[1])
        holders = [pb.Holder(what=what, nbytes=nbytes) for what, nbytes in held[:5]]
        free = max(0, extents.budget_nbytes - extents.used_nbytes)
        full = pb.StoreFull(needed_nbytes=needed, free_nbytes=free, capacity_nbytes=extents.budget_nbytes,
                            holders=holders)  # fmt: skip
        self.node.send(writer, Frame.STORE_FULL, full.SerializeToString())

    def _describe(self, owner: int) -> str:
        peer = self.node.peers.get(owner)
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
            self.extents.on_announced(d.owner, d.seq, d.version, d.segment, d.offset, d.nbytes, peer.incarnation)

    def on_announce(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """Announcements that ride with no other message."""
        self.announce(peer, pb.Announce.FromString(body).announced)

    def on_free(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """An owner's counts are zero."""
        for ref in pb.Refs.FromString(body).refs:
            if ref.version != NO_EXTENT:
                self.extents.on_freed(ref.owner, ref.seq, ref.version)
            self.node.adopted.pop(ObjectId(ref.owner, ref.seq), None)

    def on_unpin(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """Views of a process have ended."""
        for ref in pb.Refs.FromString(body).refs:
            self.extents.unpin(ObjectId(ref.owner, ref.seq), ref.version, peer.incarnation)

    def on_forked(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """A process forks while it has views: they stay pinned until the pipe's last writer is gone."""
        if not fds:
            return
        self._heirs -= 1  # negative numbers name no process
        heir, fd = self._heirs, fds[0]
        for ref in pb.Refs.FromString(body).refs:
            self.extents.pin(ObjectId(ref.owner, ref.seq), ref.version, heir)
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

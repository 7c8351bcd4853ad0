"""From queues to workers: admission, packets and ranges, and taking back what a worker has not begun.

A queued task is admitted when its resources fit: a worker leases its shape and gets a first packet. Leased workers are
topped up to a range of about 10 ms. What lies unbegun in a range while somebody is idle is recalled: the packets that
the kernel gives back go to the front of their queue and are dealt again.
"""

from __future__ import annotations

from .claims import Packet
from .commands import Recall, SendPacket
from .fairness import next_kind, rank, shape_turns
from .intervals import Interval
from .leases import BLOCKED, BUSY, RESUMING, STARTING, Leases
from .queues import Kind, Shape
from .tables import Tables, Worker

#: Seconds after which tasks that only lack resources are passed no more by smaller ones that fit. Larger keeps slots
#: busier, smaller lets wide tasks through sooner.
PASSED_OVER_SECONDS = 1.0


class Dealer:
    """Deals queued tasks to workers after every event."""

    __slots__ = ("_tables", "_leases")

    def __init__(self, tables: Tables, leases: Leases) -> None:
        self._tables = tables
        self._leases = leases

    def deal(self, now: float) -> None:
        """Do all that has become possible: resume, admit, top up, and recall for who is idle."""
        tables = self._tables
        tables.now = now
        tables.start_due = None
        if tables.resuming:
            self._leases.resume()
        if tables.bundles.is_gathering:
            tables.bundles.on_freed(now)
        if tables.rotation.ready:
            self._admit()
            if tables.rotation.ready:
                self._top_up_all()
        if tables.stacked:
            self._balance()

    def deal_at_once(self, kind: Kind, interval: Interval) -> bool:
        """Hand a single task to an idle worker without queueing it, where nothing else waits for anything.

        What `Kind.push` and `deal` would come to as well; a lone call and its answer pass here each time.
        """
        tables = self._tables
        shape = kind.shape
        demand = shape.demand
        if (
            tables.rotation.ready
            or tables.resuming
            or demand.gpu
            or shape.binding.spec.gang  # which of its bundles has room is looked at elsewhere
            or not (demand.cpu or shape.binding.spec.ordered)  # how many without CPU may run is looked at elsewhere
            or not self._leases.has_idle(shape)
            or not tables.resources.fits(demand)
        ):
            return False
        worker = self._leases.acquire(shape)
        kind.outstanding += 1
        if kind.client.worker is not None:
            self._leases.mark_nested(worker, nested=True)
        self._commit(worker, kind, [interval], 1)
        shape.root.note_turn()
        return True

    def recall_all(self, worker: Worker) -> None:
        """Ask for every packet that the worker has not taken."""
        if worker.is_recalling:
            worker.recall_again = True
        elif worker.range.packets:
            self._recall(worker, len(worker.range.packets))

    def _recall(self, worker: Worker, at_most: int) -> None:
        worker.is_recalling = True
        self._tables.commands.append(Recall(worker.number, at_most))

    def _admit(self) -> None:
        tables = self._tables
        ready = tables.rotation.ready
        while ready and (tables.resources.free_cpu > 0 or tables.shapes_beside):
            shape = self._choose()
            if shape is None:
                return
            kind = next_kind(shape)
            worker = self._leases.acquire(shape)
            if worker.state == STARTING:
                shape.root.note_turn()
                continue
            share = kind.queued
            if share > 1:
                share = -(-share // (1 + shape.coming + self._more_workers(shape, share - 1)))
            if kind.client.worker is not None:
                self._leases.mark_nested(worker, nested=True)
            self._send(worker, kind, share)
            shape.root.note_turn()

    def _choose(self) -> Shape | None:
        tables = self._tables
        held, rotation = tables.held_for, tables.rotation
        is_rivalry = len(rotation.ready) > 1 or len(next(iter(rotation.ready)).ready) > 1
        if held is None and is_rivalry and tables.resources.free_cpu > 0:  # else it is too early to say what fits
            held = tables.held_for = self._find_passed_over()
        if held is not None:
            if not self._is_passed_over(held):
                tables.held_for = None
                if held.queued > held.coming and self._leases.can_staff(held):
                    return held
            elif not self._has_blocked():
                return self._choose_in_turn(pooled_only=True) if tables.shapes_beside else None
        return self._choose_in_turn()

    def _choose_in_turn(self, *, pooled_only: bool = False) -> Shape | None:
        """The next shape; one for which a root with work would lose a process only if that one has to give way."""
        leases = self._leases
        rotation = self._tables.rotation
        is_alone = len(rotation.ready) < 2
        first: Shape | None = None
        for root in rotation.turns():
            if first is not None and root is first.root:
                continue
            for shape in shape_turns(root):
                if first is not None and not leases.is_warm(shape):
                    continue
                if pooled_only and not shape.binding.spec.gang:
                    continue
                if shape.queued <= shape.coming or not leases.can_staff(shape) or not _is_next(shape):
                    continue
                if first is not None:
                    return shape if root.keeps(root.held, first.root, first.part, self._tables.now) else first
                if is_alone or leases.costs_nobody(shape):
                    return shape
                first = shape
                break
        return first

    def _find_passed_over(self) -> Shape | None:
        """The shape whose tasks have waited longest, if that is too long and only for resources of the node."""
        ready = [s for root in self._tables.rotation.ready for s in root.ready if not s.binding.spec.gang]
        if not ready:
            return None
        oldest = min(ready, key=lambda shape: next_kind(shape).queue[0].order)
        if self._tables.now - next_kind(oldest).queue[0].since < PASSED_OVER_SECONDS:
            return None
        return oldest if self._is_passed_over(oldest) else None

    def _is_passed_over(self, shape: Shape) -> bool:
        if shape.queued <= shape.coming or not self._leases.has_worker(shape) or not _is_next(shape):
            return False
        if not shape.demand.cpu and self._tables.resources.fits(shape.demand):
            return False  # it lacks nothing that others have: there are as many without CPU as may be
        return not self._leases.can_staff(shape)

    def _has_blocked(self) -> bool:
        # What is held back might be what a blocked task waits for, and that may hold what the others want.
        node = self._tables.resources
        return any(w.state in (BLOCKED, RESUMING) and w.pool is node for w in self._tables.workers.values())

    def _more_workers(self, shape: Shape, at_most: int) -> int:
        binding = shape.binding
        room = sum(pool.room(shape.demand) for pool in shape.pools)
        if binding.spec.processes:
            room = min(room, binding.spec.processes - binding.live + len(binding.idle))
        return 0 if binding.spec.ordered else max(0, min(room, at_most))

    def _top_up_all(self) -> None:
        earlier: list[Shape] = []  # of roots whose turn comes first
        rivals: list[Shape] = []  # those of them that need another root's process
        for root in self._tables.rotation.turns():
            for shape in shape_turns(root):
                is_open = shape.binding.spec.max_concurrency > 0 or next_kind(shape).pace.is_short
                if len(shape.leased) <= shape.coming or not is_open or not self._may_top_up(shape):
                    continue
                if shape.binding.spec.ordered:
                    self._top_up(shape)  # its worker is nobody else's, whose turn it may be
                    continue
                for other in earlier:
                    if other.queued and self._leases.has_worker(other):
                        if self._leases.costs_nobody(other):
                            return
                        rivals.append(other)
                earlier.clear()
                besides = root.held - shape.part
                if all(root.keeps(besides, rival.root, rival.part, self._tables.now) for rival in rivals):
                    self._top_up(shape)
            earlier += root.ready

    def _may_top_up(self, shape: Shape) -> bool:
        """Whether more of this shape may lie behind what runs, as far as its own root and what is held back go."""
        tables, spec = self._tables, shape.binding.spec
        if tables.resuming and shape.demand.cpu and any(worker.pool in shape.pools for worker in tables.resuming):
            return False
        if tables.bundles.is_gathering and not (spec.gang or spec.ordered):
            return False  # a worker that always has more to do would never leave its CPU to the gang
        is_held_back = tables.held_for not in (None, shape) and shape.demand.cpu and not spec.gang
        if is_held_back and not self._has_blocked():
            return False
        if not _is_next(shape):
            return False
        if spec.ordered:
            return True
        root = shape.root
        if len(root.ready) > 1:
            own = rank(next_kind(shape))
            rivals = (other for other in root.ready if other is not shape and other.binding.spec.gang == spec.gang)
            for other in rivals:
                if rank(next_kind(other)) < own and self._leases.has_worker(other):
                    return False
        return True

    def _top_up(self, shape: Shape) -> None:
        # Workers that are starting find at least one task each.
        while shape.queued > shape.coming:
            kind = next_kind(shape)
            takers = []
            for worker in shape.leased.values():
                room = self._room(worker, kind)
                if room > 0 and worker.range.packets:
                    takers.append((worker.range.tasks, worker.number, room, worker))
            if not takers:
                return
            takers.sort()
            share = -(-kind.queued // (len(takers) + shape.coming))
            for _, _, room, worker in takers:
                left = min(share, room, kind.queued, shape.queued - shape.coming)
                while left > 0 and (sent := self._send(worker, kind, left)):
                    left -= sent
            if shape.coming or not _is_next(shape):
                return

    def _room(self, worker: Worker, kind: Kind) -> int:
        range_ = worker.range
        if range_.is_concurrent:  # what it gets runs at once, and what waits in it may wait for just that
            is_up = worker.state in (BUSY, BLOCKED, RESUMING) and not worker.is_recalling
            return worker.binding.spec.max_concurrency - range_.tasks if is_up else 0
        if worker.state != BUSY or worker.is_recalling or kind.client.worker is worker:
            # A child must never lie behind the task that may come to wait for it.
            return 0
        return min(kind.pace.room(len(range_.packets), range_.seconds), worker.tasks_left)

    def _send(self, worker: Worker, kind: Kind, at_most: int) -> int:
        """Send one packet; returns its number of tasks, 0 when the worker's range is full."""
        packets = worker.range.packets
        pace = kind.pace
        if worker.range.is_concurrent:
            limit = min(at_most, self._room(worker, kind))
        elif packets and not pace.room(len(packets), worker.range.seconds):
            return 0
        else:
            limit = min(at_most, pace.packet_tasks, worker.tasks_left)
        if limit <= 0:
            return 0
        intervals, count = kind.take(limit, _end_of_turn(kind))
        if count:
            self._commit(worker, kind, intervals, count)
        return count

    def _commit(self, worker: Worker, kind: Kind, intervals: list[Interval], count: int) -> None:
        tables = self._tables
        packets = worker.range.packets
        tables.last_packet += 1
        packet = Packet(tables.last_packet, kind, intervals, count, kind.pace.expected)
        worker.range.add(packet)
        worker.given += count
        worker.is_barred = False
        if len(packets) > 1 and not worker.range.is_concurrent:
            tables.stacked[worker.number] = worker
        kind.shape.root.served_seconds += packet.each * count
        tables.commands.append(SendPacket(worker.number, packet.number, intervals))

    def _balance(self) -> None:
        """Where a worker could run what lies unbegun behind another's task, ask the kernel for half of it."""
        tables = self._tables
        if tables.resources.free_cpu <= 0 and not tables.shapes_beside:
            return
        for worker in tables.stacked.values():
            shape = worker.shape
            if (
                shape is None
                or shape.queued
                or shape.coming
                or worker.is_recalling
                or worker.is_barred
                or worker.state != BUSY
            ):
                continue
            if not shape.binding.spec.ordered and self._leases.can_staff(shape):
                self._recall(worker, len(worker.range.packets) // 2)


def _end_of_turn(kind: Kind) -> float:
    """Where in the order of arrival another kind's turn comes, in bindings whose tasks go in one order."""
    binding = kind.shape.binding
    if not binding.spec.ordered:
        return float("inf")
    others = (other for shape in binding.shapes.values() for other in shape.waiting if other is not kind)
    return min((other.queue[0].order for other in others), default=float("inf"))


def _is_next(shape: Shape) -> bool:
    """Whether it is this shape's turn in its binding, where tasks of all shapes go in one order."""
    binding = shape.binding
    if not binding.spec.ordered or not shape.queued:
        return True
    order = next_kind(shape).queue[0].order
    return all(not other.queued or next_kind(other).queue[0].order >= order for other in binding.shapes.values())

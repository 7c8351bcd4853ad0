"""Workers and what they hold: starting, leasing, blocking, stopping.

A worker holds the resources of one task of its shape from the moment it is chosen (even while it still starts) until
nothing is outstanding at it; a blocked one holds all but the CPUs.
"""

from __future__ import annotations

from collections.abc import Iterator

from .commands import KillWorker, Resume, StartWorker, StopWorker, Unbound
from .fairness import LEASE_SECONDS, next_kind
from .queues import Shape
from .resources import Resources
from .tables import Binding, Tables, Worker, WorkerState

#: More processes than this per slot: idle ones of other bindings end first. Larger keeps more warm, smaller saves
#: memory.
PROCESSES_PER_SLOT = 2

#: Seconds between two starts of processes for short tasks where a binding may have more than a node keeps warm and has
#: as many already; the more it has, the more of this. Larger keeps bindings of absurd size from starting what they do
#: not need, smaller sooner runs short tasks that wait for each other. A start takes about half of it.
START_SECONDS = 0.02

STARTING, IDLE, BUSY = WorkerState.STARTING, WorkerState.IDLE, WorkerState.BUSY
BLOCKED, RESUMING = WorkerState.BLOCKED, WorkerState.RESUMING
STOPPING, KILLED = WorkerState.STOPPING, WorkerState.KILLED


class Leases:
    """Acts on the tables; starts, stops and leases workers."""

    __slots__ = ("_tables",)

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def can_staff(self, shape: Shape) -> bool:
        """Whether the shape's resources are free and there is, or may be, a worker for it."""
        binding = shape.binding
        if self._pool_for(shape) is None:
            return False
        slots = self._tables.resources.slots
        if not shape.demand.cpu and binding.cpuless_leases >= binding.cpuless_limit(slots):
            return False
        return self.has_worker(shape)

    def _pool_for(self, shape: Shape) -> Resources | None:
        """What has room for one more task of a shape, and nobody waits for who had it before."""
        demand = shape.demand
        resuming = self._tables.resuming
        for pool in shape.pools:
            if not pool.fits(demand) or (demand.gpu and pool.pick_gpus(demand) is None):
                continue
            if not resuming or not demand.cpu or all(worker.pool is not pool for worker in resuming):
                return pool
        return None

    def has_worker(self, shape: Shape) -> bool:
        """Whether there is, or may be, one more worker for the shape, resources aside."""
        binding = shape.binding
        if self._find(shape) is not None:
            return True
        # An idle worker with other GPUs makes room.
        return (binding.has_room() or (bool(binding.idle) and not binding.spec.ordered)) and self._may_start(shape)

    def _may_start(self, shape: Shape) -> bool:
        """Whether it is time for one more process: those beyond what a node keeps warm follow each other."""
        tables = self._tables
        few = PROCESSES_PER_SLOT * tables.resources.slots
        binding = shape.binding
        if binding.spec.processes <= few or binding.live < few:
            return True
        if tables.forking >= few:
            return False
        if shape.queued and not next_kind(shape).pace.is_short:
            return True
        due = binding.started_at + START_SECONDS * binding.live / few
        if tables.now >= due:
            return True
        if tables.start_due is None or due < tables.start_due:
            tables.start_due = due
        return False

    def has_idle(self, shape: Shape) -> bool:
        """Whether a worker that has started and has nothing to do is right for the shape."""
        worker = self._find(shape) if shape.binding.idle else None
        return worker is not None and worker.state == IDLE

    def costs_nobody(self, shape: Shape) -> bool:
        """Whether a worker for the shape ends no process of another root with work; nobody keeps children waiting."""
        return shape.root.is_owed or self._find(shape) is not None or self._has_place(shape.binding)

    def is_warm(self, shape: Shape) -> bool:
        """Whether there is a worker for the shape, started or starting, that nobody has leased."""
        binding = shape.binding
        return bool(binding.idle or binding.spare) and self._find(shape) is not None

    def acquire(self, shape: Shape) -> Worker:
        """Lease a worker to a shape for which ``can_staff`` holds: a warm one, one that is starting, or a new one."""
        demand = shape.demand
        pool = self._pool_for(shape) if demand.gpu or len(shape.pools) > 1 else shape.pools[0]
        assert pool is not None
        worker = self._find(shape, pool)
        if worker is None:
            if not shape.binding.has_room():
                self.stop(next(iter(shape.binding.idle.values())))
            gpu_ids = pool.pick_gpus(demand) if demand.gpu else ()
            worker = self.start(shape.binding, gpu_ids or ())
        pool.take(demand, worker.gpu_ids)
        worker.pool = pool
        shape.leased[worker.number] = worker
        worker.shape = shape
        worker.holds_cpu = True
        shape.root.held += shape.part
        if not demand.cpu:
            shape.binding.cpuless_leases += 1
        if worker.state == STARTING:
            shape.coming += 1
            del shape.binding.spare[worker.number]
        else:
            worker.state = BUSY
            del shape.binding.idle[worker.number]
        return worker

    def release(self, worker: Worker) -> None:
        """End the lease of a worker that has nothing outstanding."""
        shape = worker.shape
        pool = worker.pool
        if shape is None or pool is None:
            return
        tables = self._tables
        if worker.holds_cpu:
            shape.root.held -= shape.part
            self.mark_nested(worker, nested=False)
        else:
            self._end_loan(shape, pool, takes=False)
            worker.is_nested = False
        pool.give(shape.demand, worker.gpu_ids, with_cpu=worker.holds_cpu)
        del shape.leased[worker.number]
        worker.shape = worker.pool = None
        worker.holds_cpu = False
        binding = shape.binding
        if not shape.demand.cpu:
            binding.cpuless_leases -= 1
        state = worker.state
        if state == STARTING:
            shape.coming -= 1
            binding.spare[worker.number] = worker
            return
        if state == RESUMING:
            tables.resuming.remove(worker)
            tables.commands.append(Resume(worker.number))  # a thread that outlives its task waits for it
        if state < STOPPING:
            self.make_idle(worker)

    def note_forked(self, worker: Worker) -> None:
        """There is a process for a worker, or never will be."""
        if not worker.is_forked:
            worker.is_forked = True
            self._tables.forking -= 1

    def begin(self, worker: Worker, now: float) -> None:
        """Put a worker that has just started at its binding's disposal; its root keeps its share for a while."""
        # It gives up its place and is chosen again as an idle one: meanwhile somebody else may come first.
        self.release(worker)
        worker.binding.client.root.kept_until = now + LEASE_SECONDS
        self.make_idle(worker)

    def make_idle(self, worker: Worker) -> None:
        """Put a worker without lease at its binding's disposal, or stop it when it has served."""
        binding = worker.binding
        worker.state = IDLE
        binding.spare.pop(worker.number, None)
        binding.idle[worker.number] = worker
        if worker.tasks_left <= 0 or binding.is_refusing:
            self.stop(worker)
        elif len(binding.idle) > PROCESSES_PER_SLOT * self._tables.resources.slots and not binding.spec.processes:
            # The one that has been idle longest, not this one: it may have been started for what waits.
            oldest = next((idle for idle in binding.idle.values() if not idle.keeps_actors), None)
            if oldest is not None:
                self.stop(oldest)
        if binding.is_closing:
            self.settle(binding)

    def mark_nested(self, worker: Worker, *, nested: bool) -> None:
        """Count the worker's lease as one for children, or no more; it holds its CPUs."""
        shape = worker.shape
        if shape is not None and worker.is_nested != nested:
            worker.is_nested = nested
            if worker.pool is self._tables.resources:  # a gang's bundles are nobody else's
                shape.root.nested_cpu += shape.demand.cpu if nested else -shape.demand.cpu

    def block(self, worker: Worker) -> None:
        """Give back the CPUs of a busy worker."""
        shape, pool = worker.shape, worker.pool
        assert shape is not None and pool is not None
        self.mark_nested(worker, nested=False)
        worker.state = BLOCKED
        worker.holds_cpu = False
        shape.root.held -= shape.part
        pool.lend(shape.demand.cpu)
        if pool is self._tables.resources:
            shape.root.lent_cpu += shape.demand.cpu

    def _end_loan(self, shape: Shape, pool: Resources, *, takes: bool) -> None:
        pool.end_loan(shape.demand.cpu, takes=takes)
        if pool is self._tables.resources:
            shape.root.lent_cpu -= shape.demand.cpu

    def resume(self) -> None:
        """Give CPUs to the workers that ask for them again, in their order, as far as they are free."""
        tables = self._tables
        short: list[Resources] = []
        for worker in list(tables.resuming):
            shape, pool = worker.shape, worker.pool
            assert shape is not None and pool is not None
            if pool in short:
                continue
            if shape.demand.cpu > pool.free_cpu:
                short.append(pool)
                continue
            tables.resuming.remove(worker)
            self._end_loan(shape, pool, takes=True)
            shape.root.held += shape.part
            worker.state = BUSY
            worker.holds_cpu = True
            self.mark_nested(worker, nested=worker.range.packets[0].kind.client.worker is not None)
            tables.commands.append(Resume(worker.number))

    def start(self, binding: Binding, gpu_ids: tuple[int, ...] = ()) -> Worker:
        """Start one more worker; when there are many processes an idle one of another binding ends first."""
        tables = self._tables
        if self._is_full():
            self._stop_another(binding)
        tables.last_worker += 1
        worker = Worker(tables.last_worker, binding, gpu_ids)
        tables.workers[worker.number] = worker
        binding.workers[worker.number] = worker
        binding.spare[worker.number] = worker
        binding.live += 1
        binding.started_at = tables.now
        tables.forking += 1
        tables.commands.append(
            StartWorker(worker.number, binding.client.id, binding.spec.id, gpu_ids, binding.restarts)
        )
        return worker

    def stop(self, worker: Worker) -> None:
        """Let a worker without lease end by itself."""
        if worker.state < STOPPING:
            self._write_off(worker, STOPPING)
            self._tables.commands.append(StopWorker(worker.number))

    def kill(self, worker: Worker) -> None:
        """End a worker's process; what it had outstanding is settled when it is dead."""
        if worker.state == KILLED:
            return
        if worker.state != STOPPING:
            if worker.state == STARTING:
                # It counts as coming; whoever waits for it needs another one.
                self.release(worker)
            self._write_off(worker, KILLED)
        worker.state = KILLED
        self._tables.commands.append(KillWorker(worker.number))

    def fail_start(self, worker: Worker) -> None:
        """Note that a starting worker is ending by itself."""
        self.release(worker)
        self._write_off(worker, STOPPING)

    def bury(self, worker: Worker) -> None:
        """Remove a dead worker whose range is empty from every table."""
        tables = self._tables
        if worker.state < STOPPING:
            if worker.state == STARTING:
                self.release(worker)
            self._write_off(worker, KILLED)
        self.release(worker)
        self.note_forked(worker)
        del tables.workers[worker.number]
        del worker.binding.workers[worker.number]
        tables.stacked.pop(worker.number, None)

    def settle(self, binding: Binding) -> None:
        """Stop the workers of a dropped binding once nothing of it is left to do, and say when the last is gone."""
        if not binding.is_closing or binding.is_gone:
            return
        if not binding.is_forced and binding.failure is None and self._has_work(binding):
            return
        for worker in list(binding.workers.values()):
            if worker.shape is None:
                self.stop(worker)
        if binding.workers:
            return
        binding.is_gone = True
        client = binding.client
        if client.bindings.get(binding.spec.id) is binding:
            del client.bindings[binding.spec.id]
        # Kinds of an actor's calls may be anybody's.
        for caller in self._tables.clients.values() if binding.spec.ordered else (client,):
            for kind in [k for k in caller.kinds.values() if k.shape.binding is binding]:
                del caller.kinds[kind.id]
        is_pooled = bool(binding.spec.gang)
        beside = sum(1 for shape in binding.shapes.values() if is_pooled or not shape.demand.cpu)
        self._tables.shapes_beside -= beside
        if not client.is_gone:
            self._tables.commands.append(Unbound(client.id, binding.spec.id))

    def _has_work(self, binding: Binding) -> bool:
        for shape in binding.shapes.values():
            if shape.queued or any(w.range.packets for w in shape.leased.values()):
                return True
        clients = [c for c in self._tables.clients.values() if c.root is binding.client.root]
        return any(k.wanted for c in clients for k in c.kinds.values() if k.shape.binding is binding)

    def _find(self, shape: Shape, pool: Resources | None = None) -> Worker | None:
        """A warm worker for the shape, with devices of this pool if it needs some; None: of any of its pools."""
        # Last in, first out: the worker that ran last is the warmest.
        binding = shape.binding
        demand = shape.demand
        for workers in (binding.idle, binding.spare):
            for worker in reversed(workers.values()):
                if worker.is_held_up:
                    continue
                if not (worker.gpu_ids or demand.gpu):
                    return worker
                if any(p.gpus_fit(worker.gpu_ids, demand) for p in shape.pools if pool in (None, p)):
                    return worker
        return None

    def _is_full(self) -> bool:
        return len(self._tables.workers) >= PROCESSES_PER_SLOT * self._tables.resources.slots

    def _has_place(self, binding: Binding) -> bool:
        return not self._is_full() or any(not w.binding.client.root.ready for w in self._spared_by(binding))

    def _spared_by(self, binding: Binding) -> Iterator[Worker]:
        """Idle workers that may end for one of a binding."""
        for worker in self._tables.workers.values():
            other = worker.binding
            is_spared = not other.spec.ordered and not worker.keeps_actors
            if worker.state == IDLE and other is not binding and is_spared:
                yield worker

    def _stop_another(self, binding: Binding) -> None:
        now = self._tables.now

        def loss(worker: Worker) -> tuple[bool, bool, int]:
            root = worker.binding.client.root
            return bool(root.ready), now < root.kept_until, -len(worker.binding.idle)

        least = min(self._spared_by(binding), key=loss, default=None)
        if least is not None:
            self.stop(least)

    def _write_off(self, worker: Worker, state: WorkerState) -> None:
        binding = worker.binding
        if worker.state == RESUMING:
            self._tables.resuming.remove(worker)
        binding.idle.pop(worker.number, None)
        binding.spare.pop(worker.number, None)
        binding.live -= 1
        worker.state = state

"""The node's machine: takes what clients, workers and the kernel say, and orders what is to be done.

Events are methods; what they decide lies in ``commands`` until the driver takes it. No event waits, and none fails
half-way: an event that cannot happen in the present state raises ``InvalidTransition`` and changes nothing; one that
is merely late (its worker is dead, its client gone) is counted in ``counts`` and dropped. The driver calls from one
thread; ``now`` is its monotonic clock in seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from ..ids import Span
from .bundles import Portion
from .claims import Done
from .commands import (
    BindingGone,
    BindingSpec,
    Command,
    Grant,
    InvalidTransition,
    KindRefused,
    KindSpec,
    Resume,
    TaskKey,
)
from .credit import look_pause, review, watch
from .dealing import Dealer
from .fairness import Root
from .intervals import Interval
from .invariants import check_tables
from .leases import BLOCKED, BUSY, KILLED, PROCESSES_PER_SLOT, RESUMING, STARTING, Leases
from .losses import Losses
from .queues import Kind
from .resources import Demand
from .snapshot import Snapshot, take_snapshot
from .tables import Binding, Client, Tables, Worker, WorkerState

#: Workers that may die one after the other before they have done anything, until their binding is given up.
START_DEATHS = 3


class Dispatch:
    """Queues tasks per client and kind, admits them when resources fit, and deals them to workers.

    Args:
        totals: amounts of this node's resources in 1/10000.
        gpus: number of GPU devices; 0 takes it from ``totals["GPU"]``.
        initial_credit: what every kind starts with; clients know it from their welcome.
        joined: the node is one of a cluster's: what it can never run may run elsewhere, so it is not refused but gets
            no credit, and what is submitted of it all the same is given back.
    """

    __slots__ = ("_tables", "_leases", "_dealer", "_losses")

    def __init__(
        self, totals: Mapping[str, int], *, gpus: int = 0, initial_credit: int = 64, joined: bool = False
    ) -> None:
        self._tables = Tables(totals, gpus, initial_credit, joined)
        self._leases = Leases(self._tables)
        self._dealer = Dealer(self._tables, self._leases)
        self._losses = Losses(self._tables, self._leases, self._dealer)

    @property
    def counts(self) -> Counter[str]:
        """How often each kind of late event was dropped."""
        return self._tables.counts

    def take_commands(self) -> list[Command]:
        """The commands decided since the last call, in the order in which they are to be done."""
        tables = self._tables
        commands = tables.commands
        tables.commands = []
        if tables.bundle_commands:
            commands += tables.bundle_commands
            tables.bundle_commands.clear()
        return commands

    def on_client_joined(
        self, client: int, root: int, now: float, *, worker: int | None = None, credit: int | None = None
    ) -> None:
        """A client deals with this node from now on, wherever it lives.

        Args:
            root: itself, or the root client it works for: that is here, or else this event is late and counted.
            worker: which worker of this node has become a client; None for a root and for workers of other nodes.
            credit: what its kinds start with; None for what all start with. With 0 a kind that can run here is granted
                its first at once.
        """
        tables = self._tables
        if client in tables.clients:
            raise InvalidTransition(f"client {client:x} is here already")
        start = tables.initial_credit if credit is None else credit
        if start < 0:
            raise InvalidTransition(f"client {client:x} cannot start with credit {start}")
        if worker is None and root == client:
            joined = Client(client, None, Root(tables.rotation), None, start)
            joined.bindings[0] = Binding(joined, BindingSpec(0))
            tables.clients[client] = joined
            return
        host = None if worker is None else tables.find_worker(worker, "client_joined")
        over = tables.find_client(root, "client_joined")
        if over is None or (worker is not None and host is None):
            return
        if over.root_client is not over or (host is not None and host.binding.client.root is not over.root):
            raise InvalidTransition(f"client {client:x} of worker {worker} does not belong to root {root:x}")
        joined = tables.clients[client] = Client(client, over, over.root, host, start)
        if host is not None:
            host.clients.append(joined)

    def on_client_left(self, client: int, now: float) -> None:
        """A client's process has ended: its queued tasks are dropped, running ones cancelled, its workers killed."""
        left = self._tables.find_client(client, "client_left")
        if left is None:
            return
        if left.root_client is left:
            for nested in [c for c in self._tables.clients.values() if c.root_client is left and c is not left]:
                self._losses.drop_client(nested)
        self._losses.drop_client(left)
        self._dealer.deal(now)

    def on_binding(self, client: int, spec: BindingSpec) -> None:
        """A client names a binding; an eager one gets workers now, no more than a node keeps warm."""
        tables = self._tables
        owner = tables.find_client(client, "binding")
        if owner is None:
            return
        if spec.id in owner.bindings or spec.id == 0:
            raise InvalidTransition(f"client {client:x} has a binding {spec.id} already")
        owner.last_binding = max(owner.last_binding, spec.id)
        binding = owner.bindings[spec.id] = Binding(owner, spec)
        if spec.gang and not tables.bundles.has(spec.gang):
            self._losses.fail_binding(binding, b"", 0)
        elif spec.eager and tables.takes_from(owner):
            slots = tables.resources.slots
            workers = 1 if spec.ordered else min(spec.processes or slots, PROCESSES_PER_SLOT * slots)
            for _ in range(workers):
                self._leases.start(binding)

    def on_unbind(self, client: int, binding: int, force: bool) -> None:
        """A client drops a binding: its workers end when nothing of it is left, or at once with ``force``."""
        owner = self._tables.find_client(client, "unbind")
        if owner is None:
            return
        dropped = owner.bindings.get(binding)
        if dropped is None:
            self._note_late(owner, binding, "unbind")
            return
        self._losses.drop_binding(dropped, force=force)
        self._dealer.deal(self._tables.now)

    def _note_late(self, client: Client, binding: int, event: str) -> None:
        """Count a word about a binding that has gone; raises InvalidTransition when there never was one."""
        if not 0 < binding <= client.last_binding:
            raise InvalidTransition(f"client {client.id:x} has no binding {binding}")
        self._tables.counts[f"late_{event}"] += 1

    def on_kind(self, client: int, spec: KindSpec) -> None:
        """A client describes tasks to come; a demand that can never be met is refused, or gets no credit here.

        That is one beyond the totals, or one for other GPUs than the worker of an ordered binding has: those of its
        first kind, none when it is eager.
        """
        tables = self._tables
        owner = tables.find_client(client, "kind")
        if owner is None:
            return
        if spec.id in owner.kinds:
            raise InvalidTransition(f"client {client:x} has a kind {spec.id} already")
        binding = self._find_binding(owner, spec)
        if binding is None:
            owner.last_kind = max(owner.last_kind, spec.id)  # what is submitted of it is lost
            return
        demand = Demand.of(spec.resources)
        shape = binding.shapes.get(demand) or tables.add_shape(binding, demand)
        owner.last_kind = max(owner.last_kind, spec.id)
        kind = owner.kinds[spec.id] = Kind(owner, spec.id, shape, owner.credit, spec.process_retries)
        is_home = tables.is_home_of(binding)
        if shape.capacity and (is_home or tables.takes_from(owner)):
            if not kind.credit:
                kind.credit = 1
                tables.commands.append(Grant(client, spec.id, 1))
            return
        if is_home or not (shape.capacity or tables.joined):
            kind.credit = 0
            kind.is_refused = True
            asked = {name: amount for name, amount in spec.resources.items() if amount}
            tables.commands.append(KindRefused(client, spec.id, asked, dict(tables.resources.totals)))
        else:
            self._losses.close_kind(kind)

    def _find_binding(self, owner: Client, spec: KindSpec) -> Binding | None:
        """The binding of a kind, which may be another client's if that is an actor; None: it has gone."""
        tables = self._tables
        if spec.binding_owner:
            holder = tables.clients.get(spec.binding_owner)
            found = holder.bindings.get(spec.binding) if holder is not None else None
            if found is None or not found.spec.ordered:
                tables.commands.append(BindingGone(owner.id, spec.id))
                return None
            return found
        binding = owner.bindings.get(spec.binding)
        if binding is None and spec.binding == 0:
            binding = owner.root_client.bindings.get(0)
        if binding is None:
            self._note_late(owner, spec.binding, "kind")
        return binding

    def on_kind_dropped(self, client: int, kind: int) -> None:
        """A client will submit nothing more of a kind of which nothing is left."""
        owner = self._tables.find_client(client, "kind_dropped")
        dropped = owner.kinds.get(kind) if owner is not None else None
        if owner is None or dropped is None or dropped.outstanding:
            self._tables.counts["late_kind_dropped"] += 1  # it went with its binding
            return
        del owner.kinds[kind]

    def on_want(self, client: int, kind: int, waiting: int, now: float) -> None:
        """A client says how many more tasks of a kind it has than its credit allows."""
        tables = self._tables
        owner = tables.find_client(client, "want")
        wanted = tables.find_kind(owner, kind, "want") if owner else None
        if owner is None or wanted is None or not wanted.credit:
            return
        wanted.wanted = waiting
        if owner.worker is not None or not wanted.is_kept_out:  # more would wait as well; the next to finish grants it
            review(wanted, tables.commands)
        self._leases.settle(wanted.shape.binding)

    def on_submitted(self, client: int, interval: Interval, now: float) -> None:
        """Tasks have arrived. The client is their owner."""
        tables = self._tables
        owner = tables.clients.get(client) or tables.find_client(client, "submitted")
        if owner is None:
            return
        kind = owner.kinds.get(interval.kind) or tables.find_kind(owner, interval.kind, "submitted")
        if interval.owner != client or not interval.calls:
            raise InvalidTransition(f"client {client:x} submitted {interval!r}")
        if kind is None or not kind.credit or kind.shape.binding.is_refusing:
            self._losses.decline(owner, kind, interval)
            return
        host = owner.worker
        if host is not None and host.range.packets:
            owner.depth = host.range.packets[0].kind.client.depth + 1
        tables.last_order += 1
        interval.order = tables.last_order
        interval.since = now
        if len(interval.calls) == 1 and self._dealer.deal_at_once(kind, interval):
            if tables.stacked:
                self._dealer.deal(now)
            return
        kind.push(interval)
        self._dealer.deal(now)

    def on_worker_forked(self, worker: int, now: float) -> None:
        """There is a process for a worker: the next may follow, if what it is for still waits."""
        forked = self._tables.find_worker(worker, "worker_forked")
        if forked is not None:
            self._leases.note_forked(forked)
            self._dealer.deal(now)

    def on_worker_started(self, worker: int, now: float) -> None:
        """A worker has run its initialiser and waits for packets."""
        started = self._tables.find_worker(worker, "worker_started")
        if started is None or _is_ending(started, self._tables):
            return
        if started.state != STARTING:
            raise InvalidTransition(f"{started!r} started again")
        self._leases.begin(started, now)
        self._dealer.deal(now)

    def on_worker_init_failed(self, worker: int, outcome: bytes, now: float) -> None:
        """A worker's initialiser raised: its binding is of no use, and the worker is ending."""
        failed = self._tables.find_worker(worker, "worker_init_failed")
        if failed is None or _is_ending(failed, self._tables):
            return
        if failed.state != STARTING:
            raise InvalidTransition(f"{failed!r} has been initialised")
        self._leases.fail_start(failed)
        self._losses.fail_binding(failed.binding, outcome, worker)
        self._dealer.deal(now)

    def on_finished(
        self, worker: int, packet: int, done: Iterable[Done], seconds: float, packet_done: bool, now: float
    ) -> None:
        """A worker reports the next tasks of its packet; ``seconds`` is what they took together."""
        tables = self._tables
        reporter = tables.workers.get(worker) or tables.find_worker(worker, "finished")
        if reporter is None:
            return
        ran, count = reporter.range.report(packet, done, packet_done)
        kind = ran.kind
        if not reporter.has_served:
            reporter.has_served = True
            reporter.binding.start_deaths = 0
        if count:
            kind.outstanding -= count
            kind.pace.note(seconds, count)
            kind.shape.root.served_seconds += seconds - ran.each * count
        if packet_done:
            reporter.is_barred = False
            packets = reporter.range.packets
            if len(packets) < 2:
                tables.stacked.pop(worker, None)
                if not packets:
                    self._leases.release(reporter)
        if not kind.client.is_gone:
            review(kind, tables.commands)
        self._dealer.deal(now)

    def on_given_back(self, worker: int, packet: int, count: int, now: float) -> list[Interval]:
        """A worker will not begin the last tasks of its packet, for the one that it runs takes long; returns them."""
        holder = self._tables.find_worker(worker, "given_back")
        if holder is None:
            return []
        ran, rest = holder.range.give_back(packet, count)
        holder.given -= count
        self._losses.put_back(ran, rest)
        self._dealer.deal(now)
        return rest

    def on_blocked(self, worker: int, now: float) -> None:
        """A worker's task waits: its CPUs are free, and what lies behind it may be what it waits for.

        If it is its initialiser that waits, nothing is meant for the worker meanwhile. A thread that outlives its task
        may say so too late; that is counted.
        """
        blocked = self._tables.find_worker(worker, "blocked")
        if blocked is None or _is_ending(blocked, self._tables):
            return
        if blocked.state == STARTING:
            blocked.is_held_up = True
            self._leases.release(blocked)
            self._dealer.deal(now)
            return
        if blocked.state != BUSY:
            self._tables.counts["late_blocked"] += 1
            return
        self._leases.block(blocked)
        kind = blocked.range.packets[0].kind
        if not kind.client.is_gone:
            review(kind, self._tables.commands)
        if len(blocked.range.packets) > 1 and not blocked.range.is_concurrent:
            self._dealer.recall_all(blocked)
        self._dealer.deal(now)

    def on_unblock(self, worker: int, now: float) -> None:
        """A worker's task can go on and asks for its CPUs; it gets the next free ones.

        One that is not blocked is answered at once: whoever asked (a thread that outlives its task) waits for it.
        """
        asking = self._tables.find_worker(worker, "unblock")
        if asking is None:
            return
        if asking.state == STARTING:
            asking.is_held_up = False
            self._tables.commands.append(Resume(worker))
            self._dealer.deal(now)
            return
        if asking.state != BLOCKED:
            self._tables.counts["late_unblock"] += 1
            if asking.state not in (RESUMING, KILLED):
                self._tables.commands.append(Resume(worker))
            return
        asking.state = RESUMING
        self._tables.resuming.append(asking)
        self._dealer.deal(now)

    def on_recalled(self, worker: int, packets: Collection[int], now: float) -> None:
        """The driver's answer to ``Recall``: the packets that the kernel gave back."""
        tables = self._tables
        holder = tables.find_worker(worker, "recalled")
        if holder is None:
            return
        if not holder.is_recalling:
            raise InvalidTransition(f"nothing was recalled from {holder!r}")
        taken = holder.range.take_back(packets)
        holder.is_recalling = False
        holder.is_barred = not taken
        for packet in reversed(taken):
            holder.given -= packet.count
            self._losses.put_back(packet, packet.intervals)
        if len(holder.range.packets) < 2:
            tables.stacked.pop(worker, None)
        if not holder.range.packets:
            self._leases.release(holder)
        if holder.recall_again and holder.range.packets:
            self._dealer.recall_all(holder)
        else:
            self._losses.follow_up(holder)
        holder.recall_again = False
        self._dealer.deal(now)

    def on_worker_died(
        self, worker: int, returned_packets: Collection[int], running: TaskKey | None, machine_lost: bool, now: float
    ) -> None:
        """A worker's process is gone, its link read to the end, its claim socket drained.

        Args:
            returned_packets: numbers of the packets that were drained.
            running: what the board names.
            machine_lost: it was not the process's own death (the template is gone).

        A worker that was given tasks, or an initialiser, and began nothing says something about the next one: after
        `START_DEATHS` of them in a row the binding is given up, or what is queued when it is the default one.
        """
        dead = self._tables.find_worker(worker, "worker_died")
        if dead is None:
            return
        binding = dead.binding
        if _died_at_start(dead, running) and not machine_lost:
            binding.start_deaths += 1
        fates = dead.range.autopsy(returned_packets, running)
        is_restarting = binding.may_restart and bool(dead.given)
        self._losses.settle_death(dead, fates, machine_lost, is_restarting=is_restarting)
        self._leases.bury(dead)
        for nested in list(dead.clients):
            self._losses.drop_client(nested)
        if is_restarting:
            binding.restarts += 1
            self._leases.start(binding, dead.gpu_ids)
        elif binding.spec.ordered and not binding.is_refusing and dead.given:
            self._losses.fail_binding(binding, b"", worker)  # what the next process began with would not be its state
        if binding.start_deaths >= START_DEATHS:
            self._losses.give_up(binding, worker)
        self._leases.settle(binding)
        self._dealer.deal(now)

    def on_cancel(self, client: int, span: Span, kill_after: float | None, force: bool, now: float) -> None:
        """An owner takes tasks back.

        Those not begun are lost as cancelled; a running one is signalled, and its worker killed after ``kill_after``
        seconds (None: never) or at once with ``force``.
        """
        tables = self._tables
        owner = tables.find_client(client, "cancel")
        if owner is None:
            return
        self._losses.cancel_queued(owner, span)
        delay = 0.0 if force else kill_after
        for worker in tables.workers.values():
            if worker.range.packets:
                self._losses.cancel_dealt(worker, owner, span, delay)
        for binding in [*owner.bindings.values(), *owner.root_client.bindings.values()]:
            self._leases.settle(binding)
        self._dealer.deal(now)

    def on_signal_due(self, worker: int) -> None:
        """A `SignalCancel` found none of its tasks running: signal those that are outstanding still."""
        late = self._tables.find_worker(worker, "signal_due")
        if late is not None:
            self._losses.follow_up(late)

    def on_kill_due(self, worker: int, running: TaskKey | None, now: float) -> None:
        """The driver's answer to ``KillLater``: what the board names when the time has come."""
        late = self._tables.find_worker(worker, "kill_due")
        if late is not None and late.state != KILLED:
            self._losses.kill_due(late, running)

    def on_prepare_bundles(self, gang: int, attempt: int, bundles: Mapping[int, Demand], now: float) -> None:
        """The head wants these bundles set aside here; the answers are commands of `bundles`."""
        self._tables.bundles.prepare(gang, attempt, bundles, now)
        self._end_pools(now)

    def on_confirm_bundles(self, gang: int, attempt: int, now: float) -> None:
        """All bundles of the gang are set aside: tasks may run in those here."""
        self._tables.bundles.confirm(gang, attempt)
        self._end_pools(now)

    def on_release_bundles(self, gang: int, attempt: int, now: float) -> None:
        """The bundles of a gang are to be given back, with an end to what runs there."""
        self._tables.bundles.release(gang, attempt)
        self._end_pools(now)

    def _end_pools(self, now: float) -> None:
        for gang in self._tables.bundles.take_ended():
            self._losses.end_gang(gang)
        self._dealer.deal(now)

    @property
    def bundles_held(self) -> Mapping[int, Portion]:
        """What is set aside here, by gang."""
        return self._tables.bundles.held()

    def takes(self, client: int, kind: int) -> bool:
        """Whether tasks of a kind run at this node, sooner or later."""
        owner = self._tables.clients.get(client)
        known = owner.kinds.get(kind) if owner is not None else None
        return known is not None and known.credit > 0

    def is_serving(self, root: int) -> bool:
        """Whether there are tasks here of a root's clients, or what they keep in a worker of its own."""
        clients = [client for client in self._tables.clients.values() if client.root_client.id == root]
        return any(
            any(kind.outstanding for kind in client.kinds.values())
            or any(binding.spec.ordered for binding in client.bindings.values())
            for client in clients
        )

    def on_drain(self, now: float) -> None:
        """Take nothing more: kinds lose their credit, and what has not begun is given back; what runs goes on.

        What tasks that run here submit is taken on, since they may wait for it and nobody else may have room. Ordered
        bindings whose worker is here are served on, since their tasks can run nowhere else.
        """
        self._losses.drain()
        self._dealer.deal(now)

    def on_drain_due(self, now: float) -> None:
        """The grace is over: what still runs, ordered bindings included, is lost with the machine."""
        self._tables.is_over = True
        self.on_drain(now)
        self._losses.kill_running()

    @property
    def is_idle(self) -> bool:
        """Whether no task is queued, dealt or running, those of ordered bindings aside."""
        tables = self._tables
        if any(w.range.packets and not w.binding.spec.ordered for w in tables.workers.values()):
            return False
        return all(shape.binding.spec.ordered for root in tables.rotation.ready for shape in root.ready)

    @property
    def due(self) -> float | None:
        """When ``on_timer`` is to be called next; None when nothing waits for a process, or should rather be elsewhere.

        Read it after each event; it may lie in the past.
        """
        tables = self._tables
        due = tables.start_due
        if tables.bundles.is_pending and (lapse := tables.bundles.due) is not None:
            due = lapse if due is None else min(due, lapse)
        if tables.joined and tables.rotation.ready and tables.calm_order != tables.last_order:
            look = tables.looked_at + look_pause(tables.watched)
            due = look if due is None else min(due, look)
        return due

    def on_timer(self, now: float) -> None:
        """Start the process that was put off, and give back what waits behind tasks that run long, measured or not."""
        tables = self._tables
        if tables.start_due is not None and tables.start_due <= now:
            self._dealer.deal(now)
        if tables.bundles.is_pending:
            tables.bundles.on_timer(now)
            self._end_pools(now)
        if not tables.joined:
            return
        tables.looked_at = now
        kinds = [kind for root in tables.rotation.ready for shape in root.ready for kind in shape.waiting]
        tables.watched = len(kinds)
        calm = [watch(kind, now, tables.commands) for kind in kinds]
        tables.calm_order = tables.last_order if all(calm) else -1

    def snapshot(self) -> Snapshot:
        """Say what goes on, for people."""
        return take_snapshot(self._tables)

    def check(self) -> None:
        """Verify every invariant of the tables; raises AssertionError naming the one that is broken."""
        check_tables(self._tables)


def _died_at_start(worker: Worker, running: TaskKey | None) -> bool:
    """Whether a worker that nobody ended came to nothing: no initialiser run, or no packet begun."""
    if worker.state >= WorkerState.STOPPING:
        return False
    return worker.state == STARTING or (running is None and not worker.has_served and bool(worker.range.packets))


def _is_ending(worker: Worker, tables: Tables) -> bool:
    """Whether the worker has been told to end: what it still says is late."""
    if worker.state < WorkerState.STOPPING:
        return False
    tables.counts["late_of_ending_worker"] += 1
    return True

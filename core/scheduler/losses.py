"""What is taken back, cancelled or lost: from queues, from ranges, and from dead workers."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from ..ids import Span
from .claims import Fate, Packet
from .commands import BindingFailed, Grant, KillLater, Lost, LostCause, Returned, SignalCancel
from .dealing import Dealer
from .intervals import Interval, cut
from .leases import KILLED, STARTING, Leases
from .queues import Kind
from .tables import Binding, Client, Tables, Worker

#: Seconds that a child of a dead task gets to end after the signal, as for a cancelled pool.
ORPHAN_KILL_SECONDS = 1.0
#: Shortest time after which the board is looked at again for a doomed task that has not begun.
LEAST_KILL_SECONDS = 0.01


class Losses:
    """Acts on the tables; every task that leaves other than by finishing leaves through here."""

    __slots__ = ("_tables", "_leases", "_dealer")

    def __init__(self, tables: Tables, leases: Leases, dealer: Dealer) -> None:
        self._tables = tables
        self._leases = leases
        self._dealer = dealer

    def lose(
        self, client: Client, cause: LostCause, spans: list[Span], worker: int | None = None, outcome: bytes = b"",
        *, is_restarting: bool = False, is_at_start: bool = False,
    ) -> None:  # fmt: skip
        """Tell the owner, if it is still there, that tasks are lost."""
        if not spans:
            return
        if client.is_gone:
            self._tables.counts["dropped_of_gone_client"] += sum(s.count for s in spans)
        else:
            self._tables.commands.append(Lost(client.id, cause, spans, worker, outcome, is_restarting, is_at_start))

    def decline(self, client: Client, kind: Kind | None, interval: Interval) -> None:
        """Turn away what was submitted of a kind that is not taken: not begun, or lost when no node would take it."""
        binding = kind.shape.binding if kind is not None else None
        if kind is None or kind.is_refused or (binding is not None and binding.is_refusing):
            outcome = (binding and binding.failure) or b""
            by = binding.ended_by if binding is not None else None
            self.lose(client, LostCause.BINDING, [interval.span()], by, outcome)
        else:
            self._tables.commands.append(Returned(client.id, [interval.span()]))

    def close_kind(self, kind: Kind) -> None:
        """Take nothing more of a kind, and give back what is queued: it may run elsewhere."""
        if kind.credit:
            self._tables.commands.append(Grant(kind.client.id, kind.id, 0))
        kind.credit = kind.wanted = 0
        if kind.queued:
            self._tables.commands.append(Returned(kind.client.id, kind.take_all()))

    def drain(self) -> None:
        """Give back all that has not begun, and take nothing more, but for what can run nowhere else and, before the
        end, what tasks that run here submit.
        """
        tables = self._tables
        tables.is_draining = True
        for client in tables.clients.values():
            if tables.takes_from(client):
                continue
            for kind in client.kinds.values():
                if kind.credit and not tables.is_home_of(kind.shape.binding):
                    self.close_kind(kind)
        for worker in tables.workers.values():
            if len(worker.range.packets) > 1 and not worker.binding.spec.ordered:
                self._dealer.recall_all(worker)
        for client in tables.clients.values():
            for binding in list(client.bindings.values()):
                self._leases.settle(binding)

    def kill_running(self) -> None:
        """Kill every worker that has anything to do: it is lost with the machine."""
        for worker in list(self._tables.workers.values()):
            if worker.range.packets:
                self._leases.kill(worker)

    def empty_queue(self, kind: Kind, cause: LostCause, outcome: bytes = b"", worker: int | None = None) -> None:
        """Lose everything a kind has queued."""
        if kind.queued:
            self.lose(kind.client, cause, kind.take_all(), worker, outcome)
        kind.wanted = 0

    def empty_binding(self, binding: Binding) -> None:
        """Lose everything queued for a binding that takes nothing more."""
        for shape in binding.shapes.values():
            for kind in list(shape.waiting):
                self.empty_queue(kind, LostCause.BINDING, binding.failure or b"", binding.ended_by)

    def fail_binding(self, binding: Binding, outcome: bytes, worker: int) -> None:
        """Give a binding up whose workers do not start: say so once, lose its queue, stop who has nothing to do."""
        if binding.failure is not None or binding.is_forced:
            return
        binding.failure = outcome
        binding.ended_by = worker if binding.spec.ordered and not outcome else None
        self._tables.commands.append(BindingFailed(binding.client.id, binding.spec.id, outcome, worker))
        self.empty_binding(binding)
        for other in list(binding.workers.values()):
            if other.state == STARTING:
                self._leases.release(other)
            if other.shape is None:
                self._leases.stop(other)

    def give_up(self, binding: Binding, worker: int) -> None:
        """Workers of a binding come to nothing: fail it; of the default one lose what is queued, and try again later.

        ``worker`` is the one that died last.
        """
        binding.start_deaths = 0
        if binding.spec.id:
            self.fail_binding(binding, b"", worker)
            return
        for shape in binding.shapes.values():
            for kind in list(shape.waiting):
                self.lose(kind.client, LostCause.BINDING, kind.take_all(), worker, is_at_start=True)

    def put_back(self, packet: Packet, intervals: list[Interval]) -> None:
        """Queue dealt tasks again that have not begun; those no longer wanted are lost instead."""
        kind = packet.kind
        client = kind.client
        if packet.cancelled:
            intervals, spans = cut(intervals, packet.cancelled)
            self._lose_dealt(packet, LostCause.CANCELLED, spans)
        binding = kind.shape.binding
        if client.is_gone or binding.is_refusing:
            spans = [i.span() for i in intervals]
            self._lose_dealt(packet, LostCause.BINDING, spans, binding.ended_by, binding.failure or b"")
        elif intervals:
            count = sum(len(i.calls) for i in intervals)
            kind.shape.root.charge(-packet.each * count)
            if kind.credit:
                kind.requeue(intervals)
                self._tables.calm_order = -1
            else:
                kind.outstanding -= count
                self._tables.commands.append(Returned(client.id, [i.span() for i in intervals]))

    def cancel_queued(self, client: Client, span: Span) -> None:
        """Take back what is queued of a span."""
        for kind in client.kinds.values():
            if kind.queued and (spans := kind.take_named(span)):
                self.lose(client, LostCause.CANCELLED, spans)

    def cancel_dealt(self, worker: Worker, client: Client, span: Span | None, kill_delay: float | None) -> None:
        """Mark what a worker has outstanding of a span (None: of the client) and ask for it back.

        When the answer has come ``follow_up`` reaches for what is left.
        """
        is_hit = False
        for packet in worker.range.packets:
            if packet.kind.client is not client:
                continue
            for interval in packet.intervals:
                start, stop = interval.overlap(span) if span else (0, len(interval.calls))
                if start < stop:
                    is_hit = True
                    packet.cancelled.append(interval.span(start, stop))
                    if kill_delay is not None:
                        packet.doomed.append(interval.span(start, stop))
        if is_hit:
            if kill_delay is not None:
                worker.kill_delay = kill_delay if worker.kill_delay is None else min(kill_delay, worker.kill_delay)
            self._dealer.recall_all(worker)

    def follow_up(self, worker: Worker) -> None:
        """After a recall: signal the cancelled tasks that have begun, and look again later at those to be killed."""
        if worker.state == KILLED:
            return
        by_owner: dict[int, list[Span]] = {}
        for packet in worker.range.packets:
            if packet.cancelled:
                _, spans = cut(packet.intervals, packet.cancelled)
                by_owner.setdefault(packet.kind.client.id, []).extend(spans)
        for owner, spans in by_owner.items():
            if spans:
                self._tables.commands.append(SignalCancel(worker.number, owner, spans))
        if worker.kill_delay is not None:
            self._tables.commands.append(KillLater(worker.number, worker.kill_delay))
            worker.kill_delay = None

    def kill_due(self, worker: Worker, running: tuple[int, int, int] | None) -> None:
        """Kill a worker that still runs a doomed task; look again later while one is left that has not begun."""
        doomed = [p for p in worker.range.packets if p.doomed]
        if running is not None and any(p.is_doomed(running) for p in doomed):
            self._leases.kill(worker)
        elif any(cut(p.intervals, p.doomed)[1] for p in doomed):
            self._tables.commands.append(KillLater(worker.number, LEAST_KILL_SECONDS))

    def settle_death(
        self, worker: Worker, fates: Sequence[Fate], machine_lost: bool, *, is_restarting: bool = False
    ) -> None:
        """Lose what ran at a dead worker and queue again what had not begun, in its old order.

        Of an actor that is started again, calls that may run again go before those.
        """
        was_killed = worker.state == KILLED
        cause = LostCause.MACHINE if machine_lost or was_killed else LostCause.PROCESS
        if worker.binding.is_forced:
            cause = LostCause.BINDING
        for fate in fates:
            again: list[Interval] = []
            for intervals in (fate.suspect, fate.unreported):
                kept, spans = cut(intervals, fate.packet.cancelled)
                self._lose_dealt(fate.packet, LostCause.CANCELLED, spans, worker.number)
                if is_restarting:
                    kept = self._part_reruns(fate.packet.kind, kept, again)
                spans = [i.span() for i in kept]
                self._lose_dealt(fate.packet, cause, spans, worker.number, is_restarting=is_restarting)
            fate.untouched[:0] = sorted(again, key=attrgetter("order", "first"))
        for fate in reversed(fates):
            self.put_back(fate.packet, fate.untouched)

    @staticmethod
    def _part_reruns(kind: Kind, lost: list[Interval], again: list[Interval]) -> list[Interval]:
        """Move the calls that may run once more to ``again``; returns the others."""
        rest: list[Interval] = []
        reruns = kind.shape.binding.reruns
        for interval in lost:
            for at in range(len(interval.calls)):
                call = interval.part(at, at + 1)
                key = (call.owner, call.stream, call.first)
                if 0 <= kind.process_retries <= reruns[key]:
                    rest.append(call)
                else:
                    reruns[key] += 1
                    again.append(call)
        return rest

    def drop_client(self, client: Client) -> None:
        """Forget a client: drop what it has queued, cancel what it has running, end its own workers."""
        client.is_gone = True
        del self._tables.clients[client.id]
        if client.worker is not None and client in client.worker.clients:
            client.worker.clients.remove(client)
        for kind in client.kinds.values():
            self.empty_queue(kind, LostCause.CANCELLED)
        for worker in list(self._tables.workers.values()):
            if not worker.binding.spec.ordered:
                self.cancel_dealt(worker, client, None, ORPHAN_KILL_SECONDS)
            elif worker.range.is_concurrent:  # an actor outlives those who call it; what waits in it need not
                self.cancel_dealt(worker, client, None, None)
        for binding in list(client.bindings.values()):
            self.drop_binding(binding, force=True)

    def drop_binding(self, binding: Binding, *, force: bool) -> None:
        """Let a binding's workers end: when nothing is left to do, or at once."""
        binding.is_closing = True
        if force and not binding.is_forced:
            binding.is_forced = True
            self.empty_binding(binding)
            for worker in list(binding.workers.values()):
                self._leases.kill(worker)
        self._leases.settle(binding)

    def end_gang(self, gang: int) -> None:
        """Its bundles are nobody's any more: what runs there, or was to, is lost."""
        for client in list(self._tables.clients.values()):
            for binding in [b for b in client.bindings.values() if b.spec.gang == gang]:
                self.drop_binding(binding, force=True)

    def _lose_dealt(
        self, packet: Packet, cause: LostCause, spans: list[Span], worker: int | None = None, outcome: bytes = b"",
        *, is_restarting: bool = False,
    ) -> None:  # fmt: skip
        count = sum(s.count for s in spans)
        packet.kind.outstanding -= count
        packet.kind.shape.root.charge(-packet.each * count)
        self.lose(packet.kind.client, cause, spans, worker, outcome, is_restarting=is_restarting)

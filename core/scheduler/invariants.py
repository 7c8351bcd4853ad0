"""What must hold in the node's tables after every event. Slow; for tests, the simulator and reports of bugs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..ids import RESOURCE_UNIT
from .credit import MOST_CREDIT
from .intervals import Interval
from .queues import Kind, Shape
from .tables import Binding, Tables, Worker, WorkerState

LEASED_STATES = (WorkerState.BUSY, WorkerState.BLOCKED, WorkerState.RESUMING)


def check_tables(tables: Tables) -> None:
    """Raise AssertionError naming the first invariant that does not hold."""
    bindings = _bindings(tables)
    _check_resources(tables)
    _check_places(tables)
    for binding in bindings:
        _check_binding(binding)
        for shape in binding.shapes.values():
            _check_shape(shape, tables)
    for worker in tables.workers.values():
        _check_worker(worker, tables)
    for client in tables.clients.values():
        for kind in client.kinds.values():
            _check_kind(kind, tables)
    _check_roots(tables)
    cpuless = sum(1 for b in bindings for s in b.shapes.values() if not s.demand.cpu)
    assert tables.cpuless_shapes == cpuless, f"{tables.cpuless_shapes} shapes without CPU counted, {cpuless} there"
    assert set(tables.stacked) == {w.number for w in tables.workers.values() if len(w.range.packets) > 1}, "stacked"


def _bindings(tables: Tables) -> list[Binding]:
    found = {id(w.binding): w.binding for w in tables.workers.values()}
    for client in tables.clients.values():
        found.update({id(b): b for b in client.bindings.values()})
    return list(found.values())


def _check_resources(tables: Tables) -> None:
    resources = tables.resources
    held: Counter[str] = Counter()
    devices = [0] * len(resources.gpu_free)
    for worker in tables.workers.values():
        if worker.shape is None:
            assert not worker.holds_cpu, f"{worker!r} holds CPUs without a lease"
            continue
        demand = worker.shape.demand
        if worker.holds_cpu:
            held["CPU"] += demand.cpu
        held.update(dict(demand.others))
        for device in worker.gpu_ids:
            devices[device] += demand.per_device
    for name, free in {"CPU": resources.free_cpu, **resources.free_others}.items():
        assert free >= 0, f"{name} is overdrawn by {-free}"
        total = resources.totals.get(name, 0)
        assert free + held[name] == total, f"{name}: {free} free and {held[name]} held of {total}"
    for device, free in enumerate(resources.gpu_free):
        assert free >= 0 and free + devices[device] == RESOURCE_UNIT, f"GPU {device}: {free} free, {devices[device]}"


def _intervals(tables: Tables) -> Iterator[Interval]:
    for client in tables.clients.values():
        for kind in client.kinds.values():
            for at, interval in enumerate(kind.queue):
                yield interval.part(kind.offset, len(interval.calls)) if not at else interval
    for worker in tables.workers.values():
        for packet in worker.range.packets:
            yield from packet.intervals


def _check_places(tables: Tables) -> None:
    places = Counter(
        (i.owner, i.stream, i.first + n * i.stride, i.attempt) for i in _intervals(tables) for n in range(len(i.calls))
    )
    twice = [task for task, count in places.items() if count > 1]
    assert not twice, f"tasks in two places: {twice[:5]}"
    numbers = Counter(p.number for w in tables.workers.values() for p in w.range.packets)
    assert not numbers or max(numbers.values()) == 1, "a packet is outstanding twice"


def _check_binding(binding: Binding) -> None:
    workers = binding.workers.values()
    live = [w for w in workers if w.state < WorkerState.STOPPING]
    assert binding.live == len(live), f"{binding.live} live workers counted, {len(live)} there"
    assert set(binding.idle) == {w.number for w in live if w.state == WorkerState.IDLE}, "idle workers"
    spare = {w.number for w in live if w.state == WorkerState.STARTING and w.shape is None}
    assert set(binding.spare) == spare, "spare workers"
    cpuless = [w for w in workers if w.shape is not None and not w.shape.demand.cpu]
    assert binding.cpuless_leases == len(cpuless), "leases without CPU"
    if binding.spec.ordered:
        assert len(binding.workers) <= 1, "an ordered binding has two workers"
    elif binding.spec.processes:
        assert binding.live <= binding.spec.processes, "more workers than the binding allows"
    assert not (binding.is_gone and binding.workers), "a binding that is gone has workers"
    assert not (binding.is_refusing and any(s.queued for s in binding.shapes.values())), "queued for a refusing binding"


def _check_shape(shape: Shape, tables: Tables) -> None:
    kinds = {k for c in tables.clients.values() for k in c.kinds.values() if k.shape is shape}
    assert shape.queued == sum(k.queued for k in kinds), "queued tasks of a shape"
    assert set(shape.waiting) == {k for k in kinds if k.queued}, "waiting kinds of a shape"
    leased = {w.number for w in tables.workers.values() if w.shape is shape}
    assert set(shape.leased) == leased, "leased workers of a shape"
    coming = sum(1 for w in shape.leased.values() if w.state == WorkerState.STARTING)
    assert shape.coming == coming, f"{shape.coming} workers said to come, {coming} do"
    assert (shape in shape.root.ready) == bool(shape.queued), "a root's ready shapes"
    assert (shape.root in tables.rotation.ready) == bool(shape.root.ready), "ready roots"


def _check_worker(worker: Worker, tables: Tables) -> None:
    range_ = worker.range
    state = worker.state
    packets = range_.packets
    assert worker.binding.workers.get(worker.number) is worker, f"{worker!r} is unknown to its binding"
    assert range_.tasks == sum(p.count for p in packets), f"tasks of {worker!r}"
    assert abs(range_.seconds - sum(p.each * p.count for p in packets)) < 1e-6, f"seconds of {worker!r}"
    assert [p.number for p in packets] == sorted(p.number for p in packets), f"order of packets of {worker!r}"
    for packet in packets:
        assert packet.count == sum(len(i.calls) for i in packet.intervals), f"packet {packet.number}"
    if state in LEASED_STATES:
        assert packets and worker.shape is not None, f"{worker!r} has nothing to do"
        assert worker.holds_cpu == (state == WorkerState.BUSY), f"CPUs of {worker!r}"
    else:
        assert state == WorkerState.KILLED or not packets, f"{worker!r} has packets"
    if packets:
        assert worker.shape is not None, f"{worker!r} has packets without a lease"
    assert (worker in tables.resuming) == (state == WorkerState.RESUMING), f"{worker!r} among the resuming"
    limit = worker.binding.spec.max_tasks
    assert not limit or worker.given <= limit, f"{worker!r} was given {worker.given} of {limit} tasks"


def _check_kind(kind: Kind, tables: Tables) -> None:
    queued = sum(len(i.calls) for i in kind.queue) - kind.offset
    assert kind.queued == queued, f"kind {kind.id}: {kind.queued} queued, {queued} there"
    dealt = sum(p.count for w in tables.workers.values() for p in w.range.packets if p.kind is kind)
    assert kind.outstanding == queued + dealt, f"kind {kind.id}: {kind.outstanding} outstanding, {queued} + {dealt}"
    most = max(MOST_CREDIT, kind.client.credit)
    assert 0 <= kind.credit <= most, f"kind {kind.id}: credit {kind.credit}"
    assert kind.credit or not (kind.queued or kind.wanted), f"kind {kind.id} is not taken"
    assert kind.shape.capacity or not kind.credit, f"kind {kind.id} can never run"
    assert not (kind.is_refused and kind.credit), f"kind {kind.id} was refused"


def _check_roots(tables: Tables) -> None:
    roots = {id(b.client.root): b.client.root for b in _bindings(tables)}
    for root in roots.values():
        leases = [w for w in tables.workers.values() if w.shape is not None and w.shape.root is root]
        lent = sum(w.shape.demand.cpu for w in leases if w.shape is not None and not w.holds_cpu)
        nested = sum(w.shape.demand.cpu for w in leases if w.shape is not None and w.is_nested)
        assert root.lent_cpu == lent, f"a root lent {root.lent_cpu}, its blocked tasks hold {lent}"
        held = sum(w.shape.part for w in leases if w.shape is not None and w.holds_cpu)
        assert root.held == held, f"a root holds {root.held}, its leases {held}"
        assert root.nested_cpu == nested, f"nested leases hold {root.nested_cpu}, {nested} counted"

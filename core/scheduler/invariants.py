"""What must hold in the node's tables after every event. Slow; for tests, the simulator and reports of bugs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from ..ids import RESOURCE_UNIT
from .bundles import Pool
from .claims import Packet
from .credit import MOST_CREDIT
from .intervals import Interval
from .queues import Kind, Shape
from .tables import Binding, Tables, Worker, WorkerState

#: One run of a task: (owner, stream, index, attempt).
TaskPlace = tuple[int, int, int, int]

LEASED_STATES = (WorkerState.BUSY, WorkerState.BLOCKED, WorkerState.RESUMING)


def check_tables(tables: Tables) -> None:
    """Raise AssertionError naming the first invariant that does not hold."""
    workers = tables.workers.values()
    bindings = _bindings(tables)
    kinds = [kind for client in tables.clients.values() for kind in client.kinds.values()]
    packets = [packet for worker in workers for packet in worker.range.packets]
    leases: defaultdict[Shape, list[Worker]] = defaultdict(list)
    for worker in workers:
        _check_worker(worker, tables)
        if worker.shape is not None:
            leases[worker.shape].append(worker)
    _check_resources(tables)
    _check_places(kinds, packets)
    _check_kinds(kinds, packets)
    beside = 0
    for binding in bindings:
        _check_binding(binding)
        for shape in binding.shapes.values():
            _check_shape(shape, [kind for kind in kinds if kind.shape is shape], leases[shape], tables)
            beside += bool(binding.spec.gang) or not shape.demand.cpu
    _check_roots(tables, bindings, leases)
    assert tables.shapes_beside == beside, f"{tables.shapes_beside} shapes counted, {beside} there"
    assert tables.forking == sum(not w.is_forked for w in workers), "workers without a process"
    stacked = {w.number for w in workers if len(w.range.packets) > 1 and not w.range.is_concurrent}
    assert tables.stacked.keys() == stacked, "stacked"


def _bindings(tables: Tables) -> list[Binding]:
    found = {worker.binding: None for worker in tables.workers.values()}
    for client in tables.clients.values():
        for binding in client.bindings.values():
            found[binding] = None
    return list(found)


def _check_resources(tables: Tables) -> None:
    """What is free, held by leases, and set aside for gangs, is all there is; the same of each bundle."""
    tables.bundles.check()
    resources = tables.resources
    for pool in (resources, *tables.bundles.all_pools()):
        waiting = (w.shape for w in tables.workers.values() if w.pool is pool and not w.holds_cpu)
        lent = sum(shape.demand.cpu for shape in waiting if shape is not None)
        assert pool.lent_cpu == lent, f"{pool.lent_cpu} lent, blocked tasks want {lent} again"
    held = dict.fromkeys(("CPU", *resources.free_others), 0)
    devices = [0] * len(resources.gpu_free)
    for worker in tables.workers.values():
        if worker.shape is None:
            assert not worker.holds_cpu and worker.pool is None, f"{worker!r} holds something without a lease"
            continue
        _count_lease(worker, held, devices)
    for pool in tables.bundles.all_pools():
        for name, amount in ("CPU", pool.free_cpu), *pool.free_others.items():
            held[name] += amount
        for device, amount in enumerate(pool.gpu_free):
            devices[device] += amount
        _check_pool(pool, tables)
    for name, taken in held.items():
        free = resources.free_cpu if name == "CPU" else resources.free_others[name]
        assert free >= 0, f"{name} is overdrawn by {-free}"
        total = resources.totals.get(name, 0)
        assert free + taken == total, f"{name}: {free} free and {taken} held of {total}"
    for device, free in enumerate(resources.gpu_free):
        assert free >= 0 and free + devices[device] == RESOURCE_UNIT, f"GPU {device}: {free} free, {devices[device]}"


def _count_lease(worker: Worker, held: dict[str, int], devices: list[int]) -> None:
    assert worker.shape is not None
    demand = worker.shape.demand
    if worker.holds_cpu:
        held["CPU"] += demand.cpu
    for name, amount in demand.others:
        held[name] = held.get(name, 0) + amount
    for device in worker.gpu_ids:
        devices[device] += demand.per_device


def _check_pool(pool: Pool, tables: Tables) -> None:
    held = dict.fromkeys(("CPU", *pool.free_others), 0)
    devices = [0] * len(pool.gpu_free)
    for worker in tables.workers.values():
        if worker.pool is pool:
            _count_lease(worker, held, devices)
    whole = tables.bundles.has(pool.gang)
    for name, taken in held.items():
        free = pool.free_cpu if name == "CPU" else pool.free_others[name]
        set_aside = pool.demand.cpu if name == "CPU" else dict(pool.demand.others)[name]
        assert free >= 0, f"{name} of a bundle is overdrawn by {-free}"
        assert free + taken == set_aside if whole else free <= set_aside, f"{name}: {free} + {taken} of {set_aside}"
    for device in pool.gpu_ids:
        assert pool.gpu_free[device] + devices[device] == pool.demand.per_device, f"GPU {device} of a bundle"


def _check_places(kinds: list[Kind], packets: list[Packet]) -> None:
    places: list[TaskPlace] = []
    for kind in kinds:
        offset = kind.offset
        for interval in kind.queue:
            places += _places(interval)[offset:]
            offset = 0
    for packet in packets:
        for interval in packet.intervals:
            places += _places(interval)
    if len(set(places)) < len(places):
        twice = [task for task, count in Counter(places).items() if count > 1]
        raise AssertionError(f"tasks in two places: {twice[:5]}")
    assert len({packet.number for packet in packets}) == len(packets), "a packet is outstanding twice"


def _places(interval: Interval) -> list[TaskPlace]:
    owner, stream, attempt = interval.owner, interval.stream, interval.attempt
    first, stride = interval.first, interval.stride
    return [(owner, stream, index, attempt) for index in range(first, first + stride * len(interval.calls), stride)]


def _check_binding(binding: Binding) -> None:
    live = cpuless = 0
    idle, spare = set(), set()
    for worker in binding.workers.values():
        shape, state = worker.shape, worker.state
        live += state < WorkerState.STOPPING
        cpuless += shape is not None and not shape.demand.cpu
        if state == WorkerState.IDLE:
            idle.add(worker.number)
        elif state == WorkerState.STARTING and shape is None:
            spare.add(worker.number)
    assert binding.live == live, f"{binding.live} live workers counted, {live} there"
    assert binding.idle.keys() == idle, "idle workers"
    assert binding.spare.keys() == spare, "spare workers"
    assert binding.cpuless_leases == cpuless, "leases without CPU"
    if binding.spec.ordered:
        assert len(binding.workers) <= 1, "an ordered binding has two workers"
    elif binding.spec.processes:
        assert binding.live <= binding.spec.processes, "more workers than the binding allows"
    assert not (binding.is_gone and binding.workers), "a binding that is gone has workers"
    assert not (binding.is_refusing and any(s.queued for s in binding.shapes.values())), "queued for a refusing binding"


def _check_shape(shape: Shape, kinds: list[Kind], leases: list[Worker], tables: Tables) -> None:
    queued = 0
    for kind in kinds:
        queued += kind.queued
        assert (kind in shape.waiting) == (kind.queued > 0), "waiting kinds of a shape"
    assert shape.queued == queued and shape.waiting.keys() <= set(kinds), "queued tasks of a shape"
    coming = 0
    for worker in leases:
        coming += worker.state == WorkerState.STARTING
        assert worker.number in shape.leased, "leased workers of a shape"
    assert len(leases) == len(shape.leased), "leased workers of a shape"
    assert shape.coming == coming, f"{shape.coming} workers said to come, {coming} do"
    assert (shape in shape.root.ready) == bool(shape.queued), "a root's ready shapes"
    assert (shape.root in tables.rotation.ready) == bool(shape.root.ready), "ready roots"


def _check_worker(worker: Worker, tables: Tables) -> None:
    range_ = worker.range
    state = worker.state
    packets = range_.packets
    assert worker.binding.workers.get(worker.number) is worker, f"{worker!r} is unknown to its binding"
    tasks, seconds, last = 0, 0.0, 0
    for packet in packets:
        tasks += packet.count
        seconds += packet.each * packet.count
        assert packet.number >= last, f"order of packets of {worker!r}"
        last = packet.number
        there = 0
        for interval in packet.intervals:
            there += len(interval.calls)
        assert packet.count == there, f"packet {packet.number}"
    assert range_.tasks == tasks, f"tasks of {worker!r}"
    assert abs(range_.seconds - seconds) < 1e-6, f"seconds of {worker!r}"
    assert not (worker.is_held_up and worker.shape), f"a lease of {worker!r}, whose initialiser waits"
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


def _check_kinds(kinds: list[Kind], packets: list[Packet]) -> None:
    dealt: defaultdict[Kind, int] = defaultdict(int)
    for packet in packets:
        dealt[packet.kind] += packet.count
    for kind in kinds:
        _check_kind(kind, dealt[kind])


def _check_kind(kind: Kind, dealt: int) -> None:
    queued = -kind.offset
    for interval in kind.queue:
        queued += len(interval.calls)
    assert kind.queued == queued, f"kind {kind.id}: {kind.queued} queued, {queued} there"
    assert kind.outstanding == queued + dealt, f"kind {kind.id}: {kind.outstanding} outstanding, {queued} + {dealt}"
    most = max(MOST_CREDIT, kind.client.credit)
    assert 0 <= kind.credit <= most, f"kind {kind.id}: credit {kind.credit}"
    assert kind.credit or not (kind.queued or kind.wanted), f"kind {kind.id} is not taken"
    assert kind.shape.capacity or not kind.credit, f"kind {kind.id} can never run"
    assert not (kind.is_refused and kind.credit), f"kind {kind.id} was refused"


def _check_roots(tables: Tables, bindings: list[Binding], leases: Mapping[Shape, list[Worker]]) -> None:
    lent, nested, held = ({binding.client.root: 0 for binding in bindings} for _ in range(3))
    for shape, workers in leases.items():
        cpu, root = shape.demand.cpu, shape.root
        for worker in workers:
            if worker.holds_cpu:
                held[root] += shape.part
            elif worker.pool is tables.resources:
                lent[root] += cpu
            if worker.is_nested and worker.pool is tables.resources:
                nested[root] += cpu
    for root in held:
        assert root.lent_cpu == lent[root], f"a root lent {root.lent_cpu}, its blocked tasks hold {lent[root]}"
        assert root.held == held[root], f"a root holds {root.held}, its leases {held[root]}"
        assert root.nested_cpu == nested[root], f"nested leases hold {root.nested_cpu}, {nested[root]} counted"

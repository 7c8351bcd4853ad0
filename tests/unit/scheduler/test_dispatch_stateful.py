"""A random walk over the node's machine, with models of its workers, sockets and owners around it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from outboard.ids import RESOURCE_UNIT, Span
from outboard.scheduler.bundles import Confirmed, Declined, Prepared
from outboard.scheduler.commands import (
    BindingFailed,
    BindingSpec,
    KillLater,
    KillWorker,
    KindRefused,
    KindSpec,
    Lost,
    Recall,
    Resume,
    Returned,
    SendPacket,
    SignalCancel,
    StartWorker,
    StopWorker,
    Unbound,
)
from outboard.scheduler.dispatch import Dispatch
from outboard.scheduler.intervals import Interval
from outboard.scheduler.resources import Demand

TOTALS = {"CPU": 2 * RESOURCE_UNIT, "GPU": 2 * RESOURCE_UNIT, "disk": 3 * RESOURCE_UNIT}
DEMANDS = [
    {"CPU": RESOURCE_UNIT},
    {"CPU": RESOURCE_UNIT // 2},
    {"CPU": 2 * RESOURCE_UNIT},
    {},
    {"CPU": RESOURCE_UNIT, "GPU": RESOURCE_UNIT},
    {"GPU": RESOURCE_UNIT // 2},
    {"CPU": RESOURCE_UNIT, "disk": 2 * RESOURCE_UNIT},
    {"CPU": 3 * RESOURCE_UNIT},
]
DURATIONS = [1e-6, 1e-5, 1e-4, 1e-3, 0.004, 0.05, 1.0]

Task = tuple[int, int, int, int]


def tasks_of(owner: int, span: Span) -> list[Task]:
    return [(owner, span.stream, i, span.attempt) for i in range(span.first, span.end, span.stride)]


class FakeWorker:
    """A worker process with its claim socket and board word."""

    def __init__(self, command: StartWorker) -> None:
        self.number = command.worker
        self.client = command.client
        self.binding = command.binding
        self.gpu_ids = command.gpu_ids
        self.is_started = False
        self.is_held_up = False
        self.is_ending = False
        self.is_blocked = False
        self.asks = False
        self.socket: deque[SendPacket] = deque()
        self.packet: SendPacket | None = None
        self.tasks: list[Task] = []
        self.at = 0
        self.reported = 0

    def take(self) -> bool:
        if self.packet is None and self.socket:
            self.packet = self.socket.popleft()
            self.tasks = [t for i in self.packet.intervals for t in tasks_of(i.owner, i.span())]
            self.at = self.reported = 0
        return self.packet is not None

    @property
    def running(self) -> tuple[int, int, int] | None:
        if self.packet is None or self.at >= len(self.tasks):
            return None
        return self.tasks[self.at][:3]


class DispatchMachine(RuleBasedStateMachine):
    """Clients, workers and the kernel as the node sees them; owners count what is outstanding."""

    @initialize(joined=st.booleans())
    def begin(self, joined: bool) -> None:
        self.dispatch = Dispatch(TOTALS, joined=joined)
        self.is_draining = self.is_over = False
        self.clients: dict[int, int] = {}
        self.hosts: dict[int, int] = {}
        self.bindings: dict[tuple[int, int], BindingSpec] = {}
        self.dropped: set[tuple[int, int]] = set()
        self.failed: set[tuple[int, int]] = set()
        self.kinds: dict[tuple[int, int], KindSpec] = {}
        self.workers: dict[int, FakeWorker] = {}
        self.outstanding: set[Task] = set()
        self.begun: set[Task] = set()
        self.orders: dict[tuple[int, int], int] = {}
        self.timers: list[int] = []
        self.gangs: dict[int, object] = {}  # the last word about each
        self.next_id = 1
        self.now = 0.0
        self.is_slow = False
        self.join()
        client = next(iter(self.clients))
        for demand in DEMANDS[:2]:
            self.kinds[client, self.next_id] = KindSpec(self.next_id, 0, demand)
            self.dispatch.on_kind(client, self.kinds[client, self.next_id])
            self.next_id += 1

    # -- the driver's part

    def settle(self, owner: int, spans: list[Span], *, begun_allowed: bool) -> None:
        assert owner in self.clients, "told a client that is gone"
        for span in spans:
            for task in tasks_of(owner, span):
                assert task in self.outstanding, f"{task} settled twice"
                assert begun_allowed or task not in self.begun, f"{task} given back after it began"
                self.outstanding.remove(task)

    def obey(self) -> None:
        while commands := self.dispatch.take_commands():
            for command in commands:
                self.obey_one(command)

    def obey_one(self, command: object) -> None:
        match command:
            case StartWorker():
                self.workers[command.worker] = FakeWorker(command)
            case StopWorker(number):
                worker = self.workers[number]
                assert not worker.socket and worker.packet is None, "stopped a worker with packets"
                worker.is_ending = True
            case KillWorker(number):
                self.workers[number].is_ending = True
            case SendPacket():
                self.receive(command)
            case Recall(number, at_most):
                self.give_back(number, at_most)
            case Lost(client, _, spans):
                self.settle(client, spans, begun_allowed=True)
            case Returned(client, spans):
                self.settle(client, spans, begun_allowed=False)
            case KillLater(number, _):
                self.timers.append(number)
            case Resume(number):
                worker = self.workers[number]
                assert worker.asks
                worker.is_blocked = worker.is_held_up = worker.asks = False
            case Unbound(client, binding):
                key = client, binding
                assert key in self.dropped
                assert not any((w.client, w.binding) == key for w in self.workers.values())
                self.bindings.pop(key)
            case BindingFailed(client, binding):
                assert (client, binding) not in self.failed, "a binding failed twice"
                self.failed.add((client, binding))
            case Prepared(gang) | Declined(gang) | Confirmed(gang):
                if gang in self.gangs:  # else it was released since
                    self.gangs[gang] = command
            case SignalCancel() | KindRefused():
                pass

    def receive(self, command: SendPacket) -> None:
        worker = self.workers[command.worker]
        is_of_task = all(interval.owner in self.hosts for interval in command.intervals) and not self.is_over
        binding = self.bindings[worker.client, worker.binding]
        assert not self.is_draining or is_of_task or binding.ordered or binding.gang
        assert not binding.gang or isinstance(self.gangs.get(binding.gang), Confirmed)
        assert worker.is_started and not worker.is_ending and not worker.is_blocked
        total = 0
        for interval in command.intervals:
            spec = self.kinds[interval.owner, interval.kind]
            assert -(-spec.resources.get("GPU", 0) // RESOURCE_UNIT) == len(worker.gpu_ids)
            for task in tasks_of(interval.owner, interval.span()):
                assert task in self.outstanding and task not in self.begun
                total += 1
        assert 0 < total <= 256
        worker.socket.append(command)

    def give_back(self, number: int, at_most: int) -> None:
        worker = self.workers[number]
        if not self.is_slow:
            worker.take()
        taken = [worker.socket.popleft().packet for _ in range(min(at_most, len(worker.socket)))]
        self.dispatch.on_recalled(number, taken, self.now)

    def live_workers(self) -> list[FakeWorker]:
        return [w for w in self.workers.values() if not w.is_ending]

    def pick(self, data: st.DataObject, items: list) -> Any:
        return items[data.draw(st.integers(0, len(items) - 1))]

    def step_worker(self, worker: FakeWorker, seconds: float, *, report: bool) -> None:
        """Run one task; report what has not been reported at the packet's end, or when told to."""
        if not worker.is_started or worker.is_blocked or not worker.take():
            return
        packet = worker.packet
        assert packet is not None
        task = worker.tasks[worker.at]
        assert task not in self.begun or worker.at < worker.reported
        self.begun.add(task)
        worker.at += 1
        if report or worker.at == len(worker.tasks):
            self.report(worker, seconds)

    def report(self, worker: FakeWorker, seconds: float) -> None:
        packet = worker.packet
        assert packet is not None
        done = []
        strides = {i.owner: i.stride for i in packet.intervals}
        for task in worker.tasks[worker.reported : worker.at]:
            done.append((task[0], task[1], task[2], 1, strides[task[0]], task[3]))
            self.outstanding.discard(task)
        is_done = worker.at == len(worker.tasks)
        count = len(done)
        self.now += seconds * count
        worker.reported = worker.at
        if is_done:
            worker.packet = None
        self.dispatch.on_finished(worker.number, packet.packet, done, seconds * count, is_done, self.now)
        self.obey()

    def let_go(self, worker: FakeWorker) -> None:
        """A task takes long: the worker reports those before it and gives back those behind it."""
        packet = worker.packet
        assert packet is not None and worker.at < len(worker.tasks)
        self.report(worker, 0.001)
        rest = worker.tasks[worker.at + 1 :]
        if worker.number in self.workers and rest:
            del worker.tasks[worker.at + 1 :]
            back = self.dispatch.on_given_back(worker.number, packet.packet, len(rest), self.now)
            assert [t for i in back for t in tasks_of(i.owner, i.span())] == rest
            self.obey()

    def bury(self, worker: FakeWorker, *, running: bool, machine_lost: bool = False) -> None:
        del self.workers[worker.number]
        word = worker.running if running else None
        if word is not None:
            self.begun.add(worker.tasks[worker.at])
        # A worker that died between two items of a packet left results behind: the word still names the last one.
        if word is None and worker.packet is not None and worker.at > worker.reported:
            word = worker.tasks[worker.at - 1][:3]
        self.dispatch.on_worker_died(worker.number, [p.packet for p in worker.socket], word, machine_lost, self.now)
        for client in [c for c, host in self.hosts.items() if host == worker.number]:
            self.forget(client)
        self.obey()

    def forget(self, client: int) -> None:
        self.clients.pop(client, None)
        self.hosts.pop(client, None)
        self.outstanding = {t for t in self.outstanding if t[0] != client}
        for table in (self.bindings, self.kinds):
            for key in [k for k in table if k[0] == client]:
                del table[key]

    # -- clients

    @precondition(lambda self: len(self.clients) < 4)
    @rule()
    def join(self) -> None:
        client = 1000 + self.next_id
        self.next_id += 1
        self.dispatch.on_client_joined(client, client, self.now)
        self.clients[client] = client
        self.bindings[client, 0] = BindingSpec(0)

    @precondition(lambda self: any(w.packet for w in self.live_workers()))
    @rule(data=st.data())
    def join_nested(self, data: st.DataObject) -> None:
        worker = self.pick(data, [w for w in self.live_workers() if w.packet])
        root = self.clients.get(worker.client)
        if root is None or worker.number in self.hosts.values():
            return
        client = 5000 + self.next_id
        self.next_id += 1
        self.dispatch.on_client_joined(client, root, self.now, worker=worker.number)
        self.clients[client] = root
        self.hosts[client] = worker.number

    @precondition(lambda self: len(self.clients) < 6 and self.clients)
    @rule(data=st.data(), credit=st.sampled_from([None, 1, 4]))
    def join_nested_elsewhere(self, data: st.DataObject, credit: int | None) -> None:
        """A worker of another node deals with this one."""
        root = self.clients[self.pick(data, sorted(self.clients))]
        client = 9000 + self.next_id
        self.next_id += 1
        self.dispatch.on_client_joined(client, root, self.now, credit=credit)
        self.clients[client] = root

    @precondition(lambda self: self.clients)
    @rule(
        data=st.data(),
        processes=st.sampled_from([0, 1, 2, 2, 40]),
        max_tasks=st.sampled_from([0, 0, 1, 5]),
        ordered=st.booleans(),
        eager=st.booleans(),
        bundle=st.sampled_from([-1, -1, 0, 1]),
    )
    def bind(
        self, data: st.DataObject, processes: int, max_tasks: int, ordered: bool, eager: bool, bundle: int
    ) -> None:
        client = self.pick(data, sorted(self.clients))
        gang = self.pick(data, [0, *sorted(self.gangs)])
        spec = BindingSpec(self.next_id, processes, True, max_tasks, ordered, eager, gang=gang,
                           bundle=bundle if gang else -1)  # fmt: skip
        self.next_id += 1
        self.bindings[client, spec.id] = spec
        self.dispatch.on_binding(client, spec)
        self.obey()

    @precondition(lambda self: any(b for _, b in self.bindings))
    @rule(data=st.data(), force=st.booleans())
    def unbind(self, data: st.DataObject, force: bool) -> None:
        client, binding = self.pick(data, sorted(k for k in self.bindings if k[1]))
        self.dropped.add((client, binding))
        for key in [k for k, spec in self.kinds.items() if k[0] == client and spec.binding == binding]:
            self.dispatch.on_want(client, key[1], 0, self.now)
        self.dispatch.on_unbind(client, binding, force)
        self.obey()

    @precondition(lambda self: self.bindings)
    @rule(data=st.data(), demand=st.sampled_from(DEMANDS))
    def kind(self, data: st.DataObject, demand: dict[str, int]) -> None:
        client = self.pick(data, sorted(self.clients))
        own = [b for c, b in self.bindings if c == client and (c, b) not in self.dropped]
        spec = KindSpec(self.next_id, self.pick(data, [0, *own]), demand)
        self.next_id += 1
        self.kinds[client, spec.id] = spec
        self.dispatch.on_kind(client, spec)
        self.obey()

    @precondition(lambda self: self.kinds)
    @rule(data=st.data(), count=st.sampled_from([1, 1, 2, 8, 60]), stride=st.sampled_from([1, 3]))
    def submit(self, data: st.DataObject, count: int, stride: int) -> None:
        self.send(*self.pick(data, sorted(self.kinds)), count, stride)

    def send(self, client: int, kind: int, count: int, stride: int) -> None:
        first = self.orders.get((client, kind), 1)
        self.orders[client, kind] = first + count * stride
        interval = Interval(client, kind, first, 0, stride, kind, [b"\x80call"] * count, {0: ("object",)})
        self.outstanding.update(tasks_of(client, interval.span()))
        self.dispatch.on_submitted(client, interval, self.now)
        self.obey()

    @precondition(lambda self: self.kinds)
    @rule(data=st.data(), waiting=st.sampled_from([0, 1, 500, 5000]))
    def want(self, data: st.DataObject, waiting: int) -> None:
        client, kind = self.pick(data, sorted(self.kinds))
        self.dispatch.on_want(client, kind, waiting, self.now)
        self.obey()

    @precondition(lambda self: self.outstanding)
    @rule(
        data=st.data(), count=st.sampled_from([1, 5, 100]), kill_after=st.sampled_from([None, 1.0]), force=st.booleans()
    )
    def cancel(self, data: st.DataObject, count: int, kill_after: float | None, force: bool) -> None:
        owner, stream, index, attempt = self.pick(data, sorted(self.outstanding))
        self.dispatch.on_cancel(owner, Span(stream, index, count, attempt), kill_after, force, self.now)
        self.obey()

    @precondition(lambda self: any(w.packet for w in self.live_workers()))
    @rule(data=st.data())
    def take_long(self, data: st.DataObject) -> None:
        self.let_go(self.pick(data, [w for w in self.live_workers() if w.packet]))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), really=st.sampled_from([False, False, True]))
    def leave(self, data: st.DataObject, really: bool) -> None:
        client = self.pick(data, sorted(self.clients))
        if not really:
            return
        gone = [c for c, root in self.clients.items() if client in (c, root)]
        for one in gone:
            self.forget(one)
        self.dispatch.on_client_left(client, self.now)
        self.obey()

    # -- the head, about gangs

    @precondition(lambda self: len(self.gangs) < 3)
    @rule(data=st.data(), bundles=st.integers(1, 3))
    def prepare(self, data: st.DataObject, bundles: int) -> None:
        demands = {i: Demand.of(self.pick(data, [d for d in DEMANDS if d])) for i in range(bundles)}
        gang = self.next_id
        self.next_id += 1
        self.gangs[gang] = None
        self.dispatch.on_prepare_bundles(gang, 1, demands, self.now)
        self.obey()

    @precondition(lambda self: any(isinstance(said, Prepared) for said in self.gangs.values()))
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        gang = self.pick(data, sorted(gang for gang, said in self.gangs.items() if isinstance(said, Prepared)))
        self.dispatch.on_confirm_bundles(gang, 1, self.now)
        self.obey()

    @precondition(lambda self: self.gangs)
    @rule(data=st.data(), really=st.booleans())
    def release(self, data: st.DataObject, really: bool) -> None:
        if really:
            self.release_one(self.pick(data, sorted(self.gangs)))

    @precondition(lambda self: self.clients and len(self.gangs) < 3)
    @rule(data=st.data(), bundle=st.sampled_from([-1, 0, 1]), ordered=st.booleans())
    def use_gang(self, data: st.DataObject, bundle: int, ordered: bool) -> None:
        """The whole way at once: what is set aside is confirmed, and a client submits to it."""
        gang, client = self.next_id, self.pick(data, sorted(self.clients))
        self.prepare(data, 2)
        if isinstance(self.gangs[gang], Prepared):
            self.dispatch.on_confirm_bundles(gang, 1, self.now)
            self.obey()
        binding = BindingSpec(self.next_id, int(ordered), ordered=ordered, gang=gang, bundle=bundle)
        self.bindings[client, binding.id] = binding
        self.dispatch.on_binding(client, binding)
        kind = KindSpec(self.next_id + 1, binding.id, self.pick(data, DEMANDS))
        self.next_id += 2
        self.kinds[client, kind.id] = kind
        self.dispatch.on_kind(client, kind)
        self.obey()
        self.send(client, kind.id, 4, 1)

    def release_one(self, gang: int) -> None:
        del self.gangs[gang]
        self.dropped.update(key for key, spec in self.bindings.items() if spec.gang == gang)
        self.dispatch.on_release_bundles(gang, 1, self.now)
        self.obey()

    # -- what the node does by itself

    @precondition(lambda self: self.dispatch.due is not None)
    @rule(late=st.sampled_from([0.0, 0.001, 1.0]), looks=st.sampled_from([1, 2, 6]))
    def look(self, late: float, looks: int) -> None:
        for _ in range(looks):
            due = self.dispatch.due
            if due is None:
                return
            self.now = max(self.now, due + late)
            self.dispatch.on_timer(self.now)
            assert self.dispatch.due is None or self.dispatch.due > self.now
            self.obey()

    @rule(really=st.sampled_from([False] * 9 + [True]), is_over=st.booleans())
    def drain(self, really: bool, is_over: bool) -> None:
        if not really:
            return
        self.is_draining = True
        self.dispatch.on_drain(self.now)
        self.obey()
        if is_over:
            self.is_over = True
            self.dispatch.on_drain_due(self.now)
            self.obey()

    # -- workers

    @precondition(lambda self: any(not w.is_started for w in self.live_workers()))
    @rule(events=st.permutations(["on_worker_forked", "on_worker_started"]))
    def start(self, events: list[str]) -> None:
        for worker in [w for w in self.live_workers() if not w.is_started]:
            if not worker.is_ending:
                if worker.is_held_up:
                    self.initialise(worker)
                worker.is_started = True
                for event in events:
                    getattr(self.dispatch, event)(worker.number, self.now)
                    self.obey()

    @precondition(lambda self: any(not w.is_started and not w.is_held_up for w in self.live_workers()))
    @rule(data=st.data())
    def hold_up(self, data: st.DataObject) -> None:
        worker = self.pick(data, [w for w in self.live_workers() if not w.is_started and not w.is_held_up])
        worker.is_held_up = True
        self.dispatch.on_blocked(worker.number, self.now)
        self.obey()

    @precondition(lambda self: any(w.is_held_up for w in self.live_workers()))
    @rule(data=st.data())
    def go_on_with_start(self, data: st.DataObject) -> None:
        self.initialise(self.pick(data, [w for w in self.live_workers() if w.is_held_up]))

    def initialise(self, worker: FakeWorker) -> None:
        worker.asks = True
        self.dispatch.on_unblock(worker.number, self.now)
        self.obey()
        assert not worker.is_held_up, "an initialiser waits for nobody's CPU"

    @precondition(lambda self: any(not w.is_started and w.binding for w in self.live_workers()))
    @rule(data=st.data())
    def fail_start(self, data: st.DataObject) -> None:
        worker = self.pick(data, [w for w in self.live_workers() if not w.is_started and w.binding])
        worker.is_ending = True
        self.dispatch.on_worker_init_failed(worker.number, b"outcome", self.now)
        self.obey()

    @precondition(lambda self: any(w.is_started for w in self.live_workers()))
    @rule(steps=st.integers(1, 30), seconds=st.sampled_from(DURATIONS), report=st.booleans())
    def run_all(self, steps: int, seconds: float, report: bool) -> None:
        for worker in self.live_workers():
            for _ in range(steps):
                if not worker.is_ending:
                    self.step_worker(worker, seconds, report=report)

    @precondition(lambda self: any(w.is_started for w in self.live_workers()))
    @rule(data=st.data(), steps=st.sampled_from([1, 3, 20]), seconds=st.sampled_from(DURATIONS), report=st.booleans())
    def run(self, data: st.DataObject, steps: int, seconds: float, report: bool) -> None:
        worker = self.pick(data, [w for w in self.live_workers() if w.is_started])
        for _ in range(steps):
            if not worker.is_ending:
                self.step_worker(worker, seconds, report=report)

    @precondition(lambda self: self.live_workers())
    @rule(data=st.data())
    def begin_packet(self, data: st.DataObject) -> None:
        worker = self.pick(data, self.live_workers())
        if worker.is_started and not worker.is_blocked:
            worker.take()

    @precondition(lambda self: self.timers)
    @rule()
    def fire(self) -> None:
        timers, self.timers = self.timers, []
        for number in timers:
            worker = self.workers.get(number)
            self.dispatch.on_kill_due(number, worker.running if worker else None, self.now)
            self.obey()

    @rule(is_slow=st.booleans())
    def change_speed(self, is_slow: bool) -> None:
        self.is_slow = is_slow

    @precondition(lambda self: any(w.packet and not w.is_blocked for w in self.live_workers()))
    @rule(data=st.data())
    def block(self, data: st.DataObject) -> None:
        worker = self.pick(data, [w for w in self.live_workers() if w.packet and not w.is_blocked])
        worker.is_blocked = True
        self.begun.add(worker.tasks[worker.at])
        self.dispatch.on_blocked(worker.number, self.now)
        self.obey()

    @precondition(lambda self: any(w.is_blocked and not w.asks for w in self.live_workers()))
    @rule(data=st.data())
    def unblock(self, data: st.DataObject) -> None:
        worker = self.pick(data, [w for w in self.live_workers() if w.is_blocked and not w.asks])
        self.ask_back(worker)

    def ask_back(self, worker: FakeWorker) -> None:
        worker.asks = True
        self.begun.discard(worker.tasks[worker.at])
        self.dispatch.on_unblock(worker.number, self.now)
        self.obey()

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), running=st.booleans(), machine_lost=st.booleans())
    def die(self, data: st.DataObject, running: bool, machine_lost: bool) -> None:
        worker = self.pick(data, list(self.workers.values()))
        self.bury(worker, running=running or worker.is_blocked, machine_lost=machine_lost)

    # -- what must hold

    @invariant()
    def check(self) -> None:
        if hasattr(self, "dispatch"):
            self.dispatch.check()

    def teardown(self) -> None:
        if not hasattr(self, "dispatch"):
            return
        self.go_on_until(lambda: not any(self.is_ganged(task) for task in self.outstanding))
        for gang in list(self.gangs):
            self.release_one(gang)
        self.go_on_until(lambda: not self.outstanding and not any(w.is_ending for w in self.workers.values()))
        assert not self.outstanding, f"{len(self.outstanding)} tasks never settled: {self.dispatch.snapshot()}"
        assert self.dispatch.is_idle and self.dispatch.due is None
        for client in [c for c, root in self.clients.items() if c == root]:
            for one in [c for c, root in self.clients.items() if root == client]:
                self.forget(one)
            self.dispatch.on_client_left(client, self.now)
            self.obey()
        for worker in list(self.workers.values()):
            self.bury(worker, running=False)
        self.dispatch.check()
        snapshot = self.dispatch.snapshot()
        assert (snapshot.running, snapshot.queued, snapshot.workers) == (0, 0, [])
        assert snapshot.free == TOTALS

    def is_ganged(self, task: Task) -> bool:
        """Whether a task is in bundles that are there to be used: it has to finish."""
        spec = self.kinds[task[0], task[1]]
        binding = self.bindings.get((task[0], spec.binding)) if spec.binding else None
        return binding is not None and isinstance(self.gangs.get(binding.gang), Confirmed)

    def go_on_until(self, is_done: Callable[[], bool]) -> None:
        for _ in range(2_000):
            if is_done():
                return
            self.go_on()

    def go_on(self) -> None:
        self.fire()
        for worker in list(self.workers.values()):
            if worker.is_ending:
                self.bury(worker, running=worker.is_blocked)
            elif not worker.is_started:
                if worker.is_held_up:
                    self.initialise(worker)
                worker.is_started = True
                self.dispatch.on_worker_started(worker.number, self.now)
                self.obey()
            elif worker.is_blocked:
                if not worker.asks:
                    self.ask_back(worker)
            else:
                self.step_worker(worker, 1e-4, report=False)
            self.dispatch.check()


DispatchMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestRandomWalk = pytest.mark.timeout(120)(DispatchMachine.TestCase)

"""Processes among many root clients: shares, leases, and how few are started."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable
from itertools import count

import pytest

from outboard.ids import RESOURCE_UNIT as UNIT
from outboard.scheduler.commands import KindSpec, SendPacket, StartWorker, StopWorker
from outboard.scheduler.dispatch import Dispatch
from outboard.scheduler.fairness import LEASE_SECONDS
from outboard.scheduler.intervals import Interval
from outboard.scheduler.leases import PROCESSES_PER_SLOT

pytestmark = pytest.mark.timeout(60)

START_SECONDS = 0.01


class Farm:
    """A node on a clock of its own: processes take a while to start, tasks take time, clients always have more."""

    def __init__(self, slots: int, seconds: float) -> None:
        self.dispatch = Dispatch({"CPU": slots * UNIT}, initial_credit=4)
        self.slots = slots
        self.seconds = seconds
        self.now = 0.0
        self.starts = 0
        self.served: Counter[int] = Counter()
        self.last_served: dict[int, float] = {}
        self.longest_wait = 0.0
        self._queues: dict[int, deque[SendPacket]] = {}
        self._order = count()
        self._submitted: Counter[int] = Counter()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def join(self, root: int, tasks: int = 20) -> None:
        self.dispatch.on_client_joined(root, root, self.now)
        self.dispatch.on_kind(root, KindSpec(1, 0, {"CPU": UNIT}))
        self.last_served[root] = self.now
        self.submit(root, tasks)

    def submit(self, root: int, tasks: int) -> None:
        first = self._submitted[root] + 1
        self._submitted[root] += tasks
        self.dispatch.on_submitted(root, Interval(root, 0, first, 0, 1, 1, [b"c"] * tasks), self.now)
        self._obey()

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        checked = self.starts
        while self._heap and self._heap[0][0] <= until:
            self.now, _, do = heapq.heappop(self._heap)
            do()
            self._obey()
            if self.starts != checked:
                checked = self.starts
                self.dispatch.check()
        self.now = until

    def held(self) -> Counter[int]:
        """How many workers each root has at work."""
        return Counter(packets[0].intervals[0].owner for packets in self._queues.values() if packets)

    def _at(self, delay: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._order), do))

    def _obey(self) -> None:
        while commands := self.dispatch.take_commands():
            for command in commands:
                self._do(command)

    def _do(self, command: object) -> None:
        if isinstance(command, StartWorker):
            self.starts += 1
            worker = command.worker
            self._queues[worker] = deque()
            self._at(START_SECONDS, lambda: self.dispatch.on_worker_started(worker, self.now))
        elif isinstance(command, StopWorker):
            assert not self._queues.pop(command.worker)
            self.dispatch.on_worker_died(command.worker, [], None, False, self.now)
        elif isinstance(command, SendPacket):
            packets = self._queues[command.worker]
            packets.append(command)
            if len(packets) == 1:
                self._begin(command.worker)

    def _begin(self, worker: int) -> None:
        tasks = sum(len(i.calls) for i in self._queues[worker][0].intervals)
        self._at(self.seconds * tasks, lambda: self._finish(worker, tasks))

    def _finish(self, worker: int, tasks: int) -> None:
        packet = self._queues[worker].popleft()
        done = [(i.owner, i.stream, i.first, len(i.calls), i.stride, i.attempt) for i in packet.intervals]
        root = packet.intervals[0].owner
        self.served[root] += tasks
        self.longest_wait = max(self.longest_wait, self.now - self.last_served[root])
        self.last_served[root] = self.now
        self.dispatch.on_finished(worker, packet.packet, done, self.seconds * tasks, True, self.now)
        if self._queues.get(worker):
            self._begin(worker)
        self.submit(root, tasks)


@pytest.mark.parametrize(("seconds", "span"), [(0.001, 3.0), (0.02, 20.0), (0.3, 20.0)])
def test_more_roots_than_processes_go_round_in_leases(seconds: float, span: float) -> None:
    farm = Farm(2, seconds)
    roots = range(1, 13)
    for root in roots:
        farm.join(root)
    farm.run(span)
    processes = 2 * PROCESSES_PER_SLOT
    assert farm.starts <= processes + span / LEASE_SECONDS * processes
    rounds = len(roots) / processes * LEASE_SECONDS
    waited = max(farm.longest_wait, *(farm.now - farm.last_served[root] for root in roots))
    assert waited <= 2 * rounds + 6 * seconds
    assert min(farm.served.values()) >= 0.5 * max(farm.served.values())
    assert sum(farm.served.values()) * seconds >= 0.9 * 2 * span  # the slots were hardly ever idle


def test_roots_have_equal_shares_and_keep_their_processes() -> None:
    farm = Farm(8, 0.05)
    for root in (1, 2, 3):
        farm.join(root)
    farm.run(2.0)
    starts = farm.starts
    farm.run(20.0)
    assert farm.starts - starts <= 20.0 / LEASE_SECONDS  # of what is left over after whole shares
    assert max(farm.served.values()) <= 1.1 * min(farm.served.values())


def test_newcomer_gets_its_share_at_once() -> None:
    farm = Farm(8, 0.05)
    farm.join(1, 40)
    farm.join(2, 40)
    farm.run(3.0)
    farm.join(3, 40)
    farm.run(0.25)
    assert farm.held()[3] >= 2
    assert max(farm.held().values()) - min(farm.held().values()) <= 2

"""Shares between roots, order within one, and what blocked tasks lend to their children."""

from __future__ import annotations

import pytest

from outboard.ids import RESOURCE_UNIT as UNIT
from outboard.scheduler.commands import KindSpec, SendPacket, StartWorker
from outboard.scheduler.dispatch import Dispatch
from outboard.scheduler.fairness import Root, Rotation
from outboard.scheduler.intervals import Interval
from outboard.scheduler.pace import Pace

pytestmark = pytest.mark.timeout(10)


class Node:
    """A dispatch whose workers start at once and whose packets are finished on demand, oldest first."""

    def __init__(self, cpus: int, roots: tuple[int, ...]) -> None:
        # So little credit that none is taken back when tasks turn out to be long.
        self.dispatch = Dispatch({"CPU": cpus * UNIT}, initial_credit=4)
        self.sent: list[SendPacket] = []
        self.now = 0.0
        self.next_index: dict[int, int] = {}
        for root in roots:
            self.dispatch.on_client_joined(root, root, 0.0)
            self.dispatch.on_kind(root, KindSpec(1, 0, {"CPU": UNIT}))

    def obey(self) -> None:
        while commands := self.dispatch.take_commands():
            for command in commands:
                if isinstance(command, StartWorker):
                    self.dispatch.on_worker_started(command.worker, 0.0)
                elif isinstance(command, SendPacket):
                    self.sent.append(command)
            self.dispatch.check()

    def submit(self, client: int, count: int, kind: int = 1) -> None:
        first = self.next_index.get(client, 1)
        self.next_index[client] = first + count
        self.dispatch.on_submitted(client, Interval(client, 0, first, 0, 1, kind, [b"c"] * count), self.now)
        self.obey()

    def finish(self, seconds: float) -> int:
        """Finish the oldest packet and say whose it was."""
        packet = self.sent.pop(0)
        done = [(i.owner, i.stream, i.first, len(i.calls), i.stride, i.attempt) for i in packet.intervals]
        count = sum(len(i.calls) for i in packet.intervals)
        self.now += seconds * count
        self.dispatch.on_finished(packet.worker, packet.packet, done, seconds * count, True, self.now)
        self.obey()
        return packet.intervals[0].owner


def test_roots_with_equal_tasks_alternate() -> None:
    node = Node(1, (7, 8))
    node.submit(7, 20)
    node.submit(8, 20)
    owners = [node.finish(0.1) for _ in range(20)]
    assert abs(owners.count(7) - owners.count(8)) <= 1


def test_root_with_longer_tasks_gets_fewer_turns() -> None:
    node = Node(1, (7, 8))
    node.submit(7, 60)
    node.submit(8, 60)
    owners = []
    for _ in range(44):
        owners.append(node.finish(0.4 if node.sent[0].intervals[0].owner == 7 else 0.1))
    served = {7: 0.4 * owners.count(7), 8: 0.1 * owners.count(8)}
    assert served[7] == pytest.approx(served[8], abs=0.9)


def test_root_that_comes_late_is_not_owed_its_absence() -> None:
    node = Node(1, (7, 8))
    node.submit(7, 60)
    for _ in range(20):
        node.finish(0.1)
    node.submit(8, 30)
    owners = [node.finish(0.1) for _ in range(20)]
    assert 8 <= owners.count(8) <= 12


def test_root_with_tiny_tasks_does_not_keep_its_worker_for_ever() -> None:
    node = Node(1, (7, 8))
    node.submit(7, 1)
    node.finish(1e-4)
    node.submit(7, 5000)
    node.submit(8, 1)
    before = 0
    while node.finish(1e-4) != 8:
        before += 1
    assert before < 30  # one range of 10 ms, not 500 packets


def test_kinds_of_one_root_go_in_order_of_arrival() -> None:
    node = Node(1, (7,))
    node.dispatch.on_kind(7, KindSpec(2, 0, {"CPU": UNIT}))
    for kind in (1, 2, 1, 2):
        node.submit(7, 1, kind)
    kinds = []
    for _ in range(4):
        kinds.append(node.sent[0].intervals[0].kind)
        node.finish(0.1)
    assert kinds == [1, 2, 1, 2]


def test_wider_task_of_the_same_root_is_not_passed_by_later_ones() -> None:
    node = Node(2, (7,))
    node.dispatch.on_kind(7, KindSpec(2, 0, {"CPU": 2 * UNIT}))
    node.submit(7, 300)
    node.submit(7, 1, 2)
    node.submit(7, 2000)
    before = 0
    while node.sent[0].intervals[0].kind != 2:
        before += 1
        node.finish(0.005)
    assert 300 <= before <= 304


def test_lent_cpus_go_to_the_children_first_and_deeper_ones_before_shallower() -> None:
    node = Node(1, (7, 8))
    dispatch = node.dispatch
    node.submit(7, 1)
    parent = node.sent.pop(0).worker
    node.submit(8, 5)
    node.submit(7, 5)
    dispatch.on_client_joined(70, 7, 0.0, worker=parent)
    dispatch.on_kind(70, KindSpec(1, 0, {"CPU": UNIT}))
    node.submit(70, 1)
    dispatch.on_blocked(parent, 0.0)
    node.obey()
    child = node.sent.pop(0)
    assert child.intervals[0].owner == 70
    dispatch.on_client_joined(71, 7, 0.0, worker=child.worker)
    dispatch.on_kind(71, KindSpec(1, 0, {"CPU": UNIT}))
    node.submit(70, 1)
    node.submit(71, 1)
    dispatch.on_blocked(child.worker, 0.0)
    node.obey()
    assert [p.intervals[0].owner for p in node.sent] == [71]


def test_children_have_no_more_than_was_lent() -> None:
    node = Node(2, (7, 8))
    dispatch = node.dispatch
    node.submit(7, 1)
    parent = node.sent.pop(0).worker
    dispatch.on_client_joined(70, 7, 0.0, worker=parent)
    dispatch.on_kind(70, KindSpec(1, 0, {"CPU": UNIT}))
    node.submit(8, 20)
    node.submit(70, 20)
    dispatch.on_blocked(parent, 0.0)
    node.obey()
    owners = [node.finish(0.1) for _ in range(16)]
    assert owners.count(8) >= 6 and owners.count(70) >= 6


def test_virtual_time_only_moves_on() -> None:
    rotation = Rotation()
    root = Root(rotation)
    root.charge(5.0)
    root.note_turn()
    root.charge(-3.0)
    root.note_turn()
    assert rotation.virtual_seconds == 5.0


# -- pace


def test_unmeasured_and_long_tasks_go_one_at_a_time() -> None:
    pace = Pace()
    assert (pace.room(0, 0.0), pace.room(1, 0.0), pace.packet_tasks) == (1, 0, 1)
    pace.note(0.02, 1)
    assert (pace.room(0, 0.0), pace.room(1, 0.0), pace.packet_tasks) == (1, 0, 1)


def test_packets_hold_a_millisecond_and_ranges_ten() -> None:
    pace = Pace()
    pace.note(1e-4, 1)
    assert pace.packet_tasks == 10
    assert pace.room(0, 0.0) == pytest.approx(100, abs=1)
    assert pace.room(5, 0.005) == pytest.approx(50, abs=1)
    assert pace.room(16, 0.0) == 0
    pace.note(1e-9, 1)
    assert pace.packet_tasks <= 256


def test_slow_first_call_is_forgotten_within_a_few_packets() -> None:
    pace = Pace()
    pace.note(1.0, 1)
    for _ in range(4):
        pace.note(1e-5 * pace.packet_tasks, pace.packet_tasks)
    assert pace.mean < 1e-3


def test_one_slow_item_shows_at_once() -> None:
    pace = Pace()
    for _ in range(20):
        pace.note(100 * 1e-5, 100)
    pace.note(1.0 + 99e-5, 100)
    assert pace.packet_tasks == 1

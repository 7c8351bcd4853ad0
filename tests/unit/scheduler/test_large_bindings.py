"""Bindings that may have more processes than a node keeps warm: which of them start, and when."""

from __future__ import annotations

import pytest

from outboard.scheduler.commands import BindingSpec, Command, KindSpec, StartWorker
from outboard.scheduler.leases import START_SECONDS
from tests.unit.scheduler.test_dispatch import ROOT, Node, packets

pytestmark = pytest.mark.timeout(10)


def starts(commands: list[Command]) -> list[int]:
    return [c.worker for c in commands if isinstance(c, StartWorker)]


def test_binding_of_absurd_size_starts_what_a_node_keeps_warm_and_then_what_its_tasks_need() -> None:
    node = Node(1)
    ahead = node.on_binding(ROOT, BindingSpec(3, 100_000, eager=True))
    assert starts(ahead) == [1, 2]
    node.on_kind(ROOT, KindSpec(2, 3, {"CPU": 1}))
    assert node.submit(3, 2) == []
    assert sorted(packet.worker for packet in packets(node.start(ahead))) == [1, 2, 3]
    assert len(node.dispatch.snapshot().workers) == 3 and node.dispatch.due is None


def test_processes_of_a_large_binding_are_forked_few_at_a_time() -> None:
    node = Node(1)
    node.on_binding(ROOT, BindingSpec(3, 100))
    node.on_kind(ROOT, KindSpec(2, 3, {"CPU": 1}))
    assert starts(node.submit(50, 2)) == [1, 2]
    assert starts(node.on_worker_forked(1, 0.0)) == [3]
    assert starts(node.on_worker_died(2, [], None, False, 0.0)) == [4]  # none came of it
    assert starts(node.on_worker_forked(1, 0.0)) == []


def test_large_binding_with_short_tasks_starts_more_processes_only_while_they_wait() -> None:
    node = Node(1)
    node.on_binding(ROOT, BindingSpec(3, 100))
    node.on_kind(ROOT, KindSpec(2, 3, {"CPU": 1}))
    for packet in packets(node.start(node.submit(2, 2))):
        node.finish(packet, 0.001)
    assert starts(node.submit(1000, 2)) == [] and node.dispatch.due == START_SECONDS
    assert starts(node.on_timer(START_SECONDS)) == [3]
    node.on_worker_forked(3, START_SECONDS)
    assert node.dispatch.due == START_SECONDS * (1 + 3 / 2)

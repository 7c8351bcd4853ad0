"""Gangs at a node of a cluster: what it tells the head and its clients, and how long a request waits for a head."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from outboard.headgangs import HeadGangs
from outboard.headnames import HEAD_SECONDS
from outboard.rpc.protos import cluster_pb2
from outboard.rpc.protos import outboard_pb2 as pb

pytestmark = pytest.mark.timeout(10)

CLIENT, OTHER, GANG = 7, 8, 0xA


class Node:
    """Stands for the node: a clock, timers, and what was said to whom."""

    def __init__(self) -> None:
        self.time = 0.0
        self.timers: list[tuple[float, Callable[..., Any], tuple[Any, ...]]] = []
        self.told: list[tuple[int, pb.GangState]] = []
        self.reports: list[cluster_pb2.Report] = []
        self.loop = SimpleNamespace(call_later=self._call_later)
        self.dispatch = SimpleNamespace(bundles_held={})
        self.gangs = HeadGangs(self, self.reports.append)  # type: ignore[arg-type]  # stands for a Node

    def now(self) -> float:
        return self.time

    def send(self, client: int, frame_type: int, body: bytes) -> None:
        self.told.append((client, pb.GangState.FromString(body)))

    def flush_soon(self) -> None:
        pass

    def _call_later(self, delay: float, do: Callable[..., Any], *arguments: Any) -> None:
        self.timers.append((self.time + delay, do, arguments))

    def pass_time(self, seconds: float) -> None:
        self.time += seconds
        due = [timer for timer in self.timers if timer[0] <= self.time]
        self.timers = [timer for timer in self.timers if timer[0] > self.time]
        for _, do, arguments in due:
            do(*arguments)

    def ask(self, client: int = CLIENT, *, strategy: str = "PACK", release: bool = False) -> None:
        gang = pb.Gang(number=GANG, strategy=strategy)
        gang.bundles.add(amounts={"CPU": 10_000})
        request = pb.GangRequest(gang=gang, release=release).SerializeToString()
        self.gangs.on_request(SimpleNamespace(incarnation=client), request)  # type: ignore[arg-type]  # a Peer

    def outcomes(self) -> list[str]:
        told, self.told = self.told, []
        return [pb.GangState.Outcome.Name(said.outcome) for _, said in told]


@pytest.fixture
def node() -> Node:
    made = Node()
    made.gangs.on_head(True)
    return made


def answer(outcome: cluster_pb2.GangAnswer.Outcome, **said: Any) -> cluster_pb2.GangAnswer:
    return cluster_pb2.GangAnswer(gang=GANG, outcome=outcome, **said)


READY, REFUSED = cluster_pb2.GangAnswer.READY, cluster_pb2.GangAnswer.REFUSED


def test_a_request_is_told_to_each_head_until_it_is_released(node: Node) -> None:
    node.ask()
    assert node.reports[-1].gang.gang == GANG and not node.reports[-1].gang.was_ready
    node.gangs.on_answer(answer(READY, nodes=[1]))
    node.gangs.on_answer(answer(READY, nodes=[1]))
    assert node.outcomes() == ["READY"], "a head that says it again is not heard again"
    assert [wish.was_ready for wish in node.gangs.wishes()] == [True]
    node.ask(OTHER, release=True)
    assert node.gangs.wishes(), "another client cannot release it"
    node.ask(release=True)
    assert node.reports[-1].gang_release.gang == GANG and not node.gangs.wishes()


def test_the_gangs_of_a_client_end_with_it(node: Node) -> None:
    node.ask()
    node.gangs.on_client_left(OTHER)
    assert node.gangs.wishes()
    node.gangs.on_client_left(CLIENT)
    assert node.reports[-1].gang_release.gang == GANG and not node.gangs.wishes()


def test_what_is_refused_is_forgotten_with_the_most_that_nodes_have(node: Node) -> None:
    node.ask()
    totals = [cluster_pb2.Amounts(amounts={"CPU": 1, "x": 2}), cluster_pb2.Amounts(amounts={"CPU": 3})]
    node.gangs.on_answer(answer(REFUSED, totals=totals))
    [(client, said)] = node.told
    assert client == CLIENT and dict(said.totals) == {"CPU": 3, "x": 2} and not node.gangs.wishes()


def test_a_strategy_of_a_later_release_is_refused_and_nobody_else_suffers(node: Node) -> None:
    node.ask(strategy="DIAGONAL")
    [(_, said)] = node.told
    assert said.outcome == pb.GangState.REFUSED and "DIAGONAL" in said.reason
    assert not node.reports and not node.gangs.wishes()


def test_without_a_head_a_request_waits_a_minute(node: Node) -> None:
    node.ask()
    node.gangs.on_head(False)
    node.pass_time(HEAD_SECONDS - 1)
    assert node.outcomes() == []
    node.pass_time(1)
    assert node.outcomes() == ["UNREACHABLE"] and not node.gangs.wishes()


def test_a_request_that_comes_while_the_head_is_away_has_its_own_minute(node: Node) -> None:
    node.gangs.on_head(False)
    node.pass_time(HEAD_SECONDS)
    node.ask()
    assert node.outcomes() == []
    node.pass_time(HEAD_SECONDS)
    assert node.outcomes() == ["UNREACHABLE"]


def test_a_head_that_returns_ends_the_wait_and_gangs_that_are_ready_never_wait(node: Node) -> None:
    node.ask()
    node.gangs.on_head(False)
    node.pass_time(HEAD_SECONDS / 2)
    node.gangs.on_head(True)
    node.pass_time(HEAD_SECONDS)
    assert node.outcomes() == [] and node.gangs.wishes()
    node.gangs.on_answer(answer(READY, nodes=[1]))
    node.gangs.on_head(False)
    node.pass_time(2 * HEAD_SECONDS)
    assert node.outcomes() == ["READY"]

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from outboard.testing.clusternode import ClusterNode
from outboard.testing.clusterworld import ClusterWorld
from outboard.testing.netlinks import Stream
from outboard.testing.worker import WorkerProcess


def quiet_world() -> ClusterWorld:
    """A world in which nothing happens but what the test does."""
    world = ClusterWorld(1)
    world._heap.clear()
    return world


def carry(plan: Any) -> tuple[list[int], list[str]]:
    """What comes of five frames over a stream for which something is planned, and the harm done."""
    world = quiet_world()
    got: list[int] = []
    harm: list[str] = []
    stream = Stream(world, "s", lambda frames: got.extend(frame[0] for frame in frames or ()))
    plan(stream, lambda: harm.append("done"))
    for number in range(5):
        stream.write((number, b"", 0))
    while world.step():
        pass
    world.close()
    return got, harm


def test_a_stream_loses_what_was_planned_and_comes_to_harm_behind_so_many_frames() -> None:
    def plan(stream: Stream, harm: Any) -> None:
        stream.lose(1, 2)
        stream.set_trap(1, harm)

    assert carry(plan) == ([0, 3, 4], ["done"])


def test_a_stream_that_is_spared_breaks_no_more_whatever_was_planned() -> None:
    def plan(stream: Stream, harm: Any) -> None:
        stream.lose(1, 2)
        stream.set_trap(1, harm)
        stream.spare()

    assert carry(plan) == ([0, 1, 2, 3, 4], [])


def test_nothing_that_was_planned_breaks_when_the_faults_have_ended() -> None:
    world = ClusterWorld(1)
    while not world.ends:
        world.step()
    for end in world.ends:
        end.out.lose(0, 3)
    world.faults._end()
    lost = world.marks["relay lost frames"]
    for _ in range(200):
        world.step()
    world.close()
    assert world.marks["relay lost frames"] == lost


def test_a_node_that_was_away_when_its_session_was_given_up_serves_an_orphan() -> None:
    world = quiet_world()
    node = ClusterNode(world, "node0", "node0", 1, 4096 * 12)
    gate = ClusterNode(world, "gate0", "gate0", 0, 4096 * 12)
    for process in (node, gate):
        world.put(process)
    world.add_client(gate)
    (client,) = world.clients()
    client_tree: Any = gate.tree
    client_tree._open(gate.node.peers[client.incarnation], node.incarnation, "")
    (branch,) = gate.tree.trunks_of(client.incarnation)
    session: Any = SimpleNamespace(name=branch.session.name)
    node.tree._stem_of[client.incarnation] = SimpleNamespace(session=session)  # type: ignore[assignment]
    assert not world._has_orphans()
    branch.end.give_up(branch)
    gate.settle()
    assert world._has_orphans()
    world.close()


def test_who_runs_a_task_that_nobody_waits_for_lets_go_of_what_it_has_behind_it() -> None:
    world, dropped = quiet_world(), list[str]()
    worker: Any = object.__new__(WorkerProcess)
    worker.alive = worker.has_packet = True
    worker.refs, worker.views = ["reference"], []
    worker.calls = SimpleNamespace(drop_all=lambda: dropped.append(worker.refs.pop()))
    worker.client = SimpleNamespace(flush=lambda: None)
    world.processes[1] = worker
    assert world._let_go() and not dropped
    worker.has_packet = False
    assert not world._let_go() and dropped == ["reference"]
    del world.processes[1]
    world.close()

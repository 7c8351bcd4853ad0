"""What a task costs in a large cluster: `python -m outboard.testing.scale`.

Up to 1,000 nodes with 64 slots run 1,000,000 tasks of one client, and of 1,000 clients: real machines, real messages,
no faults, workers that only take time. Reported are CPU time, events, messages and bytes per task, per node that
joins and per client that arrives, and the largest sizes of tables. The whole cluster runs in one process here, so the
time of a task is the sum of what its owner, its node, the sessions between them and the simulator take.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ..headwords import membership_notes, room_note
from ..rpc.protos import cluster_pb2
from ..scheduler import cluster_commands
from ..scheduler.cluster import Cluster
from ..scheduler.cluster_commands import NodeInfo
from ..scheduler.kept import KeptState
from ..scheduler.seeking import AskRoom
from .scaleparts import FRAME_NBYTES, PYTHON, Ends, ScaleClient, ScaleNode

SLOTS = 64

#: Time per task at the largest size over that at the smallest, at most.
MOST_GROWTH = 1.3

#: Events between two looks at the sizes of tables.
LOOK_EVENTS = 5000


@dataclass
class Phase:
    """What a phase took."""

    seconds: float = 0.0
    events: int = 0
    messages: int = 0
    nbytes: int = 0

    def per(self, number: int) -> str:
        """Say it per task, node or client."""
        return (f"{self.seconds / number * 1e6:9.1f} us {self.events / number:7.2f} events "
                f"{self.messages / number:7.2f} messages {self.nbytes / number:9.1f} bytes")  # fmt: skip


@dataclass
class Result:
    """What one size came to."""

    nodes: int
    clients: int
    tasks: int
    virtual_seconds: float = 0.0
    sessions: int = 0
    join: Phase = field(default_factory=Phase)
    arrive: Phase = field(default_factory=Phase)
    begin: Phase = field(default_factory=Phase)
    work: Phase = field(default_factory=Phase)
    peaks: Counter[str] = field(default_factory=Counter)

    @property
    def counted(self) -> int:
        """Tasks after the first tenth, in which sessions are opened and workers started."""
        return self.tasks - self.tasks // 10

    def describe(self) -> str:
        """Say it, for people."""
        peaks = ", ".join(f"{name} {size}" for name, size in sorted(self.peaks.items()))
        return "\n".join([
            f"{self.nodes} nodes, {self.clients} clients, {self.tasks} tasks: {self.virtual_seconds:.1f} virtual s, "
            f"{self.sessions} sessions",
            f"  first   {self.begin.per(self.tasks - self.counted)}",
            f"  task    {self.work.per(self.counted)}",
            f"  node    {self.join.per(self.nodes)}",
            f"  client  {self.arrive.per(self.clients)}",
            f"  peaks   {peaks}",
        ])  # fmt: skip


class Scale:
    """One run: a clock that events move, and the head."""

    net_seconds = 0.0005
    local_seconds = 0.0001

    def __init__(self, nodes: int, clients: int, tasks: int, task_seconds: float) -> None:
        self.now = 0.0
        self.task_seconds = task_seconds
        self.finished = 0
        self.events = self.messages = self.nbytes = self.paths = 0
        self.ends: dict[int, Ends] = {}
        self.result = Result(nodes, clients, tasks)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._nodes: dict[int, ScaleNode] = {}
        self._clients: list[ScaleClient] = []
        self._head = Cluster(KeptState("boats"), 0.0, release="0.4.0", protocol=1)
        self._head_due: float | None = None

    def at(self, delay: float, do: Callable[[], None]) -> None:
        """Let an event happen after so many seconds."""
        heapq.heappush(self._heap, (self.now + delay, next(self._order), do))

    def count(self, nbytes: int) -> None:
        """A message is sent."""
        self.messages += 1
        self.nbytes += nbytes

    def note_session(self) -> None:
        """A session has come about."""
        self.result.sessions += 1

    # -- the head ------------------------------------------------------------------------------------------------------

    def ask_head(self, node: ScaleNode, asked: AskRoom) -> None:
        """A node asks the head for room."""
        question = cluster_pb2.RoomQuestion(id=asked.request, shape=asked.needs, python=asked.python,
                                            waiting=asked.waiting)  # fmt: skip
        self.count(FRAME_NBYTES + question.ByteSize())
        self.at(self.net_seconds, lambda: self._head_hears(lambda: self._head.on_wanted(
            node.incarnation, asked.request, PYTHON, asked.needs, asked.waiting, self.now)))  # fmt: skip

    def _head_hears(self, do: Callable[[], None]) -> None:
        do()
        for command in self._head.take_commands():
            self._obey(command)
        due = self._head.due
        if due is not None and (self._head_due is None or due < self._head_due):
            self._head_due = due
            self.at(max(0.0, due - self.now), lambda: self._judge(due))

    def _judge(self, due: float) -> None:
        if self._head_due == due:
            self._head_due = None
            self._head_hears(lambda: self._head.on_timer(self.now))

    def _obey(self, command: Any) -> None:
        if isinstance(command, cluster_commands.TellMembers):
            nbytes = sum(note.ByteSize() for note in membership_notes(command.change))
            for _ in command.nodes:
                self.count(FRAME_NBYTES + nbytes)
        elif isinstance(command, cluster_commands.RoomAnswer):
            self.count(FRAME_NBYTES + room_note(command).ByteSize())
            self.at(self.net_seconds, lambda: self._offered(command))
        elif isinstance(command, cluster_commands.Welcome):
            self.count(FRAME_NBYTES + 30)
        else:
            assert isinstance(command, cluster_commands.Keep), command

    def _offered(self, answer: cluster_commands.RoomAnswer) -> None:
        node = self._nodes[answer.node]
        node.seeking.on_offers(answer.request, list(answer.offers), self.now)
        node.settle()

    def _beat(self, node: ScaleNode, told: int) -> None:
        free = max(0, node.totals["CPU"] - node.busy * 10_000)
        beat = cluster_pb2.Beat(unchanged=True) if free == told else cluster_pb2.Beat(free={"CPU": free})
        self.count(FRAME_NBYTES + beat.ByteSize())
        said = None if free == told else {"CPU": free}
        self._head_hears(lambda: self._head.on_beat(node.incarnation, said, self.now))
        self.at(1.0, lambda: self._beat(node, free))

    # -- phases --------------------------------------------------------------------------------------------------------

    def _run(self, phase: Phase, is_over: Callable[[], bool]) -> None:
        begun, events, messages, nbytes = time.process_time(), self.events, self.messages, self.nbytes
        heap, pop = self._heap, heapq.heappop
        while not is_over():
            self.now, _, do = pop(heap)
            self.events += 1
            do()
            if self.events % LOOK_EVENTS == 0:
                self._look()
        self._look()
        phase.seconds += time.process_time() - begun
        phase.events += self.events - events
        phase.messages += self.messages - messages
        phase.nbytes += self.nbytes - nbytes

    def _look(self) -> None:
        peaks = self.result.peaks
        sizes = {
            "events planned": len(self._heap),
            "frames in flight of a client": max((sum(len(s.out.flight) for s in c.ends.sessions._sessions.values())
                                                 for c in self._clients[:4]), default=0),
            "sessions of a client": max((len(c.ends.sessions) for c in self._clients), default=0),
            "sessions of a node": max((len(n.ends.sessions) for n in self._nodes.values()), default=0),
            "questions at the head": sum(len(shape.questions) for shape in self._head._room._questions.shapes.values()),
            "outstanding of a client": max((c.kind.outstanding for c in self._clients[:4]), default=0),
        }  # fmt: skip
        for name, size in sizes.items():
            peaks[name] = max(peaks[name], size)

    def run(self) -> Result:
        """Let nodes join, clients arrive and tasks run."""
        result = self.result
        for number in range(result.nodes):
            self.at(0.01 * number, lambda number=number: self._join(1000 + number))  # type: ignore[misc]
        until = 0.01 * result.nodes + 1.0
        self._run(result.join, lambda: self._heap[0][0] > until)
        homes = list(self._nodes.values())
        until = self.now + 2.0
        for number in range(result.clients):
            self.at(1.0 * number / result.clients,
                    lambda number=number: self._arrive(homes[number % len(homes)]))  # type: ignore[misc]  # fmt: skip
        self._run(result.arrive, lambda: self._heap[0][0] > until)
        begun = self.now
        for number, client in enumerate(self._clients):
            share = result.tasks // result.clients + (number < result.tasks % result.clients)
            self.at(0.0, lambda client=client, share=share: client.submit(share))  # type: ignore[misc]
        self._run(result.begin, lambda: self.finished >= result.tasks - result.counted)
        self._run(result.work, lambda: self.finished >= result.tasks)
        result.virtual_seconds = self.now - begun
        assert self.finished == result.tasks, "a task settled twice"
        return result

    def _join(self, incarnation: int) -> None:
        node = self._nodes[incarnation] = ScaleNode(self, incarnation, SLOTS)
        self.ends[incarnation] = node.ends
        info = NodeInfo(incarnation, f"10.0.0.0:{incarnation}", "host", "0.4.0", 1, PYTHON, node.totals, SLOTS)
        self.count(FRAME_NBYTES + 200)
        self._head_hears(lambda: self._head.on_registered(info, self.now))
        node.seeking.on_head_up(self.now)
        self.at(1.0, lambda: self._beat(node, node.totals["CPU"]))

    def _arrive(self, node: ScaleNode) -> None:
        client = ScaleClient(self, 10_000_000 + len(self._clients), node)
        self._clients.append(client)
        self.ends[client.incarnation] = client.ends
        self.count(FRAME_NBYTES + 100)
        self.count(FRAME_NBYTES + 100)


def main(arguments: list[str] | None = None) -> int:
    """Be the command."""
    parser = argparse.ArgumentParser(prog="python -m outboard.testing.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100, 1000], help="sizes, smallest first")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 1000], help="how many at each size")
    parser.add_argument("--tasks", type=int, default=1_000_000, help="of all clients together")
    parser.add_argument("--seconds", type=float, default=2.0, help="that a task takes")
    options = parser.parse_args(arguments)
    has_grown = False
    for clients in options.clients:
        costs = []
        for nodes in options.nodes:
            gc.collect()
            gc.disable()
            result = Scale(nodes, clients, options.tasks, options.seconds).run()
            gc.enable()
            print(result.describe(), flush=True)
            costs.append(result.work.seconds / result.counted)
        growth = costs[-1] / costs[0]
        print(f"  time per task from {options.nodes[0]} to {options.nodes[-1]} nodes: {growth:.2f} times")
        has_grown = has_grown or growth > MOST_GROWTH
    return int(has_grown)


if __name__ == "__main__":
    sys.exit(main())

"""The world of several nodes: clients and workers at each, one network, one head, real machines and nodes all over.

What `world.py` has on one machine is on several here, and what `networld.py` has between machines lies between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from random import Random

from ..scheduler.session_words import SessionName
from .checks import check_quiet, check_world
from .clusternode import ClusterNode
from .machine import Machine
from .netfaults import NetFaults
from .netnode import NodeProcess
from .networld import Network
from .process import Process
from .worker import WorkerProcess
from .world import TaskWorld

#: Virtual seconds in which programs must come to their end once faults have ended.
SETTLE_SECONDS = 30.0

#: Seconds that are left to what is said last, before tables must be empty.
REST_SECONDS = 2.0

#: Seconds after which a node must have given up a client that vanished without a word, or gave it up while it was away;
#: its clock may be slow.
ORPHAN_SECONDS = 33.0

#: Seconds in which the first clients come; nodes are there before.
COMING_SECONDS = 0.8

#: Seconds between two looks whether all programs have ended.
LOOK_SECONDS = 0.25


class ClusterFaults(NetFaults):
    """Breaks what is between machines, and processes of clients and workers on them."""

    world: ClusterWorld
    lengths = (3.0, 3.0, 12.0)

    def kinds(self) -> list[str]:
        """Faults to choose from."""
        return [
            *super().kinds(),
            "worker",
            "worker",
            "client",
            "template",
            "stop local",
            "kill",
            "kill",
            "part",
            "part",
        ]

    def time_of(self, rng: Random, seconds: float) -> float:
        """When something happens: mostly while programs are busy."""
        busy = COMING_SECONDS + 2.0 * rng.random()
        return min(busy, seconds) if rng.random() < 0.7 else super().time_of(rng, seconds)

    def deeds(self) -> list[str]:
        """What else happens."""
        return ["claim", "look_up", "release", "drain", "arrive"]

    def _locals(self) -> list[Process]:
        return [process for process in self.world.processes.values() if process.alive]

    def fault_worker(self, rng: Random) -> None:
        """A worker is killed."""
        machine = rng.choice(self.world.machines)
        workers = list(machine.template.workers.values())
        if workers and machine.alive:
            self.world.is_faulty = True
            machine.template.end(rng.choice(workers), 9)

    def fault_client(self, rng: Random) -> None:
        """A client is killed."""
        clients = [process for process in self._locals() if not process.name.startswith("worker")]
        if len(clients) > 1:
            self.world.is_faulty = True
            self.world.mark("client died")
            rng.choice(clients).die(9)

    def fault_template(self, rng: Random) -> None:
        """A template is killed, and its workers."""
        self.world.is_faulty = True
        rng.choice(self.world.machines).template.die()

    def fault_stop_local(self, rng: Random) -> None:
        """A client or worker stops for a while."""
        running = [process for process in self._locals() if not process.stopped]
        if running:
            self.world.is_faulty = True
            process = rng.choice(running)
            process.stop()
            self.world.at(2.0 * rng.random(), f"{process.name} goes on", process.go_on)

    def strike(self, what: str, rng: Random) -> None:
        """Let one fault happen."""
        self.world.is_faulty = True
        super().strike(what, rng)

    def deed_drain(self, rng: Random) -> None:
        """A node without clients of its own is to leave."""
        nodes = [process for process in self.processes() if isinstance(process, ClusterNode) and process.slots]
        node = rng.choice(nodes) if nodes else None
        if node is None or node.stopped or any(p.alive and p.machine is node.machine for p in self.world.clients()):
            return
        self.world.is_faulty = True
        node.head.drain()

    def deed_arrive(self, rng: Random) -> None:
        """One more client comes to a node."""
        nodes = [p for p in self.processes() if isinstance(p, ClusterNode) and not p.stopped and not p.is_draining]
        if nodes:
            self.world.add_client(rng.choice(nodes))


class ClusterWorld(TaskWorld, Network):
    """Everything that exists in one seed."""

    name = "cluster"
    pause_seconds = 14.0
    task_seconds = (0.00001, 0.0005, 0.02, 0.5, 1.5)
    stored_share = 0.3
    rare = (
        "adoption",
        "blocked",
        "borrower died",
        "child got its parent's CPU",
        "client died",
        "copy brought in",
        "copy could not be fetched",
        "drains",
        "half open",
        "handed over",
        "head died",
        "head returned empty",
        "late answer",
        "left",
        "machine away",
        "no path",
        "node died",
        "node struck off",
        "owner lost",
        "passed on when settled",
        "recall lost the race",
        "relay lost frames",
        "retry",
        "returned surplus",
        "session closed",
        "session lost",
        "stopped",
        "store full",
        "task sent elsewhere",
        "template died",
        "word repeated",
        "zombie refused by the head",
    )

    def __init__(self, seed: int, without: Set[str] = frozenset()) -> None:
        super().__init__(seed, without)
        rng = self.rng_of("world")
        self.with_faults = rng.random() < 0.65
        self.faults_are_over = False
        self._number = 0
        self._has_ended = False
        self.faults = ClusterFaults(self)
        self.at(0.0, "head starts", self.start_head)
        for number in range(rng.choice((2, 2, 3))):
            self.start_node(f"node{number}", rng.choice((1, 2, 2, 4)))
        for number in range(rng.choice((0, 1, 1))):
            self.start_node(f"gate{number}", 0)
        clients = [process for process in self.places.values() if isinstance(process, ClusterNode)]
        clients += [process for process in clients if not process.slots] * 2
        for _ in range(rng.choice((1, 1, 2))):
            self._number += 1
            client, node, delay = (
                f"client{self._number}",
                rng.choice(clients),
                COMING_SECONDS * (0.6 + 0.4 * rng.random()),
            )
            if self.keeps(client):
                self.at(delay, f"{client} comes", lambda c=client, n=node: self._come(n, c))  # type: ignore[misc]

    def start_node(self, name: str, slots: int) -> None:
        """A node's process begins at its place."""
        node = ClusterNode(self, name, name, slots, 4096 * self.rng.choice((12, 64)))
        self.put(node)
        node.after(0.05 * self.rng.random(), "starts", node.head.dial)

    def clients(self) -> list[Process]:
        """The clients that there have been."""
        return [process for process in self.processes.values() if not process.name.startswith("worker")]

    def add_client(self, node: ClusterNode) -> None:
        """One more client."""
        self._number += 1
        self._come(node, f"client{self._number}")

    def _come(self, node: ClusterNode, client: str) -> None:
        if node.alive and not node.stopped:
            self.start_client(node.machine, client)
            node.settle()

    def on_machine_ended(self, machine: Machine) -> None:
        """A node has ended: its workers end with it, and its clients find nobody any more."""
        self.is_faulty = True
        machine.template.alive = False
        for process in self.processes.values():
            if process.machine is machine:
                process.die(9)

    def on_node_ended(self, node: NodeProcess) -> None:
        """Nothing more than `on_machine_ended` did."""

    def can_run(self, process: Process, asked: Mapping[str, int]) -> bool:
        """Whether a node of the cluster runs such tasks, that now or later is there."""
        nodes = [place for place in self.places.values() if isinstance(place, ClusterNode)]
        return any(all(amount <= node.totals.get(name, 0) for name, amount in asked.items()) and node.slots
                   for node in nodes)  # fmt: skip

    def may_be_gone(self, value: bytes) -> bool:
        """Whether a stored value may have been lost with its machine."""
        return self.is_faulty

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check the machines that the last event touched."""
        check_world(self)
        for process in self.awake.values():
            if isinstance(process, ClusterNode) and process.alive:
                for end in (*process.tree._roots.values(), process.tree._stems):
                    end.machine.check(process.local())
                process.seeker.machine.check()
        self.awake.clear()

    def run(self) -> None:
        """Live through both phases. Raises what is wrong."""
        self.faults.begin()
        self.at(LOOK_SECONDS, "looks around", self._look)
        while not self._has_ended and self.step():
            if self.faults_are_over:
                assert self.now < self.faults.ended_at + self._patience(), self.describe_stuck()
        self.read_out()
        check_quiet(self)

    def _patience(self) -> float:
        return SETTLE_SECONDS + 9 * self.pause_seconds

    def _look(self) -> None:
        are_over = all(not process.alive or (process.turn and process.main is None) for process in self.clients())
        if self.now > COMING_SECONDS and self.faults_are_over and are_over:
            self._has_ended = True
        else:
            self.at(LOOK_SECONDS, "looks around", self._look)

    def read_out(self) -> None:
        """Let workers handle what they would find with their next task, and let go of what their last one kept."""
        until = max(self.now, self.excused_until) + REST_SECONDS  # what fell silent has been found out by then
        orphaned_until = self.now + ORPHAN_SECONDS
        self._let_go()
        for process in self.processes.values():
            if process.alive:
                process.client.flush()  # what was not urgent
        while self.now < until and self.step():
            is_busy = self._let_go()
            if self.now < orphaned_until and (is_busy or self._has_orphans()):
                until = max(until, self.now + REST_SECONDS)
            for process in self.processes.values():
                if process.alive and process.link.has_input:
                    self.touched[process.incarnation] = process
                    process.handle_input()
                    check_world(self)

    def _let_go(self) -> bool:
        """Let who runs nothing drop what it has; returns whether somebody runs a task that nobody waits for."""
        is_busy = False
        for process in self.processes.values():
            if isinstance(process, WorkerProcess) and process.alive and process.has_packet:
                is_busy = True
            elif process.alive and (process.refs or process.views):
                process.calls.drop_all()
                process.client.flush()
        return is_busy

    def _has_orphans(self) -> bool:
        """Whether a node serves a client that has vanished or given the session up, and may not know it yet."""
        for place in self.places.values():
            if isinstance(place, ClusterNode) and place.alive:
                for root, trunk in place.tree._stem_of.items():
                    if trunk.session.name not in self._sessions_of(root):
                        return True
        return False

    def _sessions_of(self, root: int) -> set[SessionName]:
        """The sessions that a client's own node has for it."""
        client = self.processes[root]
        tree = client.machine.node.tree
        return {trunk.session.name for trunk in tree.trunks_of(root)} if client.alive and tree is not None else set()

    def all_marks(self) -> Counter[str]:
        """What was counted here, and by the machines."""
        marks = super().all_marks()
        for place in self.places.values():
            if isinstance(place, ClusterNode):
                marks += place.peering.counts
        return marks

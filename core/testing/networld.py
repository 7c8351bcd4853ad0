"""The world between machines: a head, nodes, gateways and clients, the network between them, and what breaks there.

The machines of sessions, the head's machine, that of seeking room and the node's peering are the real ones; network,
processes and tasks are modelled. A task only takes time here: whether each settles once is a question to the
sessions and to the head, not to the machines of tasks (`world.py` has those).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from random import Random

from .course import Course
from .netfaults import NetFaults
from .netgangs import GangUser
from .nethead import Disk, NetHead
from .netlinks import Dialling, End
from .netnode import NetNode, NodeProcess
from .netprocess import NetProcess
from .netroot import Root
from .netsessions import Book

#: Virtual seconds in which every task must settle once faults have ended.
SETTLE_SECONDS = 30.0

#: And those in which nothing is left: an owner that vanished is given up after 30 s, and the head's list follows.
QUIET_SECONDS = 50.0

#: Seconds after a silence in which a session may still be lost by it: those after which it is, on the slowest clock.
EXCUSE_SECONDS = 5.5

#: Seconds between two looks whether all is quiet.
LOOK_SECONDS = 0.5


class Network(Course):
    """What worlds with a network have: places and who lives there, the wires between them, the head."""

    head: NetHead

    def __init__(self, seed: int, without: Set[str] = frozenset()) -> None:
        super().__init__(seed, without)
        self.with_faults = True
        self.faults_are_over = False
        self.disk = Disk()
        self.dialling = Dialling(self)
        self.ends: list[End] = []
        self.wires = 0
        self.places: dict[str, NetProcess] = {}
        self.place_of: dict[int, str] = {}
        self.awake: dict[int, NetProcess] = {}  # those that the last event touched
        self.last_start = 0
        self.excused_until = -EXCUSE_SECONDS

    def start_head(self) -> None:
        """A head begins, with what the one before has kept."""
        self.head = NetHead(self)
        self.put(self.head)
        self.head.start()

    def start_node(self, name: str, slots: int) -> None:
        """A node's process begins at its place."""
        raise NotImplementedError

    def on_node_ended(self, node: NodeProcess) -> None:
        """A node's process has ended, and its clients with it."""

    def put(self, process: NetProcess) -> None:
        """A process begins at its place."""
        self.places[process.place] = process
        self.place_of[process.incarnation] = process.place

    def new_incarnation(self) -> int:
        """Draw the name of a process."""
        return self.rng.getrandbits(64) | 1

    def breaks(self, chance: float) -> bool:
        """Whether something breaks now."""
        return not self.faults_are_over and self.with_faults and self.rng.random() < chance

    def excuse(self, seconds: float) -> None:
        """Something falls silent for so long: sessions may be lost by that, for a while after it too."""
        self.excused_until = max(self.excused_until, self.now + seconds)

    def check_silence(self) -> None:
        """A session was given up for silence: there was some."""
        assert self.now < self.excused_until + EXCUSE_SECONDS, "a session is lost by silence, and there was none"

    def bring_back(self, process: NetProcess) -> None:
        """A process has ended: another one starts at its place after a while. Clients of a node end with it."""
        if isinstance(process, NodeProcess):
            self.on_node_ended(process)
        delay = self.rng.choice((0.1, 1.0, 4.0)) * self.rng.random()
        self.at(delay, f"{process.name} starts again", lambda: self._start_again(process))

    def _start_again(self, process: NetProcess) -> None:
        if isinstance(process, NodeProcess):
            self.start_node(process.name, process.slots)
        else:
            self.start_head()


class NetWorld(Network):
    """Everything that exists in one seed."""

    name = "network"
    most_events = 60_000
    rare = (
        "actor lost its name",
        "began again",
        "died between two commands",
        "drains",
        "bundles lapsed",
        "gang broken",
        "gang ready",
        "gang refused",
        "half open",
        "head died",
        "head returned empty",
        "head stepped down",
        "left",
        "machine away",
        "name refused",
        "node died",
        "refused",
        "relay forgot",
        "relay lost frames",
        "result of a lost session dropped",
        "retry",
        "returned",
        "session lost: given up",
        "session lost: peer lost",
        "session lost: refused",
        "session lost: silent",
        "stopped",
        "tasks of a lost session ended",
        "zombie refused by the head",
    )

    def __init__(self, seed: int, without: Set[str] = frozenset()) -> None:
        super().__init__(seed, without)
        rng = self.rng_of("world")
        self.with_faults = rng.random() < 0.8
        self.book = Book()
        self.gateway_of: dict[int, int] = {}
        self.begun: set[tuple[int, int, int]] = set()
        self.roots: list[Root] = []
        self.users: list[GangUser] = []
        self.clients = 0
        self.is_quiet_since: float | None = None
        self.faults = NetFaults(self)
        self.at(0.0, "head starts", self.start_head)
        for number in range(rng.randint(2, 4)):
            self._add_node(f"node{number}", rng.choice((1, 2, 4)))
        for number in range(rng.choice((0, 1, 1))):
            self._add_node(f"gate{number}", 0)
        self._plan_gangs(self.rng_of("gangs"))

    def _add_node(self, name: str, slots: int) -> None:
        rng = self.rng_of(name)
        self.start_node(name, slots)
        for _ in range(rng.choice((0, 1)) if slots else 1):
            self.clients += 1
            client, tasks, delay = f"client{self.clients}", rng.choice((1, 4, 12, 30)), 2.0 * rng.random()
            if self.keeps(client):
                self.at(delay, f"{client} comes", lambda c=client, t=tasks: self._add_client(name, c, t))  # type: ignore[misc]

    def _plan_gangs(self, rng: Random) -> None:
        """In some worlds programs ask for gangs, in the others nothing is there of that."""
        places, users = list(self.places), rng.choice((0, 0, 1, 2, 3))
        for number in range(users):
            user, place, rounds, delay = f"user{number}", rng.choice(places), rng.choice((1, 3, 6)), 3.0 * rng.random()
            if self.keeps(user):
                self.at(delay, f"{user} comes", lambda u=user, p=place, r=rounds: self._add_user(p, u, r))  # type: ignore[misc]
        for number in range(rng.choice((0, 4, 8)) if users else 0):
            where, at, holder = rng.choice(places), 6.0 * rng.random(), self.rng_of(f"holder{number}")
            self.at(at, "something else is done", lambda p=where, h=holder: self._hold(p, h))  # type: ignore[misc]

    def _add_user(self, place: str, name: str, rounds: int) -> None:
        node = self.places[place]
        if isinstance(node, NetNode) and node.alive and not node.stopped and not node.is_draining:
            user = GangUser(node, name, rounds)
            self.users.append(user)
            user.ask()

    def _hold(self, place: str, rng: Random) -> None:
        node = self.places[place]
        if isinstance(node, NetNode) and node.alive and not node.stopped:
            node.gangs.hold(rng)

    def check_gang(self, gang: int, nodes: list[int]) -> None:
        """A program hears that its gang is there: each of the nodes has it for use, or has ended since."""
        for process in self.places.values():
            if isinstance(process, NetNode) and process.alive and process.incarnation in nodes:
                assert process.gangs.bundles.has(gang), f"gang {gang:x} is said to be ready, and {process} has none"

    def _add_client(self, place: str, client: str, tasks: int) -> None:
        node = self.places[place]
        if isinstance(node, NetNode) and node.alive and not node.stopped and not node.is_draining:
            node.add_root(client, tasks)
            node.settle()

    def start_node(self, name: str, slots: int) -> None:
        """A node's process begins at its place."""
        node = NetNode(self, name, name, slots)
        self.put(node)
        node.after(0.05 * self.rng.random(), "starts", node.head.dial)

    def on_node_ended(self, node: NodeProcess) -> None:
        """Clients end with their node."""
        if isinstance(node, NetNode):
            for root in node.roots.values():
                root.alive = False
                root.settled = set(range(1, root.submitted + 1))

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check the machines that the last event touched."""
        for process in self.awake.values():
            if not process.alive:
                continue
            if isinstance(process, NetNode):
                for machine in process.tree.machines():
                    machine.sessions.check(process.local())
                process.seeking.check()
            elif isinstance(process, NetHead):
                process.machine.check()
        self.awake.clear()

    def run(self) -> None:
        """Live through both phases. Raises what is wrong."""
        self.faults.begin()
        self.at(LOOK_SECONDS, "looks around", self._look)
        while self.is_quiet_since is None and self.step():
            if self.faults_are_over:
                late = self.now - self.faults.ended_at
                if late > SETTLE_SECONDS:
                    assert self.all_settled(), f"not settled: {self.stuck()}"
                assert late < QUIET_SECONDS, f"not quiet: {self.unquiet()}"
        assert self.is_quiet_since is not None, "nothing happens any more"

    def _look(self) -> None:
        if self.faults_are_over and self.all_settled() and not self.unquiet():
            self.is_quiet_since = self.now
        else:
            self.at(LOOK_SECONDS, "looks around", self._look)

    def all_settled(self) -> bool:
        """Whether every task of clients that live has settled."""
        return all(root.is_done for root in self.roots) and all(user.is_done for user in self.users)

    def stuck(self) -> str:
        """Who waits."""
        waiting = [repr(root) for root in self.roots if not root.is_done]
        return ", ".join(waiting + [repr(user) for user in self.users if not user.is_done])

    def unquiet(self) -> str:
        """What is left that must not be: sessions, other lists than the head's, names with two bearers."""
        alive = {p.incarnation: p for p in self.places.values() if p.alive and isinstance(p, NetNode)}
        for node in alive.values():
            for machine in node.tree.machines():
                for session in machine.sessions._sessions.values():
                    return f"{session!r} at {node.name}"
            if node.head.members.current.keys() != alive.keys():
                return f"{node.name} knows {len(node.head.members.current)} members of {len(alive)}"
            if held := node.gangs.bundles.held():
                return f"{node.name} holds bundles of {len(held)} gangs that nobody has"
            if any(node.running.values()) or node.claims or node.look_ups:
                return f"{node.name} waits: {node.running} {node.claims} {node.look_ups}"
        if len(self.head.machine._gangs):
            return f"the head has {len(self.head.machine._gangs)} gangs that nobody has"
        if self.disk.members() != alive.keys():
            return f"the head keeps {len(self.disk.members())} members of {len(alive)}"
        bearers = [name for node in alive.values() for name in node.hosted]
        if len(bearers) != len(set(bearers)):
            return f"two bear one name: {bearers}"
        return ""

    def all_marks(self) -> Counter[str]:
        """What was counted here, and by the machines."""
        marks = self.marks.copy()
        for process in self.places.values():
            if isinstance(process, NetNode):
                for machine in process.tree.machines():
                    marks += machine.sessions.ignored
                marks += process.peering.counts
        return marks

"""A node's process in the network's world: peering, sessions, the head, and a runner of tasks that only takes time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..ids import RESOURCE_UNIT
from ..rpc.protos import cluster_pb2
from ..scheduler.seeking import AskRoom, Connect, Refuse, Seeking
from ..scheduler.session_words import Deliver, SessionClosed, SessionLost, SessionName, SessionOpened
from .netattend import PYTHON, Attendance
from .netgangs import NodeBundles
from .nethead import HEAD
from .netlinks import End, NetFrame
from .netpeering import NetLoop, NetPeering
from .netprocess import NetProcess
from .netroot import CREDIT, DONE, RETURNED, Root, pack, unpack
from .netsessions import NetTree

if TYPE_CHECKING:
    from .networld import Network, NetWorld

#: What every task needs.
NEEDS = {"CPU": RESOURCE_UNIT}
KIND = 1


class NodeProcess(NetProcess):
    """What nodes have to do with the head: they attend it, and actors there bear names.

    One without slots has no address: it is the gateway of its clients.
    """

    def __init__(self, world: Network, name: str, place: str, slots: int) -> None:
        super().__init__(world, name, place)
        self.slots = slots
        self.totals = {"CPU": slots * RESOURCE_UNIT} if slots else {}
        self.address = place if slots else ""
        self.head = Attendance(self)
        self.hosted: dict[str, int] = {}  # name: start of the actor that bears it
        self.claims: dict[str, int] = {}  # asked for and not answered
        self.requests: dict[int, str] = {}
        self.look_ups: dict[int, str] = {}
        self._last_request = 0

    @property
    def is_draining(self) -> bool:
        """Whether it takes nothing more."""
        return self.head.is_draining

    def settle(self) -> None:
        """Do what all machines here command."""
        raise NotImplementedError

    def free(self) -> dict[str, int]:
        """What is free."""
        raise NotImplementedError

    def is_busy(self) -> bool:
        """Whether anything here keeps it from leaving."""
        raise NotImplementedError

    def on_struck(self, node: int) -> None:
        """The head has struck a node off the list."""

    def on_drain(self) -> None:
        """Take nothing more."""

    def on_head_up(self) -> None:
        """The head has taken this node in, or back: what was asked is asked again."""
        for name, start in self.claims.items():
            self._claim(name, start)
        for name in list(self.look_ups.values()):
            self.look_up(name)

    def on_head_down(self) -> None:
        """The head is away."""
        self.requests.clear()

    def on_note(self, what: str, said: Any) -> None:
        """The head answers."""
        if what == "room":
            self.on_room(said)
        elif what == "try_later":
            self.on_try_later(said.id)
        elif what == "name":
            self._on_name(said)
        elif what == "kill_actor":
            if self.hosted.get(said.name) == said.incarnation:
                self.world.mark("actor lost its name")
                del self.hosted[said.name]
        else:
            raise AssertionError(f"a node is told {what}")

    def bundles_held(self) -> list[cluster_pb2.BundlesHeld]:
        """What is set aside here for gangs."""
        return []

    def gang_wishes(self) -> list[cluster_pb2.GangWish]:
        """The gangs that programs here ask for."""
        return []

    def on_room(self, said: Any) -> None:
        """The head names nodes with room, or says that there never will be."""
        raise NotImplementedError

    def on_try_later(self, request: int) -> None:
        """The head's table is full."""
        raise NotImplementedError

    def _request(self) -> int:
        self._last_request += 1
        return self._last_request

    def claim(self, name: str, start: int) -> None:
        """Start an actor with a name."""
        if name not in self.hosted and name not in self.claims:
            self.claims[name] = start
            self._claim(name, start)

    def _claim(self, name: str, start: int) -> None:
        request = self._request()
        self.requests[request] = name
        self.head.say(claim=cluster_pb2.NameClaim(id=request, name=name, owner=self.incarnation, incarnation=start))

    def look_up(self, name: str) -> None:
        """Ask who bears a name."""
        request = self._request()
        self.look_ups = {r: n for r, n in self.look_ups.items() if n != name} | {request: name}
        self.head.say(name=cluster_pb2.NameQuestion(id=request, name=name))

    def _on_name(self, said: Any) -> None:
        name = self.requests.pop(said.id, None)
        if name is None:
            self.look_ups.pop(said.id, None)
            return
        start = self.claims.pop(name, None)
        if start is not None and said.outcome == cluster_pb2.NameAnswer.GRANTED:
            self.hosted[name] = start
        elif start is not None:
            self.world.mark("name refused")

    def release(self, name: str) -> None:
        """A named actor ends."""
        start = self.hosted.pop(name, None)
        if start is not None:
            released = cluster_pb2.NameRelease(name=name, owner=self.incarnation, incarnation=start)
            self.head.say(release=released)

    def begin_again(self) -> None:
        """This incarnation is given up: all ends, and the process begins as a new one."""
        self.world.mark("began again")
        self.die()
        self.world.bring_back(self)

    def leave(self) -> None:
        """It has drained."""
        self.die()
        self.world.bring_back(self)


class NetNode(NodeProcess):
    """One node."""

    world: NetWorld

    def __init__(self, world: NetWorld, name: str, place: str, slots: int) -> None:
        super().__init__(world, name, place, slots)
        self.tree = NetTree(self)
        self.peering = NetPeering(self, self, NetLoop(self), self.head.members, self.address)
        self.seeking = Seeking(self.incarnation)
        self.gangs = NodeBundles(self)
        self.roots: dict[int, Root] = {}
        self.running: dict[SessionName, dict[int, int]] = {}  # session: task: attempt
        self.store = SimpleNamespace(replicas=SimpleNamespace(on_node_gone=lambda node: None))  # nothing is stored here
        self._is_settling = self._is_dirty = False
        self._woken_at: float | None = None

    def settle(self) -> None:
        """Do what all machines here command."""
        self._is_dirty = True
        if self._is_settling:
            return
        self._is_settling = True
        while self._is_dirty and self.alive:
            self._is_dirty = False
            self.tree.settle()
            ordered = self.seeking.take_commands()
            self.obey(ordered, self._do)
            self._is_dirty = self._is_dirty or bool(ordered)
        self._is_settling = False
        self._set_timer()

    def flush_link(self, link: Any) -> None:
        """All is sent at once here."""

    # -- wires ---------------------------------------------------------------------------------------------------------

    def on_dialled(self, end: End) -> None:
        """Somebody has laid a wire to it: another node, or a head that wants to know whether anybody is here."""
        if self.world.place_of.get(end.peer) == HEAD:
            return
        if not self.peering.accept(end):
            end.close()

    def on_frames(self, end: End, frames: list[NetFrame]) -> None:
        """Frames have come."""
        if end is self.head.end:
            self.head.on_frames(frames)
        else:
            self.peering.read(end, frames)
        self.settle()

    def on_wire_down(self, end: End) -> None:
        """A wire has ended."""
        if end is self.head.end:
            self.head.on_wire_down()
        else:
            self.peering.wire_down(end)
        self.settle()

    def on_struck(self, node: int) -> None:
        """The head has struck a node off the list."""
        self.peering.on_struck(node)
        self.seeking.on_node_gone(node)
        for root in self.roots.values():
            root.machine.sessions.on_peer_lost(node, self.local())
        for name in list(self.tree.mine.sessions._sessions):
            if self.world.gateway_of.get(name.owner) == node:
                self.tree.mine.sessions.on_peer_lost(name.owner, self.local())

    # -- room elsewhere ------------------------------------------------------------------------------------------------

    def free(self) -> dict[str, int]:
        """What is free."""
        used = sum(map(len, self.running.values())) * RESOURCE_UNIT
        left = self.gangs.resources.free()
        return {name: max(0, left[name] - used) for name in self.totals}

    def on_head_up(self) -> None:
        """The head has taken this node in, or back: all that is wanted is asked again."""
        self.seeking.on_head_up(self.local())
        self.gangs.head.on_head(True)
        super().on_head_up()

    def on_head_down(self) -> None:
        """The head is away."""
        self.seeking.on_head_down(self.local())
        self.gangs.head.on_head(False)
        super().on_head_down()

    def bundles_held(self) -> list[cluster_pb2.BundlesHeld]:
        """What is set aside here for gangs."""
        return self.gangs.head.held()

    def gang_wishes(self) -> list[cluster_pb2.GangWish]:
        """The gangs that programs here ask for."""
        return self.gangs.head.wishes()

    def on_note(self, what: str, said: Any) -> None:
        """The head answers."""
        if what == "gang":
            self.gangs.head.on_answer(said)
        elif what == "bundles":
            self.gangs.head.on_order(said)
        else:
            super().on_note(what, said)

    def on_room(self, said: Any) -> None:
        """The head names nodes with room, or says that there never will be."""
        if said.never:
            totals = [dict(amounts.amounts) for amounts in said.totals]
            self.seeking.on_never(said.id, dict(said.asked), totals, list(said.pythons))
        else:
            offers = [(room.node, room.address, room.tasks) for room in said.rooms]
            self.seeking.on_offers(said.id, offers, self.local())

    def on_try_later(self, request: int) -> None:
        """The head's table is full."""
        self.seeking.on_try_later(request, self.local())

    def wants(self, root: Root, waiting: int) -> None:
        """So many tasks of a client can be sent nowhere."""
        self.seeking.on_want(root.incarnation, KIND, NEEDS, PYTHON, waiting, self.local(), is_home=False)
        self._is_dirty = True

    def on_connected(self, root: Root, node: int) -> None:
        """A root may send tasks to a node."""
        self.seeking.on_connected(root.incarnation, node)

    def on_disconnected(self, root: Root, node: int) -> None:
        """A session of a root is over."""
        self.seeking.on_disconnected(root.incarnation, node)

    def _do(self, command: Any) -> None:
        match command:
            case AskRoom(request, needs, python, waiting):
                asked = cluster_pb2.RoomQuestion(id=request, shape=dict(needs), python=python, waiting=waiting)
                self.head.say(room=asked)
            case Connect(client, node, address):
                root = self.roots.get(client)
                self.peering.learn(node, address)
                if root is not None:
                    root.connect(node)
            case Refuse():
                raise AssertionError(f"{command}, and every node could run it")

    def _set_timer(self) -> None:
        due = self.seeking.due
        if self.alive and due is not None and (self._woken_at is None or due < self._woken_at - 1e-6):
            self._woken_at = due
            self.at_local(due, "seeks", lambda: self._on_timer(due))

    def _on_timer(self, due: float) -> None:
        if self._woken_at == due:
            self._woken_at = None
            self.seeking.on_timer(self.local())
            self.settle()

    # -- clients -------------------------------------------------------------------------------------------------------

    def add_root(self, name: str, tasks: int) -> Root:
        """A client comes to this node."""
        root = Root(self, name, tasks)
        self.roots[root.incarnation] = root
        self.tree.owners[root.incarnation] = root.machine
        self.world.gateway_of[root.incarnation] = self.incarnation
        self.world.roots.append(root)
        root.place()
        return root

    def drop_root(self, root: Root) -> None:
        """A client ends."""
        root.leave()
        self.settle()
        del self.roots[root.incarnation]
        self.tree.owners.pop(root.incarnation)
        self.seeking.on_client_left(root.incarnation)
        self.settle()

    # -- tasks of others -----------------------------------------------------------------------------------------------

    def on_session(self, command: Any) -> None:
        """What sessions of this node's own end say."""
        if isinstance(command, SessionOpened):
            self.running[command.name] = {}
            self._say(command.name, CREDIT, pack(0 if self.is_draining else self.slots + 1))
        elif isinstance(command, Deliver):
            self._on_task(command.name, *unpack(command.body))
        elif isinstance(command, SessionLost | SessionClosed):
            ran = self.running.pop(command.name)
            assert not ran or isinstance(command, SessionLost), "closed with tasks running"
            if ran:
                self.world.mark("tasks of a lost session ended")

    def _on_task(self, name: SessionName, number: int, attempt: int) -> None:
        world = self.world
        running = self.running[name]
        if self.is_draining or world.rng.random() < 0.05:
            self._say(name, RETURNED, pack(number, attempt))
            return
        assert (name.owner, number, attempt) not in world.begun, f"{number}/{attempt} begins twice"
        world.begun.add((name.owner, number, attempt))
        running[number] = attempt
        self._in_use(name)
        seconds = world.rng.choice((0.001, 0.01, 0.1, 1.0)) * world.rng.random()
        if world.rng.random() < 0.01:
            seconds = 14.0  # longer than a session may rest
        self.after(seconds, f"has run {number}", lambda: self._finish(name, number, attempt))

    def _finish(self, name: SessionName, number: int, attempt: int) -> None:
        if self.running.get(name, {}).pop(number, None) != attempt:
            self.world.mark("result of a lost session dropped")
            return
        self._say(name, DONE, pack(number, attempt))
        self._in_use(name)
        self.settle()

    def _in_use(self, name: SessionName) -> None:
        session = self.tree.mine.sessions.find(name)
        if session is not None:
            session.set_in_use(bool(self.running[name]), self.local())

    def _say(self, name: SessionName, frame_type: int, body: bytes) -> None:
        session = self.tree.mine.sessions.find(name)
        if session is not None:
            self.tree.mine.send(session, frame_type, body)

    def on_drain(self) -> None:
        """Take nothing more: there is no credit here any more."""
        for name in list(self.running):
            self._say(name, CREDIT, pack(0))

    def is_busy(self) -> bool:
        """Whether anything runs here, or a client is here."""
        return any(self.running.values()) or bool(self.roots)

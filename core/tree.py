"""The tree of a root client: its node in the middle, a session to every other node that works for it.

All that processes of one root say to each other across machines goes through the root's own node, each hop in order:
so a message that passed before another is handled before it, wherever both lead, as within one node. At every node the
processes elsewhere are peers like those here; only their links (`RemoteLink`) lead into a session, the *trunk*.

The root's node knows every process that deals with others: their nodes tell it before anything is said of them (MET).
The other nodes learn of processes elsewhere by what they say; one that they have not met they take the root's node to
know, which answers ENDED where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

from .handover import HandOver
from .rpc.codec import Frame, ProtocolError
from .rpc.protos import outboard_pb2 as pb
from .scheduler.session import Session
from .scheduler.session_words import (
    Deliver,
    Dial,
    Header,
    Role,
    SendFrame,
    SessionClosed,
    SessionLost,
    SessionName,
    SessionOpened,
    SetTimer,
)
from .scheduler.sessions import Sessions
from .sessionframes import ALL, STAMP

if TYPE_CHECKING:
    from .node import Node, Peer
    from .peering import Peering

#: What clients say to a node about tasks, and so may say to any.
TO_NODES = frozenset({
    Frame.SUBMIT, Frame.KIND, Frame.WANT, Frame.CANCEL, Frame.BIND, Frame.UNBIND, Frame.DROP_KINDS, Frame.FREE,
    Frame.TIMELINE,
})  # fmt: skip

#: What is said of objects: nodes on the way have their part in it.
OF_OBJECTS = frozenset({Frame.ASK, Frame.ANSWER, Frame.BORROW, Frame.RELEASE, Frame.ADOPT})

#: Seconds between two looks whether what a session was opened for is still there.
LOOK_SECONDS = 1.0


class Trunk:
    """One session of a tree, as seen from one of its ends.

    ``far`` is the node at the other end, 0 where the other end is the root's. ``members`` are the processes that are
    reached over it, ``guests`` those of this side that the other end knows as clients.
    """

    __slots__ = ("end", "far", "guests", "members", "own_node", "root", "session")

    def __init__(self, end: End, session: Session, root: int, far: int) -> None:
        self.end = end
        self.session = session
        self.root = root
        self.far = far
        self.own_node = 0  # of a root elsewhere
        self.members: set[int] = set()
        self.guests: dict[int, None] = {}

    def send(self, frame_type: int, body: bytes, source: int, destination: int) -> None:
        """Say something in the session; nothing when it is over."""
        self.session.send(frame_type, STAMP.pack(source, destination) + body, self.end.tree.now())
        self.end.touch()


class RemoteLink:
    """The link of a process elsewhere: what is sent on it goes through its trunk. See `LoopLink`."""

    __slots__ = ("incarnation", "trunk")

    def __init__(self, trunk: Trunk, incarnation: int) -> None:
        self.trunk = trunk
        self.incarnation = incarnation

    @property
    def closed(self) -> bool:
        """Whether the session is over."""
        return self.trunk.session.is_closed

    @property
    def queued_nbytes(self) -> int:
        """Bytes that the other end has not acknowledged."""
        out = self.trunk.session.out
        return out.flight_nbytes + out.waiting_nbytes

    def send(self, frame_type: int, body: bytes, origin: int = 0, fds: tuple[int, ...] = ()) -> None:
        """Say something to the process; ``origin`` is who says it, 0 for this node."""
        trunk = self.trunk
        trunk.send(frame_type, body, origin or trunk.end.tree.node.incarnation, self.incarnation)

    def flush(self) -> None:
        """Nothing to do: sessions are written at the end of each turn."""

    def close(self) -> None:
        """Give the whole session up: its other end has broken the rules."""
        self.trunk.end.give_up(self.trunk)


class End:
    """The sessions of one root, or those of this node, with their timer."""

    def __init__(self, tree: Tree, machine: Sessions) -> None:
        self.tree = tree
        self.machine = machine
        self.trunks: dict[SessionName, Trunk] = {}
        self._timer: Any = None

    def touch(self) -> None:
        """Have the machine's commands done before this turn ends."""
        self.tree.touched[self] = None

    def give_up(self, trunk: Trunk) -> None:
        """Close a session for ever."""
        self.machine.give_up(trunk.session.name, self.tree.now())
        self.touch()

    def set_timer(self, due: float) -> None:
        """Wake the machine at this time and no other."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.tree.node.loop.call_later(max(0.0, due - self.tree.now()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.machine.on_timer(self.tree.now())
        self.touch()
        self.tree.node.settle()

    def close(self) -> None:
        """Wake it no more."""
        if self._timer is not None:
            self._timer.cancel()


class Tree:
    """All trunks of one node; every method is called in the loop's thread."""

    def __init__(self, node: Node, peering: Peering) -> None:
        self.node = node
        self.now: Callable[[], float] = node.now
        self.touched: dict[End, None] = {}
        self.handover = HandOver(node)
        self._peering = peering
        self._roots: dict[int, End] = {}  # owners' ends, of roots here
        self._branches: dict[int, dict[int, Trunk]] = {}  # the same by root and node
        self._lost: dict[int, set[int]] = {}  # by root: nodes not heard of since a session was lost
        self._stems = End(self, Sessions(Role.NODE, node.incarnation))  # nodes' ends, of roots elsewhere
        self._stem_of: dict[int, Trunk] = {}  # the same by root
        self._node_frames = {t: node.handlers[t] for t in TO_NODES}
        self._object_frames = {t: node.handlers[t] for t in OF_OBJECTS}
        node.loop.call_later(LOOK_SECONDS, self._look)

    def __repr__(self) -> str:
        return f"<Tree roots={len(self._roots)} stems={len(self._stem_of)}>"

    # -- what this node says ------------------------------------------------------------------------------------------

    def trunks_of(self, root: int) -> list[Trunk]:
        """The trunks over which processes of a root elsewhere are reached from here."""
        stem = self._stem_of.get(root)
        return [stem] if stem is not None else list(self._branches.get(root, {}).values())

    @property
    def has_branches(self) -> bool:
        """Whether clients of this node have sessions with other nodes."""
        return any(self._branches.values())

    def has_lost(self, node: int, root: int) -> bool:
        """Whether a root of this node has lost what lay for it at a node, with its session."""
        return node in self._lost.get(root, ())

    def stems(self) -> list[Trunk]:
        """The trunks of roots that are elsewhere."""
        return list(self._stem_of.values())

    def own_node_of(self, root: int) -> int:
        """The node of a root that is elsewhere; 0 when it is here, or not known."""
        stem = self._stem_of.get(root)
        return stem.own_node if stem is not None else 0

    def find(self, incarnation: int, root: int) -> Peer | None:
        """A process of a root's tree; where the root is elsewhere, one not met yet is taken to be there."""
        peer = self.node.peers.get(incarnation)
        stem = self._stem_of.get(root)
        return self._meet(incarnation, stem) if peer is None and stem is not None else peer

    def takes(self, peer: Peer, frame_type: int, body: bytes, destination: int) -> bool:
        """Pass on what a local process says to another node, or to all; False when this node is to handle it too."""
        if frame_type not in TO_NODES or destination == self.node.incarnation:
            return False
        if destination in peer.gone_nodes:
            return True  # meant for a session that is over
        self._forward(peer, frame_type, body, destination)
        return destination != ALL

    def _forward(self, peer: Peer, frame_type: int, body: bytes, destination: int) -> None:
        stem = self._stem_of.get(peer.root)
        if stem is not None:
            stem.send(frame_type, body, peer.incarnation, destination)
            return
        branches = self._branches.get(peer.root, {})
        for trunk in branches.values() if destination == ALL else filter(None, (branches.get(destination),)):
            trunk.send(frame_type, body, peer.incarnation, destination)

    def connect(self, peer: Peer, node: int, address: str) -> None:
        """Let a process become a client of another node."""
        if peer.incarnation not in self.node.peers or node == self.node.incarnation or node in peer.gone_nodes:
            return
        stem = self._stem_of.get(peer.root)
        root = self.node.peers.get(peer.root)
        if stem is not None and root is not None:
            hello = self._hello_of(peer, root)
            asked = pb.Connect(node=node, address=address, hello=hello)
            stem.send(Frame.CONNECT, asked.SerializeToString(), peer.incarnation, 0)
        elif root is not None:
            self._introduce(root, self._hello_of(peer, root), node, address)

    @staticmethod
    def _hello_of(peer: Peer, root: Peer) -> pb.Hello:
        hello = pb.Hello()
        hello.CopyFrom(root.hello)
        hello.incarnation, hello.root = peer.incarnation, root.incarnation
        return hello

    def _introduce(self, root: Peer, hello: pb.Hello, node: int, address: str) -> None:
        trunk = self._branches.get(root.incarnation, {}).get(node) or self._open(root, node, address)
        if trunk is None or hello.incarnation in trunk.guests:
            return
        trunk.guests[hello.incarnation] = None
        trunk.send(Frame.HELLO, hello.SerializeToString(), hello.incarnation, node)

    def _open(self, root: Peer, node: int, address: str) -> Trunk | None:
        end = self._roots.get(root.incarnation)
        if end is None:
            end = self._roots[root.incarnation] = End(self, Sessions(Role.OWNER, root.incarnation))
        self._peering.learn(node, address)
        if not end.machine.can_open(node):
            return None
        trunk = self._add(end, end.machine.open(node, self.now()), node)
        trunk.guests[root.incarnation] = None
        trunk.send(Frame.HELLO, self._hello_of(root, root).SerializeToString(), root.incarnation, node)
        return trunk

    def _add(self, end: End, session: Session, far: int) -> Trunk:
        trunk = end.trunks[session.name] = Trunk(end, session, session.name.owner, far)
        if far:
            self._branches.setdefault(trunk.root, {})[far] = trunk
        else:
            self._stem_of[trunk.root] = trunk
        end.touch()
        return trunk

    # -- what paths say -----------------------------------------------------------------------------------------------

    def _end_of(self, name: SessionName) -> End:
        return self._stems if name.node == self.node.incarnation else self._roots.get(name.owner, self._stems)

    def on_frame(self, path: int, header: Header, frame_type: int, body: bytes) -> None:
        """A frame of a session has come over a path."""
        end = self._end_of(header.name)
        end.machine.on_frame(path, header, frame_type, body, self.now())
        end.touch()

    def on_path_down(self, path: int) -> None:
        """A path is no more."""
        for end in (*self._roots.values(), self._stems):
            end.machine.on_path_down(path, self.now())
            end.touch()

    def on_no_path(self, path: int, name: SessionName, refused: bool) -> None:
        """A relay knows no way on; ``refused``: for there is nobody any more."""
        end = self._end_of(name)
        trunk = end.trunks.get(name)
        if refused and trunk is not None and trunk.far:
            end.machine.on_dial_refused(name, trunk.session.dial, self.now())
        else:
            end.machine.on_no_path(path, name, self.now())
        end.touch()

    def on_struck(self, node: int) -> None:
        """The head has struck a node off, and all roots whose own node it is with it."""
        for end in self._roots.values():
            end.machine.on_peer_lost(node, self.now())
            end.touch()
        for trunk in self.stems():
            if trunk.own_node == node:
                trunk.end.machine.on_peer_lost(trunk.root, self.now())
                trunk.end.touch()

    def paths_in_use(self) -> set[int]:
        """The paths of all open sessions."""
        ends = (*self._roots.values(), self._stems)
        return {t.session.path for end in ends for t in end.trunks.values() if t.session.path is not None}

    # -- what the machines command ------------------------------------------------------------------------------------

    def execute(self) -> None:
        """Do what the machines of sessions command."""
        while self.touched:
            end = next(iter(self.touched))
            del self.touched[end]
            for command in end.machine.take_commands():
                self._do(end, command)

    def _do(self, end: End, command: Any) -> None:
        match command:
            case SendFrame(path, header, frame_type, body):
                self._peering.send_session(path, header, frame_type, body)
            case Deliver(name, frame_type, body):
                trunk = end.trunks.get(name)
                if trunk is not None:
                    self._on_message(trunk, frame_type, body)
            case SetTimer(due):
                end.set_timer(due)
            case Dial(name, dial):
                self._peering.dial(
                    name.node, lambda path, refused: self._on_dialled(end, name, dial, path, refused),
                    is_again=dial > 1,
                )  # fmt: skip
            case SessionOpened(name):
                session = end.machine.find(name)
                if session is not None:
                    trunk = self._add(end, session, 0)
                    trunk.own_node = self._peering.node_at(session.path) if session.path is not None else 0
            case SessionLost(name, why, _):
                self._on_over(end, name, why.value)
            case SessionClosed(name, _):
                self._on_over(end, name, "")

    def _on_dialled(self, end: End, name: SessionName, dial: int, path: int | None, refused: bool) -> None:
        if path is not None:
            end.machine.on_path_up(name, dial, path, self.now())
        elif refused:
            end.machine.on_dial_refused(name, dial, self.now())
        else:
            end.machine.on_dial_failed(name, dial, self.now())
        end.touch()

    # -- what others say ----------------------------------------------------------------------------------------------

    def _on_message(self, trunk: Trunk, frame_type: int, data: bytes) -> None:
        source, destination = STAMP.unpack_from(data)
        body = data[STAMP.size :]
        if not trunk.far and not trunk.session.in_use:
            trunk.session.set_in_use(True, self.now())
        if self._lost:
            self._lost.get(trunk.root, set()).discard(trunk.far)  # what it says from now on is of another session
        try:
            if destination in (0, self.node.incarnation, ALL):
                if destination == ALL:
                    self._spread(trunk, frame_type, body, source)
                self._handle(trunk, frame_type, body, source)
            elif frame_type in self._object_frames:
                self._object_frames[frame_type](self._meet(source, trunk), body, destination, ())
            else:
                self._pass(trunk, frame_type, body, source, destination)
        except Exception as error:
            who = f"the session with {trunk.far or trunk.root:016x}"
            self.node.complain(who, f"its frame of type {frame_type} cannot be handled", error)
            trunk.end.give_up(trunk)

    def _spread(self, trunk: Trunk, frame_type: int, body: bytes, source: int) -> None:
        for other in self._branches.get(trunk.root, {}).values():
            if other is not trunk:
                other.send(frame_type, body, source, ALL)

    def _handle(self, trunk: Trunk, frame_type: int, body: bytes, source: int) -> None:
        """Take what is meant for this node."""
        if frame_type == Frame.HELLO:
            self._welcome(trunk, source, pb.Hello.FromString(body))
        elif frame_type == Frame.ENDED:
            self._on_ended(trunk, pb.Peer.FromString(body).incarnation)
        elif frame_type == Frame.MET:
            self._meet(pb.Peer.FromString(body).incarnation, trunk)
        elif frame_type == Frame.MOVED:
            self.node.exchange.on_moved(body, trunk)
        elif frame_type == Frame.CONNECT:
            asked = pb.Connect.FromString(body)
            root = self.node.peers.get(trunk.root)
            if trunk.far and root is not None and asked.node == self.node.incarnation:
                self._welcome(trunk, source, asked.hello)
            elif trunk.far and root is not None:
                self._meet(source, trunk)
                self._introduce(root, asked.hello, asked.node, asked.address)
        elif frame_type == Frame.NODE_GONE:
            self.node.store.replicas.on_session_lost(pb.NodeGone.FromString(body).node, trunk.root)
        elif frame_type == Frame.EVACUATE:
            self.handover.on_evacuate(trunk, body)
        elif frame_type == Frame.EVACUATED:
            self.handover.on_evacuated(trunk, body)
        else:
            self._node_frames[frame_type](self._meet(source, trunk), body, 0, ())

    def _welcome(self, trunk: Trunk, source: int, hello: pb.Hello) -> None:
        peer = self._meet(source, trunk)
        peer.hello = hello
        if not peer.is_client:
            self.node.admit_remote(peer)

    def _pass(self, trunk: Trunk, frame_type: int, body: bytes, source: int, destination: int) -> None:
        """Hand on what is for a process here or beyond, or for another node."""
        target = self.node.peers.get(destination)
        onward = self._branches.get(trunk.root, {}).get(destination)
        if target is not None:
            if frame_type == Frame.FINISHED and not trunk.far:
                self.node.exchange.on_passing(self._meet(trunk.root, trunk), body, target)  # whose they were is known
            elif frame_type == Frame.FINISHED and source != trunk.far:
                self.node.exchange.on_passing(self._meet(source, trunk), body, target)
                source = trunk.far
            self.node.pass_to(target, frame_type, body, source)
        elif onward is not None:
            self._meet(source, trunk)
            onward.send(frame_type, body, source, destination)
        elif trunk.far:
            self.tell_ended(trunk, destination)

    def tell_ended(self, trunk: Trunk, incarnation: int) -> None:
        """Answer that a process is not there."""
        body = pb.Peer(incarnation=incarnation).SerializeToString()
        trunk.send(Frame.ENDED, body, self.node.incarnation, 0)

    def _meet(self, incarnation: int, trunk: Trunk) -> Peer:
        """The peer for a process that is reached over a trunk."""
        peer = self.node.peers.get(incarnation)
        if peer is None:
            peer = self.node.add_peer(RemoteLink(trunk, incarnation), incarnation, trunk.root, None)
            peer.trunk = trunk
            trunk.members.add(incarnation)
        elif peer.root != trunk.root:  # words may come back to where they were said, but not from another tree
            raise ProtocolError(f"process {incarnation:016x} belongs to another client")
        return peer

    def tell_moved(self, owner: Peer, moved: list[tuple[pb.Descriptor, bool]], path: Collection[Trunk | None]) -> None:
        """Objects have passed to an owner: tell of it who had no part. `moved`: where they lie, had they passed before.

        The root's own node has to know of all; another one if it may have noted an earlier owner, or if they lie there.
        """
        for trunk in self.trunks_of(owner.root):
            if trunk in path:
                continue
            objects = [lies for lies, had_passed in moved if had_passed or trunk.far in (0, lies.node)]
            if objects:
                told = pb.Moved(owner=owner.incarnation, objects=objects)
                trunk.send(Frame.MOVED, told.SerializeToString(), self.node.incarnation, 0)

    # -- ends ---------------------------------------------------------------------------------------------------------

    def on_sharing(self, worker: Peer) -> None:
        """A worker here deals with others from now on: its root's node has to know it before they speak of it."""
        stem = self._stem_of.get(worker.root)
        if stem is not None:
            met = pb.Peer(incarnation=worker.incarnation)
            stem.send(Frame.MET, met.SerializeToString(), self.node.incarnation, 0)

    def on_process_ended(self, peer: Peer) -> None:
        """A process has ended: those elsewhere who dealt with it must hear of it."""
        body = pb.Peer(incarnation=peer.incarnation).SerializeToString()
        for trunk in self.trunks_of(peer.root):
            if trunk is not peer.trunk:
                trunk.send(Frame.ENDED, body, self.node.incarnation, 0)
            trunk.guests.pop(peer.incarnation, None)
        end = self._roots.pop(peer.incarnation, None)
        if end is not None:
            self._close_root(end, peer.incarnation)

    def _close_root(self, end: End, root: int) -> None:
        trunks = list(end.trunks.values())
        self._branches.pop(root, None)
        self._lost.pop(root, None)
        for trunk in trunks:
            end.give_up(trunk)
        for command in end.machine.take_commands():  # its last words; what it says of ends concerns nobody any more
            if isinstance(command, SendFrame):
                self._peering.send_session(*command)
        self.touched.pop(end, None)
        end.close()
        for trunk in trunks:
            self._forget_members(trunk)

    def _on_ended(self, trunk: Trunk, incarnation: int) -> None:
        peer = self.node.peers.get(incarnation)
        if peer is None:
            self.node.exchange.announce_end(incarnation)
        elif peer.trunk is not None:
            peer.trunk.members.discard(incarnation)
            self.node.remote_left(peer)

    def _on_over(self, end: End, name: SessionName, why: str) -> None:
        """A session is over: whoever was reached over it is gone. ``why`` is empty when nothing was outstanding."""
        trunk = end.trunks.pop(name, None)
        if trunk is None:
            return
        if trunk.far:
            if self._branches.get(trunk.root, {}).get(trunk.far) is trunk:
                del self._branches[trunk.root][trunk.far]
            gone = pb.NodeGone(node=trunk.far, lost=bool(why), reason=why).SerializeToString()
            for guest in trunk.guests:
                target = self.node.peers.get(guest)
                if target is not None:
                    self.node.pass_to(target, Frame.NODE_GONE, gone, self.node.incarnation)
            if why:
                self._on_lost(trunk, gone)
        elif self._stem_of.get(trunk.root) is trunk:
            del self._stem_of[trunk.root]
        self._forget_members(trunk)

    def _on_lost(self, trunk: Trunk, gone: bytes) -> None:
        """Nobody of this root waits any more for what lay at the node of a session that was lost."""
        self._lost.setdefault(trunk.root, set()).add(trunk.far)
        self.node.store.replicas.on_session_lost(trunk.far, trunk.root)
        for other in self._branches.get(trunk.root, {}).values():
            other.send(Frame.NODE_GONE, gone, self.node.incarnation, 0)

    def _forget_members(self, trunk: Trunk) -> None:
        members, trunk.members = trunk.members, set()
        for incarnation in sorted(members, key=lambda member: member != trunk.root):
            peer = self.node.peers.get(incarnation)
            if peer is not None:
                self.node.remote_left(peer)

    def _look(self) -> None:
        """Let sessions close of which nothing is left here."""
        for root, trunk in self._stem_of.items():
            if trunk.session.in_use and not self.node.is_needed_by(root):
                trunk.session.set_in_use(False, self.now())
        self.node.loop.call_later(LOOK_SECONDS, self._look)

    def close(self) -> None:
        """Wake up no more."""
        for end in (*self._roots.values(), self._stems):
            end.close()

    def sessions(self) -> Iterator[Session]:
        """Every open session; for tests."""
        return (t.session for end in (*self._roots.values(), self._stems) for t in end.trunks.values())

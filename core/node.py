"""The node: joins the dispatch and extents machines to clients, workers, shared memory and the clock.

Everything runs on one event loop. Frames that came together are handled together: machines first, then what they
command, then one write per link.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .exchange import Exchange
from .ids import RESOURCE_UNIT, ObjectId, Span
from .loops import Loop
from .nodestore import NodeStore
from .pollloop import PollLoop
from .process.limits import cpu_count, gpu_count, memory_limit_nbytes, raise_descriptor_limit
from .reaching import Reaching
from .rpc.codec import Frame
from .rpc.local import LoopLink, accept
from .rpc.protos import outboard_pb2 as pb
from .runlog import RunLog
from .scheduler import commands
from .scheduler.dispatch import Dispatch
from .scheduler.intervals import Interval
from .version import PROTOCOL, PYTHON, __version__
from .workforce import Workforce

if TYPE_CHECKING:
    from .keeping import KeeperLink
    from .names import Names
    from .nodegangs import NodeGangs
    from .peering import Peering
    from .rpc.grpc_links import PeerLink
    from .seeker import Seeker
    from .tree import RemoteLink, Tree, Trunk

#: Credit that every new kind of task starts with, so that first tasks need not ask.
INITIAL_CREDIT = 64

#: Credit a slot that kinds of a client at another node start with: one that runs and one that is ready.
REMOTE_CREDIT = 2

#: Bytes of log lines that may wait for a client that does not read; beyond it lines are dropped and counted.
LOG_WINDOW = 4 << 20

#: Seconds after which connections are taken again when there was no descriptor left for one.
ACCEPT_AGAIN_SECONDS = 0.1


class Peer:
    """A client or worker at the other end of a link. `worker` is the worker's number, None for clients.

    `trunk` is the session over which a process of another machine is reached, None for those here.
    """

    __slots__ = (
        "dropped_lines",
        "fetchers",
        "gone_nodes",
        "hello",
        "incarnation",
        "is_client",
        "is_leaving",
        "kinds",
        "link",
        "root",
        "shares",
        "trunk",
        "words",
        "words_heard",
        "worker",
    )

    def __init__(
        self, link: LoopLink | RemoteLink | KeeperLink, incarnation: int, root: int, worker: int | None
    ) -> None:
        self.link: Any = link
        self.trunk: Trunk | None = None
        self.incarnation = incarnation
        self.root = root
        self.worker = worker
        self.is_client = False  # dispatch knows it as a client
        self.is_leaving = False  # a worker that is about to end: no object passes to it any more
        self.shares = False  # it lends or borrows objects, and so must hear who has ended
        self.hello = pb.Hello()
        self.kinds: dict[int, bytes] = {}
        self.fetchers: dict[int, dict[int, None]] = {}  # kind → workers that have it
        self.gone_nodes: Counter[int] = Counter()  # sessions of which it has yet to say that it knows them to be over
        self.dropped_lines = 0
        self.words: deque[tuple[ObjectId, int, bytes]] = deque()  # what it was told of objects and may not have heard
        self.words_heard = 0  # those before


class Node:
    """One node. `founder` is the incarnation of the client whose end is this node's end, or None.

    `is_embedded`: the first client that comes is the founder. `joined`: it belongs to a cluster of several nodes.
    """

    def __init__(
        self, loop: Loop, boot: Any, settings: dict[str, Any], stop: Callable[[], None], *, is_embedded: bool = True,
        joined: bool = False,
    ) -> None:  # fmt: skip
        self.loop = loop
        self.stop = stop
        self.incarnation = int.from_bytes(os.urandom(8), "little") | 1
        self.host = socket.gethostname()
        self.folder = boot.folder
        self.peers: dict[int, Peer] = {}
        self.founder: int | None = None
        self.is_embedded = is_embedded
        self.joined = joined
        self.exchange = Exchange(self)
        cpus = settings.get("num_cpus")
        totals = {"CPU": round((cpu_count() if cpus is None else cpus) * RESOURCE_UNIT)}
        gpus = settings.get("num_gpus")
        gpus = gpu_count() if gpus is None else gpus
        if gpus:
            totals["GPU"] = round(gpus * RESOURCE_UNIT)
        for name, amount in (settings.get("resources") or {}).items():
            totals[name] = round(amount * RESOURCE_UNIT)
        self.totals = totals
        self.slots = totals["CPU"] // RESOURCE_UNIT
        self.tree: Tree | None = None  # of a node that belongs to a cluster
        self.seeker: Seeker | None = None  # the same
        self.peering: Peering | None = None  # the same
        self.names: Names | None = None  # of actors; without a head from the first one on
        self.gangs: NodeGangs | None = None  # the same
        memory = settings.get("store_memory", 0.3)
        self.memory_nbytes = memory_limit_nbytes()
        budget = int(memory * self.memory_nbytes) if isinstance(memory, float) else memory
        self.initial_credit = INITIAL_CREDIT if self.slots or not joined else 0
        self.dispatch = Dispatch(totals, initial_credit=self.initial_credit, joined=joined)
        self.store = NodeStore(self, budget)
        self.workforce = Workforce(self, boot)
        self.runlog = RunLog()
        self.ending = False
        self.reaching = Reaching(self)
        self._is_lone = False
        self._look_due: float | None = None
        self._listener: socket.socket | None = None
        self._dirty: set[LoopLink | RemoteLink | PeerLink] = set()
        self.handlers = self._make_handlers()

    def _make_handlers(self) -> dict[int, Callable[[Peer, bytes, int, tuple[int, ...]], None]]:
        """Who handles which frame of a client or worker."""
        return {
            Frame.SUBMIT: self._on_submit, Frame.FINISHED: self._on_finished, Frame.KIND: self._on_kind,
            Frame.DROP_KINDS: self._on_drop_kinds, Frame.GET_KIND: self._on_get_kind,
            Frame.BIND: self._on_bind, Frame.UNBIND: self._on_unbind,
            Frame.WANT: self._on_want, Frame.CANCEL: self._on_cancel, Frame.BLOCKED: self._on_blocked,
            Frame.UNBLOCK: self._on_unblock, Frame.STARTED: self._on_started, Frame.INIT_FAILED: self._on_init_failed,
            Frame.GET_PACKET: self._on_get_packet,
            Frame.LEASE: self.store.on_lease, Frame.MAP: self.store.on_map, Frame.ANNOUNCE: self.store.on_announce,
            Frame.FREE: self.store.on_free, Frame.UNPIN: self.store.on_unpin, Frame.FORKED: self.store.on_forked,
            Frame.GIVE_BACK: self.store.on_give_back,
            Frame.ASK: self.exchange.on_ask, Frame.ANSWER: self.exchange.on_answer,
            Frame.BORROW: self.exchange.on_borrow, Frame.RELEASE: self.exchange.on_release,
            Frame.ADOPT: self.exchange.on_adopt, Frame.LEAVING: self.exchange.on_leaving,
            Frame.STATUS: self._on_status, Frame.NODE_GONE: self._on_node_gone,
            Frame.REACH: self._on_reach, Frame.NAME: self._on_name, Frame.GANG: self._on_gang,
            Frame.TIMELINE: self._on_timeline,
            Frame.PULL: self.store.on_pull, Frame.PULLED: self.store.on_pulled,
        }  # fmt: skip

    def now(self) -> float:
        """Monotonic seconds, the time of all machines here."""
        return self.loop.time()

    # -- links --------------------------------------------------------------------------------------------------------

    def listen(self, listener: socket.socket) -> None:
        """Take connections of processes forked from clients and workers."""
        listener.setblocking(False)
        self._listener = listener
        self.loop.add_reader(listener.fileno(), self._on_connection)

    def _on_connection(self) -> None:
        assert self._listener is not None
        try:
            connection = accept(self._listener)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                # It stays readable until there is a descriptor for it: look again later, not all the time.
                self.loop.remove_reader(self._listener.fileno())
                self.loop.call_later(ACCEPT_AGAIN_SECONDS, self.listen, self._listener)
            return
        self.greet(connection)

    def greet(self, connection: socket.socket) -> None:
        """Wait for a client's hello on a new connection."""
        LoopLink(connection, self.loop, self._on_hello, lambda link, error: None)

    def _on_hello(self, link: LoopLink, frames: list[Any]) -> None:
        peer = next((p for p in self.peers.values() if p.link is link), None)
        if peer is None:
            peer = self._admit(link, frames.pop(0))
        if peer is not None and frames:
            self.on_frames(peer, frames)

    def _admit(self, link: LoopLink, frame: Any) -> Peer | None:
        frame_type, body, _, _ = frame
        hello = pb.Hello.FromString(body) if frame_type == Frame.HELLO else pb.Hello()
        if hello.protocol != PROTOCOL or hello.python != PYTHON or not hello.incarnation:
            reason = (
                f"this node runs Outboard {__version__} (protocol {PROTOCOL}) on Python {PYTHON}; the client runs "
                f"{hello.release or 'something else'} (protocol {hello.protocol}) on Python {hello.python or 'unknown'}"
            )
            link.send(Frame.REFUSAL, pb.Refusal(reason=reason).SerializeToString())
            link.flush()
            link.close()
            return None
        peer = self.add_peer(link, hello.incarnation, hello.incarnation, None)
        peer.hello = hello
        peer.is_client = True
        link._on_frames = lambda _, frames: self.on_frames(peer, frames)
        link._on_closed = lambda _, error: self._client_left(peer)
        if self.is_embedded and self.founder is None:
            self.founder = hello.incarnation
        self.dispatch.on_client_joined(hello.incarnation, hello.incarnation, self.now())
        link.send(Frame.WELCOME, self.welcome(0))
        link.flush()
        return peer

    def admit_remote(self, peer: Peer) -> None:
        """Take the tasks of a client at another node."""
        peer.is_client = True
        credit = min(INITIAL_CREDIT, REMOTE_CREDIT * self.slots)
        self.dispatch.on_client_joined(peer.incarnation, peer.root, self.now(), credit=credit)
        self.send(peer.incarnation, Frame.WELCOME, self.welcome(0, credit))

    def add_peer(
        self, link: LoopLink | RemoteLink | KeeperLink, incarnation: int, root: int, worker: int | None
    ) -> Peer:
        """Register the other end of a link."""
        peer = self.peers[incarnation] = Peer(link, incarnation, root, worker)
        self.store.extents.on_process_met(incarnation)
        return peer

    def welcome(self, worker_incarnation: int, credit: int | None = None) -> bytes:
        """What a client or worker needs to know of this node; `credit` is what its kinds start with."""
        if credit is None:
            credit = self.initial_credit
        return pb.Welcome(protocol=PROTOCOL, release=__version__, node=self.incarnation, totals=self.totals,
                          python=PYTHON, initial_credit=credit,
                          store_nbytes=self.store.extents.budget_nbytes, you=worker_incarnation, slots=self.slots,
                          joined=self.joined, address=os.path.join(self.folder, "node.sock"),
                          host=self.host).SerializeToString()  # fmt: skip

    def on_frames(self, peer: Peer, frames: list[Any]) -> None:
        """Handle frames that came together, then do what the machines command."""
        handlers, tree = self.handlers, self.tree
        self._is_lone = len(frames) == 1
        try:
            for frame_type, body, destination, fds in frames:
                try:
                    if tree is not None and destination and tree.takes(peer, frame_type, body, destination):
                        continue
                    handlers[frame_type](peer, body, destination, fds)
                except Exception as error:
                    self.expel(peer, f"its frame of type {frame_type} cannot be handled", error)
                    if peer.worker is None:
                        break  # its link is closed; what a worker says further on still counts
        finally:
            self.settle()

    def expel(self, peer: Peer, what: str, error: Exception) -> None:
        """Part with a process whose words make no sense, so that nobody else suffers: say why in one line on stderr."""
        self.complain(f"client {peer.hello.pid}" if peer.worker is None else f"worker {peer.worker}", what, error)
        if peer.worker is not None:
            self.workforce.kill(peer.worker)
        elif not peer.link.closed:
            peer.link.close()
            self._client_left(peer)

    @staticmethod
    def complain(who: str, what: str, error: Exception) -> None:
        """Say on stderr whom this node parts with."""
        # In one write, so that the line stays whole also where streams are not buffered.
        sys.stderr.write(f"outboard node: {who} is given up: {what}: {error!r}\n")
        sys.stderr.flush()

    def settle(self) -> None:
        """Do everything the machines command and write what was queued."""
        dispatch, extents, tree = self.dispatch, self.store.extents, self.tree
        while True:
            ordered = dispatch.take_commands()
            if ordered:
                self.workforce.execute(ordered)
            elif extents.commands:
                self.store.execute(extents.take_commands())
            elif tree is not None and tree.touched:
                tree.execute()
            else:
                break
        if self.store.waiting:
            self.store.review_waiting()
        due = dispatch.due
        if due is not None and (self._look_due is None or due < self._look_due):
            self._look_due = due
            self.loop.call_later(max(0.0, due - self.now()), self._look, due)
        dirty = self._dirty
        while dirty:
            dirty.pop().flush()

    def _look(self, due: float) -> None:
        """Start a process that was put off, let bundles lapse, let other nodes have what waits behind long tasks."""
        if due == self._look_due and not self.ending:
            self._look_due = None
            self.dispatch.on_timer(self.now())
            self.settle()

    def flush_soon(self) -> None:
        """Write what was queued outside of a batch of frames."""
        self.loop.call_soon(self.settle)

    def send(self, incarnation: int, frame_type: int, body: bytes, origin: int = 0,
             fds: tuple[int, ...] = ()) -> bool:  # fmt: skip
        """Queue a frame for a peer; False when it has gone. `origin`: who says it, 0 for this node."""
        peer = self.peers.get(incarnation)
        if peer is None:
            return False
        self.pass_to(peer, frame_type, body, origin, fds)
        return True

    def pass_to(self, peer: Peer, frame_type: int, body: bytes, origin: int, fds: tuple[int, ...] = ()) -> None:
        """Queue a frame for a peer."""
        peer.link.send(frame_type, body, origin, fds)
        self._dirty.add(peer.link)
        if self.seeker is not None and peer.trunk is None:
            if frame_type == Frame.WELCOME:
                self.reaching.on_welcome(peer.incarnation, pb.Welcome.FromString(body).node)
                self.seeker.on_welcome(peer, body)
            elif frame_type == Frame.NODE_GONE:
                peer.gone_nodes[pb.NodeGone.FromString(body).node] += 1

    def _on_node_gone(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """A client has heard that a session is over: what it says to that node from now on is for the next one."""
        node = pb.NodeGone.FromString(body).node
        peer.gone_nodes[node] -= 1
        if not peer.gone_nodes[node]:
            del peer.gone_nodes[node]
            if self.seeker is not None:
                self.seeker.on_gone(peer, node)

    def flush_link(self, link: PeerLink) -> None:
        """Have a link between nodes written at the end of this turn."""
        self._dirty.add(link)

    def note_sharing(self, peer: Peer) -> None:
        """A process deals with others from now on, and so must hear who has ended, as they must of its own end."""
        if not peer.shares:
            peer.shares = True
            if self.tree is not None and peer.worker is not None:
                self.tree.on_sharing(peer)

    def find(self, incarnation: int, root: int) -> Peer | None:
        """A process here or, of the same root, at another node."""
        return self.peers.get(incarnation) if self.tree is None else self.tree.find(incarnation, root)

    # -- frames of clients --------------------------------------------------------------------------------------------

    def _join(self, peer: Peer) -> None:
        """A worker becomes a client with its first nested call."""
        if not peer.is_client and peer.worker is not None:
            self.note_sharing(peer)
            peer.is_client = True
            self.dispatch.on_client_joined(peer.incarnation, peer.root, self.now(), worker=peer.worker)

    def _on_submit(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        submit = pb.Submit.FromString(body)
        if submit.announced:
            self.store.announce(peer, submit.announced)
        owner, now, intervals = peer.incarnation, self.loop.time(), submit.intervals
        for i in intervals:
            holds: dict[int, tuple[object, ...]] | None = None
            if i.holds:
                holds = {hold.position: tuple(hold.objects) for hold in i.holds}
            interval = Interval(owner, i.stream, i.first, i.attempt, i.stride, i.kind, list(i.calls), holds, i.array)
            if len(intervals) == 1 and not holds:
                self.workforce.last_submit = (interval, body)
            self.dispatch.on_submitted(owner, interval, now)
            if holds and self.peering is not None:
                self.store.pull_ahead((d for objects in holds.values() for d in objects), peer.root)

    def _on_kind(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        self._join(peer)
        kind = pb.Kind.FromString(body)
        peer.kinds[kind.id] = body
        is_call = bool(kind.binding_owner) or self.workforce.is_actor(peer.incarnation, kind.binding)
        self.runlog.on_kind((peer.incarnation, kind.id), kind.name, is_call=is_call)
        spec = commands.KindSpec(kind.id, kind.binding, dict(kind.resources), kind.num_returns, kind.name,
                                 kind.binding_owner, kind.process_retries)  # fmt: skip
        self.dispatch.on_kind(peer.incarnation, spec)

    def _on_get_kind(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        wanted = pb.GetKind.FromString(body)
        owner = self.peers.get(wanted.owner)
        kind = owner.kinds.get(wanted.id) if owner is not None else None
        if owner is not None and kind is not None:
            fetchers = owner.fetchers.setdefault(wanted.id, {})
            if len(fetchers) > len(self.peers):
                fetchers = owner.fetchers[wanted.id] = {w: None for w in fetchers if w in self.peers}
            fetchers[peer.incarnation] = None
            self.send(peer.incarnation, Frame.KIND, kind)
        elif peer.worker is not None:
            self.workforce.kill(peer.worker)  # its owner has gone, and its task with it

    def _on_drop_kinds(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        fetched: dict[int, list[int]] = {}
        for kind in pb.DropKinds.FromString(body).ids:
            peer.kinds.pop(kind, None)
            self.runlog.on_kind_dropped((peer.incarnation, kind))
            if self.seeker is not None:
                self.seeker.on_kind_dropped(peer.incarnation, kind)
            self.dispatch.on_kind_dropped(peer.incarnation, kind)
            for worker in peer.fetchers.pop(kind, ()):
                fetched.setdefault(worker, []).append(kind)
        for worker, kinds in fetched.items():
            dropped = pb.DropKinds(ids=kinds, owner=peer.incarnation)
            self.send(worker, Frame.DROP_KINDS, dropped.SerializeToString())

    def _on_get_packet(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        if peer.worker is not None:
            self.workforce.send_long(peer.worker, pb.GetPacket.FromString(body).packet)

    def find_kind(self, owner: int, kind_id: int) -> pb.Kind:
        """Give the description of a kind, an empty one where it is not known."""
        peer = self.peers.get(owner)
        body = peer.kinds.get(kind_id) if peer is not None else None
        return pb.Kind.FromString(body) if body is not None else pb.Kind()

    def _on_bind(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        self._join(peer)
        binding = pb.Binding.FromString(body)
        if not binding.keeper:
            self.bind(peer, binding)
        elif binding.keeper not in self.peers:
            from .keeping import keep

            keep(self, peer, binding)

    def bind(self, peer: Peer, binding: pb.Binding) -> None:
        """A client names a binding."""
        self.workforce.bindings[peer.incarnation, binding.id] = binding.SerializeToString()
        spec = commands.BindingSpec(binding.id, binding.processes, bool(binding.initializer), binding.max_tasks,
                                    binding.ordered, binding.eager, binding.label, binding.max_restarts,
                                    binding.max_concurrency, binding.gang.number, int(binding.bundle) - 1)  # fmt: skip
        self.dispatch.on_binding(peer.incarnation, spec)

    def _on_unbind(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        unbind = pb.Unbind.FromString(body)
        owner = unbind.owner or peer.incarnation
        if unbind.restart:
            self.workforce.kill_bound(owner, unbind.id)
        else:
            self.dispatch.on_unbind(owner, unbind.id, unbind.force)

    def _on_want(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        want = pb.Want.FromString(body)
        self.dispatch.on_want(peer.incarnation, want.kind, want.waiting, self.now())
        if self.seeker is not None and peer.trunk is None:
            self.seeker.on_want(peer, want.kind, want.waiting)

    def _on_reach(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        """A client wants a session with a certain node, since an actor is there."""
        self._join(peer)
        self.reaching.on_reach(peer, pb.Connect.FromString(body).node)

    def end_keeper(self, keeper: int) -> None:
        """A detached actor has ended, or must."""
        peer = self.peers.get(keeper)
        if peer is not None:
            self._client_left(peer)

    def _on_name(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        self.claim_for(peer, pb.NameRequest.FromString(body))

    def claim_for(self, peer: Peer, request: pb.NameRequest) -> None:
        """A client claims, looks for or lets go of a name."""
        if self.names is None:
            from .names import Names

            self.names = Names(self)
        self.names.on_request(peer, request)

    def _on_gang(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        self._join(peer)
        self.find_gangs().on_request(peer, body)

    def find_gangs(self) -> NodeGangs:
        """What this node does about gangs; the first one is what it begins with."""
        if self.gangs is None:
            from .nodegangs import LocalGangs

            self.gangs = LocalGangs(self)
        return self.gangs

    def _on_cancel(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        cancel = pb.Cancel.FromString(body)
        kill_after = cancel.kill_after if cancel.kill else None
        for s in cancel.spans:
            span = Span(s.stream, s.first, s.count, s.attempt, s.stride or 1)
            self.dispatch.on_cancel(peer.incarnation, span, kill_after, cancel.force, self.now())

    # -- frames of workers --------------------------------------------------------------------------------------------

    def _on_finished(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        finished = pb.Finished.FromString(body)
        owner = self.find(destination, peer.root)
        if finished.printed and peer.worker is not None:
            self.workforce.read_output(self.workforce.hands[peer.worker], is_done=finished.packet_done)
            if peer.root in self.peers:
                self.peers[peer.root].link.flush()
        if finished.lent:
            self.exchange.lend(finished.lent, destination, peer, peer.incarnation)
        if owner is not None:
            # With objects in it the root's own node, if it goes by that, has to know whose they were.
            is_way_up = owner.trunk is not None and not owner.trunk.far
            owner.link.send(Frame.FINISHED, body, peer.incarnation if finished.adopted and is_way_up else 0)
            if self._is_lone:
                owner.link.flush()  # the owner reads it while the books are done; nothing of its own comes before that
            else:
                self._dirty.add(owner.link)
        if finished.announced:
            self.store.announce(peer, finished.announced)
        if finished.adopted:
            self.exchange.adopt(peer, finished, owner)
        if owner is None:
            self.exchange.tell_gone(peer, destination)
        if peer.worker is not None:
            done, seconds, longest, tasks, now = [], 0.0, 0.0, 0, self.now()
            for d in finished.done:
                count, took = len(d.values) // d.stride, d.seconds
                done.append((destination, d.stream, d.first, count, d.stride, d.attempt))
                seconds += took
                tasks += count
                if took > longest:
                    longest = took
            if done:
                # Several that end together ran at the same time: one after another they are one entry.
                self.workforce.note_run(peer.worker, finished.packet, longest, tasks, now)
            self.workforce.packet_reported(peer.worker, finished)
            self.dispatch.on_finished(peer.worker, finished.packet, done, seconds, finished.packet_done, now)
            if finished.given_back:
                rest = self.dispatch.on_given_back(peer.worker, finished.packet, finished.given_back, self.now())
                self.workforce.unpin(peer.worker, rest)
        if owner is None:
            self.store.free_orphans(finished, destination)

    def _on_blocked(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        if peer.worker is not None:
            self.dispatch.on_blocked(peer.worker, self.now())

    def _on_unblock(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        if peer.worker is not None:
            self.dispatch.on_unblock(peer.worker, self.now())

    def _on_started(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        if peer.worker is not None:
            self.dispatch.on_worker_started(peer.worker, self.now())

    def _on_init_failed(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        if peer.worker is not None:
            outcome = pb.InitFailed.FromString(body).outcome
            self.dispatch.on_worker_init_failed(peer.worker, outcome, self.now())

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _client_left(self, peer: Peer) -> None:
        if peer.incarnation == self.founder:
            if self.joined:
                self.forget(peer)  # other nodes need not wait for a client that does not come back
                self.settle()
            self.end()
            return
        self.forget(peer)
        self.dispatch.on_client_left(peer.incarnation, self.now())
        self.settle()

    def founder_left(self) -> None:
        """The process of the founder has ended, whatever its link says."""
        founder = self.peers.get(self.founder) if self.founder is not None else None
        if founder is not None:
            self._client_left(founder)
        else:
            self.end()

    def remote_left(self, peer: Peer) -> None:
        """A process at another node has ended, or can be reached no more."""
        self.forget(peer)
        if peer.is_client:
            self.dispatch.on_client_left(peer.incarnation, self.now())

    def is_needed_by(self, root: int) -> bool:
        """Whether this node has tasks, objects or actors of a root's processes."""
        if self.dispatch.is_serving(root):
            return True
        of_root = {peer.incarnation for peer in self.peers.values() if peer.root == root}
        return self.store.extents.has_of(of_root)

    def forget(self, peer: Peer) -> None:
        """A process has ended: what it owned and held is free, and whoever dealt with it is told."""
        self.peers.pop(peer.incarnation, None)
        for kind in peer.kinds:
            self.runlog.on_kind_dropped((peer.incarnation, kind))
        self.store.process_died(peer.incarnation)
        self.workforce.forget_bindings(peer.incarnation)
        if self.names is not None:
            self.names.on_client_left(peer.incarnation)
        if self.gangs is not None:
            self.gangs.on_client_left(peer.incarnation)
        if self.seeker is not None:
            self.seeker.on_client_left(peer.incarnation)
        if self.tree is not None and (peer.is_client or peer.shares):
            self.tree.on_process_ended(peer)
        self.exchange.announce_end(peer.incarnation)

    def end(self) -> None:
        """End the embedded cluster: the template kills the workers and removes the folder once we are gone."""
        if not self.ending:
            self.ending = True
            self.workforce.close()
            self.stop()

    def print_lines(self, root: int, lines: list[pb.Line]) -> None:
        """Send what workers wrote to their client's terminal; drop it when the client does not read."""
        peer = self.peers.get(root)
        if peer is None:
            return
        if peer.link.queued_nbytes > LOG_WINDOW:
            peer.dropped_lines += len(lines)
            return
        log = pb.Log(lines=lines, dropped=peer.dropped_lines)
        peer.dropped_lines = 0
        self.send(root, Frame.LOG, log.SerializeToString())

    def _on_timeline(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        asked = pb.Timeline.FromString(body)
        for part in self.runlog.tell(peer.root, self.now()):
            part.request, part.node, part.host = asked.request, self.incarnation, self.host
            self.send(peer.incarnation, Frame.TIMELINE_REPLY, part.SerializeToString())

    def _on_status(self, peer: Peer, body: bytes, destination: int, fds: tuple[int, ...]) -> None:
        self.read_output(peer)
        self.send(peer.incarnation, Frame.STATUS_REPLY, pb.StatusReply(nodes=[self.describe()]).SerializeToString())

    def read_output(self, peer: Peer) -> None:
        """Pass on what workers have written: a reply would overtake it."""
        self.workforce.read_all_output()
        peer.link.flush()

    def describe(self) -> pb.NodeStatus:
        """Say what this node has and does."""
        seen = self.dispatch.snapshot()
        workers = [
            pb.WorkerStatus(worker=w.worker, pid=self.workforce.pid(w.worker), state=w.state, binding=w.binding,
                            owner=w.client)
            for w in seen.workers
        ]  # fmt: skip
        actors = self.workforce.describe_actors({w.worker: w.state for w in seen.workers})
        return pb.NodeStatus(node=self.incarnation, host=self.host, pid=os.getpid(), totals=self.totals,
                             free=seen.free, running=seen.running, queued=seen.queued, workers=workers,
                             store_nbytes=self.store.extents.budget_nbytes,
                             store_used_nbytes=self.store.extents.used_nbytes,
                             actors=actors)  # fmt: skip


def run(boot: Any, settings: dict[str, Any]) -> None:
    """Be the node until the founding client ends."""
    loop = PollLoop()
    raise_descriptor_limit()
    node = Node(loop, boot, settings, loop.stop)
    node.listen(boot.listener)
    if boot.client_pidfd is not None:
        loop.add_reader(boot.client_pidfd, node.end)
    node.greet(boot.client)
    loop.run_forever()

"""Copies of objects that lie at other nodes: a node brings them in for its processes and keeps them as cache.

`scheduler/pulls.py` decides what is brought in from where, `replicaspace.py` has the room, `giving.py` is the other
side. Bytes come over gRPC from a node that can be dialled, else in frames of the links between nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .errors import ObjectLostError, OutboardError, describe_nbytes
from .giving import Giving
from .ids import ObjectId
from .replicaspace import ReplicaSpace, Room
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler import pulls
from .scheduler.pulls import Cause, Key, Pulls
from .store import memory
from .store.extent import parse_header

if TYPE_CHECKING:
    from .fetching import FrameFetch
    from .nodestore import NodeStore
    from .rpc.grpc_credentials import Security
    from .rpc.grpc_objects import ObjectsService, Pull, Source

#: Seconds without a byte after which a source is given up.
PATIENCE = 5.0

#: Seconds after which an unused connection to a source is closed.
IDLE_SECONDS = 60.0

#: Share of the budget up to which inputs of tasks that have not begun are brought in.
AHEAD_SHARE = 2

_CAUSES = {Cause.LOST: pb.Pulled.LOST, Cause.FULL: pb.Pulled.FULL}


class _Connection:
    """A connection to a node that objects are taken from."""

    __slots__ = ("source", "used_at", "users")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.users = 0
        self.used_at = 0.0


class Replicas:
    """Drives the pulls of one node; every method is called in the loop's thread.

    `wanting` holds the pulls that wait for room, with their bytes.
    """

    def __init__(self, store: NodeStore) -> None:
        self._store = store
        self._node = store.node
        self.giving = Giving(store)
        self.space = ReplicaSpace()
        self.patience = PATIENCE
        self.wanting: dict[Key, int] = {}
        self._pulls = Pulls(store.node.incarnation)
        self._rooms: dict[Key, Room] = {}
        self._arriving: dict[Key, Pull] = {}  # what has come of each
        self._tasks: dict[Key, Any] = {}
        self._fetches: dict[Key, FrameFetch] = {}
        self._connections: dict[str, _Connection] = {}
        self._is_driving = False
        self._heirs: dict[int, Callable[[], object]] = {}  # who waits for what is to stay

    def __repr__(self) -> str:
        return f"<Replicas {self._pulls!r} {self.space!r}>"

    def service(self, security: Security, host: str) -> ObjectsService:
        """Make the gRPC service over which other nodes take objects of this one, which listens at ``host``."""
        return self.giving.service(security, host)

    def start(self) -> None:
        """Load what transfers need, so that the first one does not hold up the loop; for a node that has peers."""
        from . import fetching  # noqa: F401  # and with it gRPC

        memory.keep_freed_memory()

    # -- who wants what -----------------------------------------------------------------------------------------------

    def want(self, d: pb.Descriptor, waiter: int | None, root: int) -> None:
        """Bring in an object, and tell who waits where it lies; None: nobody waits yet."""
        oid, key = ObjectId(d.owner, d.seq), (d.owner, d.seq, d.version)
        extents = self._store.extents
        if key in self._pulls:
            self._pulls.on_wanted(key, d.nbytes, d.node, waiter, root)
        elif extents.find(oid, d.version) is not None:
            if waiter is not None:
                self._give(key, waiter)
        elif self._node.peering is None or d.node == self._node.incarnation:
            if waiter is not None:
                self._refuse(key, waiter, Cause.LOST, "its node's store has it no more")
        elif extents.is_freed(oid, d.version):
            if waiter is not None:
                self._refuse(key, waiter, Cause.LOST, "its owner has let go of it")
        elif self._node.tree is not None and self._node.tree.has_lost(d.node, root):
            if waiter is not None:
                self._refuse(key, waiter, Cause.LOST, pulls.SESSION_LOST)
        else:
            # What its node gave away when it left, the root's own node has.
            other = self._node.tree.own_node_of(root) if self._node.tree is not None else 0
            self._pulls.on_wanted(key, d.nbytes, d.node, waiter, root, other)
        self._drive()

    def take_over(self, d: pb.Descriptor, root: int, on_done: Callable[[], object]) -> None:
        """Bring in an object to stay, for its node leaves; ``on_done`` is told when it is here or cannot be had."""
        heir = self._store.new_heir()
        self._heirs[heir] = on_done
        self.want(d, heir, root)

    def pull_ahead(self, descriptors: Iterable[pb.Descriptor], root: int) -> None:
        """Begin to bring in what tasks will need that were sent here."""
        for d in descriptors:
            if d.node != self._node.incarnation:
                self.want(d, None, root)

    def on_freed(self, key: Key) -> None:
        """The owner has let go of an object."""
        if key in self._pulls:
            self._pulls.on_freed(key)
            self._drive()

    def on_process_died(self, process: int) -> None:
        """A process, or a client whose processes are here, has ended."""
        self._pulls.on_waiter_gone(process)
        self._pulls.on_root_gone(process)
        self._drive()

    def on_node_gone(self, node: int) -> None:
        """A node has ended, or cannot be reached any more."""
        self.giving.on_node_gone(node)
        self._pulls.on_source_gone(node)
        self._drive()

    def on_session_lost(self, node: int, root: int) -> None:
        """A client's session with a node was lost, and with it what lay there for that client."""
        self._pulls.on_session_lost(node, root)
        self._drive()

    def on_fetch(self, body: bytes) -> None:
        """A node asks in a frame for part of an object."""
        self.giving.on_fetch(body)

    def on_piece(self, body: bytes) -> None:
        """Part of an object came in a frame."""
        piece = pb.Piece.FromString(body)
        fetch = self._fetches.get((piece.owner, piece.seq, piece.version))
        if fetch is not None:
            fetch.on_piece(piece)

    # -- what the machine commands ------------------------------------------------------------------------------------

    def _drive(self) -> None:
        if self._is_driving:
            return  # within a command: its loop goes on
        self._is_driving = True
        try:
            while ordered := self._pulls.take_commands():
                for command in ordered:
                    self._execute(command)
        finally:
            self._is_driving = False

    def _execute(self, command: pulls.Command) -> None:
        match command:
            case pulls.Reserve(key, nbytes, is_ahead):
                self._reserve(key, nbytes, is_ahead=is_ahead)
            case pulls.Fetch(key, source, pause):
                spawn: Any = self._node.loop  # of a node that has peers: asyncio's
                self._tasks[key] = spawn.spawn(self._fetch(key, source, pause))
            case pulls.Stop(key):
                self._tasks.pop(key).cancel()
            case pulls.Discard(key):
                self._discard(key)
            case pulls.Keep(key, root):
                self._keep(key, root)
            case pulls.Give(key, waiter):
                self._give(key, waiter)
            case pulls.Refuse(key, waiter, cause, reason):
                self._refuse(key, waiter, cause, reason)

    def _keep(self, key: Key, root: int) -> None:
        extent, me = self._rooms.pop(key).extent, self._node.incarnation
        self._arriving.pop(key, None)
        self._store.extents.on_announced(*key, extent.segment, extent.offset, extent.nbytes, me, root=root)

    def _give(self, key: Key, waiter: int) -> None:
        owner, seq, version = key
        oid = ObjectId(owner, seq)
        extents, node = self._store.extents, self._node
        place = extents.find(oid, version)
        if waiter in self._heirs:
            extents.keep(oid, version)
            self._heirs.pop(waiter)()
        elif place is None:
            self._refuse(key, waiter, Cause.LOST, "its owner has let go of it")
        elif extents.pin(oid, version, waiter, pulled=True):
            here = pb.Descriptor(owner=owner, seq=seq, version=version, segment=place.segment, offset=place.offset,
                                 nbytes=place.nbytes, node=node.incarnation)  # fmt: skip
            node.send(waiter, Frame.PULLED, pb.Pulled(object=here).SerializeToString())

    def _refuse(self, key: Key, waiter: int, cause: Cause, reason: str) -> None:
        if waiter in self._heirs:
            self._heirs.pop(waiter)()
            return
        owner, seq, version = key
        named = pb.Descriptor(owner=owner, seq=seq, version=version)
        pulled = pb.Pulled(object=named, cause=_CAUSES[cause], reason=reason)
        self._node.send(waiter, Frame.PULLED, pulled.SerializeToString())

    # -- room ---------------------------------------------------------------------------------------------------------

    def _reserve(self, key: Key, nbytes: int, *, is_ahead: bool) -> None:
        if is_ahead:
            if self._is_room_ahead(nbytes) and self._find_room(key, nbytes):
                return
            self._pulls.on_no_room(key, "no room for what is not needed yet")
            return
        self.wanting[key] = nbytes
        if not self.find_room(key):
            self._store.wait_for_room(key, nbytes)

    def _is_room_ahead(self, nbytes: int) -> bool:
        """Whether it fits into the part of the budget that is meant for inputs of later tasks."""
        limit = self._store.extents.budget_nbytes // AHEAD_SHARE
        while self.space.used_nbytes + nbytes > limit:
            if not self._store.extents.evict(used_only=True):
                return False
            self._store.execute(self._store.extents.take_commands())
        return True

    def find_room(self, key: Key) -> bool:
        """Try once more to find room for a pull that waits for it."""
        if not self._find_room(key, self.wanting[key], is_due=True):
            return False
        del self.wanting[key]
        return True

    def _find_room(self, key: Key, nbytes: int, *, is_due: bool = False) -> bool:
        room = self.space.take(nbytes)
        if room is None and self._store.lease_own(nbytes, may_evict=is_due):
            room = self.space.take(nbytes)
        if room is None:
            return False
        self._rooms[key] = room
        self._pulls.on_room(key)
        self._drive()
        return True

    def on_no_room(self, key: Key, free_nbytes: int) -> None:
        """No room will come for a pull that waits for it."""
        needed, budget = self.wanting.pop(key), self._store.extents.budget_nbytes
        self._pulls.on_no_room(
            key,
            f"no room for a copy of {describe_nbytes(needed)}: {describe_nbytes(free_nbytes)} of "
            f"{describe_nbytes(budget)} are free there and nothing that runs will free more",
        )
        self._drive()

    def _discard(self, key: Key) -> None:
        self.wanting.pop(key, None)
        pull = self._arriving.pop(key, None)
        room = self._rooms.pop(key, None)
        if room is None:
            return
        if pull is not None and pull.writing is not None and not pull.writing.done():
            pull.writing.add_done_callback(lambda _: self._free(room))
        else:
            self._free(room)

    def _free(self, room: Room) -> None:
        self.space.free(room.extent.segment, room.extent.offset)
        self._store.rest()

    # -- transfers ----------------------------------------------------------------------------------------------------

    async def _fetch(self, key: Key, source: int, pause: float) -> None:
        if pause:
            import asyncio

            await asyncio.sleep(pause)
        pull = self._arriving.get(key) or self._begin(key)
        if pull.writing is not None:
            await pull.writing  # of a transfer that was stopped
        begin = pull.offset
        failure, is_final = "", False
        nodes: tuple[int, ...] = ()
        try:
            nodes = await self._bring(pull, key, source)
            if not nodes:
                _check_header(pull)
        except ObjectLostError as error:
            failure, is_final = error._text(), True
        except ValueError as error:
            failure, is_final, pull.offset = str(error), True, 0  # nothing of it can be trusted
        except Exception as error:  # whatever it is, others may have the object
            failure = error._text() if isinstance(error, OutboardError) else f"{type(error).__name__}: {error}"
        del self._tasks[key]
        if pull.offset > begin:
            self._pulls.on_progress(key)
        if failure:
            self._pulls.on_failed(key, failure, is_final=is_final)
        elif nodes:
            self._pulls.on_sent_on(key, nodes)
        else:
            self._pulls.on_arrived(key)
        self._drive()
        self._node.flush_soon()

    def _begin(self, key: Key) -> Pull:
        from .rpc.grpc_objects import Pull

        owner, seq, version = key
        pull = self._arriving[key] = Pull(ObjectId(owner, seq), version, self._rooms[key].view)
        return pull

    async def _bring(self, pull: Pull, key: Key, source: int) -> tuple[int, ...]:
        peering: Any = self._node.peering
        if peering.is_struck(source):
            raise ObjectLostError(f"node {source:016x}, where it lay, is gone")
        address = peering.address_of(source)
        if address:
            return await self._bring_over_grpc(pull, address)
        from .fetching import FrameFetch

        me = self._node.incarnation
        fetch = self._fetches[key] = FrameFetch(
            pull, source, me, lambda body: bool(peering.send(source, Frame.FETCH, body))
        )
        try:
            return await fetch.run(self.patience)
        finally:
            if self._fetches.get(key) is fetch:
                del self._fetches[key]

    async def _bring_over_grpc(self, pull: Pull, address: str) -> tuple[int, ...]:
        connection = self._connections.get(address)
        if connection is None:
            from .rpc.grpc_objects import Source

            peering: Any = self._node.peering
            source = Source(address, peering.security, self._node.incarnation)
            connection = self._connections[address] = _Connection(source)
            self._node.loop.call_later(IDLE_SECONDS, self._close_idle, address)
        connection.users += 1
        try:
            return await connection.source.fetch(pull, self.patience)
        finally:
            connection.users -= 1
            connection.used_at = self._node.now()

    def _close_idle(self, address: str) -> None:
        connection = self._connections.get(address)
        if connection is None:
            return
        if connection.users or self._node.now() - connection.used_at < IDLE_SECONDS:
            self._node.loop.call_later(IDLE_SECONDS, self._close_idle, address)
            return
        del self._connections[address]
        loop: Any = self._node.loop
        loop.spawn(connection.source.close())

    async def close(self) -> None:
        """End all transfers and close the connections."""
        import asyncio

        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.source.close()


def _check_header(pull: Pull) -> None:
    """Raise ValueError when what came is another object than was asked for."""
    header = parse_header(pull.into.toreadonly())
    if header[:3] != (*pull.id, pull.version):
        raise ValueError(f"another object came than {pull.id.hex()} version {pull.version}")

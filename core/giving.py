"""What other nodes take of this one's objects: over gRPC, or in frames when they cannot dial this node.

Frames ask for parts (FETCH); each is answered with pieces (PIECE), one a turn of the loop, so that nothing else waits
long. Who asks keeps at most a window of parts asked for, see `fetching.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from .errors import ObjectLostError
from .ids import ObjectId
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler.pulls import Key
from .scheduler.takers import Serve, Takers

if TYPE_CHECKING:
    from .nodestore import NodeStore
    from .rpc.grpc_credentials import Security
    from .rpc.grpc_objects import ObjectsService

#: Seconds without a question after which a taker that asks in frames is given up; it does so itself sooner.
SILENCE_SECONDS = 10.0

#: Seconds after an object was given in which its taker may let go of it, and ask for the next. Longer delays the word
#: that there is no room, shorter says so to tasks whose earlier results a busy program is just taking.
GIVEN_SECONDS = 1.0


class Turn:
    """One taker's turn, see `rpc.grpc_objects.Turn`. `on_changed` is called when it begins or the taker is sent on."""

    __slots__ = ("_giving", "may_begin", "nodes", "number", "on_changed")

    def __init__(self, giving: Giving) -> None:
        self._giving = giving
        self.number = 0
        self.may_begin = False
        self.nodes: tuple[int, ...] = ()
        self.on_changed: Callable[[], None] = _nothing

    async def wait(self, seconds: float) -> None:
        """Wait until it changes, at most so long."""
        import asyncio  # only nodes with peers, whose loop it is, come here

        changed = asyncio.Event()
        self.on_changed = changed.set
        try:
            await asyncio.wait_for(changed.wait(), seconds)
        except TimeoutError:
            pass

    def end(self, *, is_whole: bool) -> None:
        """It is over."""
        self._giving.end_turn(self, is_whole=is_whole)


#: Parts of an object that a taker may have asked for and not got; more than its window are asked for by mistake.
MOST_PARTS = 64


class _Taker:
    """A node that takes one object in frames. `parts` are those it asked for: (offset, end)."""

    __slots__ = ("asked_at", "is_sending", "key", "node", "parts", "turn")

    def __init__(self, key: Key, node: int, turn: Turn) -> None:
        self.key = key
        self.node = node
        self.turn = turn
        self.parts: deque[tuple[int, int]] = deque()
        self.asked_at = 0.0
        self.is_sending = False


class Giving:
    """The giving side of one node's store; every method is called in the loop's thread."""

    def __init__(self, store: NodeStore) -> None:
        self._store = store
        self._takers = Takers()
        self._turns: dict[int, Turn] = {}
        self._by_frames: dict[tuple[Key, int], _Taker] = {}
        self._sending: deque[_Taker] = deque()
        self._is_scheduled = False  # _send_next will be called
        self._is_looking = False
        self._given_at = -inf

    def service(self, security: Security, host: str) -> ObjectsService:
        """Make the gRPC service over which other nodes take objects; ``host``: where the node listens."""
        from .rpc.grpc_objects import ObjectsService
        from .rpc.object_sockets import Offer

        return ObjectsService(self.open_object, self.ask_turn, partial(Offer, security, host))

    @contextmanager
    def open_object(self, oid: ObjectId, version: int) -> Iterator[memoryview]:
        """Keep the bytes of an extent where they are while they are given.

        Raises:
            ObjectLostError: it is not here.
        """
        extents, heir = self._store.extents, self._store.new_heir()
        place = extents.find(oid, version)
        if place is None or not extents.pin(oid, version, heir, pulled=True):
            raise ObjectLostError("no copy here", oid=oid, version=version)
        try:
            yield self._store.read(place)
        finally:
            extents.unpin(oid, version, heir, pulled=True)
            self._store.node.flush_soon()

    # -- turns --------------------------------------------------------------------------------------------------------

    def ask_turn(self, oid: ObjectId, version: int, taker: int) -> Turn:
        """A node wants an object."""
        turn = Turn(self)
        turn.number = self._takers.on_asked((oid.owner, oid.seq, version), taker)
        self._turns[turn.number] = turn
        self._review()
        return turn

    def end_turn(self, turn: Turn, *, is_whole: bool) -> None:
        """A turn is over, or its taker waits no more."""
        self._turns.pop(turn.number, None)
        if is_whole:
            self._given_at = self._store.node.now()
        self._takers.on_ended(turn.number, is_whole=is_whole)
        self._review()

    @property
    def is_giving(self) -> bool:
        """Whether objects are being taken from here, which their owners may then let go of."""
        return bool(self._turns) or self._store.node.now() < self._given_at + GIVEN_SECONDS

    def _review(self) -> None:
        for command in self._takers.take_commands():
            turn = self._turns.get(command.turn)
            if turn is None:
                continue
            if isinstance(command, Serve):
                turn.may_begin = True
            else:
                turn.nodes = command.nodes
            turn.on_changed()

    def on_node_gone(self, node: int) -> None:
        """A node has ended, or cannot be reached."""
        self._takers.on_node_gone(node)
        for taker in [taker for taker in self._by_frames.values() if taker.node == node]:
            self._drop(taker, is_whole=False)

    # -- frames -------------------------------------------------------------------------------------------------------

    def on_fetch(self, body: bytes) -> None:
        """A node asks in a frame for part of an object."""
        wanted = pb.Fetch.FromString(body)
        key = wanted.owner, wanted.seq, wanted.version
        taker = self._by_frames.get((key, wanted.asker))
        if taker is None:
            turn = self.ask_turn(ObjectId(wanted.owner, wanted.seq), wanted.version, wanted.asker)
            taker = self._by_frames[key, wanted.asker] = _Taker(key, wanted.asker, turn)
            turn.on_changed = partial(self._changed, taker)
        taker.asked_at = self._store.node.now()
        if len(taker.parts) < MOST_PARTS:
            taker.parts.append((wanted.offset, wanted.offset + wanted.nbytes))
        self._changed(taker)
        if self._by_frames and not self._is_looking:
            self._is_looking = True
            self._look_later()

    def _changed(self, taker: _Taker) -> None:
        """Send what may be sent, or send the taker on."""
        turn = taker.turn
        if turn.nodes:
            self._send_on(taker)
            self._drop(taker, is_whole=False)
        elif turn.may_begin and taker.parts and not taker.is_sending:
            taker.is_sending = True
            self._sending.append(taker)
            self._schedule()

    def _schedule(self) -> None:
        if self._sending and not self._is_scheduled:
            self._is_scheduled = True
            self._store.node.loop.call_soon(self._send_next)

    def _send_next(self) -> None:
        """Send one piece to whose turn it is, and come back for the next."""
        self._is_scheduled = False
        taker = self._sending.popleft()
        taker.is_sending = False
        if self._is_here(taker):
            self._send_piece(taker)
        if self._is_here(taker):
            self._changed(taker)
        self._schedule()

    def _is_here(self, taker: _Taker) -> bool:
        return self._by_frames.get((taker.key, taker.node)) is taker

    def _send_piece(self, taker: _Taker) -> None:
        from .rpc.grpc_objects import PIECE_NBYTES

        owner, seq, version = taker.key
        place = self._store.extents.find(ObjectId(owner, seq), version)
        offset, end = taker.parts.popleft()
        if place is None or offset >= place.nbytes:
            self._send(taker, offset, b"")
            self._drop(taker, is_whole=False)
            return
        end = min(end, place.nbytes)
        stop = min(offset + PIECE_NBYTES, end)
        if stop < end:
            taker.parts.appendleft((stop, end))
        is_sent = self._send(taker, offset, bytes(self._store.read(place)[offset:stop]))
        if not is_sent or stop == place.nbytes:
            self._drop(taker, is_whole=is_sent)

    def _send(self, taker: _Taker, offset: int, data: bytes) -> bool:
        owner, seq, version = taker.key
        node = self._store.node
        piece = pb.Piece(owner=owner, seq=seq, version=version, offset=offset, data=data, source=node.incarnation)
        peering: Any = node.peering
        is_sent: bool = peering.send(taker.node, Frame.PIECE, piece.SerializeToString())
        node.flush_soon()
        return is_sent

    def _send_on(self, taker: _Taker) -> bool:
        from .rpc.grpc_objects import ELSEWHERE, encode_nodes

        return self._send(taker, ELSEWHERE, encode_nodes(taker.turn.nodes))

    def _drop(self, taker: _Taker, *, is_whole: bool) -> None:
        self._by_frames.pop((taker.key, taker.node), None)
        taker.turn.on_changed = _nothing
        taker.turn.end(is_whole=is_whole)

    def _look_later(self) -> None:
        from .rpc.grpc_objects import WORD_SECONDS

        self._store.node.loop.call_later(WORD_SECONDS, self._look)

    def _look(self) -> None:
        """Ask those for patience whose turn has not come, and give up those that have fallen silent."""
        now = self._store.node.now()
        for taker in list(self._by_frames.values()):
            if not taker.turn.may_begin:
                taker.asked_at = now
                if not self._send_on(taker):
                    self._drop(taker, is_whole=False)
            elif now - taker.asked_at > SILENCE_SECONDS:
                self._drop(taker, is_whole=False)
        self._is_looking = bool(self._by_frames)
        if self._is_looking:
            self._look_later()


def _nothing() -> None:
    """Stand for nobody who waits."""

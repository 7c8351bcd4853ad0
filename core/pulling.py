"""Copies of objects of other nodes, as a process asks its own node for them.

There is one question an object at a time. An answer comes with a pin, which goes to whoever takes the answer. What was
asked ahead, or was not waited for to the end, keeps its answer for the next who wants it: until the object ends, or
newer ones come for which the limit has no room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import errors
from .ids import ObjectId
from .interrupts import shield
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb

if TYPE_CHECKING:
    from .client import Client

#: Bytes of copies that a process asks for ahead, and keeps pinned unopened. Larger keeps more transfers under way,
#: smaller leaves more of the store to others: eight objects of 8 MiB fill the transfers of a node.
AHEAD_NBYTES = 64 << 20

#: It is at most this part of the store (one over this).
AHEAD_SHARE = 8

#: Bytes that a question and its answer count for at least, so that there are not too many of them.
LEAST_NBYTES = 64 << 10

Key = tuple[int, int, int]  # owner, seq, version


class Asked:
    """A question and its answer, once that has come. `waiters`: threads that want it."""

    __slots__ = ("answer", "descriptor", "is_given_up", "waiters")

    def __init__(self, descriptor: pb.Descriptor) -> None:
        self.descriptor = descriptor
        self.answer: pb.Pulled | None = None
        self.is_given_up = False  # when the answer comes its pin is given back
        self.waiters = 0

    @property
    def nbytes(self) -> int:
        """What it counts for."""
        return max(self.descriptor.nbytes, LEAST_NBYTES)


class Pulling:
    """What this process has asked for. Under the client's lock, but for `pull` and `let_go`.

    `_asked` holds every question whose answer nobody has taken, oldest first; `_nbytes` is the sum over it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.limit = min(AHEAD_NBYTES, client.welcome.store_nbytes // AHEAD_SHARE)
        self._asked: dict[Key, Asked] = {}
        self._nbytes = 0

    def __repr__(self) -> str:
        return f"<Pulling {len(self._asked)} asked, {self._nbytes} bytes>"

    def __len__(self) -> int:
        return len(self._asked)

    def ask(self, d: pb.Descriptor) -> Asked:
        """Ask for a copy unless that was done; the caller says by `waiters` whether it waits."""
        asked = self._asked.get(_key(d))
        if asked is None:
            asked = self._asked[_key(d)] = Asked(d)
            self._nbytes += asked.nbytes
            self._client.send(Frame.PULL, pb.Pull(object=d).SerializeToString())
        asked.is_given_up = False
        return asked

    def has_room(self, d: pb.Descriptor) -> bool:
        """Whether the limit allows to ask for this ahead."""
        return not self._asked or self._nbytes + max(d.nbytes, LEAST_NBYTES) <= self.limit

    def pull(self, d: pb.Descriptor, deadline: float | None = None) -> pb.Descriptor:
        """Have our node get a copy, and wait for it; it is pinned for us. Not under the lock.

        Raises:
            ObjectLostError: no node has it any more; names the object. StoreFullError: our node has no room for it.
            GetTimeoutError: the deadline has passed; the next who asks may find it here.
        """
        client = self._client
        with shield:
            while True:
                if client.dropped or client.values.reader.ended:
                    client.flush()  # what the program has let go may be room enough
                with client.lock:
                    client.check_open()
                    was_asked = _key(d) in self._asked
                    asked = self.ask(d)
                    asked.waiters += 1
                pulled = self._await(asked, deadline)
                if pulled is None:
                    continue
                if pulled.cause == pb.Pulled.NONE:
                    return pulled.object
                if pulled.cause == pb.Pulled.LOST:
                    raise _lost(d, pulled.reason)
                if not self._make_room(deadline) and not was_asked:
                    raise errors.StoreFullError(pulled.reason, needed_nbytes=d.nbytes)

    def _await(self, asked: Asked, deadline: float | None) -> pb.Pulled | None:
        """Wait for an answer and take it; None when another thread has."""
        client = self._client
        try:
            if not client.turns.wait(lambda: asked.answer is not None, deadline):
                raise errors.GetTimeoutError("it is there, but its bytes did not come from another node in time")
        except BaseException as error:
            with client.lock:
                asked.waiters -= 1
                if not isinstance(error, errors.GetTimeoutError):
                    self.give_up(asked.descriptor)
            raise
        with client.lock:
            asked.waiters -= 1
            return self.take(asked)

    def _make_room(self, deadline: float | None) -> bool:
        """Give back what nobody waits for, and wait until all of it has gone; False when there is none."""
        client = self._client
        idle = self.let_go()
        if not client.turns.wait(lambda: all(asked.answer is not None for asked in idle), deadline):
            raise errors.GetTimeoutError("no room came in time for a copy of an object of another node")
        return bool(idle)

    def take(self, asked: Asked) -> pb.Pulled | None:
        """Take an answer, and its pin; None when another thread has."""
        key = _key(asked.descriptor)
        if self._asked.get(key) is not asked or asked.answer is None:
            return None
        self._forget(key, asked)
        return asked.answer

    def on_pulled(self, pulled: pb.Pulled) -> None:
        """The node has answered."""
        asked = self._asked.get(_key(pulled.object))
        if asked is None or asked.answer is not None:
            self._give_back(pulled)
            return
        asked.answer = pulled
        if asked.waiters:
            return
        if asked.is_given_up or pulled.cause == pb.Pulled.FULL:
            self.give_up(asked.descriptor)
        elif pulled.cause == pb.Pulled.LOST:
            self._make_again(asked.descriptor)
        self._trim()

    def _make_again(self, d: pb.Descriptor) -> None:
        """Have an object made again of which no copy is left, before its turn comes to be opened."""
        if self._client.reach.joined:
            self._client.owner.rebuild(ObjectId(d.owner, d.seq), d.version)

    def _trim(self) -> None:
        """Give back the oldest of what nobody waits for, down to the limit; the newest stays in any case."""
        for asked in list(self._asked.values()) if self._nbytes > self.limit else ():
            if self._nbytes <= self.limit or len(self._asked) == 1:
                return
            if asked.answer is not None:
                self.give_up(asked.descriptor)

    def give_up(self, d: pb.Descriptor) -> None:
        """Nobody wants this any more, but for those that wait for it."""
        asked = self._asked.get(_key(d))
        if asked is None or asked.waiters:
            return
        if asked.answer is None:
            asked.is_given_up = True
        else:
            self._forget(_key(d), asked)
            self._give_back(asked.answer)

    def on_ended(self, oid: ObjectId, version: int | None) -> None:
        """This process refers to an object no more."""
        asked = self._asked.get((*oid, version)) if version is not None else None
        if asked is not None:
            self.give_up(asked.descriptor)

    def let_go(self) -> list[Asked]:
        """Give up all that nobody waits for, and return it."""
        with self._client.lock:
            idle = [asked for asked in self._asked.values() if not asked.waiters]
            for asked in idle:
                self.give_up(asked.descriptor)
        return idle

    def _forget(self, key: Key, asked: Asked) -> None:
        del self._asked[key]
        self._nbytes -= asked.nbytes

    def _give_back(self, pulled: pb.Pulled) -> None:
        if pulled.cause == pb.Pulled.NONE:
            self._client.values.give_back_pulled(pulled.object)


class Ahead:
    """What a call will open, value by value: as much as the limit allows is asked for ahead of its turn."""

    def __init__(self, client: Client, values: Iterable[object], start: int = 0) -> None:
        self._client = client
        self._queue: deque[tuple[int, pb.Descriptor]] = deque()
        if client.reach.joined:
            self._queue += ((place, d) for place, value in enumerate(values, start) for d in self._far(value))

    def _far(self, value: object) -> list[pb.Descriptor]:
        """Return what a value has at other nodes."""
        if type(value) is not bytes or value[:1] != b"\x0a":
            return []
        parcel = pb.Outcome.FromString(value).value
        stored = [parcel.stored, *(buffer.stored for buffer in parcel.buffers)]
        return [d for d in stored if d.nbytes and d.node != self._client.values.node]

    def go_on(self, place: int) -> None:
        """The value at this place is opened next."""
        queue, pulling = self._queue, self._client.pulling
        while queue and queue[0][0] < place:
            queue.popleft()
        if queue:
            with shield, self._client.lock:
                while queue and pulling.has_room(queue[0][1]):
                    pulling.ask(queue.popleft()[1])


def _key(d: pb.Descriptor) -> Key:
    return d.owner, d.seq, d.version


def _lost(d: pb.Descriptor, reason: str) -> errors.ObjectLostError:
    oid = ObjectId(d.owner, d.seq)
    return errors.ObjectLostError(f"no copy of object {oid.hex()} is left: {reason}", oid=oid, version=d.version)

"""What programs of a simulated process call: the native engine, as far as machines and messages are concerned."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..client import MadeKind
from ..errors import ObjectLostError, StoreFullError
from ..ids import ObjectId
from ..rpc.codec import Frame
from ..rpc.protos import outboard_pb2 as pb
from ..scheduler.owner import is_failure
from ..values import Encoded
from .ledger import is_right

if TYPE_CHECKING:
    from .process import Process, Program


#: The pickle of a function that refers to nothing.
PLAIN_FUNCTION = Encoded(b"\x80")


def _is_answered(asked: Any) -> bool:
    return asked.answer is not None


class TaskFailed(Exception):
    """A value that a program wanted is a failure."""


class Full(Exception):
    """The store has no room and nothing will make some."""


class Calls:
    """Calls that wait are generators."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.made: dict[int, MadeKind] = {}  # every kind of this process, by id

    def ask_node(self, request: int, body: bytes, reply: int) -> Program:
        """As `Client.ask_node`."""
        inbox = self._process.client.inbox
        inbox.expect(reply)
        self._process.link.send(request, body)
        yield from self._process.wait(lambda: reply in inbox.replies)
        return inbox.replies.pop(reply)

    def bring(self, *bodies: bytes, is_call: bool = False) -> Program:
        """Have the node get copies of all that values name at other nodes, as `Client.pull` when they are opened.

        Raises ObjectLostError and StoreFullError as that does.
        """
        values = self._process.values
        for body in bodies:
            for d in _descriptors(body, is_call):
                if d.node == values.node:
                    continue
                pulled = yield from self._pull(d)
                oid = ObjectId(d.owner, d.seq)
                if pulled.cause == pb.Pulled.NONE:
                    values.pulled.setdefault((*oid, d.version), []).append(pulled.object)
                    continue
                self.give_back_brought()
                if pulled.cause == pb.Pulled.FULL:
                    self._process.world.is_faulty = True
                    raise StoreFullError(pulled.reason)
                raise ObjectLostError(f"no copy of {oid} is left", oid=oid, version=d.version)

    def _pull(self, d: pb.Descriptor) -> Program:
        """As `Pulling.pull`; returns the answer."""
        process, pulling = self._process, self._process.client.pulling
        while True:
            asked = pulling.ask(d)
            asked.waiters += 1
            try:
                yield from process.wait(partial(_is_answered, asked))
            except BaseException:
                asked.waiters -= 1
                if process.alive:
                    pulling.give_up(d)
                raise
            asked.waiters -= 1
            answer = pulling.take(asked)
            if answer is not None:
                return answer

    def give_back_brought(self) -> None:
        """Give back the pins of copies that will not be opened."""
        values = self._process.values
        for copies in values.pulled.values():
            for d in copies:
                values.give_back_pulled(d)
        values.pulled.clear()

    def make_room(self, pages: int) -> Program:
        """Lease until an object of so many pages fits. Raises Full."""
        values, world = self._process.values, self._process.world
        while not values.has_room(pages):
            if self._process.client.dropped or values.reader.ended:
                self._process.client.flush()  # what the program has let go may be room enough
                continue
            body = pb.Lease(nbytes=pages * 4096).SerializeToString()
            leases = len(values._writers)
            values._leasing += 1
            try:
                refused = yield from self.ask_node(Frame.LEASE, body, Frame.LEASE)
            finally:
                values._leasing -= 1
            if refused is not None:
                world.mark("store full")
                world.is_faulty = True
                raise Full
            if len(values._writers) == leases:
                world.mark("room came back")

    def put(self, token: int, refs: tuple[ObjectId, ...], pages: int) -> Program:
        """As `NativeEngine.put`; returns the reference."""
        if pages:
            yield from self.make_room(pages)
        client = self._process.client
        oid = ObjectId(self._process.incarnation, client.take_seq())
        encoded = self._process.values.encode((token, 0, refs), oid, 0, refs, pages)
        client.drop_ended()
        client.owner.put(oid.seq, encoded.body, 0 if encoded.objects else None, encoded.refs)
        self._process.world.expected[oid] = token
        self._process.refs.append(oid)
        return oid

    def fetch(self, oid: ObjectId, timeout: float | None = None) -> Program:
        """As `NativeEngine.get`: returns (token, references), the program holding the latter; None after the timeout.

        Raises TaskFailed when it is a failure.
        """
        client = self._process.client
        entry = client.owner.refs.find(oid)
        assert entry is not None, f"{self._process.name} holds {oid} and has no entry of it"
        if entry.value is None:
            client.owner.ask(oid)
            if not (yield from self._process.wait(lambda: entry.value is not None, timeout)):
                return None
        if is_failure(entry.value):
            self._process.ledger.check_failure(oid, entry.value)
            raise TaskFailed(str(oid))
        value = entry.value
        try:
            yield from self.bring(value)
        except StoreFullError:
            raise TaskFailed(str(oid)) from None
        except ObjectLostError as error:
            yield from self.make_again(entry, value, error)
            return (yield from self.fetch(oid))
        token, _, refs = self.open_value(value, pinned=False)
        expected = self._process.world.expected.get(oid)
        assert is_right(self._process.world, expected, token), f"{oid} is {token}, not {expected}"
        return token, refs

    def make_again(self, entry: Any, value: bytes, error: ObjectLostError) -> Program:
        """As `NativeEngine._make_again`: have a lost value made again, and wait for it. Raises TaskFailed."""
        process, client = self._process, self._process.client
        assert process.world.is_faulty, f"{error} without a fault"
        lost = client.owner.refs.find(error.oid) if error.oid is not None else None
        if lost is None or error.oid is None:
            raise TaskFailed(str(error))
        process.world.mark("rebuild asked for")
        client.owner.rebuild(error.oid, error.version)
        if lost.value == value or (lost is not entry and lost.value is not None):
            raise TaskFailed(str(error))
        yield from process.wait(lambda: lost.value is not None)
        if not is_failure(lost.value):
            process.world.mark("rebuilt")

    def follow(self, oid: ObjectId) -> Program:
        """Fetch an object, then one to which its value refers, and so on to the end. Raises as `fetch`."""
        rng = self._process.world.rng
        keeps = rng.random() < 0.3
        refs = [oid]
        while refs:
            oid = rng.choice(refs)
            _, found = yield from self.fetch(oid)
            refs = [ObjectId(*ref) for ref in found]
            if not keeps:
                self.drop(oid)
        self._process.world.mark("followed")

    def open_value(self, body: bytes, *, pinned: bool) -> Any:
        """Rebuild a value: its views and the references inside it are the program's."""
        value = self._process.values.decode(body, pinned=pinned)
        self._process.views += self._process.values.reader.opened
        self._process.values.reader.opened.clear()
        self.hold(value[2])
        return value

    def look_again(self) -> None:
        """Read through all views that the program has kept."""
        for view in self._process.views:
            self._process.values.reader.look_again(view)

    def hold(self, refs: Any) -> None:
        """As `adopt_ref`: references appear in the program."""
        for owner, seq in refs:
            oid = ObjectId(owner, seq)
            self._process.client.owner.refs.hold(oid)
            self._process.refs.append(oid)
            if owner != self._process.incarnation:
                self._process.background.nudge()

    def drop(self, oid: ObjectId) -> None:
        """A reference ends."""
        self._process.refs.remove(oid)
        self._process.client.dropped.append((oid.owner, oid.seq))

    def drop_all(self) -> None:
        """All references end, and all views."""
        while self._process.refs:
            self.drop(self._process.refs[-1])
        while self._process.views:
            self._process.values.reader.end_view(self._process.views.pop())

    def add_kind(self, resources: dict[str, int], *, retries: int, machine_retries: int = 3, returns: int = 1,
                 binding: int = 0, retry_exceptions: bool = False,
                 function: Encoded = PLAIN_FUNCTION) -> Any:  # fmt: skip
        """As `KindKeeper._make`."""
        client = self._process.client
        client.register(function.objects)
        lane = client.lanes.get(binding)
        kind = client.owner.add_kind("f", process_retries=retries if lane is None else 0, stride=max(1, returns),
                                     machine_retries=machine_retries, lane=lane)  # fmt: skip
        client.hold_encoded(function)
        client.kinds[kind.id] = pb.Kind(id=kind.id, binding=binding, function=function.body, name="f",
                                        resources=resources, num_returns=returns,
                                        process_retries=0 if lane is None else retries)  # fmt: skip
        client.kind_binding[kind.id] = binding
        if binding and client.reach.joined:
            client.reach.confine(binding)
        if retry_exceptions:
            client.retries[kind.id] = True
        mark = client.failed_bindings.get(binding)
        if mark is not None:
            client.owner.on_refused(kind.id, mark)
        self.made[kind.id] = MadeKind(kind, (), function, None)
        return kind

    def retire_kind(self, kind: Any) -> None:
        """As `KindKeeper.retire`: nothing more is submitted."""
        self._process.client.retired.append(self.made[kind.id])

    def submit(self, kind: Any, spec: Any, token: int | None, *, inputs: tuple[ObjectId, ...] = (),
               refs: tuple[ObjectId, ...] = (), buffers: tuple[pb.Descriptor, ...] = ()) -> list[ObjectId]:  # fmt: skip
        """As `NativeEngine.submit`; `token` is what the task must give, None when it raises."""
        encoded = self._process.values.encode_arguments((spec, refs), refs, buffers, len(inputs))
        index = self._process.client.submit(kind, encoded, inputs)
        oids = [ObjectId(self._process.incarnation, index + i) for i in range(kind.stride)]
        self._process.refs += oids
        for oid in oids:
            self._process.world.expected[oid] = token
        self._process.ledger.add_task(kind, index, inputs)
        return oids


def _descriptors(body: bytes, is_call: bool = False) -> list[pb.Descriptor]:
    """What value bytes, or those of a call, name in stores."""
    if body[0] == 0x80:
        return []
    parcel = pb.Parcel.FromString(body) if is_call else pb.Outcome.FromString(body).value
    if parcel.HasField("stored"):
        return [parcel.stored]
    return [buffer.stored for buffer in parcel.buffers if buffer.HasField("stored")]

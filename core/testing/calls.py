"""What programs of a simulated process call: the native engine, as far as machines and messages are concerned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ids import ObjectId
from ..rpc.codec import Frame
from ..rpc.protos import outboard_pb2 as pb
from ..scheduler.owner import is_failure
from .ledger import is_right

if TYPE_CHECKING:
    from .process import Process, Program


class TaskFailed(Exception):
    """A value that a program wanted is a failure."""


class Full(Exception):
    """The store has no room and nothing will make some."""


class Calls:
    """Calls that wait are generators."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def ask_node(self, request: int, body: bytes, reply: int) -> Program:
        """As `Client.ask_node`."""
        replies = self._process.client.inbox.replies
        self._process.client.inbox.expect(reply)
        self._process.link.send(request, body)
        yield from self._process.wait(lambda: reply in replies)
        return replies.pop(reply)

    def make_room(self, pages: int) -> Program:
        """Lease until an object of so many pages fits. Raises Full."""
        while not self._process.values.has_room(pages):
            if self._process.client.dropped or self._process.values.reader.ended:
                self._process.client.flush()  # what the program has let go may be room enough
                continue
            body = pb.Lease(nbytes=pages * 4096).SerializeToString()
            leases = len(self._process.values._writers)
            refused = yield from self.ask_node(Frame.LEASE, body, Frame.LEASE)
            if refused is not None:
                self._process.world.mark("store full")
                self._process.world.is_faulty = True
                raise Full
            if len(self._process.values._writers) == leases:
                self._process.world.mark("room came back")

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
        token, _, refs = self.open_value(entry.value, pinned=False)
        expected = self._process.world.expected.get(oid)
        assert is_right(self._process.world, expected, token), f"{oid} is {token}, not {expected}"
        return token, refs

    def open_value(self, body: bytes, *, pinned: bool) -> Any:
        """Rebuild a value: its views and the references inside it are the program's."""
        value = self._process.values.decode(body, pinned=pinned)
        self._process.views += self._process.values.reader.opened
        self._process.values.reader.opened.clear()
        self.hold(value[2])
        return value

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
                 binding: int = 0, retry_exceptions: bool = False) -> Any:  # fmt: skip
        """As `NativeEngine._make_kind`."""
        client = self._process.client
        kind = client.owner.add_kind(
            "f", process_retries=retries, machine_retries=machine_retries, stride=max(1, returns)
        )
        client.kinds[kind.id] = pb.Kind(id=kind.id, binding=binding, function=b"\x80", name="f", resources=resources,
                                        num_returns=returns)  # fmt: skip
        client.kind_binding[kind.id] = binding
        if retry_exceptions:
            client.retries[kind.id] = True
        mark = client.failed_bindings.get(binding)
        if mark is not None:
            client.owner.on_refused(kind.id, mark)
        return kind

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

"""A simulated client or worker process: the real client over a modelled link, driven by a program that is a generator.

The program's thread is the generator `main`. It yields what it waits for; the world resumes it. Deaths drop it wherever
it stands, stops let everything that concerns it wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..client import BLOCKED_AFTER, Client
from ..ids import ObjectId
from ..rpc.codec import Frame
from ..rpc.protos import outboard_pb2 as pb
from ..scheduler.owner import is_failure
from .ledger import Ledger, is_right
from .links import NodeLink, ProcessLink
from .memory import SimValues

if TYPE_CHECKING:
    from .world import World

#: Seconds from a wake-up until the process runs, at most.
LATENCY = 0.0001

Program = Generator["Want", Any, Any]


class Want(NamedTuple):
    """What a program waits for: "time", "input" of the link or "claim"; resumed with False after `timeout`."""

    what: str
    timeout: float | None = None


class TaskFailed(Exception):
    """A value that a program wanted is a failure."""


class Full(Exception):
    """The store has no room and nothing will make some."""


class Gone(Exception):
    """The link has ended under the program."""


class Background:
    """As `background.Background`: serves the link when the program does not wait for it, once it has been started."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._nudged = False
        self.running = False

    def start(self) -> None:
        """From now on the link is read."""
        if not self.running:
            self.running, self._nudged = True, False
            self._process.after(LATENCY, "background", self._process.serve_input)

    def nudge(self) -> None:
        """Ask for a flush, once until it happened."""
        if self.running and not self._nudged:
            self._nudged = True
            self._process.after(LATENCY * self._process.world.rng.random(), "flush", self._flush)

    def _flush(self) -> None:
        self._nudged = False
        self._process.client.flush()

    def disarm(self) -> None:
        """The link is shared without threads here."""

    def rearm(self) -> None:
        """The link is shared without threads here."""

    def stop(self) -> None:
        """Serve no more."""
        self.running = False


class Process:
    """One process. `alive` and `stopped` are what the kernel knows of it."""

    def __init__(self, world: World, name: str, incarnation: int, root: int) -> None:
        self.world = world
        self.name = name
        self.incarnation = incarnation
        self.root = root
        self.alive = True
        self.stopped = False
        self.failed_link = False
        self.node_link = NodeLink(world, name, incarnation, self._arrived)
        self.link = ProcessLink(self, self.node_link.pipes[0])
        welcome = pb.Welcome.FromString(world.node.welcome(incarnation))
        self.client = Client(self.link, incarnation, welcome)  # type: ignore[arg-type]
        self.background = Background(self)
        self.client.background = self.background  # type: ignore[assignment]
        self.values = SimValues(self.client, welcome.node, world.memory)
        self.client.values = self.values
        self.in_user_code = False
        self.client.in_task = lambda: self.in_user_code
        self.ledger = Ledger(self)
        self.refs: list[ObjectId] = []  # references that the program holds, one entry each
        self.views: list[tuple[int, int]] = []
        self.main: Program | None = None
        self.is_shielded = False  # signal handlers may not raise now
        self.pending: BaseException | None = None  # what one would have raised
        self.turn = 0  # counts resumptions, so that late timers are recognised
        self._wants = Want("nothing")
        self._deferred: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        state = "dead" if not self.alive else "stopped" if self.stopped else f"wants {self._wants.what}"
        return f"<{self.name} {state} unanswered={self.client.owner.unanswered} refs={len(self.refs)}>"

    # -- time ----------------------------------------------------------------------------------------------------------

    def after(self, delay: float, what: str, do: Callable[[], None]) -> None:
        """Do something later, unless the process is dead then; when it is stopped, as soon as it goes on."""

        def act() -> None:
            if not self.alive:
                return
            if self.stopped:
                self._deferred.append(do)
                return
            self.world.touched[self.incarnation] = self
            do()

        self.world.at(delay, f"{self.name} {what}", act)

    def start(self, program: Program) -> None:
        """Begin to run."""
        self.main = program
        self._advance(lambda: next(program))

    def _resume(self, value: Any) -> None:
        program = self.main
        if program is not None:
            self._advance(lambda: program.send(value))

    def _advance(self, step: Callable[[], Want]) -> None:
        self.turn += 1
        self.world.touched[self.incarnation] = self
        try:
            self._wants = step()
        except (StopIteration, Gone):
            self.main = None
            self._wants = Want("nothing")
            self.ended()
            return
        turn = self.turn
        if self._wants.timeout is not None:
            self.after(self._wants.timeout, "timer", lambda: self._expire(turn))
        if (self._wants.what == "input" and self.link.has_input) or (self._wants.what == "claim" and self.has_claim()):
            self.wake(self._wants.what)

    def _expire(self, turn: int) -> None:
        if turn == self.turn:
            self._resume(False)

    def wake(self, what: str) -> None:
        """What the program may wait for has happened."""
        if self.alive and self._wants.what == what:
            turn = self.turn
            self.after(LATENCY * self.world.rng.random(), f"wakes for {what}", lambda: self._woken(turn))

    def _woken(self, turn: int) -> None:
        if turn == self.turn:
            self._resume(True)

    def throw(self, error: BaseException) -> None:
        """A signal handler raises in the program, as soon as it may."""
        program = self.main
        if self.is_shielded:
            self.pending = error
        elif program is not None:
            self._advance(lambda: program.throw(error))

    def has_claim(self) -> bool:
        """Whether the claim socket has something; clients have none."""
        return False

    def ended(self) -> None:
        """The program has come to its end."""

    # -- life and death ------------------------------------------------------------------------------------------------

    def die(self, signal: int) -> None:
        """End now, wherever the program stands."""
        if not self.alive:
            return
        self.world.trace(f"{self.name} dies by {signal}")
        self.alive = False
        self.main = None
        self.values.reader.forget()
        self.world.credits.process_died(self.incarnation)
        self.node_link.pipes[1].closed = True
        self.node_link.pipes[0].write(b"")

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        if not (self.alive and self.stopped):
            return
        self.stopped = False
        deferred, self._deferred = self._deferred, []
        for do in deferred:
            self.after(0.0, "goes on", do)

    # -- input ---------------------------------------------------------------------------------------------------------

    def _arrived(self, chunk: bytes) -> None:
        if not self.alive:
            return
        if chunk:
            self.link.feed(chunk)
        else:
            self.link.closed = True
        if self._wants.what == "input":
            self.wake("input")
        elif self.background.running:
            self.after(0.0, "reads", self.serve_input)

    def serve_input(self) -> None:
        """Handle what has come, for a program that is not waiting for it."""
        if self.link.has_input and self._wants.what != "input":
            self.handle_input()
            self.wake("input")

    def handle_input(self) -> None:
        """Handle what has come. Raises Gone when the link has ended."""
        if not self.client._handle_input():
            raise Gone

    def wait(self, ready: Callable[[], Any], timeout: float | None = None) -> Program:
        """As `Client.wait`: read the link until ready; a task gives back its CPUs when that takes long."""
        client = self.client
        if not ready():
            client._pump_and_send()
        deadline = None if timeout is None else self.world.now + timeout
        while not ready():
            left = None if deadline is None else max(0.0, deadline - self.world.now)
            may_block = self.in_user_code and not client._told_blocked and (left is None or left > BLOCKED_AFTER)
            if self.link.has_input or (yield Want("input", BLOCKED_AFTER if may_block else left)):
                self.handle_input()
            elif may_block:
                client._block()
                self.world.mark("blocked")
            elif ready():
                break
            else:
                yield from self.unblock()
                return False
        yield from self.unblock()
        return True

    def unblock(self) -> Program:
        """As `Client._unblock`: take the CPUs back before the task goes on."""
        client = self.client
        if not client._told_blocked:
            return
        client._replies.pop(Frame.RESUME, None)
        client.link.send(Frame.UNBLOCK, b"")
        self.is_shielded = True
        while Frame.RESUME not in client._replies:
            if self.link.has_input or (yield Want("input")):
                self.handle_input()
        client._told_blocked = self.is_shielded = False
        pending, self.pending = self.pending, None
        if pending is not None:
            raise pending

    def entries(self) -> list[Any]:
        """All records of objects that the machine has."""
        refs = self.client.owner.refs
        return [*refs.owned.values(), *refs.foreign.values()]

    # -- what programs do, as the native engine ------------------------------------------------------------------------

    def ask_node(self, request: int, body: bytes, reply: int) -> Program:
        """As `Client.ask_node`."""
        replies = self.client._replies
        replies.pop(reply, None)
        self.link.send(request, body)
        yield from self.wait(lambda: reply in replies)
        return replies.pop(reply)

    def make_room(self, pages: int) -> Program:
        """Lease until an object of so many pages fits. Raises Full."""
        while not self.values.has_room(pages):
            body = pb.Lease(nbytes=pages * 4096).SerializeToString()
            reply, _ = yield from self.ask_node(Frame.LEASE, body, Frame.SEGMENT)
            if isinstance(reply, pb.StoreFull):
                self.world.mark("store full")
                self.world.is_faulty = True
                raise Full
            if reply.segment:
                self.values.add_leased(reply.segment, reply.nbytes)
            else:
                self.world.mark("room came back")

    def put(self, token: int, refs: tuple[ObjectId, ...], pages: int) -> Program:
        """As `NativeEngine.put`; returns the reference."""
        if pages:
            yield from self.make_room(pages)
        client = self.client
        oid = ObjectId(self.incarnation, client.take_seq())
        encoded = self.values.encode((token, 0, refs), oid, 0, refs, pages)
        client._drop_ended()
        client.owner.put(oid.seq, encoded.body, 0 if encoded.objects else None, encoded.refs)
        self.world.expected[oid] = token
        self.refs.append(oid)
        return oid

    def fetch(self, oid: ObjectId, timeout: float | None = None) -> Program:
        """As `NativeEngine.get`: returns (token, references), the program holding the latter; None after the timeout.

        Raises TaskFailed when it is a failure.
        """
        client = self.client
        entry = client.owner.refs.find(oid)
        assert entry is not None, f"{self.name} holds {oid} and has no entry of it"
        if entry.value is None:
            client.owner.ask(oid)
            if not (yield from self.wait(lambda: entry.value is not None, timeout)):
                return None
        if is_failure(entry.value):
            self.ledger.check_failure(oid, entry.value)
            raise TaskFailed(str(oid))
        token, _, refs = self.open_value(entry.value, pinned=False)
        expected = self.world.expected.get(oid)
        assert is_right(self.world, expected, token), f"{oid} is {token}, not {expected}"
        return token, refs

    def open_value(self, body: bytes, *, pinned: bool) -> Any:
        """Rebuild a value: its views and the references inside it are the program's."""
        value = self.values.decode(body, pinned=pinned)
        self.views += self.values.reader.opened
        self.values.reader.opened.clear()
        self.hold(value[2])
        return value

    def hold(self, refs: Any) -> None:
        """As `adopt_ref`: references appear in the program."""
        for owner, seq in refs:
            oid = ObjectId(owner, seq)
            self.client.owner.refs.hold(oid)
            self.refs.append(oid)
            if owner != self.incarnation:
                self.background.nudge()

    def drop(self, oid: ObjectId) -> None:
        """A reference ends."""
        self.refs.remove(oid)
        self.client.dropped.append((oid.owner, oid.seq))

    def drop_all(self, keep_views: bool = False) -> None:
        """All references end, and all views."""
        while self.refs:
            self.drop(self.refs[-1])
        while self.views and not keep_views:
            self.values.reader.end_view(self.views.pop())

    def add_kind(self, resources: dict[str, int], *, retries: int, machine_retries: int = 3, returns: int = 1,
                 binding: int = 0, retry_exceptions: bool = False) -> Any:  # fmt: skip
        """As `NativeEngine._make_kind`."""
        client = self.client
        kind = client.owner.add_kind("f", process_retries=retries, machine_retries=machine_retries, stride=max(1, returns))
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
        encoded = self.values.encode_arguments((spec, refs), refs, buffers, len(inputs))
        index = self.client.submit(kind, encoded, inputs)
        oids = [ObjectId(self.incarnation, index + i) for i in range(kind.stride)]
        self.refs += oids
        for oid in oids:
            self.world.expected[oid] = token
        self.ledger.add_task(kind, index, inputs)
        return oids

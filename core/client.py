"""The client: joins the owner machine to its link, its values and its threads.

One lock guards the machine and the sending half of the link. Whoever waits for something reads the link (one reader at
a time; the others wait for its word); when nobody waits the background thread reads. What needs user code (pickling,
printing, callbacks) happens after the lock was left.

A client that lost its node is finished: everything pending fails, and the engine starts a new one at its next use.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from . import errors
from .background import Background
from .failures import as_exception
from .frames import (
    SubmitBuilder,
    add_interval,
    answer_bytes,
    complete_call,
    read_adoption,
    read_extra,
    read_extras,
    read_spans,
    refs_body,
    write_spans,
)
from .ids import PLAIN_STREAM, ObjectId, Span
from .interrupts import shield
from .rpc.codec import Frame
from .rpc.local import BlockingLink
from .rpc.protos import outboard_pb2 as pb
from .scheduler import owner as machine
from .scheduler import references
from .scheduler.outcomes import BindingMark, LostCause, NodeLostMark, OwnerLostMark, RefusedMark, ShutdownMark
from .values import Encoded, Input, LeasedSegment, Values

#: Tasks that may gather before the submitting thread sends them itself. Larger makes bigger messages, smaller lets the
#: first of a burst start sooner. 64: at that size a message costs less than a microsecond a task.
SUBMIT_BATCH = 64

#: Seconds a task may wait for an object before it gives back its CPUs (protocol 6).
BLOCKED_AFTER = 0.001

#: Seconds after which a blocked task looks again; any length will do.
BLOCKED_LIMIT = 3600.0


class ClientValues(Values):
    """Values whose references the client's machine counts."""

    def __init__(self, client: Client, node: int) -> None:
        super().__init__(client.incarnation, node, lease=client.lease, fetch=client.fetch_segment,
                         take_seq=client.take_seq, hold=client.hold)  # fmt: skip
        self._client = client

    def release_hold(self, oid: ObjectId) -> None:
        """Drop the reference that `hold` counted."""
        self._client.dropped.append(oid)


class Client:
    """One connection to a node, and everything this process owns over it.

    `in_task` says whether a task of this worker is running in the main thread (its waits give back CPUs).
    """

    def __init__(self, link: BlockingLink, incarnation: int, welcome: pb.Welcome) -> None:
        self.link = link
        self.incarnation = incarnation
        self.welcome = welcome
        self.lock = threading.RLock()
        self.owner = machine.Owner(incarnation, welcome.initial_credit)
        self.values: Values = ClientValues(self, welcome.node)
        self.dropped: deque[tuple[int, int]] = deque()
        self.background = Background(link.fileno(), self._serve, self.flush, lambda: self._reading)
        self.closed_mark: NodeLostMark | ShutdownMark | None = None
        self.on_closed: Callable[[], None] = lambda: None
        self.in_task: Callable[[], bool] = lambda: False
        self.on_interrupted: Callable[[], None] = lambda: None
        self.on_settled: Callable[[ObjectId, Any], None] = lambda oid, value: None
        self.hand_over: Callable[[ObjectId, Any], None] = lambda oid, entry: None
        self.on_items: Callable[[int], None] = lambda stream: None
        self.on_lines: Callable[[Any], None] = lambda log: None
        self.retries: dict[int, Any] = {}  # kind id → exceptions that may be retried
        self.kinds: dict[int, pb.Kind] = {}  # announced to the node with their first task
        self.unbound: set[int] = set()
        self.failed_bindings: dict[int, BindingMark] = {}
        self.labels: dict[int, str] = {}
        self.kind_binding: dict[int, int] = {}
        self.requests: deque[Callable[[], None]] = deque()  # to be done under the lock; finalisers may append
        self.leaving: dict[int, None] = {}  # bindings to be let go when all their tasks have been sent
        self._encoding: Counter[int] = Counter()  # kind → batches of items that are being pickled
        self.failures = 0  # grows whenever something failed, so that waiters look at all they wait for
        self.array_items: dict[int, Any] = {}  # stream → items, by reference
        self._replies: dict[int, Any] = {}
        self._rpc = threading.RLock()
        self._turn = threading.RLock()
        self._reading = False
        self._reader: int | None = None
        self._waiters: deque[Any] = deque()  # locks of threads that wait for word from the one that reads
        self._busy = False
        self._unsent = 0
        self._builder = SubmitBuilder()
        self._told_blocked = False
        self._heirs: int | None = None  # writing end of a pipe, while we fork
        self._lines: deque[Any] = deque()
        self._handlers: dict[int, Callable[[bytes, tuple[int, ...]], None]] = {
            Frame.FINISHED: self._on_finished, Frame.LOST: self._on_lost, Frame.RETURNED: self._on_returned,
            Frame.GRANT: self._on_grant, Frame.KIND_REFUSED: self._on_kind_refused,
            Frame.BINDING_FAILED: self._on_binding_failed, Frame.UNBOUND: self._on_unbound,
            Frame.SEGMENT: self._on_segment, Frame.STORE_FULL: self._on_store_full, Frame.RECLAIM: self._on_reclaim,
            Frame.ASK: self._on_ask, Frame.ANSWER: self._on_answer, Frame.BORROW: self._on_borrow,
            Frame.RELEASE: self._on_release, Frame.BORROWER_DIED: self._on_borrower_died, Frame.ADOPT: self._on_adopt,
            Frame.OWNER_LOST: self._on_owner_lost, Frame.LOG: self._on_log, Frame.STATUS_REPLY: self._on_status,
            Frame.KIND: self._on_kind, Frame.RESUME: self._on_resume,
        }  # fmt: skip

    # -- references, called by values ---------------------------------------------------------------------------------

    def take_seq(self) -> int:
        """Reserve an object number."""
        with self.lock:
            return self.owner.new_seq()

    def hold(self, oid: ObjectId) -> bool:
        """Count one reference; False when the object has gone."""
        with self.lock:
            if oid.owner == self.incarnation and oid.seq not in self.owner.refs.owned:
                return False
            self.owner.refs.hold(oid)
            return True

    def _drop_ended(self) -> None:
        """Take note of references and views that ended, in whatever thread they did. Under the lock."""
        refs, dropped = self.owner.refs, self.dropped
        while dropped:
            refs.drop(dropped.popleft())
        if self.values.reader.ended:
            pins: list[tuple[ObjectId, int]] = []
            for ended in self.values.collect():
                for _ in range(ended.opens):
                    refs.drop(ended.oid)
                pins += [(ended.oid, ended.version)] * ended.pins
            if pins:
                self.unpin(pins)

    def unpin(self, pins: list[tuple[ObjectId, int]]) -> None:
        """Give pins back to the node."""
        self.send(Frame.UNPIN, refs_body(pins))

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, frame_type: int, body: bytes, destination: int = 0, fds: tuple[int, ...] = ()) -> None:
        """Send one frame; to a node that has gone nothing is sent: whoever reads the link learns of its end. Under the lock."""
        try:
            self.link.send(frame_type, body, destination, fds)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def submit(self, kind: machine.Kind, encoded: Encoded, inputs: tuple[ObjectId, ...]) -> int:
        """Hand one encoded call to the machine; returns the seq of its first result.

        The first task on an idle link is sent at once, others when enough have gathered or somebody waits.
        """
        with shield:
            with self.lock:
                owner = self.owner
                self._begin_event()
                self.check_open()
                if not self.background.running:
                    self.background.start()  # a worker: somebody must send this, and answer who is given references
                if inputs or encoded.objects or encoded.refs:
                    index = self._submit_large(kind, encoded, inputs)
                elif owner.unanswered or not (index := owner.submit_at_once(kind, encoded.body)):
                    index = owner.submit(kind, encoded.body)
                else:
                    self.introduce(kind)
                    self.send(Frame.SUBMIT, self._builder.lone(kind, index, 1, encoded.body))
                    self._busy = False
                    return index
                self._busy = False
                self._unsent += 1
                items: list[machine.SendItems] = []
                if owner.unanswered == 1 or self._unsent >= SUBMIT_BATCH:
                    items = self._pump()
                else:
                    self.background.nudge()
        if items:
            self._send_items(items)
        return index

    def _submit_large(self, kind: machine.Kind, encoded: Encoded, inputs: tuple[ObjectId, ...]) -> int:
        stored = tuple(ObjectId(d.owner, d.seq) for d in encoded.objects)
        self.register(encoded.objects)
        index = self.owner.submit(kind, encoded, inputs, stored + encoded.refs, encoded.nbytes)
        for oid in stored:
            self.owner.refs.drop(oid)
        return index

    def register(self, objects: tuple[pb.Descriptor, ...]) -> None:
        """Make new stored objects known to the machine, with one reference each. Under the lock."""
        for d in objects:
            if d.seq not in self.owner.refs.owned:
                self.owner.put(d.seq, b"\x0a", d.version)

    def flush(self) -> None:
        """Send what is due and do what the machine commands."""
        with shield:
            with self.lock:
                items = self._pump()
        self._send_items(items)

    def _pump(self) -> list[machine.SendItems]:
        """Drive the machine until it has nothing more to say; what needs pickling is returned. Under the lock."""
        self._begin_event()
        deferred = self._drive()
        self._busy = False
        return deferred

    def _has_due(self) -> bool:
        """Whether the machine or the program has left something to do."""
        return bool(
            self.dropped
            or self.owner.commands
            or self.owner.backlog
            or self._unsent
            or self.requests
            or self.leaving
            or self.values.reader.ended
        )

    def _begin_event(self) -> None:
        """Note that the machine is about to change; give up one that was left in the middle of a change."""
        if self._busy and self.closed_mark is None:
            self._close(NodeLostMark("an exception of a signal handler interrupted Outboard in the middle of an event"))
        self._busy = True

    def _drive(self) -> list[machine.SendItems]:
        self._drop_ended()
        while self.requests:
            self.requests.popleft()()
        owner = self.owner
        self._unsent = 0
        deferred: list[machine.SendItems] = []
        while True:
            if owner.backlog:
                owner.plan_sends()
            if not owner.commands:
                break
            self._execute(owner.take_commands(), deferred)
        if self.leaving:
            self._let_go()
        return deferred

    def _let_go(self) -> None:
        """Unbind those whose tasks have all been sent: the node lets their workers finish what it has."""
        for binding in list(self.leaving):
            kinds = [self.owner.kinds[k] for k, of in self.kind_binding.items() if of == binding]
            if not any(kind.waiting() or self._encoding[kind.id] for kind in kinds) and self.closed_mark is None:
                del self.leaving[binding]
                self.send(Frame.UNBIND, pb.Unbind(id=binding).SerializeToString())

    def _execute(self, commands: list[Any], deferred: list[machine.SendItems]) -> None:
        sends = []
        freed: list[tuple[ObjectId, int]] = []
        for command in commands:
            kind_of = type(command)
            if kind_of is machine.Send:
                sends.append(command)
            elif kind_of is machine.SendItems:
                self._encoding[command.array.kind.id] += 1
                deferred.append(command)
            elif kind_of is references.Free:
                if not self.values.free(command.oid):
                    freed.append(command)
            elif kind_of is machine.Settled:
                if command.entry.handed_to is not None:
                    self.hand_over(command.oid, command.entry)
                self.on_settled(command.oid, command.entry.value)
            else:
                self._execute_rare(command)
        if self.closed_mark is not None:
            return
        if sends:
            self._send_tasks(sends)
        if freed:
            self.send(Frame.FREE, refs_body(freed))

    def _execute_rare(self, command: Any) -> None:
        if self.closed_mark is not None:
            return
        match command:
            case machine.Want(kind, waiting):
                self.introduce(kind)
                self.send(Frame.WANT, pb.Want(kind=kind.id, waiting=waiting).SerializeToString())
            case machine.SendCancel(spans, force, kill_after):
                body = pb.Cancel(spans=write_spans(spans), force=force, kill=kill_after is not None,
                                 kill_after=kill_after or 0.0)  # fmt: skip
                self.send(Frame.CANCEL, body.SerializeToString())
            case machine.Ask(oid):
                ask = pb.Ask(ref=_ref(oid), asker=self.incarnation)
                self.send(Frame.ASK, ask.SerializeToString(), oid.owner)
            case machine.Answer(oid, value, asker):
                self._answer(oid, value, asker)
            case references.Borrow(oid):
                borrow = pb.Borrow(ref=_ref(oid), borrower=self.incarnation)
                self.send(Frame.BORROW, borrow.SerializeToString(), oid.owner)
            case references.Release(oid, version):
                release = pb.Borrow(ref=_ref(oid), borrower=self.incarnation)
                self.send(Frame.RELEASE, release.SerializeToString(), oid.owner)
                if version is not None:
                    self.unpin([(oid, version)])
            case references.ReleaseTo(oid, owner):
                release = pb.Borrow(ref=_ref(oid), borrower=self.incarnation)
                self.send(Frame.RELEASE, release.SerializeToString(), owner)
            case references.Forward(oid, borrower, owner, is_release):
                borrow = pb.Borrow(ref=_ref(oid), borrower=borrower)
                self.send(Frame.RELEASE if is_release else Frame.BORROW, borrow.SerializeToString(), owner)
            case references.Unpin(oid, version):
                self.unpin([(oid, version)])
            case _:
                raise errors.InternalError(f"unknown command {command!r}")

    def _answer(self, oid: ObjectId, value: Any, asker: int) -> None:
        body = answer_bytes(value)
        if body[:1] == b"\x0a":
            outcome = pb.Outcome.FromString(body)
            if outcome.value.HasField("stored"):
                self.announce(self.values.take_unannounced((outcome.value.stored,)))
        self.send(Frame.ANSWER, pb.Answer(ref=_ref(oid), value=body).SerializeToString(), asker)

    def announce(self, descriptors: list[pb.Descriptor]) -> None:
        """Tell the node of stored objects ahead of the message that needs them."""
        if descriptors:
            self.send(Frame.ANNOUNCE, pb.Announce(announced=descriptors).SerializeToString())

    def introduce(self, kind: machine.Kind) -> None:
        """Send a kind's description ahead of its first use. Under the lock."""
        spec = self.kinds.pop(kind.id, None)
        if spec is not None:
            self.send(Frame.KIND, spec.SerializeToString())

    def _send_tasks(self, sends: list[machine.Send]) -> None:
        for send in sends:
            self.introduce(send.kind)
        if len(sends) == 1 and len(sends[0].tasks) == 1 and type(sends[0].tasks[0].call) is bytes:
            kind, first, attempt, tasks = sends[0]
            self.send(Frame.SUBMIT, self._builder.lone(kind, first, attempt, tasks[0].call))
            return
        submit = pb.Submit()
        for kind, first, attempt, tasks in sends:
            calls, holds = [], {}
            for position, task in enumerate(tasks):
                call = task.call
                if type(call) is not bytes:
                    if task.inputs:
                        call = complete_call(task, [self._input_value(oid) for oid in task.inputs])
                    submit.announced.extend(self.values.take_unannounced(call.objects))
                    if call.objects:
                        holds[position] = call.objects
                    call = call.body
                calls.append(call)
            add_interval(submit, kind, PLAIN_STREAM, first, attempt, calls, holds)
        self.send(Frame.SUBMIT, submit.SerializeToString())

    def _input_value(self, oid: ObjectId) -> Any:
        entry = self.owner.refs.find(oid)
        return entry.value if entry is not None else None

    # -- items of task arrays, pickled outside the lock ---------------------------------------------------------------

    def _send_items(self, deferred: list[machine.SendItems]) -> None:
        with shield:
            while deferred:
                self.values.epoch += 1
                senders = [ItemSender(self, command) for command in deferred]
                try:
                    for sender in senders:
                        sender.run()
                finally:
                    with self.lock:
                        for sender in senders:
                            sender.hand_back()
                            self._encoding[sender.array.kind.id] -= 1
                with self.lock:
                    deferred = self._pump()

    # -- receiving ----------------------------------------------------------------------------------------------------

    def wait(self, ready: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait until `ready()`; False when the deadline (monotonic seconds) passed first. Ctrl-C ends it at once."""
        with shield:
            if self._reading and self._reader == threading.get_ident() and shield.is_outermost:
                self._leave_turn()  # a handler of the program raised before we could do so
            if not ready() and self._has_due():
                self._pump_and_send()
            while not ready():
                self.check_open()
                if not self._take_turn(ready, deadline):
                    return ready()
            return True

    def _pump_and_send(self) -> None:
        with self.lock:
            items = self._pump()
        if items:
            self._send_items(items)

    def _take_turn(self, ready: Callable[[], bool], deadline: float | None) -> bool:
        """Read the link until ready, or until another thread that reads it has news. False: time is over."""
        me = threading.get_ident()
        nested = self._reading and self._reader == me
        if not nested:
            with self._turn:
                is_taken = self._reading
                if is_taken:
                    news = threading.Lock()
                    news.acquire()
                    self._waiters.append(news)
                else:
                    self._reading, self._reader = True, me
            if is_taken:
                return self._wait_for_reader(news, ready, deadline)
            self.background.disarm()
        try:
            return self._read_until(ready, deadline)
        finally:
            if not nested:
                self._leave_turn()
                self.background.rearm()

    def _leave_turn(self) -> None:
        with self._turn:
            self._reading, self._reader = False, None
        self._tell_waiters()

    def _tell_waiters(self) -> None:
        waiters = self._waiters
        while waiters:
            try:
                waiters.popleft().release()
            except IndexError:
                break  # another thread told the last one

    def _wait_for_reader(self, news: Any, ready: Callable[[], bool], deadline: float | None) -> bool:
        if ready():
            return True
        timeout = -1.0 if deadline is None else deadline - time.monotonic()
        if deadline is not None and timeout <= 0:
            return False
        shield.open(news.acquire, True, timeout)
        return True

    def _read_until(self, ready: Callable[[], bool], deadline: float | None) -> bool:
        blocks = self.in_task()
        receive = self.link.receive
        try:
            while not ready():
                timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
                if blocks and not self._told_blocked and (timeout is None or timeout > BLOCKED_AFTER):
                    got = receive(BLOCKED_AFTER)
                    if not got:
                        self._block()
                        continue
                else:
                    # With a limit it waits in poll, which a cancelling signal ends; recvmsg it would only restart.
                    got = shield.open(receive, BLOCKED_LIMIT if blocks and timeout is None else timeout)
                if not self._handle_input() or (not got and deadline is not None and time.monotonic() >= deadline):
                    return False
            return True
        except BaseException:
            self.on_interrupted()
            raise
        finally:
            self._unblock()

    def _block(self) -> None:
        self._told_blocked = True
        self._pump_and_send()
        with self.lock:
            self.send(Frame.BLOCKED, b"")

    def _unblock(self) -> None:
        """Take the CPUs back before the task goes on."""
        if not self._told_blocked or self.closed_mark is not None:
            return
        self._replies.pop(Frame.RESUME, None)
        with self.lock:
            self.send(Frame.UNBLOCK, b"")
        while Frame.RESUME not in self._replies and self.closed_mark is None:
            self.link.receive(None)
            self._handle_input()
        self._told_blocked = False

    def _serve(self) -> bool:
        """Read and handle what is there; the background thread's turn. False: the link has ended."""
        with self._turn:
            if self._reading:
                return True
            self._reading, self._reader = True, threading.get_ident()
        try:
            self.link.receive(0)
            return self._handle_input()
        finally:
            self._leave_turn()

    def poll(self) -> None:
        """Handle what has come without waiting for more, unless another thread is doing it."""
        with shield:
            self._serve()

    def _handle_input(self) -> bool:
        """Give every complete frame to the machine; False when the link has ended."""
        with self.lock:
            self._begin_event()
            for frame_type, body, _, fds in self.link.frames() if self.closed_mark is None else ():
                self._handlers[frame_type](body, fds)
            self._busy = False
            items = self._pump() if self.closed_mark is None and self._has_due() else []
            if self.link.closed and self.closed_mark is None:
                self._close(NodeLostMark("the node ended; everything that was pending there is lost"))
        if self._waiters:
            self._tell_waiters()
        if items:
            self._send_items(items)
        if self._lines:
            self._print_lines()
        return self.closed_mark is None

    def _print_lines(self) -> None:
        while self._lines:
            self.on_lines(self._lines.popleft())

    @property
    def has_unsent(self) -> bool:
        """Whether tasks were submitted that no message has carried yet."""
        return self._unsent > 0

    def check_open(self) -> None:
        """Raise what every call on a connection that has ended raises."""
        if self.closed_mark is not None:
            raise as_exception(self.closed_mark) or errors.InternalError("closed")

    @property
    def closed_reason(self) -> str | None:
        """Why the connection ended, None while it is up."""
        return None if self.closed_mark is None else self.closed_mark.reason

    def _close(self, mark: NodeLostMark | ShutdownMark) -> None:
        self.closed_mark = mark
        self._busy = False
        self.owner.on_node_lost(mark)
        self.failures += 1
        self._execute(self.owner.take_commands(), [])
        for stream in list(self.owner.arrays):
            self.on_items(stream)
        self._tell_waiters()
        self.on_closed()

    # -- frames -------------------------------------------------------------------------------------------------------

    def _on_finished(self, body: bytes, fds: tuple[int, ...]) -> None:
        finished = pb.Finished.FromString(body)
        owner = self.owner
        if finished.adopted:
            self._adopt(finished.adopted)
        for done in finished.done:
            values = list(done.values)
            if not done.mixed:
                owner.on_finished(done.stream, done.first, done.attempt, done.stride, values)
            else:
                self._finish_mixed(done, values)
            if done.stream:
                self.on_items(done.stream)

    def _finish_mixed(self, done: pb.Done, values: list[bytes]) -> None:
        owner = self.owner
        extras = read_extras(values)
        failed = [p for p, v in enumerate(values) if v[:1] == b"\x12"]
        self.failures += len(failed)
        if done.stream == PLAIN_STREAM and failed and self.retries:
            for position in range(0, len(values), done.stride):
                index = done.first + position
                task_values = values[position : position + done.stride]
                if not (task_values[0][:1] == b"\x12" and self._may_retry(index, task_values[0])
                        and owner.on_raised(index, done.attempt)):  # fmt: skip
                    part = {p - position: e for p, e in extras.items() if position <= p < position + done.stride}
                    owner.on_finished(PLAIN_STREAM, index, done.attempt, done.stride, task_values, part or None)
            return
        owner.on_finished(done.stream, done.first, done.attempt, done.stride, values, extras or None)

    def _may_retry(self, index: int, value: bytes) -> bool:
        task = self.owner.refs.owned.get(index)
        wanted = self.retries.get(task.kind.id) if isinstance(task, machine.Task) else None
        if not wanted or pb.Outcome.FromString(value).error.cause != pb.Error.RAISED:
            return False
        if wanted is True:
            return True
        from .failures import as_exception

        return isinstance(as_exception(value), wanted)

    def _on_lost(self, body: bytes, fds: tuple[int, ...]) -> None:
        lost = pb.Lost.FromString(body)
        cause = LostCause(lost.cause)
        death = lost.death if lost.HasField("death") else None
        self.failures += 1
        for span in read_spans(lost.spans):
            mark = self._binding_mark(span, lost.outcome, death) if cause is LostCause.BINDING else None
            self.owner.on_lost(cause, (span,), death, mark)
        for span in lost.spans:
            if span.stream:
                self.on_items(span.stream)

    def _binding_mark(self, span: Span, outcome: bytes, death: Any) -> Any:
        """Say why the node did not take these: it has refused their kind, or their binding takes nothing more."""
        of: Any = self.owner.arrays.get(span.stream) if span.stream else self.owner.refs.owned.get(span.first)
        kind = getattr(of, "kind", None)
        return kind.refused if kind is not None and kind.refused is not None else BindingMark("", outcome, death)

    def _on_returned(self, body: bytes, fds: tuple[int, ...]) -> None:
        self.owner.on_returned(read_spans(pb.Returned.FromString(body).spans))

    def _on_grant(self, body: bytes, fds: tuple[int, ...]) -> None:
        grant = pb.Grant.FromString(body)
        self.owner.on_grant(grant.kind, grant.credit)

    def _on_kind_refused(self, body: bytes, fds: tuple[int, ...]) -> None:
        refused = pb.KindRefused.FromString(body)
        kind = self.owner.kinds[refused.id]
        self._refuse(kind, RefusedMark(kind.name, refused.reason, dict(refused.asked), dict(refused.available)))

    def _refuse(self, kind: machine.Kind, mark: Any) -> None:
        self.failures += 1
        self.owner.on_refused(kind.id, mark)
        for stream, array in self.owner.arrays.items():
            if array.kind is kind:
                self.on_items(stream)

    def _on_binding_failed(self, body: bytes, fds: tuple[int, ...]) -> None:
        failed = pb.BindingFailed.FromString(body)
        death = failed.death if failed.HasField("death") else None
        self.fail_binding(failed.id, BindingMark(self.labels.get(failed.id, ""), failed.outcome, death))

    def fail_binding(self, binding: int, mark: BindingMark) -> None:
        """Nothing of this binding will run any more. Under the lock."""
        self.failed_bindings.setdefault(binding, mark)
        for kind_id, of in self.kind_binding.items():
            if of == binding:
                self._refuse(self.owner.kinds[kind_id], mark)

    def _on_unbound(self, body: bytes, fds: tuple[int, ...]) -> None:
        self.unbound.add(pb.Unbind.FromString(body).id)

    def _on_segment(self, body: bytes, fds: tuple[int, ...]) -> None:
        segment = pb.Segment.FromString(body)
        self._replies[Frame.SEGMENT] = (segment, fds[0] if fds else -1)

    def _on_store_full(self, body: bytes, fds: tuple[int, ...]) -> None:
        self._replies[Frame.SEGMENT] = (pb.StoreFull.FromString(body), -1)

    def _on_reclaim(self, body: bytes, fds: tuple[int, ...]) -> None:
        for extent in pb.Reclaim.FromString(body).extents:
            self.values.reclaim(extent.segment, extent.offset)

    def _on_ask(self, body: bytes, fds: tuple[int, ...]) -> None:
        ask = pb.Ask.FromString(body)
        self.owner.on_asked(ObjectId(ask.ref.owner, ask.ref.seq), ask.asker)

    def _on_answer(self, body: bytes, fds: tuple[int, ...]) -> None:
        answer = pb.Answer.FromString(body)
        if answer.value[:1] == b"\x12":
            self.failures += 1
        self.owner.on_answered(ObjectId(answer.ref.owner, answer.ref.seq), answer.value, read_extra(answer.value))

    def _on_borrow(self, body: bytes, fds: tuple[int, ...]) -> None:
        borrow = pb.Borrow.FromString(body)
        self.owner.refs.on_borrowed(ObjectId(borrow.ref.owner, borrow.ref.seq), borrow.borrower)

    def _on_release(self, body: bytes, fds: tuple[int, ...]) -> None:
        release = pb.Borrow.FromString(body)
        self.owner.refs.on_released(ObjectId(release.ref.owner, release.ref.seq), release.borrower)

    def _on_borrower_died(self, body: bytes, fds: tuple[int, ...]) -> None:
        self.owner.refs.on_borrower_died(pb.Peer.FromString(body).incarnation)

    def _on_adopt(self, body: bytes, fds: tuple[int, ...]) -> None:
        self._adopt(pb.Adopt.FromString(body).adopted)

    def _adopt(self, adopted: Any) -> None:
        adoptions = [read_adoption(adoption) for adoption in adopted]
        self.failures += sum(adoption.value is not None and adoption.value[:1] == b"\x12" for adoption in adoptions)
        self.owner.on_adopted(adoptions)
        self.dropped.extend(adoption.oid for adoption in adoptions if adoption.borrower == self.incarnation)

    def _on_owner_lost(self, body: bytes, fds: tuple[int, ...]) -> None:
        lost = pb.Peer.FromString(body).incarnation
        self.failures += 1
        self.owner.on_owner_lost(lost, OwnerLostMark(lost))

    def _on_log(self, body: bytes, fds: tuple[int, ...]) -> None:
        self._lines.append(pb.Log.FromString(body))

    def _on_status(self, body: bytes, fds: tuple[int, ...]) -> None:
        self._replies[Frame.STATUS_REPLY] = pb.StatusReply.FromString(body)

    def _on_kind(self, body: bytes, fds: tuple[int, ...]) -> None:
        self._replies[Frame.KIND] = pb.Kind.FromString(body)

    def _on_resume(self, body: bytes, fds: tuple[int, ...]) -> None:
        self._replies[Frame.RESUME] = True

    # -- questions to the node ----------------------------------------------------------------------------------------

    def ask_node(self, request: int, body: bytes, reply: int, timeout: float | None = None) -> Any:
        """Send a request and wait for its reply; one question at a time.

        Raises:
            NodeLostError: the node ended. GetTimeoutError: no answer in time.
        """
        with self._rpc:
            self._replies.pop(reply, None)
            with shield, self.lock:
                self.check_open()
                self.send(request, body)
            deadline = None if timeout is None else time.monotonic() + timeout
            if not self.wait(lambda: reply in self._replies, deadline):
                raise errors.GetTimeoutError(f"the node did not answer within {timeout} s")
            return self._replies.pop(reply)

    def lease(self, nbytes: int) -> LeasedSegment | None:
        """Lease a segment with room for an object of so many bytes; None: room came back in an older one."""
        if self.dropped or self.values.reader.ended:
            self.flush()  # what the program has let go may be room enough
            return None
        reply, fd = self.ask_node(Frame.LEASE, pb.Lease(nbytes=nbytes).SerializeToString(), Frame.SEGMENT)
        if isinstance(reply, pb.StoreFull):
            raise errors.StoreFullError(
                f"no room for {errors.describe_nbytes(nbytes)}: {errors.describe_nbytes(reply.free_nbytes)} of "
                f"{errors.describe_nbytes(reply.capacity_nbytes)} are free and nothing that runs will free more. "
                "Drop references that are no longer needed, or raise OUTBOARD_STORE_MEMORY.",
                needed_nbytes=reply.needed_nbytes,
                free_nbytes=reply.free_nbytes,
                capacity_nbytes=reply.capacity_nbytes,
                holders=tuple((h.what, h.nbytes) for h in reply.holders),
            )
        if not reply.segment:
            return None
        self.values.reader.add(reply.segment, os.dup(fd), reply.nbytes)
        return LeasedSegment(reply.segment, fd, reply.nbytes)

    def fetch_segment(self, segment: int) -> LeasedSegment:
        """Get the descriptor of a segment to read from."""
        reply, fd = self.ask_node(Frame.MAP, pb.Map(segment=segment).SerializeToString(), Frame.SEGMENT)
        if fd < 0:
            raise errors.ObjectLostError("the segment that held the object has gone with its node's store")
        return LeasedSegment(segment, fd, reply.nbytes)

    # -- forks, see forks.py ------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Take the lock; have the node pin what views of ours the child will see, until its last descendant ends."""
        self.lock.acquire()
        self._drop_ended()
        live = self.values.live()
        if live and self.closed_mark is None:
            reader, self._heirs = os.pipe()
            self.announce(self.values.take_unannounced(tuple(live)))
            pins = [(ObjectId(d.owner, d.seq), d.version) for d in live]
            self.send(Frame.FORKED, refs_body(pins), 0, (reader,))
            os.close(reader)

    def after_fork_in_parent(self) -> None:
        """Close our end of the heirs' pipe: it ends when theirs do."""
        if self._heirs is not None:
            os.close(self._heirs)
            self._heirs = None
        self.lock.release()

    def after_fork_in_child(self) -> None:
        """Close what is the parent's and forget it; the heirs' pipe stays open for as long as this process lives."""
        self.closed_mark = NodeLostMark("this connection belongs to the process from which this one was forked")
        self.lock = threading.RLock()
        self._turn = threading.RLock()
        self.background.abandon()
        self.link.close()
        self.values.close()

    # -- end ----------------------------------------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """End the connection; what is pending fails with `reason`."""
        with shield:
            self.background.stop()
            with self.lock:
                if self.closed_mark is None:
                    mark = ShutdownMark(reason)
                    self._close(mark)
                    for entry in self.owner.refs.owned.values():
                        entry.value = mark
                self.link.close()
                self.values.close()


class ItemSender:
    """Pickles and sends the items of one `SendItems`, in frames of bounded size."""

    #: Bytes of calls gathered before a frame goes out, so that workers start while the rest is being pickled.
    FRAME_NBYTES = 64 << 10

    def __init__(self, client: Client, command: machine.SendItems) -> None:
        self.client = client
        self.array = command.array
        self.start, self.end = command.first, command.first + command.count  # what is neither sent nor handed back
        self.attempt = command.attempt
        self.calls: list[bytes] = []  # of the items from `start` on
        self.encoded: dict[int, Encoded] = {}

    def run(self) -> None:
        """Send items until all are sent, the window of bytes is full or nobody wants them.

        Within a shield, which is open while user code pickles.
        """
        items = self.client.array_items.get(self.array.stream)
        while self.start < self.end and not self.array.cancelled:
            try:
                shield.open(self._encode, items)
            except (Exception, SystemExit) as error:  # SystemExit: of the item's own pickling
                self._flush()
                self._fail(error)
                self.start += 1
            except BaseException:
                self._flush()
                raise
            self._flush()
            if self._is_window_full():
                return

    def hand_back(self) -> None:
        """Give what was not sent back to the machine. Under the lock."""
        if self.start < self.end:
            self.client.owner.on_unsent(self.array, self.start, self.end - self.start, self.attempt)

    def _encode(self, items: Any) -> None:
        """Pickle one frame's worth; it may be left at any point, `calls` says how far it came."""
        encode, calls, nbytes = self.client.values.encode_call, self.calls, 0
        for index in range(self.start, self.end):
            encoded = encode(items[index])
            if encoded.objects or encoded.refs:
                self.encoded[index] = encoded
                calls.append(encoded.body)
                return
            calls.append(encoded.body)
            nbytes += len(encoded.body)
            if nbytes >= self.FRAME_NBYTES:
                return

    def _is_window_full(self) -> bool:
        kind = self.array.kind
        return kind.nbytes >= machine.OUTSTANDING_NBYTES and kind.outstanding >= machine.OUTSTANDING_MIN

    def _fail(self, error: BaseException) -> None:
        from .scheduler.outcomes import EncodeFailedMark

        index = self.start
        wrapped = errors.SerializationError(f"item {index} cannot be pickled: {error}", what="argument", reason=error)
        wrapped.__cause__ = error
        client = self.client
        with client.lock:
            client.owner.on_item_failed(self.array, index, EncodeFailedMark(wrapped))
            client.failures += 1
            client.on_items(self.array.stream)

    def _flush(self) -> None:
        calls, start = self.calls, self.start
        if not calls:
            return
        self.calls = []
        self.start = end = start + len(calls)
        client = self.client
        submit = pb.Submit()
        holds: dict[int, tuple[pb.Descriptor, ...]] = {}
        with client.lock:
            if client.closed_mark is not None:
                return
            for index, encoded in self.encoded.items():
                if index >= end:  # interrupted before it counted
                    continue
                stored = tuple(ObjectId(d.owner, d.seq) for d in encoded.objects)
                client.register(encoded.objects)
                client.owner.on_item_bytes(self.array, index, encoded.nbytes, stored + encoded.refs)
                for oid in stored:
                    client.owner.refs.drop(oid)
                submit.announced.extend(client.values.take_unannounced(encoded.objects))
                if encoded.objects:
                    holds[index - start] = encoded.objects
            self.encoded = {}
            client.introduce(self.array.kind)
            add_interval(submit, self.array.kind, self.array.stream, start, self.attempt, calls, holds)
            client.send(Frame.SUBMIT, submit.SerializeToString())


def _ref(oid: ObjectId) -> pb.Ref:
    return pb.Ref(owner=oid.owner, seq=oid.seq)


def new_incarnation() -> int:
    """Draw the number that names this process."""
    return int.from_bytes(os.urandom(8), "little") | 1


def python_version() -> str:
    """Major and minor of this interpreter."""
    return "{}.{}".format(*sys.version_info[:2])


__all__ = ["Client", "Encoded", "Input", "NodeLostMark", "new_incarnation", "python_version"]

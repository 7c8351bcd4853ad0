"""The client: joins the owner machine to its link, its values and its threads.

One lock guards the machine and the sending half of the link. Whoever waits for something reads the link (`turns.py`);
when nobody waits the background thread does. What the node says is in `inbox.py`, what it is told in `outbox.py`. What
needs user code (pickling, printing, callbacks) happens after the lock was left.

A client that lost its node is finished: everything pending fails, and the engine starts a new one at its next use.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol

from . import errors
from .actorreach import ActorReach
from .background import Background
from .clientvalues import VIEW_SHARE, ClientValues
from .failures import as_exception
from .frames import refs_body
from .ids import ObjectId
from .inbox import Inbox
from .interrupts import shield
from .items import ItemSender
from .outbox import Outbox
from .pulling import Pulling
from .reach import HOME, Reach
from .rpc.codec import Frame
from .rpc.local import BlockingLink
from .rpc.protos import outboard_pb2 as pb
from .scheduler import owner as machine
from .scheduler.outcomes import BindingMark, NodeLostMark, RefusedMark, ShutdownMark
from .sharing import KEPT_SHARE, SharedArguments
from .timelines import Asking
from .turns import Turns
from .values import Batch, Encoded, Values

#: Tasks that may gather before the submitting thread sends them itself. Larger makes bigger messages, smaller lets the
#: first of a burst start sooner. 64: at that size a message costs less than a microsecond a task.
SUBMIT_BATCH = 64

#: Answers that a process may wait for. Each has a lock of its own: a wait for room holds up no other question.
QUESTIONS = (Frame.NAME_REPLY, Frame.LEASE, Frame.MAP, Frame.STATUS_REPLY, Frame.KIND, Frame.PACKET)

#: Seconds after which a thread that waits for its turn to ask looks for interrupts; longer delays Ctrl-C there.
TURN_SECONDS = 0.05


#: Kinds found to have tasks left after which an event looks no further for ones that have none; the others' turn comes
#: with later events, of which those tasks bring some. More would delay an event, fewer their end.
RETIRED_AT_A_TIME = 16


class GangNodeGone(Protocol):
    """What is called when a session with a further node is over, lost or not."""

    def __call__(self, node: int, *, is_lost: bool) -> None:
        """Take note of it; under the client's lock."""


class MadeKind:
    """A kind of this process and what its pickled function keeps alive. `function`: kept, so that its id stays its."""

    __slots__ = ("encoded", "function", "is_heavy", "key", "kind")

    def __init__(self, kind: machine.Kind, key: tuple[Any, ...], encoded: Encoded, function: Any) -> None:
        self.kind = kind
        self.key = key
        self.encoded = encoded
        self.function = function
        self.is_heavy = function is None and bool(encoded.objects)


class Client:
    """One connection to a node, and everything this process owns over it.

    `in_task` says whether this thread's waits are those of a task that runs in this worker (they give back CPUs).
    """

    def __init__(self, link: BlockingLink, incarnation: int, welcome: pb.Welcome) -> None:
        self.link = link
        self.incarnation = incarnation
        self.welcome = welcome
        self.lock = threading.RLock()
        self.reach = Reach(self, welcome)
        self._own_names = (incarnation, HOME, welcome.node)  # what stands for the own node on frames that come
        self.owner = machine.Owner(incarnation, welcome.initial_credit, welcome.node, joined=welcome.joined)
        self.pulling = Pulling(self)
        self.values: Values = ClientValues(self, welcome.node)
        self.values.most_viewed = welcome.store_nbytes // VIEW_SHARE
        self.inbox, self.outbox, self.turns = Inbox(self), Outbox(self), Turns(self)
        self.background = Background(link.fileno(), self.turns.serve, self.flush, lambda: self.turns.reading,
                                     lambda error: self.on_broken(error))  # fmt: skip
        self.dropped: deque[tuple[int, int]] = deque()  # references that ended; finalisers append
        self.requests: deque[Callable[[], None]] = deque()  # to be done under the lock; finalisers may append
        self.kinds: dict[int, pb.Kind] = {}  # told to a node with their first task; kept while others may follow
        self.binding_specs: dict[int, pb.Binding] = {}  # likewise
        self.kind_binding: dict[int, int] = {}
        self.lanes: dict[int, machine.Lane] = {}  # of actors, by binding
        self.actors = ActorReach(self)
        self.retries: dict[int, Any] = {}  # kind id → exceptions that may be retried
        self.labels: dict[int, str] = {}
        self.leaving: dict[int, None] = {}  # bindings to be let go when all their tasks have been sent
        self.retired: deque[MadeKind] = deque()  # kinds to be dropped when their last tasks have ended
        self.timeline = Asking(self)
        self.ganged: dict[int, None] = {}  # bindings in gangs
        self.failed_bindings: dict[int, BindingMark | RefusedMark] = {}
        self.array_items: dict[int, Any] = {}  # stream → items, by reference
        self.shared: dict[int, SharedArguments] = {}  # stream → what its items share, of arrays that say they do
        self.failures = 0  # grows whenever something failed, so that waiters look at all they wait for
        self.closed_mark: NodeLostMark | ShutdownMark | None = None
        self.on_closed: Callable[[], None] = lambda: None
        self.on_broken: Callable[[Exception], None] = self._end_broken
        self.in_task: Callable[[], bool] = lambda: False
        self.running_task: Callable[[], ObjectId | None] = lambda: None
        self.on_interrupted: Callable[[], None] = lambda: None
        self.on_unbound: Callable[[int], None] = lambda binding: None
        self.on_anchor_ended: Callable[[int], None] = lambda seq: None
        self.on_gang_state: Callable[[pb.GangState], None] = lambda said: None
        self.on_gang_node_gone: GangNodeGone = lambda node, *, is_lost: None
        self.on_actor_end: Callable[[ObjectId, int], None] = lambda anchor, how: None
        self.parting: Callable[[], None] | None = None  # of an actor that leaves: called when it has reported
        self.on_calls_cancelled: Callable[[int, pb.Cancel], None] = lambda owner, cancel: None
        self.on_kinds_dropped: Callable[[pb.DropKinds], None] = lambda dropped: None
        self.on_settled: Callable[[ObjectId, Any], None] = lambda oid, value: None
        self.on_items: Callable[[int], None] = lambda stream: None
        self.on_lines: Callable[[Any], None] = lambda log: None
        self.encoding: Counter[int] = Counter()  # kind → batches of items that are being pickled
        self._engaged: set[int] = set()  # threads that send items or ask the node something
        self.senders: dict[ItemSender, None] = {}  # of items that are neither sent nor handed back
        self._postponed: list[ItemSender] = []  # those that wait for such a thread
        self._questions = {reply: threading.RLock() for reply in QUESTIONS}  # one at a time of each kind
        self._after_lines: deque[Callable[[], None]] = deque()  # see `when_printed`
        self._busy = False  # the machine is in the middle of an event
        self._unsent = 0
        self._heirs: int | None = None  # writing end of a pipe, while we fork

    def __repr__(self) -> str:
        return f"<Client {self.incarnation:016x} {self.closed_reason or 'up'} {self.owner!r}>"

    def check_open(self) -> None:
        """Raise what every call on a connection that has ended raises."""
        if self.closed_mark is not None:
            raise as_exception(self.closed_mark) or errors.InternalError("closed")

    @property
    def closed_reason(self) -> str | None:
        """Why the connection ended, None while it is up."""
        return None if self.closed_mark is None else self.closed_mark.reason

    # -- references, called by values ---------------------------------------------------------------------------------

    def take_seq(self) -> int:
        """Reserve an object number."""
        with self.lock:
            return self.owner.new_seq()

    def hold(self, oid: ObjectId) -> bool:
        """Count one reference; False when the object has gone."""
        with self.lock:
            self.owner.refs.hold(oid)
            return self.owner.refs.find(oid) is not None

    def drop_ended(self) -> None:
        """Take note of references and views that ended, in whatever thread they did. Under the lock."""
        refs, dropped = self.owner.refs, self.dropped
        while dropped:
            refs.drop(dropped.popleft())
        if self.values.reader.ended:
            pins: list[tuple[ObjectId, int]] = []
            pulled: list[tuple[ObjectId, int]] = []
            for ended in self.values.collect():
                for _ in range(ended.opens):
                    refs.drop(ended.oid)
                pins += [(ended.oid, ended.version)] * ended.pins
                pulled += [(ended.oid, ended.version)] * ended.pulled
            if pins:
                self.unpin(pins)
            if pulled:
                self.unpin_pulled(pulled)

    def unpin(self, pins: list[tuple[ObjectId, int]]) -> None:
        """Give pins back to the node."""
        self.send(Frame.UNPIN, refs_body(pins))

    def unpin_pulled(self, pins: list[tuple[ObjectId, int]]) -> None:
        """Give pins back that the node gave with copies of objects of other nodes. Under the lock."""
        self.send(Frame.PULLED, refs_body(pins))

    def unpin_untaken(self, objects: Iterable[pb.Descriptor]) -> None:
        """A task has ended, perhaps before it opened all that the node had pinned for it: give the rest back."""
        node = self.values.node
        left = Counter((ObjectId(d.owner, d.seq), d.version) for d in objects if d.node == node)
        left.subtract(self.values.taken)
        self.values.taken.clear()
        pins = list(left.elements())
        if pins:
            with shield, self.lock:
                self.unpin(pins)

    # -- arguments that the items of an array share -------------------------------------------------------------------

    def share_arguments(self, stream: int) -> None:
        """Store large arguments of an array's items once, until `end_sharing`. Under the lock."""
        self.shared[stream] = SharedArguments(self.dropped, self.welcome.store_nbytes * KEPT_SHARE)

    def end_sharing(self, stream: int) -> None:
        """No more items of an array will come, or none will be sent. Repeatable; under the lock."""
        shared = self.shared.pop(stream, None)
        if shared is not None and shared.end():
            self.background.nudge()  # nothing else may happen here for long

    def _give_up_shared(self) -> bool:
        """Let go of what is stored only because it may be shared again; False when there was nothing."""
        with self.lock:
            given_up = [shared.give_up() for shared in self.shared.values()]
        if any(given_up):
            self.flush()
        return any(given_up)

    # -- sending ------------------------------------------------------------------------------------------------------

    def register(self, objects: tuple[pb.Descriptor, ...]) -> None:
        """Make new stored objects known to the machine, with one reference each. Under the lock."""
        for d in objects:
            if d.seq not in self.owner.refs.owned:
                self.owner.put(d.seq, b"\x0a", d.version)

    def hold_encoded(self, encoded: Encoded) -> None:
        """Keep what something encoded, that is sent more than once, refers to. Under the lock; see `let_go_encoded`."""
        self.register(encoded.objects)
        self.outbox.announce(self.values.take_unannounced(encoded.objects))
        for oid in encoded.refs:
            self.owner.refs.hold(oid)

    def let_go_encoded(self, encoded: Encoded) -> None:
        """End what `hold_encoded` began. Under the lock."""
        for d in encoded.objects:
            self.owner.refs.drop((d.owner, d.seq))
        for oid in encoded.refs:
            self.owner.refs.drop(oid)

    def submit(self, kind: machine.Kind, encoded: Encoded, inputs: tuple[ObjectId, ...]) -> int:
        """Hand one encoded call to the machine; returns the seq of its first result, 0 when the kind was dropped.

        The first task on an idle link is sent at once, others when enough have gathered or somebody waits.
        """
        with shield:
            with self.lock:
                index, items = self._submit(kind, encoded, inputs)
            if items:
                self.forget_torn()
                self.send_items(items)
        return index

    def _submit(self, kind: machine.Kind, encoded: Encoded,
                inputs: tuple[ObjectId, ...]) -> tuple[int, list[ItemSender]]:  # fmt: skip
        owner = self.owner
        # What the program has let go may be the room that this task needs; with more on the way it goes out with them.
        freed = self.pump() if not owner.unanswered and (self.dropped or self.values.reader.ended) else []
        self.begin_event()
        self.check_open()
        if kind.dropped:
            self._busy = False
            return 0, freed
        if not self.background.running:
            self.background.start()  # a worker: somebody must send this, and answer who is given references
        if inputs or encoded.objects or encoded.refs:
            index = self._submit_large(kind, encoded, inputs)
        elif owner.unanswered or not (index := owner.submit_at_once(kind, encoded.body)):
            index = owner.submit(kind, encoded.body)
        else:
            self.outbox.send_lone(kind, index, encoded.body)
            self._busy = False
            return index, freed
        self._busy = False
        self._unsent += 1
        if owner.unanswered == 1 or self._unsent >= SUBMIT_BATCH:
            return index, freed + self.pump()
        self.background.nudge()
        return index, freed

    def _submit_large(self, kind: machine.Kind, encoded: Encoded, inputs: tuple[ObjectId, ...]) -> int:
        stored = tuple(ObjectId(d.owner, d.seq) for d in encoded.objects)
        self.register(encoded.objects)
        index = self.owner.submit(kind, encoded, inputs, stored + encoded.refs, encoded.nbytes)
        for oid in stored:
            self.owner.refs.drop(oid)
        return index

    def send(self, frame_type: int, body: bytes, destination: int = 0, fds: tuple[int, ...] = ()) -> None:
        """Send one frame, under the lock; nothing to a node that has gone: whoever reads the link learns of its end."""
        try:
            self.link.send(frame_type, body, destination, fds)
        except (BrokenPipeError, ConnectionResetError):
            pass
        except OSError:
            if self.closed_mark is None:  # else the link may be closed already
                raise

    def flush(self) -> None:
        """Send what is due and do what the machine commands."""
        with shield:  # one for both: what the machine has dealt out is sent or handed back
            self.forget_torn()
            self.pump_and_send()

    def forget_torn(self) -> None:
        """In its outermost shield a thread neither sends nor asks yet: if it seems to, a handler of the program raised
        before it could say that it had done.
        """
        if self._engaged and shield.is_outermost:
            self._engaged.discard(threading.get_ident())

    def pump_and_send(self) -> None:
        """Do what the machine commands, without a shield of its own."""
        with self.lock:
            items = self.pump()
        if items or self._postponed:
            self.send_items(items)

    def pump(self) -> list[ItemSender]:
        """Drive the machine until it has nothing more to say; what needs pickling is returned. Under the lock."""
        self.begin_event()
        try:
            deferred = self._drive()
        except Exception as error:
            self._fail(error)
        self._busy = False
        return deferred

    def has_due(self) -> bool:
        """Whether the machine or the program has left something to do."""
        return bool(
            self.dropped
            or self.owner.commands
            or self.owner.backlog
            or self._unsent
            or self.requests
            or self._postponed
            or self.leaving
            or self.actors.ending
            or self.retired
            or self.values.reader.ended
        )

    def count_unsent(self) -> bool:
        """Note that something was submitted that no message has carried; whether it is the first. Under the lock."""
        self._unsent += 1
        return self._unsent == 1

    @property
    def has_unsent(self) -> bool:
        """Whether tasks were submitted that no message has carried yet."""
        return self._unsent > 0

    def begin_event(self) -> None:
        """Note that the machine is about to change; give up one that was left in the middle of a change."""
        if self._busy and self.closed_mark is None:
            self.end(NodeLostMark("an exception of a signal handler interrupted Outboard in the middle of an event"))
        self._busy = True

    def _fail(self, error: Exception) -> NoReturn:
        """An event came to grief half-way: the connection is of no use any more, and its end names the cause."""
        if self.closed_mark is not None and isinstance(error, errors.OutboardError):
            raise error
        text = f"a fault of Outboard itself ended the connection: {type(error).__name__}: {error}"
        if self.closed_mark is None:
            self.end(NodeLostMark(text))
        raise errors.InternalError(text) from error

    def _drive(self) -> list[ItemSender]:
        self.drop_ended()
        while self.requests:
            self.requests.popleft()()
        if self.retired and self.closed_mark is None:
            self._drop_retired()
        if self.actors.ending:
            for binding in self.actors.let_go():
                self.on_unbound(binding)
        owner = self.owner
        self._unsent = 0
        deferred: list[ItemSender] = []
        while True:
            if owner.backlog:
                owner.plan_sends()
            if not owner.commands:
                break
            self.outbox.execute(owner.take_commands(), deferred)
        if self.leaving:
            self._let_go()
        return deferred

    def _drop_retired(self) -> None:
        """Forget kinds of which no task is left, and tell nodes of those they know."""
        dropped: list[int] = []
        needed = 0
        while needed < min(len(self.retired), RETIRED_AT_A_TIME):
            made = self.retired.popleft()
            kind = made.kind
            if self.encoding[kind.id] or not self.owner.drop_kind(kind):
                self.retired.append(made)
                needed += 1
                continue
            del self.encoding[kind.id]
            self.kind_binding.pop(kind.id, None)
            self.retries.pop(kind.id, None)
            self.kinds.pop(kind.id, None)
            dropped.append(kind.id)
            self.let_go_encoded(made.encoded)
        if dropped:
            self.outbox.drop_kinds(dropped)

    def _let_go(self) -> None:
        """Unbind those whose tasks have all been sent: the node lets their workers finish what it has.

        In a cluster it may give some back all the same, so that all must have been answered for.
        """
        for binding in list(self.leaving):
            kinds = [self.owner.kinds[k] for k, of in self.kind_binding.items() if of == binding]
            is_left = any(k.waiting() or self.encoding[k.id] or (self.reach.joined and k.outstanding) for k in kinds)
            if not is_left and self.closed_mark is None:
                del self.leaving[binding]
                self.outbox.unbind(binding, force=False)
                self.reach.forget_unbound(binding)

    def begin_items(self, command: machine.SendItems) -> ItemSender:
        """Items are to be sent; whoever gets the sender passes it to `send_items`. Under the lock."""
        self.encoding[command.array.kind.id] += 1
        sender = ItemSender(self, command)
        self.senders[sender] = None
        return sender

    def send_items(self, deferred: list[ItemSender]) -> None:
        """Pickle and send items of task arrays, and what follows from it. Not under the lock.

        A thread that is at it already, or waits for the node's answer to a question, only notes them: pickling may need
        room, and two questions of one thread would take each other's answers. They follow when it has done that.
        """
        me = threading.get_ident()
        with shield:
            self.forget_torn()
            with self.lock:
                self._postponed += deferred
            if me in self._engaged:
                return
            self._engaged.add(me)
            try:
                while self._postponed:
                    self._send_postponed()
            finally:
                self._engaged.discard(me)

    def _send_postponed(self) -> None:
        batch: Batch = {}
        with self.lock:
            senders, self._postponed = self._postponed, []
        try:
            for sender in senders:
                sender.run(batch)
        finally:
            with self.lock:
                for sender in senders:
                    sender.hand_back()
                    del self.senders[sender]
                    self.encoding[sender.array.kind.id] -= 1
        with self.lock:
            self._postponed += self.pump()

    # -- receiving ----------------------------------------------------------------------------------------------------

    def handle_input(self) -> bool:
        """Give every complete frame to the machine; False when the link has ended."""
        with self.lock:
            self.begin_event()
            try:
                for frame_type, body, node, fds in self.link.frames() if self.closed_mark is None else ():
                    self.inbox.handlers[frame_type](body, HOME if node in self._own_names else node, fds)
            except Exception as error:
                self._fail(error)
            self._busy = False
            items = self.pump() if self.closed_mark is None and self.has_due() else []
            if self.link.closed and self.closed_mark is None:
                self.end(NodeLostMark(self._describe_loss()))
        try:
            if self.inbox.lines:
                self._print_lines()  # before those go on who wait for the tasks that wrote them
        finally:
            while self._after_lines:
                self._after_lines.popleft()()
            self.turns.tell_waiters()
            if items:
                self.send_items(items)
        if self.inbox.dropped_kinds:
            self._forget_dropped()
        return self.closed_mark is None

    def _print_lines(self) -> None:
        while self.inbox.lines:
            self.on_lines(self.inbox.lines.popleft())

    def when_printed(self, job: Callable[[], None]) -> None:
        """Do something once the lines that have come are shown: who hears of a task has seen them. Under the lock."""
        if self.inbox.lines:
            self._after_lines.append(job)
        else:
            job()

    def _forget_dropped(self) -> None:
        """Let go of functions of others; not under the lock, since their ends may be user code."""
        while self.inbox.dropped_kinds:
            self.on_kinds_dropped(self.inbox.dropped_kinds.popleft())
        self.flush()

    def refuse(self, kind: machine.Kind, mark: Any) -> None:
        """No task of this kind will run any more. Under the lock."""
        self.failures += 1
        self.owner.on_refused(kind.id, mark)
        for stream, array in self.owner.arrays.items():
            if array.kind is kind:
                self.on_items(stream)

    def binding_mark(self, binding: int, outcome: bytes = b"", death: Any = None, *, is_actor: bool = False
                     ) -> BindingMark:  # fmt: skip
        """Say why a node takes nothing of a binding. Under the lock."""
        label = self.labels.get(binding, "")
        return BindingMark(label, outcome, death, is_actor, is_ganged=binding in self.ganged)

    def fail_binding(self, binding: int, mark: BindingMark | RefusedMark) -> None:
        """Nothing of this binding will run any more. Under the lock."""
        self.failed_bindings.setdefault(binding, mark)
        self.actors.on_failed(binding, mark)
        for kind_id, of in self.kind_binding.items():
            if of == binding:
                self.refuse(self.owner.kinds[kind_id], mark)

    # -- questions to the node ----------------------------------------------------------------------------------------

    def ask_node(self, request: int, body: bytes, reply: int, timeout: float | None = None) -> Any:
        """Send a request and wait for its reply; one question of a kind at a time.

        Raises:
            NodeLostError: the node ended. GetTimeoutError: no answer in time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        me = threading.get_ident()
        with shield:
            self.forget_torn()
            is_first = me not in self._engaged
            self._engaged.add(me)
            try:
                answer = self._ask(request, body, reply, deadline)
            finally:
                if is_first:
                    self._engaged.discard(me)
            if is_first and self._postponed:
                self.send_items([])
            return answer

    def _ask(self, request: int, body: bytes, reply: int, deadline: float | None) -> Any:
        turn = self._take_turn(reply, deadline)
        try:
            with self.lock:
                self.check_open()
                self.inbox.expect(reply)
                self.send(request, body)
            if not self.turns.wait(lambda: reply in self.inbox.replies, deadline):
                raise errors.GetTimeoutError("the node did not answer in time")
            return self.inbox.replies.pop(reply)
        finally:
            turn.release()

    def _take_turn(self, reply: int, deadline: float | None) -> Any:
        turn = self._questions[reply]
        self.check_open()
        while not turn.acquire(timeout=TURN_SECONDS):
            shield.open(self.check_open)  # raises what came meanwhile, which it must not once we have the lock
            self.turns.read_on()
            if deadline is not None and time.monotonic() >= deadline:
                raise errors.GetTimeoutError("another thread waits for the node's answer to the same question")
        return turn

    def lease(self, nbytes: int) -> None:
        """Get room for an object of so many bytes: in a new segment, or in an older one where some came back."""
        if self.dropped or self.values.reader.ended:
            self.flush()  # what the program has let go may be room enough
            return
        reply = self.ask_node(Frame.LEASE, pb.Lease(nbytes=nbytes).SerializeToString(), Frame.LEASE)
        if reply is not None and not self._give_up_shared() and not self.pulling.let_go():
            raise errors.StoreFullError(
                f"no room for {errors.describe_nbytes(nbytes)}: {errors.describe_nbytes(reply.free_nbytes)} of "
                f"{errors.describe_nbytes(reply.capacity_nbytes)} are free and nothing that runs will free more. "
                "Drop references that are no longer needed, or raise OUTBOARD_STORE_MEMORY.",
                needed_nbytes=reply.needed_nbytes,
                free_nbytes=reply.free_nbytes,
                capacity_nbytes=reply.capacity_nbytes,
                holders=tuple((h.what, h.nbytes) for h in reply.holders),
            )

    def fetch_segment(self, segment: int) -> None:
        """Map a segment to read from."""
        self.ask_node(Frame.MAP, pb.Map(segment=segment).SerializeToString(), Frame.MAP)
        if not self.values.reader.has(segment):
            raise errors.ObjectLostError("the segment that held the object has gone with its node's store")

    # -- forks, see forks.py ------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Take the lock; have the node pin what views of ours the child will see, until its last descendant ends."""
        self.lock.acquire()
        self.drop_ended()
        live = self.values.live()
        if live and self.closed_mark is None:
            reader, self._heirs = os.pipe()
            self.outbox.announce(self.values.take_unannounced(tuple(live)))
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
        self.turns = Turns(self)
        self.background.abandon()
        self.link.close()
        self.values.close()

    # -- end ----------------------------------------------------------------------------------------------------------

    def _describe_loss(self) -> str:
        """Say which node has ended, and what went with it."""
        where = f"node {self.welcome.node:016x} on {self.welcome.host}"
        pending = self.owner.unanswered
        tasks = f"{pending} unfinished task{'s' * (pending != 1)} and " if pending else ""
        return f"{where}, this process's way to its tasks, has ended; lost with it: {tasks}what was stored there"

    def end(self, mark: NodeLostMark | ShutdownMark) -> None:
        """Take note that the connection has ended; what is pending fails with `mark`. Under the lock."""
        self.closed_mark = mark
        self._busy = False
        self.owner.on_link_lost(mark)
        self.failures += 1
        self.outbox.execute(self.owner.take_commands(), [])
        for stream in list(self.owner.arrays):
            self.on_items(stream)
        self.turns.tell_waiters()
        self.on_closed()

    def _end_broken(self, error: Exception) -> None:
        """The background thread has come to grief: nobody would answer, or read what nobody waits for."""
        with self.lock:
            if self.closed_mark is None:
                self.end(NodeLostMark(f"a fault ended Outboard's background thread: {type(error).__name__}: {error}"))

    def close(self, reason: str) -> None:
        """End the connection; what is pending fails with `reason`.

        In this order: nobody begins anything after the mark, whoever waits in the kernel leaves, descriptors close.
        """
        with shield:
            with self.lock:
                if self.closed_mark is None:
                    mark = ShutdownMark(reason)
                    self.end(mark)
                    for entry in self.owner.refs.owned.values():
                        entry.value = mark
            self.background.stop(for_good=True)
            self.link.hang_up()
            with self.lock:
                self.link.close()
                self.values.close()


def new_incarnation() -> int:
    """Draw the number that names this process."""
    return int.from_bytes(os.urandom(8), "little") | 1


def python_version() -> str:
    """Major and minor of this interpreter."""
    return "{}.{}".format(*sys.version_info[:2])

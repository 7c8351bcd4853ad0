"""The client's machine: every task it submitted, until each has settled once.

Tasks wait here for their inputs and for credit, so no node ever holds more than it granted. The own node is 0 in here;
a cluster has further ones, and an answer counts only from the node where the task is outstanding. Plain tasks have a
record each (which is also the entry of their first result object); a task array has one record for all its items.
`Books` says what the tables are. Events go to the part whose subject they are:

    program ──▶ submit ─▶ Settling (inputs) ─▶ backlog ─▶ Sending ──▶ Send, SendItems, Want
                extend, cancel, dispose ─▶ Items                          │ nodes
    nodes ────▶ on_finished, on_lost, on_returned ─▶ Plain or Items ◀─────┘
                sessions begin and end ─▶ Further ─▶ Plain and Items
                                   └─▶ Settling (values, failures) ─▶ dependents, borrowers, Settled
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..ids import PLAIN_STREAM, ObjectId, Span
from .arrays import Array
from .audit import check
from .books import Books
from .borrowing import Borrowing
from .entries import Anchor, Entry, Extra
from .further import Further
from .items import Items
from .kinds import COUNTED_NBYTES, POISON_DEATHS, Kind
from .lanes import Lane
from .orders import Answer, Ask, Send, SendCancel, SendItems, Settled, Want
from .outcomes import CancelledMark, LostCause, is_failure
from .passing import Adopted, Parcel, Passing
from .plain import Plain
from .rebuilding import Rebuilding
from .sending import Sending
from .settling import Settling
from .shares import OUTSTANDING_MIN, OUTSTANDING_NBYTES, OWN_NODE, Share, Terms
from .states import TaskEvent, TaskState
from .tasks import UNSETTLED, Task

WAITING, READY, SENT = TaskState.WAITING, TaskState.READY, TaskState.SENT


class Owner:
    """See the head of this file. Not thread-safe: one driver at a time, under its lock."""

    def __init__(self, incarnation: int, initial_credit: int, home: int = OWN_NODE, *, joined: bool = False) -> None:
        self._books = books = Books(incarnation, home, is_joined=joined)
        self._settling = Settling(books)
        self._passing = Passing(books, self._settling)
        self._sending = Sending(books, self._settling)
        self._plain = Plain(books, self._settling)
        self._items = Items(books)
        self._rebuilding = Rebuilding(books, self._settling, self._plain, self._items)
        self._borrowing = Borrowing(books, self._settling, self._rebuilding)
        self._further = Further(books, self._plain, self._items)
        self._owned = books.refs.owned
        self._home = home
        self._rerun = books.rerun
        self._next_seq = 1
        self._next_kind = 1
        self.incarnation = incarnation
        self.initial_credit = initial_credit
        self.commands = books.commands
        self.refs = books.refs
        self.kinds = books.kinds
        self.nodes = books.nodes
        self.arrays = books.arrays
        self.backlog = books.backlog
        self.counts: Counter[str] = books.counts

    def __repr__(self) -> str:
        return f"<Owner {self.incarnation:x} {self.unanswered} unanswered, {len(self._owned)} objects>"

    @property
    def unanswered(self) -> int:
        """Plain tasks and items submitted and not settled."""
        return self._books.unanswered

    def take_commands(self) -> list[Any]:
        """Return what should be done, oldest first, and forget it."""
        commands = self.commands[:]
        self.commands.clear()
        return commands

    def check(self) -> None:
        """Verify the invariants; for tests and the simulator."""
        check(self._books)

    # -- what the program does -----------------------------------------------------------------------------------------

    def new_seq(self, count: int = 1) -> int:
        """Reserve object numbers."""
        seq = self._next_seq
        self._next_seq += count
        return seq

    def add_kind(self, name: str, *, process_retries: int, machine_retries: int, stride: int,
                 lane: Lane | None = None) -> Kind:  # fmt: skip
        """Register a kind of task, of an actor's calls if in a lane; the driver tells the node before the first."""
        kind = Kind(self._next_kind, name, process_retries=process_retries, machine_retries=machine_retries,
                    stride=stride, credit=self.initial_credit, lane=lane)  # fmt: skip
        self._next_kind += 1
        self.kinds[kind.id] = kind
        return kind

    def drop_kind(self, kind: Kind) -> bool:
        """Forget a kind for which nothing will be submitted; False, and no change, while something of it is left."""
        if kind.is_needed():
            return False
        kind.dropped = True
        del self.kinds[kind.id]
        self.backlog.pop(kind, None)
        return True

    def confine(self, kind: Kind, nodes: Iterable[int] | None, *, is_seeking: bool = False) -> None:
        """Let tasks of a kind run only at these nodes, None: anywhere.

        Those that other nodes have stay there. `is_seeking`: further nodes would be of use, so that the own node is
        told what waits even if nothing may run there.
        """
        self._further.confine(kind, nodes, is_seeking=is_seeking or nodes is None)

    def put(self, seq: int, value: Any, stored: int | None, contained: tuple[ObjectId, ...] = (), *,
            node: int = OWN_NODE, nbytes: int = 0) -> Entry:  # fmt: skip
        """Record an object that the program made; it has one reference. `node` and `nbytes`: as in Extra."""
        entry = self._owned[seq] = Entry(value, 1, stored)
        if stored is not None:
            self._books.locate(ObjectId(self.incarnation, seq), node, nbytes)
        self.refs.contain(entry, contained, is_received=False)
        return entry

    def anchor(self, seq: int, binding: int) -> None:
        """Record what the handles of an actor refer to; it has one reference. Its end is commanded: AnchorEnded."""
        self._owned[seq] = Anchor(binding)

    def move_anchor(self, seq: int, value: Any) -> None:
        """Say where an actor is (value bytes), or that it has ended (a mark); None: nobody knows for now."""
        entry = self._owned.get(seq)
        if entry is not None:
            entry.value = value
            if value is not None:
                self._settling.arrived(ObjectId(self.incarnation, seq), entry)

    def stir(self, lane: Lane) -> None:
        """A lane may have got a place, or lost it: look at its calls."""
        if lane.calls or lane.is_seeking or lane.is_asking:
            self.backlog[lane] = None

    def forget_value(self, oid: ObjectId) -> None:
        """Ask for a borrowed value once more: what it says is out of date."""
        foreign = self.refs.foreign.get(oid)
        if foreign is not None and foreign.value is not None:
            foreign.value, foreign.asked = None, False
            foreign.watched = True
            self._settling.ask(oid)

    def submit(self, kind: Kind, call: Any, inputs: tuple[ObjectId, ...] = (), held: tuple[ObjectId, ...] = (),
               nbytes: int = 0) -> int:  # fmt: skip
        """Take over one plain task and return the seq of its first result; each result has one reference.

        `inputs` are the objects whose values it needs, `held` all others that must live until it has settled.
        """
        index = self._next_seq
        self._next_seq = index + kind.stride
        books = self._books
        self._owned[index] = task = Task(index, kind, call)
        if kind.stride > 1:
            self._owned.update((seq, Entry(None, 1)) for seq in range(index + 1, self._next_seq))
        books.unanswered += 1
        if inputs or held:
            task.nbytes = nbytes
            self._settling.take_inputs(task, inputs, held)
        elif len(call) >= COUNTED_NBYTES:
            task.nbytes = len(call)
        if kind.refused is not None:
            if task.state is not TaskState.FAILED:
                self._settling.fail(task, TaskEvent.REFUSE, kind.refused)
        elif kind.lane is not None:
            if task.state is READY or (task.state is WAITING and kind.lane.in_order):
                self._settling.queue(task)
        elif task.state is READY:
            kind.ready.append(task)
            books.backlog[kind] = None
        return index

    def submit_at_once(self, kind: Kind, call: Any) -> int:
        """Take over one plain task without inputs that the driver sends to the own node now; 0: it must take its turn.

        What `submit` and `plan_sends` would come to when nothing else waits; a lone call passes here each time.
        """
        lane = kind.lane
        share = kind.home if lane is None else lane.share
        if (self.backlog or share.node or kind.refused is not None or kind.stride != 1
                or share.outstanding >= share.limit or share.nbytes):  # fmt: skip
            return 0
        index = self._next_seq
        self._next_seq = index + 1
        self._owned[index] = task = Task(index, kind, call)
        task.state = SENT  # READY, SEND → SENT: the table's only way
        task.share = share
        share.outstanding += 1
        self._books.unanswered += 1
        return index

    def ask(self, oid: ObjectId) -> None:
        """Ask for the value of a borrowed object, once."""
        self._settling.ask(oid)

    def rebuild(self, oid: ObjectId, version: int) -> None:
        """Nobody has this version of a stored object any more: its task runs again, or its owner is asked.

        Until then it has no value. If it cannot be made again, an ObjectLostMark is its value at once.
        """
        self._rebuilding.rebuild(oid, version)

    def cancel(self, seq: int, *, force: bool = False, kill_after: float | None = None) -> None:
        """Settle a plain task as cancelled at once; a finished one is left alone."""
        task = self._task_of(seq)
        if task is None:
            return
        if task.state not in UNSETTLED:
            if force and self._books.owed.get(task.index) is task:  # cancelled before, and it goes on all the same
                self._order_cancel(task, force, kill_after)
            return
        if task.state is SENT:
            self._order_cancel(task, force, kill_after)
            self._books.owed[task.index] = task
        self._settling.fail(task, TaskEvent.CANCEL, CancelledMark(task.kind.name))

    def is_call(self, seq: int) -> bool:
        """Whether an object is to come of a call of an actor."""
        task = self._task_of(seq)
        return task is not None and task.kind.lane is not None and task.state in UNSETTLED

    def _order_cancel(self, task: Task, force: bool, kill_after: float | None) -> None:
        assert task.share is not None
        span = Span(PLAIN_STREAM, task.index, 1, task.attempt, task.kind.stride)
        self.commands.append(SendCancel([span], force, kill_after, task.share.node))

    def _task_of(self, seq: int) -> Task | None:
        entry = self._owned.get(seq)
        while entry is not None and not isinstance(entry, Task) and entry.value is None:
            seq -= 1  # a further result: its task's entry comes before it
            entry = self._owned.get(seq)
        return entry if isinstance(entry, Task) else None

    def open_array(self, kind: Kind) -> Array:
        """Begin a task array."""
        return self._items.open(kind)

    def extend(self, array: Array, count: int) -> None:
        """Append items to an array."""
        self._items.extend(array, count)

    def cancel_array(self, array: Array, *, kill_after: float | None) -> None:
        """Settle everything of an array that has not finished."""
        self._items.cancel(array, kill_after)

    def dispose_array(self, array: Array) -> None:
        """Cancel what is left of an array that nobody will take from, and forget what it kept."""
        self._items.dispose(array)

    def take_extra(self, array: Array, index: int, extra: Extra) -> None:
        """The driver has taken an item's extra and rebuilt its value: views and references count for themselves now."""
        self._items.take_extra(array, index)

    # -- what the driver sends -----------------------------------------------------------------------------------------

    def plan_sends(self) -> None:
        """Command what credit allows to be sent, and tell the nodes what waits beyond it."""
        self._sending.plan()

    def on_unsent(self, array: Array, first: int, count: int, attempt: int, node: int = OWN_NODE) -> None:
        """The driver did not send these items of a SendItems to that node after all."""
        self._items.on_unsent(array, first, count, attempt, node)

    def on_item_failed(self, array: Array, index: int, mark: Any, node: int = OWN_NODE) -> None:
        """An item of a SendItems could not be sent at all."""
        self._items.on_item_failed(array, index, mark, node)

    def on_item_bytes(self, array: Array, index: int, nbytes: int, held: tuple[ObjectId, ...],
                      node: int = OWN_NODE) -> None:  # fmt: skip
        """An item that is sent to a node carries so many bytes and needs these objects until it settles."""
        self._items.on_item_bytes(array, index, nbytes, held, node)

    # -- what nodes say; `node` is the further node that does, 0 or `home` the own one ---------------------------------

    def on_node_joined(self, node: int, initial_credit: int, slots: int) -> None:
        """A session with a further node has begun: tasks may be sent there."""
        self._further.on_joined(node, Terms(initial_credit, slots))

    def on_session_closed(self, node: int) -> None:
        """The session with a further node was closed; nothing of what was sent there meanwhile has begun.

        Whatever the driver has not sent of a SendItems for that node it hands back first, as before `on_session_lost`.
        """
        self._further.on_closed(node)

    def on_session_lost(self, node: int, reason: str = "") -> None:
        """The session with a further node was lost, and with it what ran there."""
        self._further.on_lost(node, reason)

    def on_grant(self, kind_id: int, credit: int, node: int = OWN_NODE) -> None:
        """So many tasks of this kind may be outstanding at that node; of an actor's calls the window says it."""
        node = self._books.name_node(node)
        kind = self._further.find_kind(kind_id, node)
        if kind is not None and kind.lane is None:
            kind.shares[node].grant(credit)

    def on_refused(self, kind_id: int, mark: Any) -> None:
        """No task of this kind will ever run: fail what waits; the node answers for what it has."""
        kind = self.kinds.get(kind_id)
        if kind is None or kind.refused is not None:
            return
        kind.refused = mark
        for task in self._unsettled():
            if task.kind is kind and task.state is not SENT:
                self._settling.fail(task, TaskEvent.REFUSE, mark)
        kind.ready.clear()  # those in a lane are settled now, and skipped when met
        while kind.arrays:
            array = kind.arrays.popleft()
            self._items.fail(array, array.take_unsent(), mark)

    def _unsettled(self) -> Iterable[Task]:
        """Every plain task without a value; the loop over them may settle others."""
        tasks = [entry for entry in self._owned.values() if isinstance(entry, Task) and entry.state in UNSETTLED]
        return (task for task in tasks if task.state in UNSETTLED)

    def on_finished(self, stream: int, first: int, attempt: int, stride: int, values: Sequence[bytes],
                    extras: Mapping[int, Extra] | None = None, node: int = OWN_NODE) -> None:  # fmt: skip
        """Results came; what belongs to an older attempt is dropped and counted.

        `extras` says, by position in `values`, which of them lie in the store or contain references.
        """
        if node and node == self._home:
            node = OWN_NODE
        if stream == PLAIN_STREAM:
            if stride == 1 and not extras and not self._rerun:
                self._plain.on_small(first, attempt, values, node)
            else:
                self._plain.on_finished(first, attempt, stride, values, extras, node)
        else:
            self._items.on_finished(stream, first, attempt, values, extras, node)

    def on_lost(self, cause: LostCause, spans: Iterable[Span], death: Any, mark: Any = None,
                node: int = OWN_NODE) -> None:  # fmt: skip
        """Tasks will bring no result from this attempt; retry them or let them fail with `mark` or a LostMark."""
        node = self._books.name_node(node)
        for span in spans:
            part: Plain | Items = self._plain if span.stream == PLAIN_STREAM else self._items
            part.on_lost(span, cause, death, mark, node)

    def on_raised(self, index: int, attempt: int, node: int = OWN_NODE) -> bool:
        """A plain task raised what its kind may retry; True: it will run again."""
        return self._plain.on_raised(index, attempt, self._books.name_node(node))

    def on_input_lost(self, index: int, attempt: int, oid: ObjectId, version: int, node: int = OWN_NODE) -> None:
        """A plain task did not begin, since nobody had this version of an input any more: instead of `on_finished`."""
        self._rebuilding.on_input_lost(index, attempt, oid, version, self._books.name_node(node))

    def on_item_input_lost(self, stream: int, index: int, attempt: int, oid: ObjectId, version: int,
                           node: int = OWN_NODE) -> None:  # fmt: skip
        """The same of an item of a task array."""
        self._rebuilding.on_item_input_lost(stream, index, attempt, oid, version, self._books.name_node(node))

    def on_returned(self, spans: Iterable[Span], node: int = OWN_NODE) -> None:
        """The node gave back tasks that had not begun; it costs them nothing."""
        node = self._books.name_node(node)
        for span in spans:
            part: Plain | Items = self._plain if span.stream == PLAIN_STREAM else self._items
            part.on_returned(span, node)

    def on_link_lost(self, mark: Any) -> None:
        """The own node is gone, and the way to all others: all that is unsettled or stored fails with `mark`."""
        self.nodes.clear()
        self._items.on_link_lost(mark)
        while self._books.owed:
            self._settling.answered(self._books.owed.popitem()[1])
        for task in self._unsettled():
            if task.state is SENT:
                self._settling.answered(task)
            self._settling.fail(task, TaskEvent.REFUSE, mark)
        for kind in self.kinds.values():
            kind.forget_all()
        self.backlog.clear()
        for entry in self._owned.values():
            if entry.stored is not None:
                entry.value, entry.stored = mark, None
        self._books.lineage.clear()
        self.refs.located.clear()
        self._borrowing.on_link_lost(mark)

    # -- what other processes say, by way of the node ------------------------------------------------------------------

    def on_asked(self, oid: ObjectId, asker: int, version: int = 0) -> None:
        """A borrower wants a value: answer now or when it is there. An object that is gone is answered as released.

        `version` is one that it could get nowhere, or 0.
        """
        self._borrowing.on_asked(oid, asker, version)

    def on_answered(self, oid: ObjectId, value: Any, extra: Extra | None) -> None:
        """The owner of a borrowed object has answered; an extent was pinned for us when the answer passed the node."""
        self._borrowing.on_answered(oid, value, extra)

    def on_object_lost(self, oid: ObjectId, mark: Any) -> None:
        """Nobody can answer for a borrowed object any more."""
        self._borrowing.on_object_lost(oid, mark)

    def on_owner_lost(self, incarnation: int) -> None:
        """A process is gone: what it had not answered may have passed to another, and is asked for again."""
        self._borrowing.on_owner_lost(incarnation)

    # -- objects that pass to another owner ----------------------------------------------------------------------------

    def pass_on(self, oids: Iterable[ObjectId], receiver: int) -> Parcel:
        """References travel to the owner of a task in its result; the caller sends the parcel with it at once."""
        return self._passing.pass_on(oids, receiver)

    def hand_over(self, oid: ObjectId) -> Parcel | None:
        """Obey PassOn; None when there is no reason any more. The caller sends the parcel at once."""
        return self._passing.hand_over(oid)

    def bequeath(self, heir: int) -> None:
        """This process is about to end: pass on everything of ours that others refer to."""
        self._passing.bequeath(heir)

    def on_passed(self, oid: ObjectId, *, is_refused: bool) -> None:
        """The node says what became of an object that was passed on: it has a new owner, or stays ours."""
        self._passing.on_passed(oid, is_refused=is_refused)

    def on_adopted(self, adoptions: Sequence[Adopted]) -> None:
        """Objects pass into our ownership, in any order."""
        self._passing.on_adopted(adoptions)


__all__ = [
    "OUTSTANDING_MIN",
    "OUTSTANDING_NBYTES",
    "OWN_NODE",
    "POISON_DEATHS",
    "Adopted",
    "Answer",
    "Array",
    "Ask",
    "Entry",
    "Extra",
    "Kind",
    "Lane",
    "LostCause",
    "Owner",
    "Parcel",
    "Send",
    "SendCancel",
    "SendItems",
    "Settled",
    "Share",
    "Task",
    "Terms",
    "Want",
    "is_failure",
]

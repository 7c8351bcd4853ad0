"""The client's machine: every task it submitted, until each has settled once.

Tasks wait here for their inputs and for credit, so a node never holds more than it granted. Plain tasks have a record
each (which is also the entry of their first result object); a task array has one record for all its items.

Collections and their invariants:
- `refs.owned`: entries of all live objects, plain tasks included until they settle and nobody refers to them.
- `Kind.ready`: plain tasks in READY, in order of submission (cancelled ones are skipped when met).
- `Kind.arrays`: arrays with items that were never sent or must be sent again.
- `Kind.outstanding`: tasks sent and not yet answered for by the node (by a result, a loss or a return); never above the
  credit by a new send. Cancelled tasks count until the node has answered for them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..ids import PLAIN_STREAM, ObjectId, Span, item_object
from .arrays import Array
from .outcomes import CancelledMark, LostCause, LostMark, NodeLostMark
from .references import Entry, Free, References
from .states import TaskEvent, TaskState, next_state

#: Bytes of arguments (inline and stored) that may be outstanding per kind. Smaller recycles warm pages more, larger
#: keeps more workers of large tasks busy. The protocol's 8 MB are for inline bytes; stored ones cost the link nothing.
OUTSTANDING_NBYTES = 64 << 20

#: Tasks per kind that may be outstanding whatever their bytes, so that one huge argument cannot stop the flow.
OUTSTANDING_MIN = 4

#: When so many runs of a function in a row ended with their worker, what is left of it fails at once.
POISON_DEATHS = 10


class Send(NamedTuple):
    """Send these plain tasks, whose indices follow each other."""

    kind: Kind
    first: int
    attempt: int
    tasks: list[Task]


class SendItems(NamedTuple):
    """Pickle and send these items of an array; what was not sent after all comes back by `on_unsent`."""

    array: Array
    first: int
    count: int
    attempt: int


class SendCancel(NamedTuple):
    """Tell the node that these are cancelled."""

    spans: list[Span]
    force: bool
    kill_after: float | None


class Want(NamedTuple):
    """Tell the node how many tasks of a kind wait for credit (0: none any more)."""

    kind: Kind
    waiting: int


class Ask(NamedTuple):
    """Ask the owner for the value of a borrowed object."""

    oid: ObjectId


class Answer(NamedTuple):
    """Answer a borrower."""

    oid: ObjectId
    value: Any
    asker: int


class Settled(NamedTuple):
    """A watched object has its value."""

    oid: ObjectId
    entry: Entry


class Extra(NamedTuple):
    """What a result has beside its bytes: version of its extent (None: inline), references inside it."""

    stored: int | None
    contained: tuple[ObjectId, ...]


class Kind:
    """Function, resources, binding and retry rules that many tasks share; credits are counted here."""

    __slots__ = ("arrays", "credit", "deaths", "id", "machine_retries", "name", "nbytes", "outstanding",
                 "process_retries", "ready", "refused", "stride", "wanted")  # fmt: skip

    def __init__(self, id: int, name: str, *, process_retries: int, machine_retries: int, stride: int, credit: int):
        self.id = id
        self.name = name
        self.process_retries = process_retries  # -1: no limit
        self.machine_retries = machine_retries
        self.stride = stride
        self.credit = credit
        self.outstanding = 0
        self.nbytes = 0
        self.wanted = 0
        self.deaths = 0
        self.refused: Any = None
        self.ready: deque[Task] = deque()
        self.arrays: deque[Array] = deque()

    def room(self) -> int:
        """How many more tasks may be sent now."""
        room = self.credit - self.outstanding
        if self.nbytes >= OUTSTANDING_NBYTES:
            return min(room, OUTSTANDING_MIN - self.outstanding)
        return room

    def waiting(self) -> int:
        """Tasks that could be sent if credit allowed."""
        return len(self.ready) + sum(array.unsent() for array in self.arrays)


class Task(Entry):
    """One plain task, and the entry of its first result."""

    __slots__ = ("attempt", "call", "held", "index", "inputs", "kind", "machine_losses", "missing", "nbytes",
                 "process_losses", "state")  # fmt: skip

    def __init__(self, index: int, kind: Kind, call: Any, inputs: tuple[ObjectId, ...], held: tuple[ObjectId, ...]):
        self.value = None
        self.count = 1
        self.stored = None
        self.borrowers = None
        self.handed_to = None
        self.contained = ()
        self.dependents = None
        self.watched = False
        self.waiting_askers = None
        self.index = index
        self.kind = kind
        self.call = call
        self.inputs = inputs
        self.held = held
        self.attempt = 1
        self.process_losses = 0
        self.machine_losses = 0
        self.missing = 0
        self.nbytes = 0
        self.state = TaskState.READY

    def move(self, event: TaskEvent) -> None:
        """Change state as the table says."""
        self.state = next_state(self.state, event, self)

    def __repr__(self) -> str:
        return f"<Task {self.index} {self.kind.name} {self.state.value} attempt {self.attempt}>"


class Owner:
    """See the head of this file. Not thread-safe: one driver at a time, under its lock."""

    def __init__(self, incarnation: int, initial_credit: int) -> None:
        self.incarnation = incarnation
        self.initial_credit = initial_credit
        self.commands: list[Any] = []
        self.refs = References(incarnation, self.commands)
        self.kinds: dict[int, Kind] = {}
        self.arrays: dict[int, Array] = {}
        self.backlog: dict[Kind, None] = {}  # kinds with something that could be sent, oldest first
        self.counts: Counter[str] = Counter()
        self.unanswered = 0  # plain tasks and items submitted and not settled
        self._next_seq = 1
        self._next_kind = 1
        self._next_stream = 1

    def take_commands(self) -> list[Any]:
        """Return what should be done, oldest first, and forget it."""
        commands = self.commands[:]
        self.commands.clear()
        return commands

    # -- what the program does -------------------------------------------------------------------------------------

    def new_seq(self, count: int = 1) -> int:
        """Reserve object numbers."""
        seq = self._next_seq
        self._next_seq += count
        return seq

    def add_kind(self, name: str, *, process_retries: int, machine_retries: int, stride: int) -> Kind:
        """Register a kind of task; the driver tells the node before the first of them."""
        kind = Kind(self._next_kind, name, process_retries=process_retries, machine_retries=machine_retries,
                    stride=stride, credit=self.initial_credit)  # fmt: skip
        self._next_kind += 1
        self.kinds[kind.id] = kind
        return kind

    def put(self, seq: int, value: Any, stored: int | None, contained: tuple[ObjectId, ...] = ()) -> Entry:
        """Record an object that the program made; it has one reference."""
        entry = Entry()
        entry.value = value
        entry.stored = stored
        entry.count = 1
        if contained:
            self.refs.contain(entry, contained)
        self.refs.owned[seq] = entry
        return entry

    def submit(self, kind: Kind, call: Any, inputs: tuple[ObjectId, ...] = (), held: tuple[ObjectId, ...] = (),
               nbytes: int = 0) -> int:  # fmt: skip
        """Take over one plain task and return the seq of its first result; each result has one reference.

        `inputs` are the objects whose values it needs, `held` all others that must live until it has settled.
        """
        index = self._next_seq
        stride = kind.stride
        self._next_seq = index + stride
        task = Task(index, kind, call, inputs, held)
        owned = self.refs.owned
        owned[index] = task
        if stride > 1:
            for seq in range(index + 1, index + stride):
                entry = owned[seq] = Entry()
                entry.count = 1
        self.unanswered += 1
        if inputs or held:
            task.nbytes = nbytes
            self._take_inputs(task)
        if kind.refused is not None:
            if task.state is not TaskState.FAILED:
                self._fail(task, TaskEvent.REFUSE, kind.refused)
        elif task.state is TaskState.READY:
            kind.ready.append(task)
            self.backlog[kind] = None
        return index

    def _take_inputs(self, task: Task) -> None:
        for oid in task.held:
            self.refs.hold(oid)
        failure = None
        for oid in task.inputs:
            self.refs.hold(oid)
            entry = self.refs.find(oid)
            if entry is None:
                failure = NodeLostMark(f"object {oid.hex()} is gone")
            elif entry.value is None:
                entry.dependents = entry.dependents or []
                entry.dependents.append(task)
                task.missing += 1
                self.ask(oid)
            elif is_failure(entry.value):
                failure = entry.value
        if task.missing or failure is not None:
            task.state = TaskState.WAITING
        if failure is not None:
            self._fail(task, TaskEvent.INPUT_FAILED, failure)

    def ask(self, oid: ObjectId) -> None:
        """Ask for the value of a borrowed object, once."""
        foreign = self.refs.foreign.get(oid)
        if foreign is not None and not (foreign.asked or foreign.adopted) and foreign.value is None:
            foreign.asked = True
            self.commands.append(Ask(oid))

    def open_array(self, kind: Kind) -> Array:
        """Begin a task array."""
        array = self.arrays[self._next_stream] = Array(self._next_stream, kind)
        self._next_stream += 1
        return array

    def extend(self, array: Array, count: int) -> None:
        """Append items to an array."""
        array.append(count)
        self.unanswered += count
        kind = array.kind
        if kind.refused is not None or array.cancelled:
            mark = kind.refused if kind.refused is not None else CancelledMark(kind.name)
            self._settle_items(array, array.take_unsent(), mark)
        elif count:
            if array not in kind.arrays:
                kind.arrays.append(array)
            self.backlog[kind] = None

    def plan_sends(self) -> None:
        """Command what credit allows to be sent, and tell the node what waits beyond it."""
        for kind in list(self.backlog):
            room = kind.room()
            if room > 0 and kind.ready:
                room -= self._send_ready(kind, room)
            while room > 0 and kind.arrays:
                room -= self._send_items(kind, room)
            waiting = kind.waiting()
            if not waiting:
                del self.backlog[kind]
            if (waiting > 0) != (kind.wanted > 0) and (not waiting or kind.outstanding >= kind.credit):
                kind.wanted = waiting
                self.commands.append(Want(kind, waiting))

    def _send_ready(self, kind: Kind, room: int) -> int:
        ready = kind.ready
        sent = 0
        batch: list[Task] = []
        expected = -1
        while ready and sent < room:
            task = ready.popleft()
            if task.state is not TaskState.READY:
                continue
            task.move(TaskEvent.SEND)
            if task.index != expected or task.attempt != batch[0].attempt:
                batch = [task]
                self.commands.append(Send(kind, task.index, task.attempt, batch))
            else:
                batch.append(task)
            expected = task.index + kind.stride
            sent += 1
            if task.nbytes:
                kind.nbytes += task.nbytes
                if kind.nbytes >= OUTSTANDING_NBYTES:
                    room = min(room, max(sent, OUTSTANDING_MIN - kind.outstanding))
        kind.outstanding += sent
        return sent

    def _send_items(self, kind: Kind, room: int) -> int:
        array = kind.arrays[0]
        span = array.next_span(room)
        if span is None:
            kind.arrays.popleft()
            return 0
        first, count, attempt = span
        kind.outstanding += count
        self.commands.append(SendItems(array, first, count, attempt))
        return count

    def on_unsent(self, array: Array, first: int, count: int, attempt: int) -> None:
        """The driver did not send these items of a SendItems after all."""
        kind = array.kind
        kind.outstanding -= count
        array.requeue(first, count, attempt)
        if array not in kind.arrays:
            kind.arrays.append(array)
        self.backlog[kind] = None

    def on_item_failed(self, array: Array, index: int, mark: Any) -> None:
        """An item of a SendItems could not be sent at all."""
        array.kind.outstanding -= 1
        self.unanswered -= array.fail_unsendable(index, mark)

    def on_item_bytes(self, array: Array, index: int, nbytes: int, held: tuple[ObjectId, ...]) -> None:
        """An item that is sent carries so many bytes and needs these objects until it settles."""
        for oid in held:
            self.refs.hold(oid)
        array.loads[index] = (nbytes, held)
        array.kind.nbytes += nbytes

    # -- what the node says ----------------------------------------------------------------------------------------

    def on_grant(self, kind_id: int, credit: int) -> None:
        """So many tasks of this kind may be outstanding in all."""
        kind = self.kinds.get(kind_id)
        if kind is not None:
            kind.credit = credit
            if kind.ready or kind.arrays:
                self.backlog[kind] = None

    def on_refused(self, kind_id: int, mark: Any) -> None:
        """No task of this kind will ever run: fail what waits; the node answers for what it has."""
        kind = self.kinds.get(kind_id)
        if kind is None or kind.refused is not None:
            return
        kind.refused = mark
        while kind.ready:
            task = kind.ready.popleft()
            if task.state is TaskState.READY:
                self._fail(task, TaskEvent.REFUSE, mark)
        while kind.arrays:
            array = kind.arrays.popleft()
            self._settle_items(array, array.take_unsent(), mark)
        self.backlog.pop(kind, None)
        if kind.wanted:
            kind.wanted = 0
            self.commands.append(Want(kind, 0))

    def on_finished(self, stream: int, first: int, attempt: int, stride: int, values: Sequence[bytes],
                    extras: Mapping[int, Extra] | None = None) -> None:  # fmt: skip
        """Results came; what belongs to an older attempt is dropped and counted.

        `extras` says, by position in `values`, which of them lie in the store or contain references.
        """
        if stream != PLAIN_STREAM:
            self._finish_items(stream, first, attempt, values, extras)
            return
        owned = self.refs.owned
        index = first
        for position in range(0, len(values), stride):
            task = owned.get(index)
            if not isinstance(task, Task) or task.attempt != attempt or task.call is None:
                self.counts["late result"] += 1
                self._discard(index, range(position, position + stride), extras)
            else:
                if extras is not None and task.state is TaskState.SENT:
                    self._take_extras(index, range(position, position + stride), extras)  # before inputs are dropped
                self._answered(task)
                if task.state is TaskState.SENT:
                    task.kind.deaths = 0
                    task.state = TaskState.FINISHED
                    self.unanswered -= 1
                    task.value = values[position]
                    if task.dependents or task.watched or task.waiting_askers or task.count <= 0:
                        self._value_arrived(ObjectId(self.incarnation, index), task)
                    for extra in range(1, stride):
                        self._set_value(index + extra, values[position + extra])
                else:
                    self.counts["result of cancelled"] += 1
                    self._discard(index, range(position, position + stride), extras)
                    self.refs.drop(ObjectId(self.incarnation, index))
            index += stride

    def _take_extras(self, index: int, positions: range, extras: Mapping[int, Extra]) -> None:
        for offset, position in enumerate(positions):
            entry, extra = self.refs.owned.get(index + offset), extras.get(position)
            if entry is not None and extra is not None:
                entry.stored = extra.stored
                self.refs.contain(entry, extra.contained)

    def _discard(self, index: int, positions: range, extras: Mapping[int, Extra] | None) -> None:
        """Free what an unwanted result left in the store."""
        for offset, position in enumerate(positions if extras else ()):
            extra = extras.get(position) if extras else None
            if extra is not None and extra.stored is not None:
                self.commands.append(Free(ObjectId(self.incarnation, index + offset), extra.stored))

    def _answered(self, task: Task) -> None:
        """The node has nothing of this attempt any more."""
        kind = task.kind
        kind.outstanding -= 1
        kind.nbytes -= task.nbytes
        if kind.ready or kind.arrays:
            self.backlog[kind] = None
        if task.inputs or task.held:
            inputs, held, task.inputs, task.held = task.inputs, task.held, (), ()
            for oid in (*inputs, *held):
                self.refs.drop(oid)
        task.call = None

    def _finish_items(self, stream: int, first: int, attempt: int, values: Sequence[bytes],
                      extras: Mapping[int, Extra] | None) -> None:  # fmt: skip
        array = self.arrays.get(stream)
        for position, extra in (extras or {}).items():
            index = first + position
            if array is not None and array.is_sent(index, attempt) and not array.is_settled(index):
                array.extras[index] = extra
                self.put(item_object(self.incarnation, stream, index).seq, values[position], *extra)
            elif extra.stored is not None:
                self.commands.append(Free(item_object(self.incarnation, stream, index), extra.stored))
        if array is None:
            self.counts["late result"] += len(values)
            return
        kind = array.kind
        accepted, answered = array.finish(first, attempt, values)
        self.counts["late result"] += len(values) - answered
        self._items_answered(array, first, len(values), answered)
        self.unanswered -= accepted
        kind.deaths = 0

    def _items_answered(self, array: Array, first: int, count: int, answered: int) -> None:
        kind = array.kind
        kind.outstanding -= answered
        if kind.ready or kind.arrays:
            self.backlog[kind] = None
        if array.loads:
            for index in range(first, first + count):
                nbytes, held = array.loads.pop(index, (0, ()))
                kind.nbytes -= nbytes
                for oid in held:
                    self.refs.drop(oid)

    def on_lost(self, cause: LostCause, spans: Iterable[Span], death: Any, mark: Any = None) -> None:
        """Tasks will bring no result from this attempt; retry them or let them fail with `mark` or a LostMark."""
        for span in spans:
            if span.stream == PLAIN_STREAM:
                for index in range(span.first, span.end, span.stride):
                    self._lose_task(index, span.attempt, cause, death, mark)
            else:
                self._lose_items(span, cause, death, mark)

    def _lose_task(self, index: int, attempt: int, cause: LostCause, death: Any, mark: Any) -> None:
        task = self.refs.owned.get(index)
        if not isinstance(task, Task) or task.attempt != attempt or task.call is None:
            self.counts["late loss"] += 1
            return
        kind = task.kind
        if task.state is not TaskState.SENT:  # cancelled before
            self._answered(task)
            self.refs.drop(ObjectId(self.incarnation, index))
            return
        if cause is LostCause.PROCESS:
            task.process_losses += 1
            kind.deaths += 1
        elif cause is LostCause.MACHINE:
            task.machine_losses += 1
        if cause in (LostCause.PROCESS, LostCause.MACHINE) and self._may_retry(
            kind, task.process_losses, task.machine_losses
        ):
            self._retry(task)
            return
        self._answered(task)
        task.move(TaskEvent.LOSE)
        self._fail_value(task, mark or LostMark(cause, kind.name, 0, attempt, death))

    def _retry(self, task: Task) -> None:
        task.kind.outstanding -= 1
        task.kind.nbytes -= task.nbytes
        task.move(TaskEvent.RETRY)
        task.attempt += 1
        task.kind.ready.append(task)
        self.backlog[task.kind] = None

    def on_raised(self, index: int, attempt: int) -> bool:
        """A plain task raised what its kind may retry; True: it will run again."""
        task = self.refs.owned.get(index)
        if not isinstance(task, Task) or task.attempt != attempt or task.state is not TaskState.SENT:
            return False
        limit = task.kind.process_retries
        if 0 <= limit <= task.process_losses:
            return False
        task.process_losses += 1
        self._retry(task)
        return True

    @staticmethod
    def _may_retry(kind: Kind, process_losses: int, machine_losses: int) -> bool:
        if kind.process_retries < 0:
            return kind.deaths < POISON_DEATHS
        return (
            process_losses <= kind.process_retries
            and machine_losses <= kind.machine_retries
            and kind.deaths < POISON_DEATHS
        )

    def _lose_items(self, span: Span, cause: LostCause, death: Any, mark: Any) -> None:
        array = self.arrays.get(span.stream)
        if array is None:
            self.counts["late loss"] += span.count
            return
        kind = array.kind
        failed: list[tuple[int, int]] = []
        for index in range(span.first, span.end):
            if not array.is_sent(index, span.attempt):
                self.counts["late loss"] += 1
                continue
            self._items_answered(array, index, 1, 1)
            if array.is_settled(index):
                array.answer_cancelled(index)
                continue
            if cause is LostCause.PROCESS:
                kind.deaths += 1
            process, machine = array.add_loss(index, cause)
            if cause in (LostCause.PROCESS, LostCause.MACHINE) and self._may_retry(kind, process, machine):
                array.requeue(index, 1, span.attempt + 1)
                if array not in kind.arrays:
                    kind.arrays.append(array)
                self.backlog[kind] = None
            else:
                failed.append((index, 1))
        for index, _ in failed:
            self._settle_items(array, [(index, 1)], mark or LostMark(cause, kind.name, index, span.attempt, death))

    def on_returned(self, spans: Iterable[Span]) -> None:
        """The node gave back tasks that had not begun; it costs them nothing."""
        for span in spans:
            if span.stream == PLAIN_STREAM:
                for index in range(span.first, span.end, span.stride):
                    task = self.refs.owned.get(index)
                    if not isinstance(task, Task) or task.attempt != span.attempt or task.call is None:
                        continue
                    if task.state is TaskState.SENT:
                        task.kind.outstanding -= 1
                        task.kind.nbytes -= task.nbytes
                        task.move(TaskEvent.RETURN)
                        task.kind.ready.append(task)
                        self.backlog[task.kind] = None
                    else:
                        self._answered(task)
                        self.refs.drop(ObjectId(self.incarnation, index))
            else:
                self._return_items(span)

    def _return_items(self, span: Span) -> None:
        array = self.arrays.get(span.stream)
        if array is None:
            return
        for index in range(span.first, span.end):
            if array.is_sent(index, span.attempt):
                self._items_answered(array, index, 1, 1)
                if array.is_settled(index):
                    array.answer_cancelled(index)
                else:
                    array.requeue(index, 1, span.attempt)
                    if array not in array.kind.arrays:
                        array.kind.arrays.append(array)
                    self.backlog[array.kind] = None

    # -- cancel ----------------------------------------------------------------------------------------------------

    def cancel(self, seq: int, *, force: bool = False, kill_after: float | None = None) -> None:
        """Settle a plain task as cancelled at once; a finished one is left alone."""
        task = self._task_of(seq)
        if task is None or task.state not in (TaskState.WAITING, TaskState.READY, TaskState.SENT):
            return
        if task.state is TaskState.SENT:
            span = Span(PLAIN_STREAM, task.index, 1, task.attempt, task.kind.stride)
            self.commands.append(SendCancel([span], force, kill_after))
        self._fail(task, TaskEvent.CANCEL, CancelledMark(task.kind.name))

    def _task_of(self, seq: int) -> Task | None:
        entry = self.refs.owned.get(seq)
        while entry is not None and not isinstance(entry, Task) and entry.value is None:
            seq -= 1  # a further result: its task's entry comes before it
            entry = self.refs.owned.get(seq)
        return entry if isinstance(entry, Task) else None

    def cancel_array(self, array: Array, *, kill_after: float | None) -> None:
        """Settle everything of an array that has not finished."""
        unsent = array.take_unsent()
        sent = array.sent_spans()
        array.cancelled = True
        if sent:
            self.commands.append(SendCancel(sent, False, kill_after))
        mark = CancelledMark(array.kind.name)
        self._settle_items(array, unsent, mark)
        self._settle_items(array, [(span.first, span.count) for span in sent], mark)

    def dispose_array(self, array: Array) -> None:
        """Forget an array that nobody will take from; frames about it that still come are late."""
        if array.finished < array.count:
            self.cancel_array(array, kill_after=None)
        self._items_answered(array, 0, array.count, array.outstanding())
        array.completions.clear()
        for index, extra in array.extras.items():
            self.take_extra(array, index, extra)
        array.extras.clear()
        self.arrays.pop(array.stream, None)

    def take_extra(self, array: Array, index: int, extra: Extra) -> None:
        """The driver has rebuilt an item's value: its views and the references inside it count for themselves now."""
        self.refs.drop(item_object(self.incarnation, array.stream, index))

    # -- settling --------------------------------------------------------------------------------------------------

    def _settle_items(self, array: Array, spans: Iterable[tuple[int, int]], mark: Any) -> None:
        for first, count in spans:
            self.unanswered -= array.fail(first, count, mark)

    def _fail(self, task: Task, event: TaskEvent, mark: Any) -> None:
        was_sent = task.state is TaskState.SENT
        task.move(event)
        if was_sent:
            task.count += 1  # its entry must be found until the node has answered for it
        else:
            inputs, held, task.inputs, task.held = task.inputs, task.held, (), ()
            task.call = None
            for oid in (*inputs, *held):
                self.refs.drop(oid)
        self._fail_value(task, mark)

    def _fail_value(self, task: Task, mark: Any) -> None:
        self.unanswered -= 1
        for seq in range(task.index, task.index + task.kind.stride):
            self._set_value(seq, mark)

    def _set_value(self, seq: int, value: Any) -> None:
        entry = self.refs.owned.get(seq)
        if entry is not None and entry.value is None:
            entry.value = value
            self._value_arrived(ObjectId(self.incarnation, seq), entry)

    def set_value(self, oid: ObjectId, value: Any, stored: int | None) -> None:
        """A borrowed or adopted object has its value now."""
        foreign = self.refs.foreign.get(oid)
        if foreign is None or foreign.value is not None:
            self.counts["late answer"] += 1
            return
        foreign.value, foreign.stored, foreign.pending = value, stored, False
        self._value_arrived(oid, foreign)

    def _value_arrived(self, oid: ObjectId, entry: Entry) -> None:
        """Pass a new value on to everyone who waits for it; chains of failures are walked without recursion."""
        pending = [(oid, entry)]
        while pending:
            oid, entry = pending.pop()
            if entry.watched:
                self.commands.append(Settled(oid, entry))
            for asker in entry.waiting_askers or ():
                self.commands.append(Answer(oid, entry.value, asker))
            entry.waiting_askers = None
            dependents, entry.dependents = entry.dependents, None
            for task in dependents or ():
                if task.state is TaskState.WAITING:
                    pending.extend(self._input_arrived(task, entry.value))
            self.refs.settle(oid)

    def _input_arrived(self, task: Task, value: Any) -> list[tuple[ObjectId, Entry]]:
        if not is_failure(value):
            task.missing -= 1
            if task.missing == 0:
                task.move(TaskEvent.INPUTS_READY)
                task.kind.ready.append(task)
                self.backlog[task.kind] = None
            return []
        task.move(TaskEvent.INPUT_FAILED)
        self.unanswered -= 1
        inputs, held, task.inputs, task.held, task.call = task.inputs, task.held, (), (), None
        for oid in (*inputs, *held):
            self.refs.drop(oid)
        failed = []
        for seq in range(task.index, task.index + task.kind.stride):
            entry = self.refs.owned.get(seq)
            if entry is not None and entry.value is None:
                entry.value = value
                failed.append((ObjectId(self.incarnation, seq), entry))
        return failed

    def on_asked(self, oid: ObjectId, asker: int) -> None:
        """A borrower wants a value: answer now or when it is there. An unknown object is answered as lost."""
        entry = self.refs.find(oid)
        if entry is None:
            self.commands.append(Answer(oid, NodeLostMark("the object was released before it was asked for"), asker))
        elif entry.value is None:
            entry.waiting_askers = entry.waiting_askers or []
            entry.waiting_askers.append(asker)
        else:
            self.commands.append(Answer(oid, entry.value, asker))

    def on_node_lost(self, mark: Any) -> None:
        """The node is gone: everything unsettled fails with `mark`, and so does what it stored."""
        for array in list(self.arrays.values()):
            self._settle_items(array, array.take_unsent(), mark)
            self._settle_items(array, [(s.first, s.count) for s in array.sent_spans()], mark)
        for kind in self.kinds.values():
            kind.ready.clear()
            kind.arrays.clear()
        self.backlog.clear()
        for seq, entry in list(self.refs.owned.items()):
            if isinstance(entry, Task) and entry.state in (TaskState.WAITING, TaskState.READY, TaskState.SENT):
                entry.state = TaskState.FAILED
                self.unanswered -= 1
            if entry.value is None or entry.stored is not None:
                entry.value = None
                self._set_value(seq, mark)
        for oid, foreign in list(self.refs.foreign.items()):
            if foreign.value is None or foreign.stored is not None:
                foreign.value = None
                self.set_value(oid, mark, None)

    def check(self) -> None:
        """Verify the invariants; for tests and the simulator."""
        self.refs.check()
        outstanding: Counter[int] = Counter()
        for entry in self.refs.owned.values():
            if isinstance(entry, Task):
                settled = entry.state in (TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED)
                assert settled == (entry.value is not None), entry
                if entry.call is not None and (entry.state is TaskState.SENT or settled):
                    outstanding[entry.kind.id] += 1
        for array in self.arrays.values():
            outstanding[array.kind.id] += array.outstanding()
            array.check()
        for kind in self.kinds.values():
            assert kind.outstanding == outstanding[kind.id], (kind.name, kind.outstanding, outstanding[kind.id])


def is_failure(value: Any) -> bool:
    """Whether an entry's value says that its task failed: a mark, or the value bytes of an error.

    Value bytes of an Outcome begin with the tag of its only field: 0x0a for a value, 0x12 for an error.
    """
    return not isinstance(value, bytes) or value[:1] == b"\x12"

"""What is lost is made again: stored results whose last copy has gone, and tasks that could not get their inputs.

A rebuild runs once however many wait for it: meanwhile the object has no value, as when it was made first. What must be
made again for it comes first in the same way, since its tasks wait for their inputs like any other.
"""

from __future__ import annotations

from typing import Any

from ..ids import ObjectId
from .books import Books
from .entries import Entry, Foreign
from .items import Items
from .lineage import LINEAGE_NBYTES, Record, lost_again
from .notices import Free, Unpin
from .orders import Ask
from .outcomes import LostCause, ObjectLostMark, is_failure
from .plain import Plain
from .settling import Settling
from .shares import OWN_NODE
from .states import TaskEvent, TaskState
from .tasks import Task


class Rebuilding:
    """Starts what must run again, or says for good that an object is lost."""

    __slots__ = ("_books", "_items", "_plain", "_refs", "_settling")

    def __init__(self, books: Books, settling: Settling, plain: Plain, items: Items) -> None:
        self._books = books
        self._refs = books.refs
        self._settling = settling
        self._plain = plain
        self._items = items

    def rebuild(self, oid: ObjectId, version: int) -> None:
        """This version can be had nowhere: make a new one. Nothing happens when there is a newer one, or will be."""
        entry = self._refs.find(oid)
        if entry is None or entry.value is None or entry.stored != version:
            return
        self._books.has_lost = True
        if isinstance(entry, Foreign):
            self._rebuild_foreign(oid, entry, version)
            return
        record = self._books.lineage.makers.get(oid.seq)
        plan = self._books.lineage.plan(record) if record is not None and entry.is_ours() else self._why_not(entry)
        if isinstance(plan, str):
            self._give_up(oid, entry, plan)
            return
        self._forget_value(oid, entry)
        self._start(plan)

    def _why_not(self, entry: Entry) -> str:
        if not entry.is_ours():
            return "it has passed to another process"
        if entry.stored == 0:
            return "it was put into the store, not made by a task"
        if isinstance(entry, Task) and not entry.kind.machine_retries:
            return f"{entry.kind.name} may not run twice"
        if self._books.lineage.evicted:
            return f"of what is known of how objects were made, more than {LINEAGE_NBYTES >> 20} MiB, the oldest went"
        return "nothing is known of how it was made"

    def _rebuild_foreign(self, oid: ObjectId, entry: Foreign, version: int) -> None:
        """Its owner must see to it; what passed here from another process cannot be made here."""
        if entry.adopted or version == 0:
            self._give_up(oid, entry, "it was put into the store, or made by a task of another process")
            return
        self._forget_value(oid, entry)
        entry.asked = True
        self._books.commands.append(Ask(oid, version))

    def _forget_value(self, oid: ObjectId, entry: Entry) -> None:
        """What an entry says is not true any more; others may still have something of it."""
        version = entry.stored
        assert version is not None
        if entry.is_ours():
            self._books.commands.append(Free(oid, version))
        elif isinstance(entry, Foreign) and entry.pinned:
            self._books.commands.append(Unpin(oid, version))
            entry.pinned = False
        entry.value = entry.stored = None
        self._refs.located.pop(oid, None)
        contained, entry.contained = entry.contained, ()
        for inner in contained:
            self._refs.drop(inner)

    def _give_up(self, oid: ObjectId, entry: Entry, reason: str) -> None:
        """It stays lost; what there may be of it is freed in the end, as if it were not."""
        if not isinstance(entry, Foreign):
            self._books.lineage.on_ended(oid.seq)
        entry.value = ObjectLostMark(oid, reason)
        self._settling.arrived(oid, entry)

    def _start(self, records: list[Record]) -> None:
        """Have these tasks run; first all their results exist again, so that each finds what it waits for."""
        owned, tasks = self._refs.owned, []
        for record in records:
            task = owned.get(record.index)
            if not isinstance(task, Task):
                task = owned[record.index] = Task(record.index, record.kind, None)
                task.count, task.state = 0, TaskState.FINISHED
            for seq in range(record.index + 1, record.index + record.kind.stride):
                if seq not in owned:
                    owned[seq] = Entry()
            if task.state is TaskState.FINISHED:
                tasks.append((task, record))
        for task, record in tasks:
            self._run_again(task, record)

    def _run_again(self, task: Task, record: Record) -> None:
        books = self._books
        books.rerun.add(task.index)
        task.count += 1  # it stays until it has ended, whatever becomes of its first result
        task.attempt, task.losses = record.attempt + 1, lost_again(record.losses)
        task.call, task.nbytes, task.missing = record.call, record.weight, 0
        task.move(TaskEvent.REBUILD)
        books.unanswered += 1
        books.counts["rebuilt"] += 1
        for oid, (value, contained) in record.inline.items():
            if self._refs.find(oid) is None:
                entry = self._refs.owned[oid.seq] = Entry(value)
                self._refs.contain(entry, contained, is_received=False)
        self._settling.take_inputs(task, record.inputs, record.held)
        if task.state is TaskState.READY:
            self._settling.queue(task)

    # -- tasks that could not get an input -----------------------------------------------------------------------------

    def on_input_lost(self, index: int, attempt: int, oid: ObjectId, version: int, node: int) -> None:
        """A plain task did not begin, since it could not get an input: it runs when that is there again."""
        task = self._plain.sent_task(index, attempt, node)
        if task is None:
            self._plain.finish_late(index, attempt, {}, node)
            return
        mark: Any = ObjectLostMark(oid, f"it could not be had where {task.kind.name} was to run")
        if self._is_elsewhere(oid, node):
            self._plain.lose(task, LostCause.MACHINE, None, mark)
            return
        self.rebuild(oid, version)
        entry = self._refs.find(oid)
        if entry is None or is_lost(entry):
            self._settling.answered(task)
            self._settling.fail(task, TaskEvent.LOSE, mark if entry is None else entry.value)
        elif entry.value is not None and entry.stored in (None, version):
            self._plain.lose(task, LostCause.MACHINE, None, mark)  # it seems to be there: but not for ever
        else:
            self._settling.send_again(task, TaskEvent.RETURN)

    def on_item_input_lost(self, stream: int, index: int, attempt: int, oid: ObjectId, version: int, node: int) -> None:
        """An item of an array did not begin, since it could not get an input: that counts as a lost machine."""
        array = self._books.arrays.get(stream)
        is_known = array is not None and array.is_sent(index, attempt, node)
        if is_known and not self._is_elsewhere(oid, node):
            self.rebuild(oid, version)
        self._items.lose(stream, index, attempt, node)

    def _is_elsewhere(self, oid: ObjectId, node: int) -> bool:
        """Whether a node could not get what lies at another one: if that is alive, the object is not lost."""
        place = self._refs.located.get(oid)
        return place is not None and place.node != node and place.node in (OWN_NODE, *self._books.nodes)


def is_lost(entry: Entry) -> bool:
    """Whether nobody will ever have the value of an object."""
    return entry.value is not None and is_failure(entry.value)

"""How stored results were made, so that a task can run again when every copy of what it stored is lost.

A record is kept while a result that its task stored can be asked for, or one that was made from it: it holds no object,
only what was said in the call, so that nothing stays in the store for its sake. In a cluster only.

    records: index of a task ─▶ Record ─▶ parents: the records of what it was made from
    makers:  seq of a stored result that is in use ─▶ Record
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ids import ObjectId
from .kinds import NO_LOSSES, Kind, Losses
from .outcomes import LostCause, is_failure
from .references import References
from .states import TaskState
from .tasks import UNSETTLED, Task

#: Bytes of calls and small inputs that are kept for tasks that may have to run again; beyond it the oldest go. Larger
#: costs the client memory, smaller lets more losses be final. The protocol's figure.
LINEAGE_NBYTES = 256 << 20

#: What a record without arguments takes, about.
RECORD_NBYTES = 600


class Record:
    """What it takes to run one task again. `uses`: its stored results that are in use, and records made from it."""

    __slots__ = ("attempt", "call", "held", "index", "inline", "inputs", "is_gone", "kind", "losses", "nbytes",
                 "parents", "uses", "weight")  # fmt: skip

    def __init__(self, task: Task, weight: int) -> None:
        self.index = task.index
        self.kind: Kind = task.kind
        self.call: Any = task.call
        self.inputs = task.inputs
        self.held = task.holds[len(task.inputs) :]
        self.inline: dict[ObjectId, tuple[Any, tuple[ObjectId, ...]]] = {}  # small inputs, and references inside them
        self.parents: dict[ObjectId, Record] = {}
        self.attempt = task.attempt
        self.losses = task.losses or NO_LOSSES
        self.weight = weight  # bytes that the call counts without its inputs
        self.nbytes = RECORD_NBYTES
        self.uses = 0
        self.is_gone = False

    def __repr__(self) -> str:
        return f"<Record {self.index} {self.kind.name} attempt {self.attempt}, {self.uses} uses>"

    def needs(self) -> Iterable[ObjectId]:
        """Every object that must be there before it runs again."""
        yield from self.inputs
        yield from self.held
        for _, contained in self.inline.values():
            yield from contained


class Lineage:
    """The records of one client."""

    __slots__ = ("_refs", "evicted", "makers", "nbytes", "records")

    def __init__(self, refs: References) -> None:
        self._refs = refs
        self.records: dict[int, Record] = {}  # the oldest first
        self.makers: dict[int, Record] = {}
        self.nbytes = 0
        self.evicted = 0  # records that went although they were in use

    def keep(self, task: Task, stored: Iterable[int]) -> None:
        """A task that has not let go of its call yet has stored these results, by seq."""
        if not task.kind.machine_retries:
            return
        record = self.records.get(task.index)
        if record is None:
            record = self._record(task)
        record.attempt, record.losses = task.attempt, task.losses or NO_LOSSES
        for seq in stored:
            if self.makers.get(seq) is not record:
                self.makers[seq] = record
                record.uses += 1
        while self.nbytes > LINEAGE_NBYTES:
            self._evict(next(iter(self.records.values())))

    def _record(self, task: Task) -> Record:
        weight = task.nbytes
        found = {oid: self._refs.find(oid) for oid in dict.fromkeys(task.holds)}
        for oid in task.inputs:
            entry = found[oid]
            weight -= len(entry.value) if entry is not None and isinstance(entry.value, bytes) else 0
        record = Record(task, max(0, weight))
        for oid in dict.fromkeys(task.inputs):
            entry = found[oid]
            if entry is not None and entry.stored is None and oid.owner == self._refs.incarnation:
                record.inline[oid] = (entry.value, entry.contained)
                record.nbytes += len(entry.value) if isinstance(entry.value, bytes) else 0
        for oid in record.needs():
            parent = self.makers.get(oid.seq) if oid.owner == self._refs.incarnation else None
            if parent is not None and oid not in record.parents:
                record.parents[oid] = parent
                parent.uses += 1
        record.nbytes += len(getattr(task.call, "body", task.call))
        self.records[task.index] = record
        self.nbytes += record.nbytes
        task.kind.records += 1
        return record

    def _evict(self, record: Record) -> None:
        """There are too many: what this one tells is lost."""
        self.evicted += 1
        for seq in range(record.index, record.index + record.kind.stride):
            if self.makers.get(seq) is record:
                del self.makers[seq]
        self._forget(record)

    def _forget(self, record: Record) -> None:
        """Take a record off the tables, and those that were kept only for its sake, without recursion."""
        ended = [record]
        while ended:
            record = ended.pop()
            if record.is_gone:
                continue
            del self.records[record.index]
            self.nbytes -= record.nbytes
            record.kind.records -= 1
            record.is_gone, record.call = True, None
            parents, record.parents = record.parents, {}
            for parent in parents.values():
                parent.uses -= 1
                if not parent.uses:
                    ended.append(parent)

    def on_ended(self, seq: int) -> None:
        """A result is in use no more, or it is not stored any more."""
        record = self.makers.pop(seq, None)
        if record is not None:
            record.uses -= 1
            if not record.uses:
                self._forget(record)

    def clear(self) -> None:
        """Nothing will be made again."""
        while self.records:
            self._evict(next(iter(self.records.values())))

    def plan(self, record: Record) -> list[Record] | str:
        """Find which tasks must run so that this one can run again, itself among them; or say why it cannot."""
        needed = {record.index: record}
        todo = [record]
        while todo:
            record = todo.pop()
            reason = self._why_not(record)
            if reason:
                return reason
            for oid in record.needs():
                if oid.owner != self._refs.incarnation or self._refs.find(oid) is not None or oid in record.inline:
                    continue  # another's is asked for again
                parent = record.parents.get(oid)
                if parent is None:
                    return f"{record.kind.name} needs an object again that was released and cannot be made again"
                if parent.index not in needed:
                    needed[parent.index] = parent
                    todo.append(parent)
        return list(needed.values())

    def _why_not(self, record: Record) -> str:
        kind = record.kind
        if record.is_gone:
            return f"what is known of how objects were made had more than {LINEAGE_NBYTES >> 20} MiB, the oldest went"
        task = self._refs.owned.get(record.index)
        state = task.state if isinstance(task, Task) else TaskState.FINISHED
        if state in UNSETTLED:
            return ""  # it runs again already
        if state is not TaskState.FINISHED or kind.refused is not None:
            return f"{kind.name} failed when it was to run again"
        if not kind.may_retry(LostCause.MACHINE, lost_again(record.losses)):
            return f"{kind.name} has been run again as often as its retries allow"
        return ""

    def note_rerun(self, task: Task) -> None:
        """A task that ran again has ended: what runs next must not be taken for this."""
        record = self.records.get(task.index)
        if record is not None:
            record.attempt, record.losses = task.attempt, task.losses or NO_LOSSES

    def check(self) -> None:
        """Verify the invariants; for tests and the simulator."""
        uses: dict[int, int] = dict.fromkeys(self.records, 0)
        for seq, record in self.makers.items():
            entry = self._refs.owned.get(seq)
            assert entry is not None and (entry.value is None or entry.stored is not None), f"{seq} is not in use"
            assert not is_failure(entry.value) or entry.value is None, f"{seq} has failed"
            uses[record.index] += 1
        for record in self.records.values():
            for parent in record.parents.values():
                if not parent.is_gone:
                    uses[parent.index] += 1
        for record in self.records.values():
            assert record.uses == uses[record.index] > 0, (record, uses[record.index])
        assert self.nbytes == sum(record.nbytes for record in self.records.values())


def lost_again(losses: Losses) -> Losses:
    """A stored result was lost with its machine: that counts, though its task had ended there."""
    return losses.counting(LostCause.MACHINE)

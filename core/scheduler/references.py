"""References: which objects a process owns or borrows, and what keeps each of them alive.

An owned object lives while its count is above zero or somebody borrows it. The count is one number for everything this
process knows: variables, tasks in flight that were given it, values that contain it, views over its bytes. A borrowed
object is one whose owner is another process: its first reference tells the owner, its last one tells it again.

Collections and their invariants:
- `owned[seq]`: every object of this process that is alive or still being made.
- `foreign[id]`: every object of another owner that something here refers to (count > 0), or that passed into this
  process's ownership when the task that made it ended (`adopted`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..ids import ObjectId


class Free(NamedTuple):
    """Tell the node that nobody can ask for this stored object any more."""

    oid: ObjectId
    version: int


class Borrow(NamedTuple):
    """Tell the owner that this process refers to its object."""

    oid: ObjectId


class Release(NamedTuple):
    """Tell the owner that this process no longer does; `version` is what the node pinned here (None: nothing)."""

    oid: ObjectId
    version: int | None


class ReleaseTo(NamedTuple):
    """Tell the process that took an object over that this one no longer refers to it."""

    oid: ObjectId
    owner: int


class Entry:
    """One object. `value` is None while it is being made; then value bytes, or a mark of how its task ended."""

    __slots__ = ("borrowers", "contained", "count", "dependents", "handed_to", "stored", "value", "waiting_askers",
                 "watched")  # fmt: skip

    def __init__(self) -> None:
        self.value: Any = None
        self.count = 0
        self.stored: int | None = None  # version of the extent that holds it, None while it has none
        self.borrowers: set[int] | None = None
        self.handed_to: int | None = None  # the process that owns it now, when it was passed on
        self.contained: tuple[ObjectId, ...] = ()  # references inside the value, held as long as this entry
        self.dependents: list[Any] | None = None  # tasks that wait for the value
        self.watched = False  # settling it must be reported
        self.waiting_askers: list[int] | None = None  # borrowers that asked for the value before it was there


class Foreign(Entry):
    """An object of another owner. `adopted`: its ownership passed here; else it is borrowed."""

    __slots__ = ("adopted", "asked", "pending")

    def __init__(self) -> None:
        super().__init__()
        self.adopted = False
        self.asked = False
        self.pending = False  # adopted, but its task still runs where it was started


class References:
    """The tables of one process. Methods append what must be told to others to `commands`."""

    def __init__(self, incarnation: int, commands: list[Any]) -> None:
        self.incarnation = incarnation
        self.commands = commands
        self.owned: dict[int, Entry] = {}
        self.foreign: dict[ObjectId, Foreign] = {}

    def find(self, oid: ObjectId) -> Entry | None:
        """Return the entry of an object that something here refers to."""
        return self.owned.get(oid.seq) if oid.owner == self.incarnation else self.foreign.get(oid)

    def hold(self, oid: ObjectId) -> None:
        """Count one more reference; the first to a foreign object borrows it."""
        if oid.owner == self.incarnation:
            entry = self.owned.get(oid.seq)
            if entry is not None:
                entry.count += 1
            return
        foreign = self.foreign.get(oid)
        if foreign is None:
            foreign = self.foreign[oid] = Foreign()
            self.commands.append(Borrow(oid))
        foreign.count += 1

    def drop(self, oid: ObjectId) -> None:
        """Count one reference less; the last one ends the object or the borrowing."""
        if oid.owner == self.incarnation:
            entry = self.owned.get(oid.seq)
            if entry is not None:
                entry.count -= 1
                if entry.count <= 0:
                    self.settle_owned(oid.seq, entry)
            return
        foreign = self.foreign.get(oid)
        if foreign is not None:
            foreign.count -= 1
            if foreign.count <= 0:
                self._settle_foreign(oid, foreign)

    def settle_owned(self, seq: int, entry: Entry) -> None:
        """End an owned object that nobody refers to; one still being made ends when its value arrives."""
        if entry.count > 0 or entry.borrowers or entry.value is None:
            return
        del self.owned[seq]
        if entry.handed_to is not None:
            self.commands.append(ReleaseTo(ObjectId(self.incarnation, seq), entry.handed_to))
        elif entry.stored is not None:
            self.commands.append(Free(ObjectId(self.incarnation, seq), entry.stored))
        self._drop_contained(entry)

    def _settle_foreign(self, oid: ObjectId, foreign: Foreign) -> None:
        if foreign.count > 0 or foreign.borrowers or foreign.pending:
            return
        del self.foreign[oid]
        if foreign.adopted:
            self.commands.append(Free(oid, foreign.stored or 0))  # inline ones too: the node forgets who took them over
        else:
            self.commands.append(Release(oid, foreign.stored))
        self._drop_contained(foreign)

    def _drop_contained(self, entry: Entry) -> None:
        contained, entry.contained = entry.contained, ()
        for inner in contained:
            self.drop(inner)

    def contain(self, entry: Entry, inner: tuple[ObjectId, ...]) -> None:
        """Record that a value contains references, each held as long as the value."""
        for oid in inner:
            self.hold(oid)
        entry.contained += inner

    def on_borrowed(self, oid: ObjectId, borrower: int) -> bool:
        """Another process refers to an object of ours; False: it is gone already."""
        entry = self.find(oid)
        if entry is None:
            return False
        if entry.borrowers is None:
            entry.borrowers = set()
        entry.borrowers.add(borrower)
        return True

    def on_released(self, oid: ObjectId, borrower: int) -> None:
        """Another process no longer does."""
        entry = self.find(oid)
        if entry is not None and entry.borrowers is not None:
            entry.borrowers.discard(borrower)
            self._settle(oid, entry)

    def on_borrower_died(self, borrower: int) -> None:
        """Forget everything a dead process borrowed."""
        for oid in [ObjectId(self.incarnation, seq) for seq, e in self.owned.items() if e.borrowers]:
            self.on_released(oid, borrower)
        for oid in [oid for oid, f in self.foreign.items() if f.borrowers]:
            self.on_released(oid, borrower)

    def on_adopted(self, oid: ObjectId, value: Any, stored: int | None) -> Foreign:
        """Take over an object that a finished task left alive; `value` None: its task still runs."""
        foreign = self.foreign.get(oid)
        if foreign is None:
            foreign = self.foreign[oid] = Foreign()
        foreign.adopted = True
        foreign.pending = value is None
        if value is not None:
            foreign.value, foreign.stored = value, stored
        return foreign

    def _settle(self, oid: ObjectId, entry: Entry) -> None:
        if isinstance(entry, Foreign):
            self._settle_foreign(oid, entry)
        else:
            self.settle_owned(oid.seq, entry)

    def settle(self, oid: ObjectId) -> None:
        """End an object if nothing refers to it."""
        entry = self.find(oid)
        if entry is not None and entry.count <= 0:
            self._settle(oid, entry)

    def check(self) -> None:
        """Verify the invariants; for tests and the simulator."""
        for seq, entry in self.owned.items():
            assert entry.count >= 0, (seq, entry.count)
            assert entry.count > 0 or entry.borrowers or entry.value is None, f"object {seq} outlives its references"
        for oid, foreign in self.foreign.items():
            assert foreign.count > 0 or foreign.borrowers or foreign.pending or foreign.adopted, oid

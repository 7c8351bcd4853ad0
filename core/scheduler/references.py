"""References: which objects a process owns or borrows, and what keeps each of them alive.

An owned object lives while its count is above zero or somebody borrows it. The count is one number for everything this
process knows: variables, tasks in flight that were given it, values that contain it, views over its bytes. A borrowed
object is one whose owner is another process: its first reference tells the owner, its last one tells it again. An
object that was passed on (`handed_to`) lives here while something here refers to it; whoever took it over counts its
borrowers.

Collections and their invariants:
- `owned[seq]`: every object of this process that is alive or still being made.
- `foreign[id]`: every object of another owner that something here refers to (count > 0), or that passed into this
  process's ownership when the task that made it ended (`adopted`). An own object is among them when it was passed on,
  has ended here, and came back in a value.
- `passed_on`: numbers of own objects that were passed on and have ended here, the latest of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..ids import NO_EXTENT, ObjectId
from .entries import Entry, Extra, Foreign

#: How many objects that were passed on are remembered. One that comes back after so many others counts as released;
#: an entry costs about 100 bytes.
PASSED_ON_KEPT = 1 << 16


class Free(NamedTuple):
    """Tell the node that nobody can ask for this object any more: it is stored (`version`), or it was adopted."""

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


class Forward(NamedTuple):
    """Tell the process that took an object over what a borrower (by now no longer) said to this one."""

    oid: ObjectId
    borrower: int
    owner: int
    is_release: bool


class Unpin(NamedTuple):
    """Give back the pin of an extent that this process will not look at."""

    oid: ObjectId
    version: int


class References:
    """The tables of one process. Methods append what must be told to others to `commands`."""

    __slots__ = ("commands", "foreign", "incarnation", "owned", "passed_on")

    def __init__(self, incarnation: int, commands: list[Any]) -> None:
        self.incarnation = incarnation
        self.commands = commands
        self.owned: dict[int, Entry] = {}
        self.foreign: dict[ObjectId, Foreign] = {}
        self.passed_on: dict[int, None] = {}

    def find(self, oid: ObjectId) -> Entry | None:
        """Return the entry of an object that something here refers to."""
        if oid.owner == self.incarnation:
            entry = self.owned.get(oid.seq)
            if entry is not None:
                return entry
        return self.foreign.get(oid)

    def hold(self, oid: ObjectId) -> None:
        """Count one more reference; the first to a foreign object borrows it.

        So does the first to an own one that was passed on and has ended here: it comes back as another's. Any other own
        object that is gone stays so.
        """
        entry = self.find(oid)
        if entry is None:
            if oid.owner == self.incarnation and oid.seq not in self.passed_on:
                return
            entry = self.foreign[oid] = Foreign()
            self.commands.append(Borrow(oid))
        entry.count += 1

    def drop(self, oid: tuple[int, int]) -> None:
        """Count one reference less; the last one ends the object or the borrowing."""
        owner, seq = oid
        if owner != self.incarnation:
            self._drop_foreign(ObjectId(owner, seq))
            return
        entry = self.owned.get(seq)
        if entry is None:
            self._drop_foreign(ObjectId(owner, seq))
            return
        entry.count = count = entry.count - 1
        if count > 0 or entry.value is None:
            return
        if entry.stored is None and not entry.contained and entry.borrowers is None and entry.handed_to is None:
            del self.owned[seq]  # the commonest end: nobody needs to hear of it
        else:
            self.settle(ObjectId(owner, seq), entry)

    def _drop_foreign(self, oid: ObjectId) -> None:
        foreign = self.foreign.get(oid)
        if foreign is not None:
            foreign.count -= 1
            self.settle(oid, foreign)

    def settle(self, oid: ObjectId, entry: Entry) -> None:
        """End an object if nothing uses it, and whatever only it referred to, without recursion.

        Harmless for an entry that has ended already.
        """
        if entry.is_used() or self.find(oid) is not entry:
            return
        ended: list[tuple[ObjectId, Entry]] = [(oid, entry)]
        while ended:
            oid, entry = ended.pop()
            self._forget(oid, entry)
            contained, entry.contained = entry.contained, ()
            for inner in contained:
                kept = self.find(inner)
                if kept is not None:
                    kept.count -= 1
                    if not kept.is_used():
                        ended.append((inner, kept))

    def _forget(self, oid: ObjectId, entry: Entry) -> None:
        """Take an object off the tables and tell whom it concerns."""
        if not isinstance(entry, Foreign):
            del self.owned[oid.seq]
            if entry.handed_to is not None:
                self.passed_on[oid.seq] = None
                if len(self.passed_on) > PASSED_ON_KEPT:
                    del self.passed_on[next(iter(self.passed_on))]
                self.commands.append(ReleaseTo(oid, entry.handed_to))
            elif entry.stored is not None:
                self.commands.append(Free(oid, entry.stored))
            return
        del self.foreign[oid]
        if entry.handed_to is not None:
            if entry.pinned and entry.stored is not None:
                self.commands.append(Unpin(oid, entry.stored))
            self.commands.append(ReleaseTo(oid, entry.handed_to))
            return
        if not entry.adopted:
            self.commands.append(Release(oid, entry.stored))
            return
        if entry.pinned and entry.stored is not None:
            self.commands.append(Unpin(oid, entry.stored))
        self.commands.append(Free(oid, NO_EXTENT if entry.stored is None else entry.stored))  # it routes adopted ones

    def contain(self, entry: Entry, inner: tuple[ObjectId, ...]) -> None:
        """Record that a value contains references, each held as long as the value."""
        for oid in inner:
            self.hold(oid)
        entry.contained += inner

    def discard(self, oid: ObjectId, extra: Extra) -> None:
        """Nobody wants a value that came: free what it left in the store, and what only it would have kept."""
        if extra.stored is not None:
            self.commands.append(Free(oid, extra.stored))
        for inner in extra.contained:
            entry = self.find(inner)
            if entry is not None:
                self.settle(inner, entry)

    # -- what other processes say --------------------------------------------------------------------------------------

    def on_borrowed(self, oid: ObjectId, borrower: int) -> bool:
        """Another process refers to an object of ours; False: it is gone already."""
        entry = self.find(oid)
        if entry is None:
            self._forward_stray(oid, borrower, is_release=False)
            return False
        if entry.handed_to is not None:
            self.commands.append(Forward(oid, borrower, entry.handed_to, False))
        elif borrower != self.incarnation:  # we: borrowed before it was handed to us
            if entry.borrowers is None:
                entry.borrowers = set()
            entry.borrowers.add(borrower)
        return True

    def on_released(self, oid: ObjectId, borrower: int) -> None:
        """Another process no longer does."""
        entry = self.find(oid)
        if entry is None:
            self._forward_stray(oid, borrower, is_release=True)
            return
        if entry.handed_to is not None:
            self.commands.append(Forward(oid, borrower, entry.handed_to, True))
        elif entry.borrowers is not None:
            entry.borrowers.discard(borrower)
            self.settle(oid, entry)

    def _forward_stray(self, oid: ObjectId, borrower: int, *, is_release: bool) -> None:
        """It was on its way to us when the object passed on; the node knows who has it now, or its maker drops it."""
        if oid.owner != self.incarnation:
            self.commands.append(Forward(oid, borrower, oid.owner, is_release))

    def on_borrower_died(self, borrower: int) -> None:
        """Forget everything a dead process borrowed or asked for."""
        entries: list[tuple[ObjectId, Entry]] = [(ObjectId(self.incarnation, s), e) for s, e in self.owned.items()]
        for oid, entry in [*entries, *self.foreign.items()]:
            if entry.waiters is not None and borrower in entry.waiters.askers:
                entry.waiters.askers = [asker for asker in entry.waiters.askers if asker != borrower]
            if entry.borrowers and borrower in entry.borrowers:
                entry.borrowers.discard(borrower)
                self.settle(oid, entry)

    def on_adopted(self, oid: ObjectId, value: Any, stored: int | None) -> Foreign:
        """Take over an object that a finished task left alive; `value` None: its task still runs."""
        foreign = self.foreign.get(oid)
        if foreign is None:
            foreign = self.foreign[oid] = Foreign()
        foreign.adopted = True
        if value is not None:
            foreign.value, foreign.stored = value, stored
        foreign.pending = foreign.value is None
        return foreign

    def check(self) -> None:
        """Verify the invariants; for tests and the simulator."""
        for seq, entry in self.owned.items():
            assert entry.count >= 0, (seq, entry.count)
            assert entry.is_used(), f"object {seq} outlives its references"
            assert entry.value is None or entry.waiters is None, f"object {seq} settled and told nobody"
        for oid, foreign in self.foreign.items():
            assert foreign.count >= 0, (oid, foreign.count)
            assert foreign.adopted or foreign.count > 0, f"borrowed object {oid} outlives its references"
            assert foreign.value is not None or foreign.pending or not foreign.adopted, f"object {oid} waits for nobody"

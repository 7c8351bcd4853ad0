"""References: which objects a process owns or borrows, and what keeps each of them alive.

An owned object lives while its count is above zero or somebody borrows it. The count is one number for everything this
process knows: variables, tasks in flight that were given it, values that contain it, views over its bytes. A borrowed
object is one whose owner is another process.

The owner counts each borrower, and all counts are sums, so that it does not matter in which order words about an object
arrive: a count may be below zero while what makes up for it is on its way. A process is counted once

- when it says so itself: it met the reference in the arguments of a task, whose owner holds it meanwhile (`Borrow`);
- for each reference in a value that it is sent. Whoever sends the value sees to that first, while it holds the object
  itself: it counts its own objects, and the node, as it passes the message on, tells the owners of the others (`lend`).

When the last reference goes, a borrower gives all of that back with one word (`Release`). How an object passes to
another owner is in `passing`.

Collections and their invariants:
- `owned[seq]`: every object of this process that is alive or still being made, and those which it has passed on and
  still refers to.
- `foreign[id]`: every object of another owner that something here refers to, or that passed into this process's
  ownership. An own object is among them when it was passed on, has ended here, and came back.
- `passed_on`: numbers of own objects that were passed on and have ended here, the latest of them, and to whom.
- `heirs`: own objects without a value that went out in the result of a task, and who shall own each from then on.
- `located`: where the values of objects in these tables lie that are stored, as far as it is known; in a cluster.
- `leaving`: objects that were passed on, until the node has confirmed it, and who inherits each if it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..ids import NO_EXTENT, ObjectId
from .entries import Anchor, Entry, Extra, Foreign, Place
from .notices import AnchorEnded, Borrow, Free, PassOn, Release, Unpin, Word

#: How many objects that were passed on are remembered. One that comes back after so many others counts as released;
#: an entry costs about 100 bytes.
PASSED_ON_KEPT = 1 << 16


class References:
    """The tables of one process. Methods append what must be told to others to `commands`."""

    __slots__ = ("commands", "foreign", "heirs", "incarnation", "leaving", "located", "on_ended", "owned",
                 "passed_on")  # fmt: skip

    def __init__(self, incarnation: int, commands: list[Any]) -> None:
        self.incarnation = incarnation
        self.commands = commands
        self.owned: dict[int, Entry] = {}
        self.foreign: dict[ObjectId, Foreign] = {}
        self.passed_on: dict[int, int] = {}
        self.heirs: dict[ObjectId, int] = {}
        self.leaving: dict[ObjectId, int] = {}
        self.located: dict[ObjectId, Place] = {}
        self.on_ended: Callable[[int], None] = lambda seq: None  # told of own objects that were stored

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
            entry.granted = 1
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
        if count > 0 or (entry.value is None and type(entry) is not Anchor):
            return
        if (type(entry) is not Anchor and entry.stored is None and not entry.contained and entry.borrowers is None
                and entry.handed_to is None and not self.heirs):  # fmt: skip
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
        self.heirs.pop(oid, None)
        if self.located:
            self.located.pop(oid, None)
        if not isinstance(entry, Foreign):
            del self.owned[oid.seq]
            if entry.handed_to is not None:
                self.passed_on[oid.seq] = entry.handed_to
                if len(self.passed_on) > PASSED_ON_KEPT:
                    del self.passed_on[next(iter(self.passed_on))]
                self.commands.append(Release(oid, entry.stored, 1))
            elif entry.stored is not None:
                self.commands.append(Free(oid, entry.stored))
            elif isinstance(entry, Anchor):
                self.commands.append(AnchorEnded(entry.binding))
            if entry.stored is not None:
                self.on_ended(oid.seq)
            return
        del self.foreign[oid]
        if not entry.adopted:
            self.commands.append(Release(oid, entry.stored, entry.granted))
            return
        if entry.pinned and entry.stored is not None:
            self.commands.append(Unpin(oid, entry.stored))
        if entry.handed_to is not None:
            self.commands.append(Release(oid, entry.stored, 1))
        else:
            # Of an adopted one that is not stored too: the node routes what is said of it.
            self.commands.append(Free(oid, NO_EXTENT if entry.stored is None else entry.stored))

    # -- references inside values --------------------------------------------------------------------------------------

    def contain(self, entry: Entry, inner: tuple[ObjectId, ...], *, is_received: bool) -> None:
        """Record that a value contains references, each held as long as the value.

        `is_received`: another process sent the value, so that we are counted for each of them.
        """
        for oid in inner:
            if is_received:
                self._receive(oid).count += 1
            else:
                self.hold(oid)
        entry.contained += inner

    def _receive(self, oid: ObjectId) -> Entry:
        """A reference has come for which its owner counts us once."""
        entry = self.find(oid)
        if entry is None:
            entry = self.foreign[oid] = Foreign()
        if entry.is_ours():
            self.count(entry, self.incarnation, -1)
        elif entry.handed_to is not None:
            self.commands.append(Release(oid, None, 1))  # its owner counts us for what we have left already
        elif isinstance(entry, Foreign):
            entry.granted += 1
        return entry

    def discard(self, oid: ObjectId, extra: Extra) -> None:
        """Nobody wants a value that came: free what it left in the store, and give back what it refers to."""
        if extra.stored is not None:
            self.commands.append(Free(oid, extra.stored))
        self.give_back(extra.contained)

    def give_back(self, inner: Iterable[ObjectId]) -> None:
        """Nobody wants these references that came in a value."""
        for oid in inner:
            self.settle(oid, self._receive(oid))

    def lend(self, oids: Iterable[ObjectId], receiver: int) -> tuple[ObjectId, ...]:
        """Another process is about to be sent these references; returns those which their owners must count.

        We hold all of them, until the message has gone.
        """
        others = []
        for oid in oids:
            entry = self.find(oid)
            if entry is not None and entry.is_ours():
                self.count(entry, receiver, 1)
            else:
                others.append(oid)
        return tuple(others)

    @staticmethod
    def count(entry: Entry, borrower: int, times: int) -> None:
        """Count a borrower so many times more."""
        if entry.borrowers is None:
            entry.borrowers = {}
        left = entry.borrowers.get(borrower, 0) + times
        if left:
            entry.borrowers[borrower] = left
        else:
            entry.borrowers.pop(borrower, None)
        if not entry.borrowers:
            entry.borrowers = None

    # -- what other processes say --------------------------------------------------------------------------------------

    def on_borrowed(self, oid: ObjectId, borrower: int, by: int = 0) -> None:
        """Another process refers to an object of ours; `by`: see Word."""
        self.take_note(oid, Word(borrower, 1, by))

    def on_released(self, oid: ObjectId, borrower: int, times: int = 1) -> None:
        """Another process no longer does; it was counted so many times."""
        self.take_note(oid, Word(borrower, -times, 0))

    def take_note(self, oid: ObjectId, word: Word) -> None:
        """Count as a word says. One about an object that has gone comes from, or by way of, a process that died."""
        entry = self.find(oid)
        if entry is None or not (entry.is_ours() or oid in self.leaving):
            return
        self.count(entry, word.borrower, word.times)
        if word.by:
            self._note_heir(oid, entry, word)
        self.settle(oid, entry)

    def _note_heir(self, oid: ObjectId, entry: Entry, word: Word) -> None:
        """Who passes on what it is to inherit names the next heir, even when it has inherited it meanwhile."""
        named = self.leaving if oid in self.leaving else self.heirs
        if oid in named:
            if named[oid] == word.by:
                named[oid] = word.borrower
        elif word.by == self.incarnation and entry.value is not None:
            self.heirs[oid] = word.borrower
            self.commands.append(PassOn(oid))

    def on_borrower_died(self, borrower: int) -> None:
        """Forget everything a dead process borrowed, asked for, or was to inherit."""
        for oid in [oid for oid, heir in self.heirs.items() if heir == borrower]:
            del self.heirs[oid]
        entries: list[tuple[ObjectId, Entry]] = [(ObjectId(self.incarnation, s), e) for s, e in self.owned.items()]
        for oid, entry in [*entries, *self.foreign.items()]:
            if entry.waiters is not None and borrower in entry.waiters.askers:
                entry.waiters.askers = [asker for asker in entry.waiters.askers if asker != borrower]
            if entry.borrowers is not None and borrower in entry.borrowers:
                self.count(entry, borrower, -entry.borrowers[borrower])
                self.settle(oid, entry)

    def check(self) -> None:
        """Verify the invariants; for tests and the simulator."""
        for seq, entry in self.owned.items():
            assert entry.count >= 0, (seq, entry.count)
            assert entry.count or entry.is_used(), f"object {seq} outlives its references"
            assert entry.value is None or entry.waiters is None, f"object {seq} settled and told nobody"
            assert not isinstance(entry, Anchor) or entry.handed_to is None, f"anchor {seq} has left its maker"
        for oid, foreign in self.foreign.items():
            assert foreign.count >= 0, (oid, foreign.count)
            assert foreign.count or foreign.is_used(), f"foreign object {oid} outlives its references"
            assert foreign.is_ours() or oid in self.leaving or foreign.borrowers is None, f"{oid} is not ours to lend"
            assert foreign.value is not None or not foreign.adopted, f"object {oid} passed here without its value"
        for oid in self.located:
            entry_there = self.find(oid)
            assert entry_there is not None and entry_there.stored is not None, f"{oid} lies nowhere"
        for oid in self.leaving:
            leaving = self.find(oid)
            assert leaving is not None and leaving.handed_to is not None, f"{oid} is not leaving"

"""How objects pass to another owner: what a task made and returned outlives its process.

An object that a task returned passes to the task's owner, its *heir*, as soon as it has a value; until then it stays
with its maker, which stays alive as long, and the heir borrows it like anybody. An heir that returns it in turn names
the next heir. A value takes along what it contains.

From the moment the node passes such a message on, all words about the object go to its new owner; those which the old
one had not heard when it wrote the message the node repeats to the new one. So the new owner hears everything in the
order in which the node did, as if it had always been the owner, even if the old one dies. The node confirms; until then
the old owner keeps everything, for when the new one has gone the node refuses. What lies in the store it pins for the
process that passes it on, as for any borrower: that may have views of it.

A worker that ends by itself passes what others still refer to on to its root, the client at the top, which stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..ids import ObjectId
from .books import Books
from .entries import Anchor, Entry, Extra, Foreign
from .notices import PassOn, Release, Unpin
from .settling import Settling


class Passed(NamedTuple):
    """An object that passes to another owner: its value, and how often who is counted, who passes it on included."""

    oid: ObjectId
    value: Any
    holdings: tuple[tuple[int, int], ...]


class Parcel(NamedTuple):
    """What goes along with a message: objects that pass to its receiver, references that their owners must count."""

    receiver: int
    passed: list[Passed]
    lent: list[ObjectId]


class Adopted(NamedTuple):
    """An object that passes into this process's ownership; `holdings` as in Passed."""

    oid: ObjectId
    value: Any
    extra: Extra | None
    holdings: tuple[tuple[int, int], ...]


class Passing:
    """Passes objects on and takes them over."""

    __slots__ = ("_books", "_refs", "_settling")

    def __init__(self, books: Books, settling: Settling) -> None:
        self._books = books
        self._refs = books.refs
        self._settling = settling

    def pass_on(self, oids: Iterable[ObjectId], receiver: int) -> Parcel:
        """References travel to the owner of a task in its result; the caller sends the parcel with it at once.

        To ourselves nothing passes: it is ours.
        """
        return self._pack({}, list(oids), receiver)

    def hand_over(self, oid: ObjectId) -> Parcel | None:
        """Obey PassOn; None when there is no reason any more. The caller sends the parcel at once."""
        heir = self._refs.heirs.pop(oid, None)
        entry = self._refs.find(oid)
        if heir is None or heir == self._books.incarnation or entry is None or not entry.is_ours():
            return None
        return self._pack({oid: entry}, list(entry.contained), heir)

    def _pack(self, leaving: dict[ObjectId, Entry], references: list[ObjectId], receiver: int) -> Parcel:
        """Lend all references, and those inside the values that leave with them."""
        refs = self._refs
        lent: list[ObjectId] = []
        while references:
            oid = references.pop()
            lent += refs.lend((oid,), receiver)
            entry = refs.find(oid)
            if entry is None or not entry.is_ours() or oid in leaving or receiver == self._books.incarnation:
                continue
            if isinstance(entry, Anchor):
                continue  # it stays where the actor's binding is
            if entry.value is None:
                refs.heirs[oid] = receiver
                entry.wait_list()  # so that its value is taken note of
            else:
                refs.heirs.pop(oid, None)
                leaving[oid] = entry
                references += entry.contained
        return Parcel(receiver, [self._leave(oid, entry, receiver) for oid, entry in leaving.items()], lent)

    def _leave(self, oid: ObjectId, entry: Entry, receiver: int) -> Passed:
        holdings = dict(entry.borrowers or {})
        mine = self._books.incarnation
        holdings[mine] = holdings.get(mine, 0) + 1
        entry.handed_to = receiver
        entry.count += 1
        self._refs.leaving[oid] = receiver
        return Passed(oid, entry.value, tuple(holdings.items()))

    def bequeath(self, heir: int) -> None:
        """This process is about to end: pass on everything of ours that others refer to."""
        refs = self._refs
        owned = [(ObjectId(self._books.incarnation, seq), entry) for seq, entry in refs.owned.items()]
        for oid, entry in [*owned, *refs.foreign.items()]:
            if entry.is_ours() and entry.value is not None and entry.borrowers and not isinstance(entry, Anchor):
                refs.heirs[oid] = heir
                self._books.commands.append(PassOn(oid))

    def on_passed(self, oid: ObjectId, *, is_refused: bool) -> None:
        """The node says what became of an object that was passed on: it has a new owner, or stays ours."""
        refs = self._refs
        heir, entry = refs.leaving.pop(oid), refs.find(oid)
        assert entry is not None and entry.handed_to is not None
        if is_refused:
            self._books.counts["passing refused"] += 1
            refs.count(entry, self._books.incarnation, 1)
            self._end_borrowing(oid, 1)
            if heir != entry.handed_to:
                refs.heirs[oid] = heir
                self._books.commands.append(PassOn(oid))
            entry.handed_to = None
        else:
            entry.borrowers = None
        entry.count -= 1
        refs.settle(oid, entry)

    def on_adopted(self, adoptions: Sequence[Adopted]) -> None:
        """Objects pass into our ownership, in any order. Who passed them on holds them yet."""
        refs = self._refs
        for oid, value, extra, holdings in adoptions:
            entry = refs.find(oid)
            if entry is None:
                entry = refs.foreign[oid] = Foreign()
            if entry.handed_to is not None and entry.stored is not None:
                self._books.commands.append(Unpin(oid, entry.stored))  # we own what keeps our views now
            self._end_borrowing(oid, entry.take_over())
            for process, times in holdings:
                refs.count(entry, process, times)
            stored, contained = (extra.stored, extra.contained) if extra is not None else (None, ())
            if entry.value is None:
                entry.value, entry.stored = value, stored
                refs.contain(entry, contained, is_received=True)
                self._settling.arrived(oid, entry)
            else:
                if entry.stored is None:
                    entry.stored = stored  # it was given up here, but lies there
                refs.give_back(contained)
                refs.settle(oid, entry)

    def _end_borrowing(self, oid: ObjectId, times: int) -> None:
        """We own what we borrowed: say so to ourselves, by way of the node, which is behind all that we have lent."""
        if times:
            self._books.commands.append(Release(oid, None, times))

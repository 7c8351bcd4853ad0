"""Values that pass between processes: asked for, answered, adopted, lost with their owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..ids import ObjectId
from .books import Books
from .entries import Extra
from .orders import Answer
from .outcomes import ReleasedMark
from .references import Unpin
from .settling import Settling


class Adopted(NamedTuple):
    """An object that passes into this process's ownership; `value` None: its task still runs.

    `borrower` is a process that still refers to it, or 0. An object with several comes once for each of them.
    """

    oid: ObjectId
    value: Any
    extra: Extra | None
    borrower: int


class Borrowing:
    """Answers borrowers, and takes values of objects that other processes made."""

    __slots__ = ("_books", "_refs", "_settling")

    def __init__(self, books: Books, settling: Settling) -> None:
        self._books = books
        self._refs = books.refs
        self._settling = settling

    def on_asked(self, oid: ObjectId, asker: int) -> None:
        """A borrower wants a value: answer now or when it is there. An object that is gone is answered as released."""
        entry = self._refs.find(oid)
        if entry is None:
            mark = ReleasedMark(f"object {oid.hex()} was released before it was asked for")
            self._books.commands.append(Answer(oid, mark, asker))
        elif entry.value is None:
            entry.wait_list().askers.append(asker)
        else:
            self._books.commands.append(Answer(oid, entry.value, asker))

    def on_answered(self, oid: ObjectId, value: Any, extra: Extra | None) -> None:
        """The owner of a borrowed object has answered; an extent was pinned for us when the answer passed the node."""
        stored, contained = extra if extra is not None else (None, ())
        foreign = self._refs.foreign.get(oid)
        if foreign is not None and foreign.value is None:
            foreign.pinned = stored is not None
        elif stored is not None:
            self._books.commands.append(Unpin(oid, stored))
        self._set_value(oid, value, stored, contained)

    def _set_value(self, oid: ObjectId, value: Any, stored: int | None, contained: tuple[ObjectId, ...] = ()) -> None:
        """A borrowed or adopted object has its value now; one that nobody waits for is counted."""
        foreign = self._refs.foreign.get(oid)
        if foreign is None or foreign.value is not None:
            self._books.counts["late answer"] += 1
            return
        foreign.value, foreign.stored, foreign.pending = value, stored, False
        self._refs.contain(foreign, contained)
        self._settling.arrived(oid, foreign)

    def on_adopted(self, adoptions: Sequence[Adopted]) -> None:
        """Objects pass into our ownership, in any order.

        All of them are entered before the first value is: a value that contains another of them must not borrow it.
        A new one that nothing refers to yet stays for the result that it came with. With ourselves as borrower nothing
        passes: a task of our own has run here, and we hold what its result contains until that has come back.
        """
        adoptions = [adopted for adopted in adoptions if adopted.borrower != self._books.incarnation]
        known = {adopted.oid for adopted in adoptions if adopted.oid in self._refs.foreign}
        for oid, _, _, borrower in adoptions:
            self._refs.on_adopted(oid, None, None)
            if borrower:
                self._refs.on_borrowed(oid, borrower)
        for oid, value, extra, _ in adoptions:
            if value is not None:
                self._refs.hold(oid)
                self._set_value(oid, value, *(extra if extra is not None else (None, ())))
                self._refs.foreign[oid].count -= 1
                if oid in known:
                    self._refs.settle(oid, self._refs.foreign[oid])

    def on_owner_lost(self, incarnation: int, mark: Any) -> None:
        """A process is gone: what it had not told us of its objects it never will.

        What we only borrowed may have passed to another process: it is asked for again, where it was asked for.
        """
        for oid, foreign in list(self._refs.foreign.items()):
            if oid.owner == incarnation and foreign.value is None:
                if foreign.adopted:
                    self._set_value(oid, mark, None)
                elif foreign.asked:
                    foreign.asked = False
                    self._settling.ask(oid)

    def on_object_lost(self, oid: ObjectId, mark: Any) -> None:
        """Nobody can answer for a borrowed object any more."""
        self._set_value(oid, mark, None)

    def on_node_lost(self, mark: Any) -> None:
        """No answer will come, and what was stored is gone."""
        for oid, foreign in list(self._refs.foreign.items()):
            if foreign.stored is not None:
                foreign.value, foreign.stored, foreign.pinned = mark, None, False
            elif foreign.value is None:
                self._set_value(oid, mark, None)

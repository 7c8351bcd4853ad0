"""Values that pass between processes: asked for, answered, lost with their owner."""

from __future__ import annotations

from typing import Any

from ..ids import ObjectId
from .books import Books
from .entries import Extra
from .notices import Unpin
from .orders import Answer
from .outcomes import OwnerLostMark, ReleasedMark
from .rebuilding import Rebuilding
from .settling import Settling


class Borrowing:
    """Answers borrowers, and takes values of objects that other processes own."""

    __slots__ = ("_books", "_rebuilding", "_refs", "_settling")

    def __init__(self, books: Books, settling: Settling, rebuilding: Rebuilding) -> None:
        self._books = books
        self._refs = books.refs
        self._settling = settling
        self._rebuilding = rebuilding

    def on_asked(self, oid: ObjectId, asker: int, version: int) -> None:
        """A borrower wants a value: answer now or when it is there. An object that is gone is answered as released.

        `version` is one that it could get nowhere, or 0.
        """
        refs = self._refs
        if version:
            self._rebuilding.rebuild(oid, version)
        entry = refs.find(oid)
        if entry is None:
            self._books.commands.append(Answer(oid, self._mark_gone(oid), asker, ()))
        elif entry.value is None:
            askers = entry.wait_list().askers
            if asker not in askers:
                askers.append(asker)
        else:
            self._books.commands.append(Answer(oid, entry.value, asker, refs.lend(entry.contained, asker)))

    def _mark_gone(self, oid: ObjectId) -> Any:
        heir = self._refs.passed_on.get(oid.seq) if oid.owner == self._books.incarnation else None
        if heir is not None:
            return OwnerLostMark(heir)  # else the node would have asked there
        return ReleasedMark(f"object {oid.hex()} was released before it was asked for")

    def on_answered(self, oid: ObjectId, value: Any, extra: Extra | None) -> None:
        """The owner of a borrowed object has answered; an extent was pinned for us when the answer passed the node."""
        stored, contained = (extra.stored, extra.contained) if extra is not None else (None, ())
        foreign = self._refs.foreign.get(oid)
        if foreign is not None and foreign.value is None:
            foreign.pinned = stored is not None
        elif stored is not None:
            self._books.commands.append(Unpin(oid, stored))
        self._set_value(oid, value, stored, contained)
        if extra is not None and stored is not None and foreign is not None and foreign.stored == stored:
            self._books.locate(oid, extra.node, extra.nbytes)

    def _set_value(self, oid: ObjectId, value: Any, stored: int | None, contained: tuple[ObjectId, ...] = ()) -> None:
        """A borrowed object has its value now; one that nobody waits for is counted."""
        foreign = self._refs.foreign.get(oid)
        if foreign is None or foreign.value is not None:
            self._books.counts["late answer"] += 1
            self._refs.give_back(contained)
            return
        foreign.value, foreign.stored = value, stored
        self._refs.contain(foreign, contained, is_received=True)
        self._settling.arrived(oid, foreign)

    def on_owner_lost(self, incarnation: int) -> None:
        """A process is gone: what it had not answered may have passed to another, and is asked for again."""
        for oid, foreign in list(self._refs.foreign.items()):
            if oid.owner == incarnation and foreign.value is None and foreign.asked:
                foreign.asked = False
                self._settling.ask(oid)

    def on_object_lost(self, oid: ObjectId, mark: Any) -> None:
        """Nobody can answer for a borrowed object any more."""
        self._set_value(oid, mark, None)

    def on_link_lost(self, mark: Any) -> None:
        """No answer will come, and what was stored is gone."""
        for oid, foreign in list(self._refs.foreign.items()):
            if foreign.stored is not None:
                foreign.value, foreign.stored, foreign.pinned = mark, None, False
            elif foreign.value is None:
                self._set_value(oid, mark, None)

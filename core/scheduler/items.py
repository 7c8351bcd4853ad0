"""Task arrays: what the program, the driver and the node say of their items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..ids import ObjectId, Span, item_object
from .arrays import Array
from .books import Books
from .entries import Entry, Extra
from .kinds import Kind
from .orders import SendCancel
from .outcomes import CancelledMark, LostCause, LostMark, PoisonMark


class Items:
    """Keeps the arrays in step with credits, references and counts."""

    __slots__ = ("_books", "_next_stream", "_refs")

    def __init__(self, books: Books) -> None:
        self._books = books
        self._refs = books.refs
        self._next_stream = 1

    # -- what the program does -----------------------------------------------------------------------------------------

    def open(self, kind: Kind) -> Array:
        """Begin a task array."""
        array = self._books.arrays[self._next_stream] = Array(self._next_stream, kind)
        self._next_stream += 1
        kind.opened += 1
        return array

    def extend(self, array: Array, count: int) -> None:
        """Append items; those of a refused kind or a cancelled array fail at once."""
        array.append(count)
        self._books.unanswered += count
        if array.kind.refused is not None:
            self.fail(array, array.take_unsent(), array.kind.refused)
        elif array.cancelled:
            self.fail(array, array.take_unsent(), CancelledMark(array.kind.name))
        elif count:
            self._queue(array)

    def cancel(self, array: Array, kill_after: float | None) -> None:
        """Settle everything that has not finished."""
        unsent = array.take_unsent()
        array.cancelled = True
        mark = CancelledMark(array.kind.name)
        self.fail(array, unsent, mark)
        for node in array.nodes():
            sent = array.sent_spans(node)
            if sent:
                self._books.commands.append(SendCancel(sent, False, kill_after, node))
                self.fail(array, [(span.first, span.count) for span in sent], mark)

    def dispose(self, array: Array) -> None:
        """Nobody will take from an array any more; it is forgotten once the node has answered for all of it."""
        if array.finished < array.count:
            self.cancel(array, None)
        array.completions.clear()
        while array.extras:
            self.take_extra(array, array.extras.popitem()[0])
        array.disposed = True
        self._forget_answered(array)

    def take_extra(self, array: Array, index: int) -> None:
        """The array no longer refers to a result that it kept; views over it may."""
        self._refs.drop(item_object(self._books.incarnation, array.stream, index))

    def fail(self, array: Array, spans: Iterable[tuple[int, int]], mark: Any) -> None:
        """Settle items without a result: (first, count) each."""
        for first, count in spans:
            self._books.unanswered -= array.fail(first, count, mark)

    # -- what the driver could not send --------------------------------------------------------------------------------

    def on_unsent(self, array: Array, first: int, count: int, attempt: int, node: int) -> None:
        """Items of a SendItems were not sent after all; they keep their attempt."""
        for index in range(first, first + count):
            if self._withdraw(array, index, attempt, node):
                self._send_again(array, index, attempt)
        self._forget_answered(array)

    def on_item_failed(self, array: Array, index: int, mark: Any, node: int) -> None:
        """An item of a SendItems could not be sent at all."""
        if self._withdraw(array, index, array.attempt_of(index), node):
            self.fail(array, [(index, 1)], mark)
        self._forget_answered(array)

    def on_item_bytes(self, array: Array, index: int, nbytes: int, held: tuple[ObjectId, ...], node: int) -> None:
        """An item that is sent carries so many bytes and needs these objects until the node has answered for it."""
        if not array.is_sent(index, array.attempt_of(index), node):
            return  # the node was lost meanwhile
        for oid in held:
            self._refs.hold(oid)
        array.loads[index] = (nbytes, held)
        array.kind.shares[node].nbytes += nbytes

    # -- what a node says ----------------------------------------------------------------------------------------------

    def on_finished(self, stream: int, first: int, attempt: int, values: Sequence[bytes],
                    extras: Mapping[int, Extra] | None, node: int) -> None:  # fmt: skip
        """Results came; what belongs to an older attempt, or comes from where it is not, is dropped and counted."""
        books = self._books
        array = books.arrays.get(stream)
        for position, extra in extras.items() if extras else ():
            index = first + position
            if array is not None and array.is_sent(index, attempt, node) and not array.is_settled(index):
                self._keep(array, index, values[position], extra)  # before a load goes: it may be in it
            else:
                self._refs.discard(item_object(books.incarnation, stream, index), extra)
        if array is None:
            books.counts["late result"] += len(values)
            return
        if array.loads:
            for index in range(first, first + len(values)):
                if array.is_sent(index, attempt, node):
                    self._unload(array, index, node)
        accepted, answered = array.finish(first, attempt, values, node)
        kind = array.kind
        if not node:
            kind.home.outstanding -= answered
        elif answered:
            kind.shares[node].answered(answered)
        books.unanswered -= accepted
        if accepted:
            kind.deaths = 0
        if accepted != len(values):
            books.counts["late result"] += len(values) - answered
            books.counts["result of cancelled"] += answered - accepted
            self._forget_answered(array)

    def _keep(self, array: Array, index: int, value: bytes, extra: Extra) -> None:
        """Make an object of a result that lies in the store or contains references; the array refers to it."""
        array.extras[index] = extra
        entry = Entry(value, 1, extra.stored)
        self._refs.contain(entry, extra.contained, is_received=True)
        oid = item_object(self._books.incarnation, array.stream, index)
        self._refs.owned[oid.seq] = entry
        if extra.stored is not None:
            self._books.locate(oid, extra.node, extra.nbytes)

    def on_lost(self, span: Span, cause: LostCause, death: Any, mark: Any, node: int) -> None:
        """Runs will bring no result: the items run again, or fail with `mark` or a LostMark."""
        for array, index in self._answered(span, "late loss", node):
            self._lose(array, index, cause, death, mark)

    def _lose(self, array: Array, index: int, cause: LostCause, death: Any, mark: Any,
              reason: str | None = None) -> None:  # fmt: skip
        """A run is lost; `reason`: why its node was, if that is the cause."""
        kind = array.kind
        if cause is LostCause.PROCESS:
            kind.deaths += 1
        attempt = array.attempt_of(index)
        if kind.may_retry(cause, array.add_loss(index, cause, with_node=reason is not None)):
            self._send_again(array, index, attempt + 1)
            return
        self.fail(array, [(index, 1)], mark or LostMark(cause, kind.name, index, attempt, death, reason or ""))
        if cause is LostCause.PROCESS and kind.is_poisoned():
            self.fail(array, array.take_unsent(), PoisonMark(kind.name, kind.deaths, death))

    def lose(self, stream: int, index: int, attempt: int, node: int) -> None:
        """An item could not run where it was sent, through no fault of its own."""
        self.on_lost(Span(stream, index, 1, attempt), LostCause.MACHINE, None, None, node)

    def on_returned(self, span: Span, node: int) -> None:
        """A node gave back items that had not begun; it costs them nothing."""
        for array, index in self._answered(span, "late return", node):
            self._send_again(array, index, span.attempt)

    def on_session_closed(self, node: int) -> None:
        """A node has begun nothing of what was sent there last."""
        for array, index in self._all_at(node):
            self._send_again(array, index, array.attempt_of(index))

    def on_session_lost(self, node: int, reason: str) -> None:
        """A node has gone with everything there."""
        for array, index in self._all_at(node):
            self._lose(array, index, LostCause.MACHINE, None, None, reason)

    def on_link_lost(self, mark: Any) -> None:
        """Nothing will be answered any more."""
        for array in list(self._books.arrays.values()):
            self.fail(array, array.take_unsent(), mark)
            for node in array.nodes():
                self.fail(array, [(span.first, span.count) for span in array.sent_spans(node)], mark)
                array.forget_owed(node)
            array.places = None
            for index in list(array.loads):
                self._unload(array, index, None)
            self._forget_answered(array)

    # -- between events ------------------------------------------------------------------------------------------------

    def _all_at(self, node: int) -> Iterable[tuple[Array, int]]:
        """Take note that a further node has nothing any more; yields what has not settled."""
        for array in list(self._books.arrays.values()):
            runs = array.places.get(node) if array.places is not None else None
            for first, end in runs or ():
                for index in range(first, end):
                    if self._withdraw(array, index, array.attempt_of(index), node):
                        yield array, index
            if array.places is not None:
                array.places.pop(node, None)
            self._forget_answered(array)

    def _answered(self, span: Span, late: str, node: int) -> Iterable[tuple[Array, int]]:
        """Take note that a node has nothing of these items any more; yields those that have not settled."""
        array = self._books.arrays.get(span.stream)
        if array is None:
            self._books.counts[late] += span.count
            return
        for index in range(span.first, span.end):
            if not array.is_sent(index, span.attempt, node):
                self._books.counts[late] += 1
            elif self._withdraw(array, index, span.attempt, node):
                yield array, index
        self._forget_answered(array)

    def _withdraw(self, array: Array, index: int, attempt: int, node: int) -> bool:
        """The node has nothing of a run any more. True: the item has not settled, send it again or fail it."""
        if not array.is_sent(index, attempt, node):
            return False
        array.kind.shares[node].answered(1)
        self._unload(array, index, node)
        return array.withdraw(index, node)

    def _send_again(self, array: Array, index: int, attempt: int) -> None:
        if array.kind.refused is not None:
            self.fail(array, [(index, 1)], array.kind.refused)
        else:
            array.requeue(index, 1, attempt)
            self._queue(array)

    def _queue(self, array: Array) -> None:
        kind = array.kind
        if array not in kind.arrays:
            kind.arrays.append(array)
        self._books.backlog[kind] = None

    def _unload(self, array: Array, index: int, node: int | None) -> None:
        """Let go of what an item needed where it was sent; None: at no node does anything count any more."""
        nbytes, held = array.loads.pop(index, (0, ()))
        if node is not None:
            array.kind.shares[node].nbytes -= nbytes
        for oid in held:
            self._refs.drop(oid)

    def _forget_answered(self, array: Array) -> None:
        is_over = array.disposed and not array.outstanding()
        if is_over and self._books.arrays.pop(array.stream, None) is not None:
            array.kind.opened -= 1

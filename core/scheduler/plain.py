"""What the node says of plain tasks: results, losses and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ids import ObjectId, Span
from .books import Books
from .entries import Extra
from .outcomes import LostCause, LostMark
from .settling import Settling
from .states import TaskEvent, TaskState
from .tasks import Task

SENT, FINISHED = TaskState.SENT, TaskState.FINISHED


class Plain:
    """Settles plain tasks, sends them again, or drops what came too late."""

    __slots__ = ("_books", "_owned", "_refs", "_settling")

    def __init__(self, books: Books, settling: Settling) -> None:
        self._books = books
        self._refs = books.refs
        self._owned = books.refs.owned
        self._settling = settling

    def on_finished(self, first: int, attempt: int, stride: int, values: Sequence[bytes],
                    extras: Mapping[int, Extra] | None) -> None:  # fmt: skip
        """Results came: `stride` values a task."""
        if stride == 1 and not extras:
            self._finish_simple(first, attempt, values)
            return
        for position in range(0, len(values), stride):
            index = first + position
            parts = {p - position: e for p, e in extras.items() if position <= p < position + stride} if extras else {}
            task = self.sent_task(index, attempt)
            if task is not None:
                self._finish(task, values[position : position + stride], parts)
            else:
                self._finish_late(index, attempt, parts)

    def _finish_simple(self, first: int, attempt: int, values: Sequence[bytes]) -> None:
        """One value a task, inline and without references: what nearly all results are."""
        books, owned = self._books, self._owned
        settled = 0
        index = first
        for value in values:
            task = owned.get(index)
            if type(task) is Task and task.state is SENT and task.attempt == attempt:
                kind = task.kind
                kind.outstanding -= 1
                kind.deaths = 0
                if task.nbytes or task.holds:
                    kind.nbytes -= task.nbytes
                    self._settling.let_go(task)
                task.call = None
                task.state = FINISHED  # SENT, FINISH → FINISHED: the table's only way
                task.value = value
                settled += 1
                if task.waiters is not None or task.count <= 0:
                    self._settling.arrived(ObjectId(books.incarnation, index), task)
            else:
                self._finish_late(index, attempt, {})
            index += 1
        books.unanswered -= settled

    def _finish(self, task: Task, values: Sequence[bytes], extras: Mapping[int, Extra]) -> None:
        entries = [self._owned[task.index + offset] for offset in range(len(values))]  # none ends without a value
        for offset, extra in extras.items():
            entries[offset].stored = extra.stored
            # Before the inputs go: it may be one of them.
            self._refs.contain(entries[offset], extra.contained, is_received=True)
        self._settling.answered(task)
        task.kind.deaths = 0
        task.move(TaskEvent.FINISH)
        self._books.unanswered -= 1
        for entry, value in zip(entries, values, strict=True):
            entry.value = value
        for offset, entry in enumerate(entries):
            self._settling.arrived(ObjectId(self._books.incarnation, task.index + offset), entry)

    def _finish_late(self, index: int, attempt: int, extras: Mapping[int, Extra]) -> None:
        """Drop results that nobody wants."""
        self._books.counts["result of cancelled" if self._answer_owed(index, attempt) else "late result"] += 1
        for offset, extra in extras.items():
            self._refs.discard(ObjectId(self._books.incarnation, index + offset), extra)

    def sent_task(self, index: int, attempt: int) -> Task | None:
        """Find the task whose run this was, when it has not settled."""
        task = self._owned.get(index)
        if isinstance(task, Task) and task.state is SENT and task.attempt == attempt:
            return task
        return None

    def _answer_owed(self, index: int, attempt: int) -> bool:
        """Take note that the node has answered for a cancelled task; False when it owed nothing."""
        task = self._books.owed.get(index)
        if task is None or task.attempt != attempt:
            return False
        del self._books.owed[index]
        self._settling.answered(task)
        return True

    def on_lost(self, span: Span, cause: LostCause, death: Any, mark: Any) -> None:
        """Runs will bring no result: the tasks run again, or fail with `mark` or a LostMark."""
        for index in range(span.first, span.end, span.stride):
            task = self.sent_task(index, span.attempt)
            if task is not None:
                self._lose(task, cause, death, mark)
            elif not self._answer_owed(index, span.attempt):
                self._books.counts["late loss"] += 1

    def _lose(self, task: Task, cause: LostCause, death: Any, mark: Any) -> None:
        kind = task.kind
        if cause is LostCause.PROCESS:
            task.process_losses += 1
            kind.deaths += 1
        elif cause is LostCause.MACHINE:
            task.machine_losses += 1
        if kind.may_retry(cause, task.process_losses, task.machine_losses):
            self._retry(task)
        else:
            self._settling.answered(task)
            self._settling.fail(task, TaskEvent.LOSE, mark or LostMark(cause, kind.name, None, task.attempt, death))

    def _retry(self, task: Task) -> None:
        task.attempt += 1
        self._settling.send_again(task, TaskEvent.RETRY)

    def on_raised(self, index: int, attempt: int) -> bool:
        """A task raised what its kind may retry; True: it will run again."""
        task = self.sent_task(index, attempt)
        if task is None:
            return False
        kind = task.kind
        kind.deaths = 0
        if kind.refused is not None or 0 <= kind.process_retries <= task.process_losses:
            return False
        task.process_losses += 1
        self._retry(task)
        return True

    def on_returned(self, span: Span) -> None:
        """The node gave back tasks that had not begun; it costs them nothing."""
        for index in range(span.first, span.end, span.stride):
            task = self.sent_task(index, span.attempt)
            if task is not None:
                self._settling.send_again(task, TaskEvent.RETURN)
            else:
                self._answer_owed(index, span.attempt)

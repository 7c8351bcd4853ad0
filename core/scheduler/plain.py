"""What nodes say of plain tasks: results, losses and returns. A node speaks for those that were sent there last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..ids import ObjectId, Span
from .books import Books
from .entries import Entry, Extra
from .kinds import NO_LOSSES
from .outcomes import LostCause, LostMark
from .settling import Settling
from .shares import Share
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
                    extras: Mapping[int, Extra] | None, node: int) -> None:  # fmt: skip
        """Results came: `stride` values a task."""
        for position in range(0, len(values), stride):
            index = first + position
            parts = {p - position: e for p, e in extras.items() if position <= p < position + stride} if extras else {}
            task = self.sent_task(index, attempt, node)
            if task is not None:
                self._finish(task, values[position : position + stride], parts)
            else:
                self.finish_late(index, attempt, parts, node)

    def on_small(self, first: int, attempt: int, values: Sequence[bytes], node: int) -> None:
        """One value a task, inline and without references, as nearly all results are; of no task that runs again."""
        books, owned = self._books, self._owned
        answered = settled = 0
        share: Share | None = None  # whose tasks `answered` counts
        index = first
        for value in values:
            task = owned.get(index)
            if type(task) is Task and task.state is SENT and task.attempt == attempt:
                at = task.share
                if at is not share:
                    if at is None or at.node != node:
                        self.finish_late(index, attempt, {}, node)
                        index += 1
                        continue
                    if share is not None:
                        share.answered(answered)
                        settled, answered = settled + answered, 0
                    share = at
                    task.kind.deaths = 0
                answered += 1
                if task.nbytes or task.holds:
                    at.nbytes -= task.nbytes  # type: ignore[union-attr]  # what is sent has a share
                    self._settling.let_go(task)
                task.call = None
                task.state = FINISHED  # SENT, FINISH → FINISHED: the table's only way
                task.value = value
                if task.waiters is not None or task.count <= 0:
                    self._settling.arrived(ObjectId(books.incarnation, index), task)
            else:
                self.finish_late(index, attempt, {}, node)
            index += 1
        if share is not None:
            share.outstanding -= answered  # as `answered`, without a call at home
            if node:
                share.stir()
        books.unanswered -= settled + answered

    def _finish(self, task: Task, values: Sequence[bytes], extras: Mapping[int, Extra]) -> None:
        """Give a task's results their values; one that had its value before, since another was lost, keeps that."""
        oids = [ObjectId(self._books.incarnation, task.index + offset) for offset in range(len(values))]
        entries = [self._owned.get(oid.seq) for oid in oids]
        made = {offset: entry for offset, entry in enumerate(entries) if entry is not None and entry.value is None}
        for offset, extra in extras.items():
            if offset not in made:
                self._refs.discard(oids[offset], extra)
                continue
            made[offset].stored = extra.stored
            # Before the inputs go: it may be one of them.
            self._refs.contain(made[offset], extra.contained, is_received=True)
            if extra.stored is not None:
                self._books.locate(oids[offset], extra.node, extra.nbytes)
        self._keep_lineage(task, made)
        self._settling.answered(task)
        task.kind.deaths = 0
        task.move(TaskEvent.FINISH)
        self._books.unanswered -= 1
        for offset, entry in made.items():
            entry.value = values[offset]
        self._settling.end_rerun(task)
        for oid, found in zip(oids, entries, strict=True):
            if found is not None:
                self._settling.arrived(oid, found)

    def _keep_lineage(self, task: Task, made: Mapping[int, Entry]) -> None:
        books = self._books
        if books.is_joined:
            stored = [task.index + offset for offset, entry in made.items() if entry.stored is not None]
            if stored:
                books.lineage.keep(task, stored)
            for offset, entry in made.items():
                if entry.stored is None:
                    books.lineage.on_ended(task.index + offset)

    def finish_late(self, index: int, attempt: int, extras: Mapping[int, Extra], node: int) -> None:
        """Drop results that nobody wants."""
        self._books.counts["result of cancelled" if self._answer_owed(index, attempt, node) else "late result"] += 1
        for offset, extra in extras.items():
            self._refs.discard(ObjectId(self._books.incarnation, index + offset), extra)

    def sent_task(self, index: int, attempt: int, node: int) -> Task | None:
        """Find the task whose run at this node it was, when it has not settled."""
        task = self._owned.get(index)
        if isinstance(task, Task) and task.state is SENT and task.attempt == attempt and task.is_at(node):
            return task
        return None

    def _answer_owed(self, index: int, attempt: int, node: int) -> bool:
        """Take note that the node has answered for a cancelled task; False when it owed nothing."""
        task = self._books.owed.get(index)
        if task is None or task.attempt != attempt or not task.is_at(node):
            return False
        del self._books.owed[index]
        self._settling.answered(task)
        return True

    def on_lost(self, span: Span, cause: LostCause, death: Any, mark: Any, node: int) -> None:
        """Runs will bring no result: the tasks run again, or fail with `mark` or a LostMark."""
        for index in range(span.first, span.end, span.stride):
            task = self.sent_task(index, span.attempt, node)
            if task is not None:
                self.lose(task, cause, death, mark)
            elif not self._answer_owed(index, span.attempt, node):
                self._books.counts["late loss"] += 1

    def lose(self, task: Task, cause: LostCause, death: Any, mark: Any, reason: str | None = None) -> None:
        """A run is lost; `reason`: why its node was, if that is the cause."""
        kind = task.kind
        if cause is LostCause.PROCESS:
            kind.deaths += 1
        task.losses = (task.losses or NO_LOSSES).counting(cause, with_node=reason is not None)
        if kind.may_retry(cause, task.losses):
            self._retry(task)
        else:
            mark = mark or (kind.refused if cause is LostCause.MACHINE else None)  # it was over before its machine was
            mark = mark or LostMark(cause, kind.name, None, task.attempt, death, reason or "", kind.lane is not None)
            self._settling.answered(task)
            self._settling.fail(task, TaskEvent.LOSE, mark)

    def _retry(self, task: Task) -> None:
        task.attempt += 1
        self._settling.send_again(task, TaskEvent.RETRY)

    def on_raised(self, index: int, attempt: int, node: int) -> bool:
        """A task raised what its kind may retry; True: it will run again."""
        task = self.sent_task(index, attempt, node)
        if task is None:
            return False
        kind = task.kind
        kind.deaths = 0
        if kind.refused is not None or 0 <= kind.process_retries <= (task.losses or NO_LOSSES).process:
            return False
        task.losses = (task.losses or NO_LOSSES).counting(LostCause.PROCESS)
        self._retry(task)
        return True

    def on_returned(self, span: Span, node: int) -> None:
        """A node gave back tasks that had not begun; it costs them nothing."""
        for index in range(span.first, span.end, span.stride):
            task = self.sent_task(index, span.attempt, node)
            if task is not None:
                self._settling.send_again(task, TaskEvent.RETURN)
            else:
                self._answer_owed(index, span.attempt, node)

    def on_session_closed(self, node: int) -> None:
        """A node has begun nothing of what was sent there last."""
        for task in self._all_at(node):
            self._settling.send_again(task, TaskEvent.RETURN)

    def on_session_lost(self, node: int, reason: str) -> None:
        """A node has gone with everything there."""
        for task in self._all_at(node):
            self.lose(task, LostCause.MACHINE, None, None, reason)

    def _all_at(self, node: int) -> Iterator[Task]:
        """Take note that a further node has nothing any more; yields what has not settled."""
        for task in [task for task in self._books.owed.values() if task.is_at(node)]:
            self._answer_owed(task.index, task.attempt, node)
        for entry in list(self._owned.values()):
            if isinstance(entry, Task) and entry.state is SENT and entry.is_at(node):
                yield entry

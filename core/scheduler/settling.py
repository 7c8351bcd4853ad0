"""How values reach those who wait for them: dependents, borrowers, and whoever watches.

Everything here walks chains with a list instead of recursion: ten thousand tasks may each need the one before.
"""

from __future__ import annotations

from typing import Any

from ..ids import ObjectId
from .books import Books
from .entries import Entry
from .notices import PassOn
from .orders import Answer, Ask, Settled
from .outcomes import ReleasedMark, is_failure
from .states import TaskEvent, TaskState
from .tasks import Task

Arrival = tuple[ObjectId, Entry]


class Settling:
    """Gives entries their values, makes tasks ready, and lets go of what tasks held."""

    __slots__ = ("_books", "_refs")

    def __init__(self, books: Books) -> None:
        self._books = books
        self._refs = books.refs

    def take_inputs(self, task: Task, inputs: tuple[ObjectId, ...], held: tuple[ObjectId, ...]) -> None:
        """Hold what a new task needs; it waits for what has no value yet and fails with an input that failed."""
        task.inputs = inputs
        task.holds = inputs + held
        for oid in task.holds:
            self._refs.hold(oid)
        failure = None
        for oid in inputs:
            entry = self._refs.find(oid)
            if entry is None:
                failure = ReleasedMark(f"object {oid.hex()} was released before a task was given it")
            elif entry.value is None:
                entry.wait_list().dependents.append(task)
                task.missing += 1
                self.ask(oid)
            elif is_failure(entry.value):
                failure = entry.value
            else:
                task.nbytes += len(entry.value)  # it travels with the call
        if task.missing or failure is not None:
            task.state = TaskState.WAITING
            task.kind.unready += 1
        if failure is not None:
            self.fail(task, TaskEvent.INPUT_FAILED, failure)

    def ask(self, oid: ObjectId) -> None:
        """Ask for the value of a borrowed object, once."""
        foreign = self._refs.foreign.get(oid)
        if foreign is not None and not foreign.asked and foreign.value is None:
            foreign.asked = True
            self._books.commands.append(Ask(oid))

    def queue(self, task: Task) -> None:
        """A task in READY may be sent."""
        lane = task.kind.lane
        if lane is not None:
            lane.add(task)
            self._books.backlog[lane] = None
        else:
            task.kind.ready.append(task)
            self._books.backlog[task.kind] = None

    def send_again(self, task: Task, event: TaskEvent) -> None:
        """A task that a node had goes back into the queue, or fails with its refused kind."""
        kind = task.kind
        self._take_off(task)
        if kind.refused is not None:
            self.fail(task, TaskEvent.REFUSE, kind.refused)
        else:
            task.move(event)
            self.queue(task)

    def answered(self, task: Task) -> None:
        """The node has nothing of a task any more, and it will not be sent again."""
        self._take_off(task)
        self.let_go(task)

    def _take_off(self, task: Task) -> None:
        share = task.share
        assert share is not None
        share.answered(1)
        share.nbytes -= task.nbytes

    def let_go(self, task: Task) -> None:
        """Drop what a task held."""
        holds, task.holds, task.inputs, task.call = task.holds, (), (), None
        for oid in holds:
            self._refs.drop(oid)

    def fail(self, task: Task, event: TaskEvent, mark: Any) -> None:
        """Settle a task without a result; what the node still owes an answer for keeps what it holds."""
        if task.state is TaskState.WAITING:
            task.kind.unready -= 1
        task.move(event)
        self._books.unanswered -= 1
        if task.index not in self._books.owed:
            self.let_go(task)
        self._pass_on(self._set_results(task, mark))

    def _set_results(self, task: Task, mark: Any) -> list[Arrival]:
        """Give every result of a task the same mark; returns what is to be passed on."""
        arrivals: list[Arrival] = []
        for seq in range(task.index, task.index + task.kind.stride):
            entry = self._refs.owned.get(seq)  # none ends without a value
            if entry is not None and (entry.value is None or entry is task):
                if entry.value is None:
                    entry.value = mark
                    self._books.lineage.on_ended(seq)
                arrivals.append((ObjectId(self._books.incarnation, seq), entry))
        self.end_rerun(task)
        return arrivals

    def end_rerun(self, task: Task) -> None:
        """A task has ended; if that was not for the first time, it does not keep its entry any more."""
        if task.index in self._books.rerun:
            self._books.rerun.remove(task.index)
            self._books.lineage.note_rerun(task)
            task.count -= 1

    def recheck(self, task: Task) -> bool:
        """Whether a task in READY may be sent: an input may have been lost since it became ready.

        Else it waits for the input again, or has failed with it.
        """
        failure = None
        for oid in task.inputs:
            entry = self._refs.find(oid)
            if entry is None or entry.value is None:
                continue
            if is_failure(entry.value):
                failure = entry.value
        if failure is not None:
            self.fail(task, TaskEvent.INPUT_FAILED, failure)
            return False
        for oid in task.inputs:
            entry = self._refs.find(oid)
            if entry is not None and entry.value is None:
                entry.wait_list().dependents.append(task)
                task.missing += 1
        if task.missing:
            task.move(TaskEvent.INPUT_LOST)
            task.kind.unready += 1
        return not task.missing

    def arrived(self, oid: ObjectId, entry: Entry) -> None:
        """Pass on the value that an entry has got just now; end the entry when nobody refers to it."""
        self._pass_on([(oid, entry)])

    def _pass_on(self, arrivals: list[Arrival]) -> None:
        commands = self._books.commands
        while arrivals:
            oid, entry = arrivals.pop()
            waiters, entry.waiters = entry.waiters, None
            if waiters is not None:
                if waiters.watched:
                    commands.append(Settled(oid, entry))
                for asker in waiters.askers:
                    commands.append(Answer(oid, entry.value, asker, self._refs.lend(entry.contained, asker)))
                if oid in self._refs.heirs:
                    commands.append(PassOn(oid))
                for task in waiters.dependents:
                    if task.state is TaskState.WAITING:
                        arrivals += self._input_arrived(task, entry.value)
            self._refs.settle(oid, entry)

    def _input_arrived(self, task: Task, value: Any) -> list[Arrival]:
        """Tell a task of an input; returns its results when that ended it."""
        if is_failure(value):
            task.kind.unready -= 1
            task.move(TaskEvent.INPUT_FAILED)
            self._books.unanswered -= 1
            self.let_go(task)
            return self._set_results(task, value)
        task.nbytes += len(value)  # it travels with the call
        task.missing -= 1
        if not task.missing:
            task.kind.unready -= 1
            task.move(TaskEvent.INPUTS_READY)
            self.queue(task)
        return []

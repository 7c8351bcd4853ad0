"""What credit allows to be sent, and what the node is told of the rest."""

from __future__ import annotations

from .books import Books
from .kinds import OUTSTANDING_MIN, OUTSTANDING_NBYTES, Kind
from .orders import Send, SendItems, Want
from .states import TaskState
from .tasks import Task

READY, SENT = TaskState.READY, TaskState.SENT


class Sending:
    """Empties the backlog as far as credit goes."""

    __slots__ = ("_books",)

    def __init__(self, books: Books) -> None:
        self._books = books

    def plan(self) -> None:
        """Command what credit allows to be sent, and tell the node what waits beyond it."""
        books = self._books
        for kind in list(books.backlog):
            room = kind.room()
            if room > 0 and kind.ready:
                room -= self._send_ready(kind, room)
            while room > 0 and kind.arrays:
                room -= self._send_items(kind, room)
            waiting = kind.waiting() if kind.arrays else len(kind.ready)
            if not waiting:
                del books.backlog[kind]
                if kind.wanted:
                    kind.wanted = 0
                    books.commands.append(Want(kind, 0))
            elif not kind.wanted and kind.outstanding >= kind.credit:
                kind.wanted = waiting
                books.commands.append(Want(kind, waiting))

    def _send_ready(self, kind: Kind, room: int) -> int:
        """Send plain tasks; those whose indices follow each other go together. Returns how many."""
        ready, stride, commands = kind.ready, kind.stride, self._books.commands
        sent, attempt, expected = 0, -1, -1
        batch: list[Task] = []
        while ready and sent < room:
            task = ready.popleft()
            if task.state is not READY:
                continue
            task.state = SENT  # READY, SEND → SENT: the table's only way; a look-up would double the cost
            index = task.index
            if index == expected and task.attempt == attempt:
                batch.append(task)
            else:
                attempt, batch = task.attempt, [task]
                commands.append(Send(kind, index, attempt, batch))
            expected = index + stride
            sent += 1
            if task.nbytes:
                kind.nbytes += task.nbytes
                if kind.nbytes >= OUTSTANDING_NBYTES:
                    room = min(room, max(sent, OUTSTANDING_MIN - kind.outstanding))
        kind.outstanding += sent
        return sent

    def _send_items(self, kind: Kind, room: int) -> int:
        """Send items of the oldest array, or put it away when it has none left. Returns how many."""
        array = kind.arrays[0]
        span = array.next_span(room)
        if span is None:
            kind.arrays.popleft()
            return 0
        first, count, attempt = span
        kind.outstanding += count
        self._books.commands.append(SendItems(array, first, count, attempt))
        return count

    def on_grant(self, kind: Kind, credit: int) -> None:
        """Take note of a new credit; what it lets through no longer waits, as the node reckons it too."""
        kind.wanted = max(0, kind.wanted - max(0, credit - kind.credit))
        kind.credit = credit

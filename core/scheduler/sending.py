"""What credit allows to be sent where, and what the nodes are told of the rest."""

from __future__ import annotations

from collections import deque

from .books import Books
from .kinds import Kind
from .lanes import Lane
from .orders import Send, SendItems, Want
from .placing import choose_share, plan_level
from .settling import Settling
from .shares import OUTSTANDING_MIN, OUTSTANDING_NBYTES, OWN_NODE, Share
from .states import TaskState
from .tasks import UNSETTLED, Task

WAITING, READY, SENT = TaskState.WAITING, TaskState.READY, TaskState.SENT


class Sending:
    """Empties the backlog as far as credit goes."""

    __slots__ = ("_books", "_settling")

    def __init__(self, books: Books, settling: Settling) -> None:
        self._books = books
        self._settling = settling

    def plan(self) -> None:
        """Command what credit allows to be sent, and tell the nodes what waits beyond it."""
        books = self._books
        backlog, nodes = books.backlog, books.nodes
        for kind in list(backlog):
            if isinstance(kind, Lane):
                self._plan_lane(kind)
                continue
            share = kind.home
            if nodes:
                if len(kind.shares) <= len(nodes):
                    kind.meet(nodes)
                self._deal(kind)
            else:  # as `_fill`; a lone call passes here each time
                room = share.room() if share.nbytes else share.limit - share.outstanding
                if room > 0 and kind.ready:
                    room -= self._send_ready(kind, share, kind.ready, room)
                while room > 0 and kind.arrays:
                    room -= self._send_items(kind, share, room)
            waiting = kind.waiting() if kind.arrays else len(kind.ready)
            if not waiting:
                del backlog[kind]
            if share.wanted != waiting:
                self._tell(kind, share, waiting)
            if nodes:
                self._tell_further(kind, waiting)

    def _plan_lane(self, lane: Lane) -> None:
        """Send calls in their order, as far as the window goes; what has settled meanwhile is skipped."""
        room = lane.share.room() if lane.share.is_allowed else 0
        while (task := lane.first()) is not None and (room > 0 or task.state not in UNSETTLED):
            if task.state is READY and self._books.has_lost and task.inputs:
                self._settling.recheck(task)
            if task.state is WAITING and lane.in_order:
                break
            lane.take()
            if task.state is READY:
                self._send_call(task, lane.share)
                room -= 1
                if lane.share.nbytes >= OUTSTANDING_NBYTES:
                    room = min(room, OUTSTANDING_MIN - lane.share.outstanding)
        if not lane.calls:
            del self._books.backlog[lane]
        if lane.is_seeking or lane.is_asking:
            self._seek(lane)

    def _send_call(self, task: Task, share: Share) -> None:
        """Send one call; those of a kind that follow each other go together."""
        task.state = SENT  # READY, SEND → SENT: the table's only way
        task.share = share
        share.outstanding += 1
        share.nbytes += task.nbytes
        last = self._books.commands[-1] if self._books.commands else None
        if (isinstance(last, Send) and (last.kind, last.attempt, last.node) == (task.kind, task.attempt, share.node)
                and task.index == last.first + len(last.tasks) * task.kind.stride):  # fmt: skip
            last.tasks.append(task)
        else:
            self._books.commands.append(Send(task.kind, task.index, task.attempt, [task], share.node))

    def _seek(self, lane: Lane) -> None:
        """While nobody knows a node for an actor, the own one looks for one."""
        kind = lane.seeker
        if kind is None:
            return
        waiting = max(1, len(lane.calls)) if lane.is_seeking else 0
        lane.is_asking = waiting > 0
        if kind.home.wanted != waiting:
            kind.home.wanted = waiting
            self._books.commands.append(Want(kind, waiting, OWN_NODE))

    def _tell_further(self, kind: Kind, waiting: int) -> None:
        """Tell further nodes what waits, if it matters to them; who is full and knows of it rests until stirred."""
        if not waiting:
            for share in kind.told:
                if share.wanted:
                    self._tell(kind, share, 0)
                    share.stir()
            kind.told.clear()
            return
        for share in list(kind.stirred):
            if share.wanted != waiting:
                self._tell(kind, share, waiting)
            if share.wanted:
                kind.told[share] = None
            if (share.wanted or not share.is_allowed) and share.room() <= 0:
                del kind.stirred[share]

    def _tell(self, kind: Kind, share: Share, waiting: int) -> None:
        if self._must_hear(kind, share, waiting):
            share.wanted = waiting
            self._books.commands.append(Want(kind, waiting, share.node))

    def _must_hear(self, kind: Kind, share: Share, waiting: int) -> bool:
        """Whether a node is to be told that so many tasks wait, which is not what it was told last.

        In a cluster the own node asks for room elsewhere with that figure.
        """
        if not waiting:
            return True
        if share.node == OWN_NODE and self._books.is_joined:
            wanted = share.wanted
            return (share.is_allowed or kind.is_seeking) and not wanted < 2 * waiting < 4 * wanted
        return not share.wanted and share.is_allowed and share.outstanding >= share.limit

    def _fill(self, kind: Kind, share: Share) -> None:
        """Send as much of a kind to one node as there is room for."""
        room = share.room()
        if room > 0 and kind.ready:
            room -= self._send_ready(kind, share, kind.ready, room)
        while room > 0 and kind.arrays:
            room -= self._send_items(kind, share, room)

    def _deal(self, kind: Kind) -> None:
        """Send what there is room for, to several nodes."""
        while True:
            shares = [share for share in (kind.home, *kind.stirred) if share.room() > 0]
            if len(shares) <= 1:
                if shares:
                    self._fill(kind, shares[0])
                return
            if not kind.ready:
                break
            self._deal_ready(kind, shares)
        counts = plan_level([share.room() for share in shares], kind.waiting())
        for share, count in zip(shares, counts, strict=True):
            while count and kind.arrays:
                count -= self._send_items(kind, share, count)

    def _deal_ready(self, kind: Kind, shares: list[Share]) -> None:
        """Deal plain tasks: where their inputs lie, and all others in blocks, so that they travel together.

        What the bytes of those before it keep from being sent goes back to wait.
        """
        rooms = [share.room() for share in shares]
        chosen: list[deque[Task]] = [deque() for _ in shares]
        others: deque[Task] = deque()
        left = sum(rooms)
        while kind.ready and len(others) < left:
            task = kind.ready.popleft()
            if task.state is not READY:
                continue
            nbytes = self._locate(task) if task.holds else None
            if not nbytes:
                others.append(task)
                continue
            at = choose_share(shares, rooms, nbytes)
            chosen[at].append(task)
            rooms[at] -= 1
            left -= 1
        for tasks, count in zip(chosen, plan_level(rooms, len(others)), strict=True):
            tasks.extend(others.popleft() for _ in range(count))
        for share, tasks in zip(shares, chosen, strict=True):
            self._send_ready(kind, share, tasks, len(tasks))
            others.extend(tasks)
        kind.ready.extendleft(reversed(others))

    def _locate(self, task: Task) -> dict[int, int]:
        """Say how many bytes of what a task needs lie where, by node."""
        located, found = self._books.refs.located, dict[int, int]()
        for oid in dict.fromkeys(task.holds):
            place = located.get(oid)
            if place is not None:
                found[place.node] = found.get(place.node, 0) + place.nbytes
        return found

    def _send_ready(self, kind: Kind, share: Share, ready: deque[Task], room: int) -> int:
        """Send plain tasks; those whose indices follow each other go together. Returns how many."""
        stride, commands = kind.stride, self._books.commands
        sent, attempt, expected = 0, -1, -1
        batch: list[Task] = []
        has_lost = self._books.has_lost
        while ready and sent < room:
            task = ready.popleft()
            if task.state is not READY or (has_lost and task.inputs and not self._settling.recheck(task)):
                continue
            task.state = SENT  # READY, SEND → SENT: the table's only way; a look-up would double the cost
            task.share = share
            index = task.index
            if index == expected and task.attempt == attempt:
                batch.append(task)
            else:
                attempt, batch = task.attempt, [task]
                commands.append(Send(kind, index, attempt, batch, share.node))
            expected = index + stride
            sent += 1
            if task.nbytes:
                share.nbytes += task.nbytes
                if share.nbytes >= OUTSTANDING_NBYTES:
                    room = min(room, max(sent, OUTSTANDING_MIN - share.outstanding))
        share.outstanding += sent
        return sent

    def _send_items(self, kind: Kind, share: Share, room: int) -> int:
        """Send items of the oldest array, or put it away when it has none left. Returns how many."""
        array = kind.arrays[0]
        span = array.next_span(room, share.node)
        if span is None:
            kind.arrays.popleft()
            return 0
        first, count, attempt = span
        share.outstanding += count
        self._books.commands.append(SendItems(array, first, count, attempt, share.node))
        return count

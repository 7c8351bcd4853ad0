"""A client in the network's world: it has tasks, sends them where it has credit, and each must settle once.

Its rules are those of an owner, made as small as can be: what is outstanding at a node whose session is lost gets one
more attempt, what was never sent or was given back keeps its attempt.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from ..scheduler.session_words import Deliver, Role, SessionClosed, SessionLost
from .netsessions import Machine

if TYPE_CHECKING:
    from .netnode import NetNode

#: Messages of this world: a task, its result, a task that is given back, how many may be outstanding.
TASK, DONE, RETURNED, CREDIT = 1, 2, 3, 4

_TASK = struct.Struct("<II")


def pack(number: int, attempt: int = 0) -> bytes:
    """Lay out a message."""
    return _TASK.pack(number, attempt)


def unpack(body: bytes) -> tuple[int, int]:
    """Read a message."""
    number, attempt = _TASK.unpack_from(body)
    return number, attempt


class Root:
    """One client; `node` is its own node and gateway."""

    def __init__(self, node: NetNode, name: str, tasks: int) -> None:
        self.node = node
        self.name = name
        self.world = node.world
        self.incarnation = node.world.new_incarnation()
        self.alive = True
        self.machine = Machine(node, Role.OWNER, self.incarnation, self._heard)
        self.waiting: deque[tuple[int, int]] = deque()
        self.credit: dict[int, int] = {}
        self.outstanding: dict[int, dict[int, int]] = {}  # node: task: attempt
        self.settled: set[int] = set()
        self.submitted = 0
        self.rng = node.world.rng_of(name)
        self.told = 0  # what the node was last told to be waiting
        for _ in range(tasks):
            self.submit()

    def __repr__(self) -> str:
        out = {node: len(tasks) for node, tasks in self.outstanding.items() if tasks}
        return f"<{self.name} {len(self.settled)}/{self.submitted} waiting={len(self.waiting)} out={out}>"

    def submit(self) -> None:
        """One more task."""
        self.submitted += 1
        if self.world.keeps(f"{self.name} task {self.submitted}"):
            self.waiting.append((self.submitted, 1))
        else:
            self.settled.add(self.submitted)

    @property
    def is_done(self) -> bool:
        """Whether every task has settled."""
        return len(self.settled) == self.submitted

    def connect(self, node: int) -> None:
        """Open a session with a node, if there is none."""
        if node != self.node.incarnation and self.machine.sessions.can_open(node):
            self.machine.open(node)

    def place(self) -> None:
        """Send what may be sent, and say what may not."""
        sessions = self.machine.sessions
        for node, credit in self.credit.items():
            session = sessions.with_peer(node)
            there = self.outstanding[node]
            while self.waiting and session is not None and len(there) < credit:
                number, attempt = self.waiting.popleft()
                there[number] = attempt
                session.set_in_use(True, self.node.local())
                self.machine.send(session, TASK, pack(number, attempt))
        if len(self.waiting) != self.told:
            self.told = len(self.waiting)
            self.node.wants(self, self.told)

    def leave(self) -> None:
        """The program ends: its sessions are given up."""
        self.world.trace(f"{self.name} ends")
        self.alive = False
        self.settled = set(range(1, self.submitted + 1))
        self.waiting.clear()
        for name in list(self.machine.sessions._sessions):
            self.machine.sessions.give_up(name, self.node.local())

    # -- what the sessions say

    def _heard(self, command: Any) -> None:
        if isinstance(command, Deliver):
            self._on_message(command)
        elif isinstance(command, SessionLost | SessionClosed):
            self._on_end(command)

    def _on_message(self, command: Deliver) -> None:
        node = command.name.node
        number, attempt = unpack(command.body)
        if command.frame_type == CREDIT:
            self.credit[node] = number
            self.outstanding.setdefault(node, {})
            self.node.on_connected(self, node)
        else:
            assert self.outstanding[node].pop(number, None) == attempt, f"{number} is not outstanding at {node:x}"
            if command.frame_type == RETURNED:
                self.world.mark("returned")
                self.waiting.append((number, attempt))
            else:
                assert number not in self.settled, f"{number} of {self.name} settled twice"
                self.settled.add(number)
            session = self.machine.sessions.find(command.name)
            if session is not None:
                session.set_in_use(bool(self.outstanding[node]), self.node.local())
        self.place()

    def _on_end(self, command: SessionLost | SessionClosed) -> None:
        node = command.name.node
        self.credit.pop(node, None)
        there = self.outstanding.pop(node, {})
        never = {unpack(message.body)[0] for message in command.unsent}
        assert isinstance(command, SessionLost) or not set(there) - never, "closed with tasks outstanding"
        self.node.on_disconnected(self, node)
        if not self.alive:
            return
        for number, attempt in there.items():
            if number not in never:
                self.world.mark("retry")
            self.waiting.append((number, attempt if number in never else attempt + 1))
        self.place()

"""The sessions of one node in the network's world: the real machines, and a second book of what they must do.

The book is kept apart from the machines, by session and end: what was sent, how much was taken, how it ended. So after
every event: each message is taken once and in order, nothing comes behind an end, nothing that was taken is called
unsent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..scheduler.session_words import (
    Deliver,
    Dial,
    Header,
    Role,
    SendFrame,
    SessionClosed,
    SessionEnd,
    SessionLost,
    SessionName,
    SessionOpened,
    SetTimer,
    Word,
)
from ..scheduler.sessions import Sessions

if TYPE_CHECKING:
    from .netnode import NetNode


class Side:
    """What one end of a session has done."""

    __slots__ = ("ended", "is_there", "last", "sent", "taken", "went")

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.last = 0  # highest number that was put on a path
        self.went = 0  # so many messages were put on one
        self.taken = 0
        self.is_there = False
        self.ended: Any = None


class Book:
    """Both ends of all sessions of a world."""

    def __init__(self) -> None:
        self.sides: dict[SessionName, dict[Role, Side]] = defaultdict(lambda: {role: Side() for role in Role})

    def side(self, role: Role, name: SessionName) -> tuple[Side, Side]:
        """This end and the other."""
        sides = self.sides[name]
        return sides[role], sides[Role.NODE if role is Role.OWNER else Role.OWNER]

    def opened(self, role: Role, name: SessionName) -> None:
        """A session begins at an end."""
        mine, _ = self.side(role, name)
        assert not mine.is_there and mine.ended is None, f"{name} was opened twice"
        mine.is_there = True

    def went(self, role: Role, header: Header) -> None:
        """A numbered frame is put on a path, for the first time or again."""
        mine, _ = self.side(role, header.name)
        if header.seq > mine.last:
            mine.last = header.seq
            mine.went += header.word == Word.DATA

    def delivered(self, role: Role, name: SessionName, body: bytes) -> None:
        """A message is handed on."""
        mine, other = self.side(role, name)
        assert mine.is_there and mine.ended is None, f"{name} delivers behind its end"
        assert mine.taken < len(other.sent) and other.sent[mine.taken] == body, f"{name} loses, repeats or mixes"
        mine.taken += 1

    def ended(self, role: Role, command: SessionLost | SessionClosed) -> None:
        """A session is over at an end."""
        mine, other = self.side(role, command.name)
        assert mine.is_there and mine.ended is None, f"{command.name} ended twice"
        mine.ended = command
        unsent = [message.body for message in command.unsent]
        went = len(mine.sent) - len(unsent)
        assert went == mine.went, f"{command.name} calls {len(unsent)} unsent, and {mine.went} of {len(mine.sent)} went"
        assert mine.sent[went:] == unsent, f"not the last messages of {command.name} are unsent"
        assert other.taken <= went, f"what was taken of {command.name} is called unsent"
        if isinstance(command, SessionClosed):
            assert other.taken == went, f"{command.name} closed before all was taken"


class Machine:
    """One `Sessions` with its driver. `heard(command)` is told of messages and of sessions that begin and end."""

    def __init__(self, node: NetNode, role: Role, me: int, heard: Callable[[Any], None]) -> None:
        self.node = node
        self.role = role
        self.sessions = Sessions(role, me)
        self._heard = heard
        self._due = 0.0
        self._timers = 0

    def open(self, node: int) -> Any:
        """Open a session with a node."""
        session = self.sessions.open(node, self.node.local())
        self.node.world.book.opened(self.role, session.name)
        return session

    def send(self, session: Any, frame_type: int, body: bytes) -> None:
        """Send a message in an open session."""
        assert session.send(frame_type, body, self.node.local())
        self.node.world.book.side(self.role, session.name)[0].sent.append(body)

    def settle(self) -> None:
        """Do what the machine commands."""
        while commands := self.sessions.take_commands():
            self.node.obey(commands, self._do)
            if not self.node.alive:
                return

    def _do(self, command: Any) -> None:
        node, book = self.node, self.node.world.book
        match command:
            case SendFrame(path, header, frame_type, body):
                if header.word < Word.OPEN:
                    book.went(self.role, header)
                node.peering.send_session(path, header, frame_type, body)
            case Deliver(name, _, body):
                book.delivered(self.role, name, body)
                self._heard(command)
            case Dial(name, dial):
                self._dial(name, dial)
            case SessionOpened(name):
                book.opened(self.role, name)
                self._heard(command)
            case SessionLost(name, end, _):
                assert end is not SessionEnd.BREACH, f"{name}: the peer is said to have broken the rules"
                if end is SessionEnd.SILENT and self.role is Role.OWNER:
                    node.world.check_silence()
                node.world.mark(f"session lost: {end.value}")
                book.ended(self.role, command)
                self._heard(command)
            case SessionClosed():
                book.ended(self.role, command)
                self._heard(command)
            case SetTimer(due):
                self._timers += 1
                number = self._timers
                node.at_local(due, "looks at its sessions", lambda: self._timer(number))

    def _timer(self, number: int) -> None:
        if number == self._timers:
            self.sessions.on_timer(self.node.local())
            self.node.settle()

    def _dial(self, name: SessionName, dial: int) -> None:
        def dialled(path: int | None, refused: bool) -> None:
            self._dialled(name, dial, path, refused)

        self.node.peering.dial(name.node, dialled, is_again=dial > 1)

    def _dialled(self, name: SessionName, dial: int, path: int | None, refused: bool) -> None:
        now = self.node.local()
        if path is not None:
            self.sessions.on_path_up(name, dial, path, now)
        elif refused:
            self.sessions.on_dial_refused(name, dial, now)
        else:
            self.sessions.on_dial_failed(name, dial, now)
        self.node.settle()


class NetTree:
    """All sessions at one node, as far as `Peering` sees them."""

    def __init__(self, node: NetNode) -> None:
        self._node = node
        self.mine = Machine(node, Role.NODE, node.incarnation, node.on_session)
        self.owners: dict[int, Machine] = {}  # of the roots whose gateway this node is

    def machines(self) -> list[Machine]:
        """Every machine here."""
        return [self.mine, *self.owners.values()]

    def settle(self) -> None:
        """Do what the machines command."""
        for machine in self.machines():
            machine.settle()

    def _machine(self, name: SessionName) -> Machine | None:
        return self.mine if name.node == self._node.incarnation else self.owners.get(name.owner)

    # -- what peering says

    def on_frame(self, path: int, header: Header, frame_type: int, body: bytes) -> None:
        """A frame of a session."""
        machine = self._machine(header.name)
        if machine is not None:
            machine.sessions.on_frame(path, header, frame_type, body, self._node.local())
        elif header.word != Word.CLOSED:  # its root has ended
            self._node.world.mark("frame of an ended root")
            answer = Header(header.name, Word.CLOSED, header.dial, 0, 0)
            self._node.peering.send_session(path, answer, 0, b"")

    def on_path_down(self, path: int) -> None:
        """A path has ended."""
        for machine in self.machines():
            machine.sessions.on_path_down(path, self._node.local())

    def on_no_path(self, path: int, name: SessionName, refused: bool) -> None:
        """A relay knows no way on."""
        machine = self._machine(name)
        if machine is None:
            return
        self._node.world.mark("relay forgot")
        session = machine.sessions.find(name)
        if refused and session is not None and machine.role is Role.OWNER and session.path == path:
            machine.sessions.on_dial_refused(name, session.dial, self._node.local())
        else:
            machine.sessions.on_no_path(path, name, self._node.local())

    def paths_in_use(self) -> set[int]:
        """The paths over which sessions go."""
        sessions = (session for machine in self.machines() for session in machine.sessions._sessions.values())
        return {session.path for session in sessions if session.path is not None}

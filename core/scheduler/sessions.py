"""All sessions of one process end: who opens, finds, wakes and forgets them.

A closed session's number is refused for ever, in bounded memory:

- An owner counts its own sessions, so whatever is not open is closed.
- A node keeps the highest number it met of each owner, of at most ``REMEMBERED`` of them. What is higher is new. Of an
  owner it does not know, all is new as long as nothing had to be forgotten; after that only the first dial's ``OPEN``
  is. An owner says that once, on one path, and a path brings a frame once at most: so it opens a session once at most.

Collections and their invariants:

- ``_sessions``: every session that is open, by name; ``_by_peer`` has the same ones, one a peer.
- ``_highest``: peer -> highest number met (``STRUCK_OFF``: refused for ever); the peers of all open sessions at a node.
"""

from __future__ import annotations

from math import inf

from .commands import InvalidTransition
from .session import Session
from .session_books import BEAT_SECONDS, LATE_SECONDS, LOOK_SECONDS, Books
from .session_words import (
    Header,
    Role,
    SendFrame,
    SessionCommand,
    SessionEnd,
    SessionName,
    SessionOpened,
    Word,
)

#: How many peers without a session are remembered; one takes about 150 bytes. With fewer, more owners that come back
#: after so many others have to get their first frame through at the first try.
REMEMBERED = 10_000
#: Above every number of a session.
STRUCK_OFF = 1 << 64


class Sessions:
    """Pure machine over paths, frames and time of one process end: an owner's, or a node's.

    Every event may append to ``commands``. ``me`` is this process's incarnation. Paths are any integers, and one may
    serve many sessions. Whoever brings frames has made sure that their sender is who the name says.
    """

    def __init__(self, role: Role, me: int) -> None:
        self.role = role
        self.me = me
        self._books = Books(role)
        self.ignored = self._books.ignored
        self._sessions: dict[SessionName, Session] = {}
        self._by_peer: dict[int, Session] = {}
        self._highest: dict[int, int] = {}
        self._is_forgetful = False
        self._last_number = 0

    def __repr__(self) -> str:
        return f"<Sessions of {self.role.value} {self.me:x} open={len(self._sessions)} known={len(self._highest)}>"

    def __len__(self) -> int:
        return len(self._sessions)

    def take_commands(self) -> list[SessionCommand]:
        """Return what is to be done, in order, and forget it."""
        commands = self._books.commands[:]
        self._books.commands.clear()
        return commands

    def find(self, name: SessionName) -> Session | None:
        """The open session of this name."""
        return self._sessions.get(name)

    def with_peer(self, peer: int) -> Session | None:
        """The open session with this owner or node."""
        return self._by_peer.get(peer)

    def can_open(self, node: int) -> bool:
        """Whether an owner may open a session with a node: none is open, and it was not struck off."""
        return node not in self._by_peer and node not in self._highest

    def open(self, node: int, now: float) -> Session:
        """Open a session with a node, as its owner; messages may be sent in it at once.

        Raises InvalidTransition when one is open already, or when the node was struck off.
        """
        if self.role is not Role.OWNER or not self.can_open(node):
            raise InvalidTransition(f"{self!r} cannot open a session with {node:x}")
        self._last_number += 1
        return self._add(SessionName(self.me, node, self._last_number), now)

    def give_up(self, name: SessionName, now: float) -> None:
        """Close a session for ever, whatever is outstanding in it."""
        self._lose(self._sessions.get(name), SessionEnd.GIVEN_UP, now)

    # -- paths

    def on_path_up(self, name: SessionName, dial: int, path: int, now: float) -> None:
        """A path was found for this dial."""
        session = self._sessions.get(name)
        if session is None:
            self.ignored["path of a closed session"] += 1
        else:
            session.on_path_up(dial, path, now)

    def on_path_down(self, path: int, now: float) -> None:
        """A path has ended; no frame comes over it any more."""
        for session in self._sessions.values():
            if session.path == path:
                session.on_path_down(now)

    def on_no_path(self, path: int, name: SessionName, now: float) -> None:
        """A relay on this path knows no way on to the peer of this session."""
        session = self._sessions.get(name)
        if session is not None and session.path == path:
            session.on_path_down(now)
        else:
            self.ignored["no path"] += 1

    def on_dial_failed(self, name: SessionName, dial: int, now: float) -> None:
        """No way was found for this dial; there may be one later."""
        session = self._sessions.get(name)
        if session is not None:
            session.on_dial_failed(dial, now)

    def on_dial_refused(self, name: SessionName, dial: int, now: float) -> None:
        """Nobody, or another incarnation, is where the node was: it is lost at once."""
        session = self._sessions.get(name)
        if session is not None and session.dial == dial:
            self._lose(session, SessionEnd.REFUSED, now)

    def on_peer_lost(self, peer: int, now: float) -> None:
        """The head struck a peer off: its session is lost, and none is opened with it again."""
        self._lose(self._by_peer.get(peer), SessionEnd.PEER_LOST, now)
        self._remember(peer, STRUCK_OFF)

    # -- frames

    def on_frame(self, path: int, header: Header, frame_type: int, body: bytes, now: float) -> None:
        """Take a frame from a path; one of a session that is closed for ever is refused."""
        session = self._sessions.get(header[0])
        if session is None:
            session = self._admit(path, header, now)
            if session is None:
                return
        session.on_frame(path, header, frame_type, body, now)
        if session.is_closed:
            self._forget(session)

    def _admit(self, path: int, header: Header, now: float) -> Session | None:
        """Open a session that an owner has begun, or refuse the frame."""
        name = header.name
        if header.word == Word.CLOSED:
            self.ignored["closed twice"] += 1
        elif not self._is_new(header):
            self.ignored["refused"] += 1
            answer = Header(name, Word.CLOSED, header.dial, 0, 0)
            self._books.commands.append(SendFrame(path, answer))
        else:
            # An owner opens another one only when the one before is closed at its end.
            self._lose(self._by_peer.get(name.owner), SessionEnd.SUPERSEDED, now)
            self._books.commands.append(SessionOpened(name))
            return self._add(name, now)
        return None

    def _is_new(self, header: Header) -> bool:
        name = header.name
        if self.role is not Role.NODE or name.node != self.me:
            return False
        highest = self._highest.get(name.owner)
        if highest is not None:
            return name.number > highest
        return not self._is_forgetful or (header.word == Word.OPEN and header.dial == 1)

    # -- time

    def on_timer(self, now: float) -> None:
        """Look at all sessions; to be called at the time that ``SetTimer`` named last.

        Who is called much later was asleep, and adds that to every deadline before anyone is judged. Nothing else
        judges by the time, and no other event moves a timer that is overdue, so it is enough to find it out here.
        """
        books = self._books
        late = now - books.due
        if late > LATE_SECONDS:
            self.ignored["asleep"] += 1
            for session in self._sessions.values():
                session.on_slept(late, now)
        books.due = now  # whatever is needed meanwhile is reckoned below
        due = inf
        for session in list(self._sessions.values()):
            due = min(due, session.on_tick(now))
            if session.is_closed:
                self._forget(session)
        books.due = inf
        if due < inf:
            books.need(max(due, now + LOOK_SECONDS))

    # -- tables

    def _add(self, name: SessionName, now: float) -> Session:
        session = self._sessions[name] = Session(name, self._books, now)
        self._by_peer[session.peer] = session
        if self.role is Role.NODE:
            self._remember(session.peer, name.number)
        return session

    def _lose(self, session: Session | None, end: SessionEnd, now: float) -> None:
        if session is not None:
            session.lose(end, now)
            self._forget(session)

    def _forget(self, session: Session) -> None:
        del self._sessions[session.name]
        del self._by_peer[session.peer]
        if self.role is Role.NODE:
            self._remember(session.peer, session.name.number)
        self._limit_memory()

    def _remember(self, peer: int, number: int) -> None:
        """Note a number, and the peer as the one met last."""
        self._highest[peer] = max(number, self._highest.pop(peer, 0))
        self._limit_memory()

    def _limit_memory(self) -> None:
        """Forget peers without a session that were not met for longest."""
        while len(self._highest) > REMEMBERED + len(self._by_peer):
            del self._highest[next(known for known in self._highest if known not in self._by_peer)]
            self._is_forgetful = True

    def check(self, now: float) -> None:
        """Raise ``AssertionError`` when an invariant does not hold; for tests."""
        assert len(self._sessions) == len(self._by_peer)
        assert len(self._highest) <= REMEMBERED + len(self._by_peer)
        for name, session in self._sessions.items():
            assert name == session.name and self._by_peer[session.peer] is session
            assert self.me == (name.owner if self.role is Role.OWNER else name.node)
            session.check()
            is_soon = self._books.due <= now + BEAT_SECONDS
            assert is_soon or self._books.due <= session.due() + BEAT_SECONDS, f"{session!r} is not woken in time"
            if self.role is Role.NODE:
                assert self._highest[name.owner] >= name.number
            else:
                assert name.number <= self._last_number

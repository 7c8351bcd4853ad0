"""One end of one session: frames go out numbered and come in once and in order, whichever path they take.

What a path loses shows as a gap and is asked for (``RESUME``). When a path breaks, or has been silent for as long as
two heartbeats, the owner's end dials; on the new path both ends go on from what the other one expects. Only what is
silent for too long, refused or given up ends a session, and then for ever.

An owner that has nothing outstanding for a while asks to close (``END``). The question is numbered like any message
and nothing goes out behind it until it is answered, so no message is ever on its way to an end that has just agreed.
"""

from __future__ import annotations

from math import inf

from .session_books import (
    ACK_SECONDS,
    BEAT_SECONDS,
    DOUBT_SECONDS,
    IDLE_SECONDS,
    MISSED_SECONDS,
    REDIAL_SECONDS,
    Books,
)
from .session_window import MOST_WAITING_NBYTES, NO_LIMIT, Held, Incoming, Outgoing
from .session_words import (
    Deliver,
    Dial,
    Header,
    SendFrame,
    SessionClosed,
    SessionEnd,
    SessionLost,
    SessionName,
    Unsent,
    Word,
)

DATA, END, STAY, OPEN, BEAT, RESUME, CLOSED = (int(word) for word in Word)  # plain integers compare faster


class Session:
    """One end of one session. ``Sessions`` makes it, brings it its frames, wakes it and forgets it when it is closed.

    ``path`` is where its frames go, None while there is none; ``dial`` is the one it came with (0: none yet).
    ``is_joined`` says that the peer was heard on it, so that ``out`` stands where the peer waits; on the first path
    of a session there is nothing to be heard.
    """

    __slots__ = (
        "name", "peer", "is_closed", "in_use", "out", "come", "path", "dial", "is_joined",
        "_books", "_is_dialling", "_dialled_at", "_heard_at", "_said_at", "_used_at",
    )  # fmt: skip

    def __init__(self, name: SessionName, books: Books, now: float) -> None:
        self.name = name
        self.peer = name.node if books.is_owner else name.owner
        self.is_closed = False
        self.in_use = False
        self.out = Outgoing()
        self.come = Incoming()
        self.path: int | None = None
        self.dial = 0
        self.is_joined = False
        self._books = books
        self._is_dialling = False
        self._dialled_at = self._said_at = -inf
        self._heard_at = self._used_at = now
        if books.is_owner:
            self._dial(now)
        books.need(self.due())

    def __repr__(self) -> str:
        out = self.out
        state = "closed" if self.is_closed else f"path={self.path} dial={self.dial} joined={self.is_joined}"
        counts = f"expects={self.come.expects} flight={len(out.flight)} waiting={len(out.waiting)}"
        return f"<Session {self.name.number} with {self.peer:x} {state} {counts}>"

    # -- the program's side

    def send(self, frame_type: int, body: bytes, now: float) -> bool:
        """Send a message; it waits where a path or room is missing.

        It is never turned away for want of room: what can wait itself looks at ``out.room`` first. Returns False, and
        forgets the message, once the session is closed.
        """
        if self.is_closed:
            return False
        self._used_at = now
        self._post((DATA, frame_type, body), now)
        if self.out.waiting_nbytes > MOST_WAITING_NBYTES:
            self._books.need(max(now, self._silence_due()))
        return True

    def set_in_use(self, in_use: bool, now: float) -> None:
        """Say whether anything is outstanding here, from when on; without that the session may be closed."""
        self.in_use = in_use
        self._used_at = now

    # -- paths

    def on_path_up(self, dial: int, path: int, now: float) -> None:
        """Take a path that was dialled for; its first frame opens it, and what nobody has seen goes with it."""
        if dial != self.dial or not self._is_dialling:
            self._books.ignored["path of an older dial"] += 1
            return
        self._is_dialling = False
        self.path = path
        self.is_joined = self.out.fresh == 1
        self._say(OPEN, now)
        self._pump(now)
        self._books.need(max(now, self.due()))

    def on_path_down(self, now: float) -> None:
        """Forget the path; the owner's end dials, at once unless it just did."""
        self._drop_path()
        if self._books.is_owner and not self._is_dialling:
            self._dial_soon(now)

    def on_dial_failed(self, dial: int, now: float) -> None:
        """Dial again a little later: there was no way, which says nothing about the node."""
        if dial == self.dial and self._is_dialling:
            self._is_dialling = False
            self._dial_soon(now)

    def _drop_path(self) -> None:
        self.path = None
        self.is_joined = False
        self.out.rewind()

    def _dial_soon(self, now: float) -> None:
        if now >= self._dialled_at + REDIAL_SECONDS:
            self._dial(now)
        else:
            self._books.need(self._dialled_at + REDIAL_SECONDS)

    def _dial(self, now: float) -> None:
        self.dial += 1
        self._is_dialling = True
        self._dialled_at = now
        self._books.commands.append(Dial(self.name, self.dial))

    # -- frames

    def on_frame(self, path: int, header: Header, frame_type: int, body: bytes, now: float) -> None:
        """Take a frame of this session, from whichever path."""
        _, word, dial, seq, expects = header
        self._heard_at = now
        out = self.out
        if word == CLOSED:
            self._on_closed()
            return
        if expects > out.fresh or (dial > self.dial and self._books.is_owner):
            self.lose(SessionEnd.BREACH, now)
            return
        if expects > out.base:
            out.acknowledge(expects)
        if dial > self.dial or not self.is_joined:
            self._join(path, dial, now)
        if word < OPEN and seq == self.come.expects:
            self._accept(word, frame_type, body, now)
        elif word < OPEN and seq < self.come.expects:
            self._books.ignored["repeat"] += 1
            self._owe(0, now)
        elif dial == self.dial:
            if word == RESUME:
                out.rewind()
            if seq > self.come.expects:
                self._miss(now)
        if out.waiting:
            self._pump(now)

    def _join(self, path: int, dial: int, now: float) -> None:
        """Go on where the peer waits, if this came by the last dial. An owner knows the path, a node learns of it."""
        if dial < self.dial:
            return
        if self._books.is_owner:
            self.is_joined = self.path is not None
            return
        self.out.rewind()
        self.dial = dial
        self.path = path
        self.is_joined = True
        self._say(BEAT, now)
        self._books.need(max(now, self.due()))

    def _accept(self, word: int, frame_type: int, body: bytes, now: float) -> None:
        """Take the frame that was expected."""
        come = self.come
        come.expects += 1
        self._used_at = now
        if word == DATA:
            self._books.commands.append(Deliver(self.name, frame_type, body))
        elif (word == END) is self._books.is_owner:
            self.lose(SessionEnd.BREACH, now)
            return
        elif word == STAY:
            self.out.limit = NO_LIMIT
        elif self.in_use or self.out.base < self.out.next:
            self._post((STAY, 0, b""), now)
        else:
            if self.path is not None:
                self._say(CLOSED, now)
            self._books.commands.append(SessionClosed(self.name, self._shut()))
            return
        self._owe(len(body), now)

    def _owe(self, nbytes: int, now: float) -> None:
        """Acknowledge with the next frame, or alone before the peer has to wait for it."""
        if self.come.owe(nbytes, now) and self.path is not None:
            self._say(BEAT, now)
        elif self.come.owed == 1:
            self._books.need(now + ACK_SECONDS)

    def _miss(self, now: float) -> None:
        """Ask for what is missing: once, and again when the question or the answer seems to be lost too."""
        come = self.come
        if self.path is not None and (come.missed != come.expects or now >= come.missed_at + BEAT_SECONDS):
            come.missed = come.expects
            come.missed_at = now
            self._say(RESUME, now)

    def _post(self, frame: Held, now: float) -> None:
        self.out.add(frame)
        if self.is_joined:
            self._pump(now)

    def _pump(self, now: float) -> None:
        """Send what there is room for."""
        out = self.out
        while self.is_joined and out.waiting:
            frame = out.take()
            if frame is None:
                return
            word, frame_type, body = frame
            self._say(word, now, out.cursor - 1, frame_type, body)

    def _say(self, word: int, now: float, seq: int = 0, frame_type: int = 0, body: bytes = b"") -> None:
        path, come = self.path, self.come
        assert path is not None, "nothing can be said without a path"
        header = Header(self.name, word, self.dial, seq or self.out.cursor, come.expects)
        self._books.commands.append(SendFrame(path, header, frame_type, body))
        self._said_at = now
        come.said()

    # -- the end

    def lose(self, end: SessionEnd, now: float) -> None:
        """Give the session up, and say so to the peer where there is a path."""
        if self.path is not None:
            self._say(CLOSED, now)
        self._books.commands.append(SessionLost(self.name, end, self._shut()))

    def _on_closed(self) -> None:
        """End too: as wanted, when at most our own question to close is not acknowledged."""
        if self.out.base >= self.out.limit:
            self._books.commands.append(SessionClosed(self.name, self._shut()))
        else:
            self._books.commands.append(SessionLost(self.name, SessionEnd.REFUSED, self._shut()))

    def _shut(self) -> tuple[Unsent, ...]:
        self.is_closed = True
        self.is_joined = False
        self.path = None
        return self.out.clear()

    # -- time

    def on_slept(self, late: float, now: float) -> None:
        """Do not hold against the peer, nor a path, what this process slept."""
        self._heard_at = min(self._heard_at + late, now)
        self._dialled_at = min(self._dialled_at + late, now)

    def on_tick(self, now: float) -> float:
        """Judge the peer and the path, say what is due; returns when this is next wanted."""
        due = self.due()
        if now < due:
            return due
        if now >= self._silence_due():
            self.lose(SessionEnd.SILENT, now)
            return inf
        if self._books.is_owner and now >= self._dial_due():
            self._drop_path()
            self._dial(now)
        if now >= self._idle_due():
            self.out.limit = self.out.cursor
            self._post((END, 0, b""), now)
        elif now >= self._speak_due():
            self._say(BEAT, now)
        return self.due()

    def due(self) -> float:
        """When this session next wants ``on_tick``."""
        due = min(self._silence_due(), self._speak_due(), self._idle_due())
        return min(due, self._dial_due()) if self._books.is_owner else due

    def _silence_due(self) -> float:
        """When the peer is given up unless it is heard before: earlier when more waits for it than may be kept."""
        is_overfull = self.out.waiting_nbytes > MOST_WAITING_NBYTES
        return self._heard_at + (min(MISSED_SECONDS, self._books.silence) if is_overfull else self._books.silence)

    def _dial_due(self) -> float:
        if self.path is None and not self._is_dialling:
            return self._dialled_at + REDIAL_SECONDS
        return max(self._heard_at, self._dialled_at) + DOUBT_SECONDS

    def _speak_due(self) -> float:
        if self.path is None:
            return inf
        return min(self._said_at + BEAT_SECONDS, self.come.owed_at + ACK_SECONDS)

    def _idle_due(self) -> float:
        out = self.out
        if self.in_use or not self._books.is_owner or not self.is_joined or out.base < out.next or out.limit < NO_LIMIT:
            return inf
        return self._used_at + IDLE_SECONDS

    def check(self) -> None:
        """Raise ``AssertionError`` when an invariant does not hold; for tests."""
        self.out.check()
        self.come.check()
        assert not self.is_closed, "a closed session is kept"
        assert self.path is not None or not (self.is_joined or self.out.flight), "frames fly without a path"
        assert self.is_joined or not self.out.flight, "frames were sent before the peer was heard"
        waits = self.is_joined and self.out.waiting and not self.out.flight and self.out.limit == NO_LIMIT
        assert not waits, "frames wait without a reason"

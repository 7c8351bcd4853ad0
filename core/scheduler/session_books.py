"""What all sessions of one process end share, and the times they keep."""

from __future__ import annotations

from collections import Counter
from math import inf

from .session_words import Role, SessionCommand, SetTimer

#: Seconds without a frame after which an end gives a session up. A node is missed soon, since its work can run
#: elsewhere; an owner whose path alone is gone is waited for longer, since its work is nobody else's.
SILENCE_SECONDS = {Role.OWNER: 5.0, Role.NODE: 30.0}
#: Seconds without a frame after which an end keeps no more than so much for the other: an owner has given up by then.
MISSED_SECONDS = SILENCE_SECONDS[Role.OWNER]
#: Seconds after which an end that has said nothing says that it lives.
BEAT_SECONDS = 1.0
#: Seconds of silence after which the owner's end takes a path for broken and tries another: two heartbeats, and early
#: enough to try twice before the node is given up.
DOUBT_SECONDS = 2.0
#: Seconds between two dials of a session, at least; the first after a break goes at once.
REDIAL_SECONDS = 0.2
#: Seconds an acknowledgement waits for something to ride on. It only frees the peer's memory: longer keeps more of
#: it, shorter wakes both ends more often.
ACK_SECONDS = 0.1
#: Seconds without use after which an owner asks to close.
IDLE_SECONDS = 10.0
#: Seconds by which a timer may be late before this process must have been asleep.
LATE_SECONDS = 1.0
#: Seconds between two looks at all sessions, at least. Deadlines are met this much later; a look at a thousand sessions
#: takes about 1 ms, 4 ms when all have to beat, and their heartbeats fall due one by one.
LOOK_SECONDS = 0.1


class Books:
    """The part this end plays, what it orders, what it dropped and when it wants to be woken."""

    __slots__ = ("commands", "due", "ignored", "is_owner", "silence")

    def __init__(self, role: Role) -> None:
        self.is_owner = role is Role.OWNER
        self.silence = SILENCE_SECONDS[role]
        self.commands: list[SessionCommand] = []
        self.due = inf
        self.ignored: Counter[str] = Counter()

    def need(self, at: float) -> None:
        """Wake up at this time, unless earlier anyway."""
        if at < self.due:
            self.due = at
            self.commands.append(SetTimer(at))

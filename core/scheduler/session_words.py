"""What two ends of a session say to each other, and what an end orders its driver to do.

A session is named by its owner's and its node's incarnation and a number that the owner counts up. Between them lie
*paths*: whatever carries frames in order until it breaks, directly or over relays; the driver names each by an integer
of its own. The owner's end dials, the node's end answers on the path by which it was last dialled.

Every frame carries the whole of what its sender knows, so that any frame acknowledges and resumes:

- ``dial``: the owner's count of dials. What names an older one came late, over a path that has been given up.
- ``seq``: of a numbered word its number, from 1; of any other the number that comes next on this path, so that a frame
  lost just before a silence is missed too.
- ``expects``: the number this end waits for. All before it have been handed on.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple


class SessionName(NamedTuple):
    """Two incarnations and the owner's count of its sessions."""

    owner: int
    node: int
    number: int


class Word(IntEnum):
    """What a frame says. Words before ``OPEN`` are numbered: kept until acknowledged, taken once and in order."""

    DATA = 0  #: a message of the machines above
    END = 1  #: owner: nothing is outstanding here, may we close?
    STAY = 2  #: node, to END: not yet
    OPEN = 3  #: owner: the first frame of every dial
    BEAT = 4  #: alive; a lone acknowledgement
    RESUME = 5  #: something is missing: go on from ``expects``
    CLOSED = 6  #: this session is closed for ever; never answered


class Role(Enum):
    """Which end of a session this is."""

    OWNER = "owner"  #: dials, opens, asks to close
    NODE = "node"  #: answers


class SessionEnd(Enum):
    """Why a session was lost."""

    SILENT = "silent"  #: nothing came for too long
    REFUSED = "refused"  #: nobody of that incarnation is there any more, or the peer says that it closed the session
    PEER_LOST = "peer lost"  #: the head struck the peer off
    GIVEN_UP = "given up"  #: this end's own program wanted it
    SUPERSEDED = "superseded"  #: the owner opened a later one
    BREACH = "breach"  #: the peer broke the rules: it acknowledged or ended what it could not


class Header(NamedTuple):
    """What precedes the body of every frame; all numbers fit in 64 bits."""

    name: SessionName
    word: int
    dial: int
    seq: int
    expects: int


class Unsent(NamedTuple):
    """A message that never went on any path: nobody has seen it."""

    frame_type: int
    body: bytes


class SendFrame(NamedTuple):
    """Put a frame on a path, behind what was put there before; drop it when the path has gone meanwhile."""

    path: int
    header: Header
    frame_type: int = 0
    body: bytes = b""


class Dial(NamedTuple):
    """Find a way to the session's node, another than the last one where there are several.

    The driver answers with ``on_path_up``, ``on_dial_failed`` or ``on_dial_refused`` and the same ``dial``.
    """

    name: SessionName
    dial: int


class Deliver(NamedTuple):
    """Hand a message to the machine above."""

    name: SessionName
    frame_type: int
    body: bytes


class SessionOpened(NamedTuple):
    """Make room for an owner: its first frame is here."""

    name: SessionName


class SessionLost(NamedTuple):
    """Treat as lost what went over this session. Comes once, whoever gave up; nothing of it comes later."""

    name: SessionName
    end: SessionEnd
    unsent: tuple[Unsent, ...]


class SessionClosed(NamedTuple):
    """Forget a session in which nothing was outstanding; what is ``unsent`` needs another one."""

    name: SessionName
    unsent: tuple[Unsent, ...]


class SetTimer(NamedTuple):
    """Call ``on_timer`` at this time, and not at the one named before."""

    due: float


SessionCommand = SendFrame | Dial | Deliver | SessionOpened | SessionLost | SessionClosed | SetTimer

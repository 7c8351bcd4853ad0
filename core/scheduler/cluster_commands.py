"""What the head's machine takes and what it orders: descriptions and commands.

Commands are plain tuples that begin with the node they go to, if they go to one. The driver does them in the order in
which they were decided: what `Keep` holds must be on disk before the commands behind it are done.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from .gang_words import GangCommand as GangCommand
from .kept import KeptState
from .members import Member as Member
from .members import MembersChanged


class NodeInfo(NamedTuple):
    """What a node says of itself when it registers; ``totals`` are in 1/10000.

    ``python`` is major.minor. A node without slots is the gateway of a client: it opens no port (its address is empty)
    and is never offered.
    """

    incarnation: int
    address: str
    host: str
    release: str
    protocol: int
    python: str
    totals: Mapping[str, int]
    slots: int
    labels: Mapping[str, str] = {}
    is_draining: bool = False


class NameClaim(NamedTuple):
    """A named actor as the node that hosts it describes it; ``record`` is opaque, ``owner`` its root client.

    ``incarnation`` counts the starts of the actor. A detached one outlives its node here, to be started again.
    """

    namespace: str
    name: str
    owner: int
    incarnation: int
    record: bytes = b""
    is_detached: bool = False


class NameEntry(NamedTuple):
    """A claim that stands, and the node that hosts the actor: 0 when that node was lost (detached actors only)."""

    claim: NameClaim
    node: int


class RefusalCause(Enum):
    """Why a node may not join."""

    MALFORMED = "malformed"  # a field is missing, too long or out of range
    VERSION = "version"  # its release or protocol does not fit; another release may come
    OTHER_CLUSTER = "other cluster"  # it belongs to a cluster of another name
    FULL = "full"  # there are as many members as the tables hold


class Keep(NamedTuple):
    """Write this state to the file of the head, durably, before anything else is done."""

    state: KeptState


class StepDown(NamedTuple):
    """Close every link and end: a head with this higher epoch has been started."""

    epoch: int


class Welcome(NamedTuple):
    """Tell a node that it is a member. It then says again what it wants, looks for and waits for."""

    node: int
    cluster: str
    epoch: int


class RefuseNode(NamedTuple):
    """Tell a node that it cannot join, in words for people."""

    node: int
    cause: RefusalCause
    reason: str


class Rejoin(NamedTuple):
    """Tell a node that its incarnation is not, or no more, a member: it ends its work and joins as a new one."""

    node: int
    reason: str


class Drain(NamedTuple):
    """Tell a node to finish what it has, take nothing more, and leave."""

    node: int


class TellMembers(NamedTuple):
    """Tell these nodes how the membership changed; one encoding serves them all."""

    nodes: tuple[int, ...]
    change: MembersChanged


class Offer(NamedTuple):
    """A node with room for so many of the tasks asked about."""

    node: int
    address: str
    room: int


class RoomAnswer(NamedTuple):
    """Name nodes with room to one that asked; the request is the last one it made for this shape.

    More answers to a request follow as room appears. Who has nothing to send there any more says that 0 tasks wait.
    """

    node: int
    request: int
    offers: tuple[Offer, ...]


class RoomRefused(NamedTuple):
    """Tell who asked that no node can meet its demand; the question is closed.

    ``pythons`` are the minors of the nodes there are. When the wanted one is among them, ``totals`` are the different
    totals of its nodes, a few at most.
    """

    node: int
    request: int
    python: str
    asked: Mapping[str, int]
    pythons: tuple[str, ...]
    totals: tuple[Mapping[str, int], ...]


class ClientAccepted(NamedTuple):
    """Tell a node that one of its clients fits this cluster."""

    node: int
    request: int


class ClientRefused(NamedTuple):
    """Tell a node that the cluster has nodes of these Python minors only, not of the client's."""

    node: int
    request: int
    python: str
    pythons: tuple[str, ...]


class NameGranted(NamedTuple):
    """Tell a node that the actor it is about to start has its name."""

    node: int
    request: int


class NameRefused(NamedTuple):
    """Tell a node that its actor cannot have the name, and who has it; ``holder`` is None when nobody does."""

    node: int
    request: int
    reason: str
    holder: NameEntry | None


class NameAnswer(NamedTuple):
    """Answer a look-up; None when there is no such name."""

    node: int
    request: int
    entry: NameEntry | None


class KillActor(NamedTuple):
    """Tell a node to end an actor of this owner whose name another claim has."""

    node: int
    namespace: str
    name: str
    owner: int
    incarnation: int


class TryLater(NamedTuple):
    """Tell a node that a table is full: the request was dropped and may be repeated in a second."""

    node: int
    request: int


Command = (
    Keep | StepDown | Welcome | RefuseNode | Rejoin | Drain | TellMembers | RoomAnswer | RoomRefused
    | ClientAccepted | ClientRefused | NameGranted | NameRefused | NameAnswer | KillActor | TryLater | GangCommand
)  # fmt: skip

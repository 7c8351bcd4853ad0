"""How a task ended when no result came: marks that stand in an entry's value until somebody asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from ..ids import ObjectId


class LostCause(IntEnum):
    """Why a task will bring no result from an attempt; the numbers are those of the wire."""

    PROCESS = 0  #: its own process died while it ran: the call is the suspect
    MACHINE = 1  #: it was lost through no fault of its own (template lost, or we killed the worker for another task)
    CANCELLED = 2  #: taken back or killed because its owner cancelled it
    BINDING = 3  #: its binding failed or was dropped, or its kind was refused


class LostMark(NamedTuple):
    """No attempts were left. `death` is opaque here: how the process ended; `reason`: why, where no process did.

    `is_call`: it was the call of an actor.
    """

    cause: LostCause
    name: str
    index: int | None  # type: ignore[assignment]  # hides tuple.index; None: a plain task
    attempts: int
    death: Any
    reason: str = ""
    is_call: bool = False


class PoisonMark(NamedTuple):
    """It was not sent: the last `deaths` runs of its function all ended with their worker, the last one by `death`."""

    name: str
    deaths: int
    death: Any


class CancelledMark(NamedTuple):
    """Its owner cancelled it, or something it needed."""

    name: str


class RefusedMark(NamedTuple):
    """No node could ever run it."""

    name: str
    reason: str
    asked: Mapping[str, int]
    available: Mapping[str, int]


class BindingMark(NamedTuple):
    """Its binding was dropped, or failed: `outcome` is the initialiser's error, `death` how its process ended.

    `is_actor`: it was an actor, `label` names it, and `reason` says why it ended if nothing else does. `is_ganged`: it
    was in a gang, which is over if nothing else is said.
    """

    label: str
    outcome: bytes
    death: Any
    is_actor: bool = False
    reason: str = ""
    is_ganged: bool = False


class NodeLostMark(NamedTuple):
    """The node went away with everything on it."""

    reason: str


class ShutdownMark(NamedTuple):
    """The program shut its engine down."""

    reason: str


class OwnerLostMark(NamedTuple):
    """The process that owned the object died before it passed it on."""

    owner: int


class ReleasedMark(NamedTuple):
    """The object was released before somebody asked for its value."""

    reason: str


class ObjectLostMark(NamedTuple):
    """The last copy of a stored object is lost, and it cannot be made again: `reason` says why."""

    oid: ObjectId
    reason: str


class EncodeFailedMark(NamedTuple):
    """The item could not be pickled; `error` is the exception."""

    error: BaseException


def is_failure(value: Any) -> bool:
    """Whether an entry's value says that its task failed: a mark, or the value bytes of an error.

    Value bytes of an Outcome begin with the tag of its only field: 0x0a for a value, 0x12 for an error.
    """
    return not isinstance(value, bytes) or value[:1] == b"\x12"

"""How a task ended when no result came: marks that stand in an entry's value until somebody asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple


class LostCause(Enum):
    """Why a node says that a task will bring no result from this attempt (values as in the wire's Lost.Cause)."""

    PROCESS = 0  # its own process died while it ran: the call is the suspect
    MACHINE = 1  # its template, node or session was lost: it is not
    CANCELLED = 2  # taken back or killed because its owner cancelled it
    BINDING = 3  # its binding failed or was dropped


class LostMark(NamedTuple):
    """No attempts were left. `death` is opaque here: how the process ended."""

    cause: LostCause
    name: str
    index: int
    attempts: int
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
    """Its binding failed (`outcome`: value bytes of the initialiser's error; `death`: how its process ended) or was dropped."""

    label: str
    outcome: bytes
    death: Any


class NodeLostMark(NamedTuple):
    """The node went away with everything on it."""

    reason: str


class ShutdownMark(NamedTuple):
    """The program shut its engine down."""

    reason: str


class OwnerLostMark(NamedTuple):
    """The process that owned the object died before it passed it on."""

    owner: int


class EncodeFailedMark(NamedTuple):
    """The item could not be pickled; `error` is the exception."""

    error: BaseException

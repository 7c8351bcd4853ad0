"""What the client's machine orders, besides what `references` tells others. The driver does these in order.

`node` is whom it concerns, 0 the own node.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..ids import ObjectId, Span
from .arrays import Array
from .entries import Entry
from .kinds import Kind
from .tasks import Task


class Send(NamedTuple):
    """Send these plain tasks, whose indices follow each other."""

    kind: Kind
    first: int
    attempt: int
    tasks: list[Task]
    node: int = 0


class SendItems(NamedTuple):
    """Pickle and send these items of an array; what was not sent after all comes back by `on_unsent`."""

    array: Array
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    attempt: int
    node: int = 0


class SendCancel(NamedTuple):
    """Tell a node that these, which it has, are cancelled."""

    spans: list[Span]
    force: bool
    kill_after: float | None
    node: int = 0


class Want(NamedTuple):
    """Tell a node how many tasks of a kind can be sent nowhere for want of credit (0: none any more)."""

    kind: Kind
    waiting: int
    node: int = 0


class Ask(NamedTuple):
    """Ask the owner for the value of a borrowed object; `version` is one that cannot be had any more, or 0."""

    oid: ObjectId
    version: int = 0


class Answer(NamedTuple):
    """Answer a borrower; `lent` are references inside the value for which their owners must count it."""

    oid: ObjectId
    value: Any
    asker: int
    lent: tuple[ObjectId, ...]


class Settled(NamedTuple):
    """A watched object has its value."""

    oid: ObjectId
    entry: Entry

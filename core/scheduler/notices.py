"""What is said of objects between processes: commands of the client's machine, which its driver does in order."""

from __future__ import annotations

from typing import NamedTuple

from ..ids import ObjectId


class Free(NamedTuple):
    """Tell the node that nobody can ask for this object any more: it is stored (`version`), or it was adopted."""

    oid: ObjectId
    version: int


class Borrow(NamedTuple):
    """Tell the owner that this process refers to its object."""

    oid: ObjectId


class Release(NamedTuple):
    """Tell the owner that this process no longer does.

    It was counted so many `times`; `version` is what the node pinned here (None: nothing).
    """

    oid: ObjectId
    version: int | None
    times: int


class Unpin(NamedTuple):
    """Give back the pin of an extent that this process will not look at."""

    oid: ObjectId
    version: int


class Word(NamedTuple):
    """What was said of an object: `borrower` is to be counted so many times more (or less), as the node or it says.

    `by` is the process that sent the borrower the reference in the result of a task, or 0.
    """

    borrower: int
    times: int
    by: int


class AnchorEnded(NamedTuple):
    """No handle of an actor of ours is left: its binding can be let go."""

    binding: int


class PassOn(NamedTuple):
    """An object that has an heir has its value: pass it on."""

    oid: ObjectId

"""Identifiers: how processes, tasks and objects are named.

An *incarnation* is a random 64-bit number drawn by a process at its start (again after a fork); it names the client or
worker for ever. A task or object is named by its owner's incarnation and a number that the owner counts up.
"""

from __future__ import annotations

from typing import NamedTuple

#: Resource amounts are integers of this fraction of a unit, so that sums of fractions are exact. 10,000 as in Ray.
RESOURCE_UNIT = 10_000

#: Stream of plain tasks; every other stream is one task array.
PLAIN_STREAM = 0

#: Stands for the version of an object that lies in no extent, where the node is told of its end.
NO_EXTENT = (1 << 32) - 1


class ObjectId(NamedTuple):
    """Names one object: 16 bytes on the wire. ``seq`` counts from 1 within ``owner``."""

    owner: int
    seq: int

    def hex(self) -> str:
        """The id as 32 hexadecimal digits, for people."""
        return f"{self.owner:016x}{self.seq:016x}"


def item_object(owner: int, stream: int, index: int) -> ObjectId:
    """Name the result of one item of a task array, should it lie in the store."""
    return ObjectId(owner, 1 << 63 | stream << 40 | index)


class Span(NamedTuple):
    """``count`` consecutive tasks of one stream and attempt: indices first, first + stride, …"""

    stream: int
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    attempt: int
    stride: int = 1

    @property
    def end(self) -> int:
        """Index after the last task's indices."""
        return self.first + self.count * self.stride

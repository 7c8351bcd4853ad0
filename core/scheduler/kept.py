"""What a head keeps for its next start: the cluster's name, the last epoch, the list of nodes."""

from __future__ import annotations

from typing import NamedTuple

from .members import Member

#: Members of one cluster, gateways included. A full list of so many takes about 1 MB.
MEMBERS = 10_000

#: Characters of an address, a host name, a cluster's name: the longest DNS name and a port fit.
NAME_LENGTH = 300

#: Characters of Python's major.minor.
PYTHON_LENGTH = 8

#: Slots of one node; no machine has so many.
SLOTS = 1 << 16

#: Epochs count starts of the head; one a millisecond for as long as there have been computers is far below.
LAST_EPOCH = 1 << 48

LAST_INCARNATION = (1 << 64) - 1

_FORMAT = 1


class KeptState(NamedTuple):
    """The state between two starts; a new cluster begins with epoch 0 and no nodes."""

    cluster: str
    epoch: int = 0
    nodes: tuple[Member, ...] = ()

    def to_fields(self) -> dict[str, object]:
        """Return it as dicts, lists, strings and integers."""
        return {
            "format": _FORMAT,
            "cluster": self.cluster,
            "epoch": self.epoch,
            "nodes": [list(member) for member in self.nodes],
        }

    @classmethod
    def from_fields(cls, fields: object) -> KeptState:
        """Check what `to_fields` gave and somebody stored.

        Raises:
            ValueError: it is something else, or out of bounds.
        """
        if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
            raise ValueError("not the kept state of a head, or of a later release")
        cluster = _text(fields.get("cluster"), NAME_LENGTH)
        epoch = _whole(fields.get("epoch"), 0, LAST_EPOCH)
        nodes = fields.get("nodes")
        if not cluster or not isinstance(nodes, list) or len(nodes) > MEMBERS:
            raise ValueError("the kept state names no cluster or no list of nodes")
        members = tuple(_member(entry) for entry in nodes)
        if len({member.incarnation for member in members}) < len(members):
            raise ValueError("the kept state names a node twice")
        return cls(cluster, epoch, members)


def _member(entry: object) -> Member:
    if not isinstance(entry, list) or len(entry) != len(Member._fields):
        raise ValueError("the kept state names something that is no node")
    incarnation, address, host, python, slots, is_draining = entry
    if not isinstance(is_draining, bool):
        raise ValueError("the kept state does not say whether a node drains")
    return Member(
        _whole(incarnation, 1, LAST_INCARNATION),
        _text(address, NAME_LENGTH),
        _text(host, NAME_LENGTH),
        _text(python, PYTHON_LENGTH),
        _whole(slots, 0, SLOTS),
        is_draining,
    )


def _text(value: object, longest: int) -> str:
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise ValueError("the kept state holds a name that is none")
    return value


def _whole(value: object, lowest: int, highest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise ValueError("the kept state holds a number out of range")
    return value

"""What the head knows at one moment, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .members import Member
from .room import RoomView
from .roster import Node


class NodeView(NamedTuple):
    """One node; ``state`` is ``"ready"``, ``"draining"`` or, after a start of the head, ``"awaited"``.

    Release and figures are empty for one that is awaited; ``silent_seconds`` is None then.
    """

    incarnation: int
    address: str
    host: str
    python: str
    slots: int
    state: str
    release: str = ""
    totals: Mapping[str, int] = {}
    free: Mapping[str, int] = {}
    labels: Mapping[str, str] = {}
    silent_seconds: float | None = None


class ClusterView(NamedTuple):
    """The cluster; ``waiting`` is what nodes ask room for, ``requests`` those about names that wait for nodes."""

    cluster: str
    epoch: int
    is_settled: bool
    nodes: list[NodeView]
    waiting: list[RoomView]
    names: int
    requests: int
    counts: Mapping[str, int]


def view_node(node: Node, awake: float) -> NodeView:
    """Show a registered node."""
    info, state = node.info, "draining" if node.is_draining else "ready"
    return NodeView(
        *node.member()[:5], state, info.release, info.totals, node.free, info.labels, max(0.0, awake - node.heard)
    )


def view_awaited(member: Member) -> NodeView:
    """Show a node that has not come back yet."""
    return NodeView(*member[:5], "awaited")

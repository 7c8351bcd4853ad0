"""A node's process in a world of several nodes: the real node, tree, peering and seeker, over models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..rpc.protos import cluster_pb2
from ..seeker import Seeker
from ..tree import Tree
from .machine import Machine
from .nethead import HEAD
from .netlinks import End, NetFrame
from .netnode import NodeProcess
from .netpeering import NetPeering

if TYPE_CHECKING:
    from .clusterworld import ClusterWorld


class ClusterNode(NodeProcess):
    """One node; `machine` is what is on its machine."""

    world: ClusterWorld

    def __init__(self, world: ClusterWorld, name: str, place: str, slots: int, store_nbytes: int) -> None:
        super().__init__(world, name, place, slots)
        self.machine = Machine(world, slots, store_nbytes, self)
        node = self.node = self.machine.node
        node.name = name
        self.totals = node.totals
        loop: Any = node.loop
        self.peering = node.peering = NetPeering(self, node, loop, self.head.members, self.address)
        self.tree = node.tree = Tree(node, self.peering)
        self.seeker = node.seeker = Seeker(node, self._report, "head")
        world.machines.append(self.machine)

    def _report(self, report: cluster_pb2.Report) -> None:
        self.head.report(report)

    def settle(self) -> None:
        """Do what the machines here command."""
        self.machine.is_touched = True
        self.node.settle()

    def die(self, *, silently: bool = False) -> None:
        """End, and all processes on this machine with it."""
        if self.alive:
            super().die(silently=silently)
            self.world.on_machine_ended(self.machine)

    # -- wires ---------------------------------------------------------------------------------------------------------

    def on_dialled(self, end: End) -> None:
        """Somebody has laid a wire to it: another node, or a head that wants to know whether anybody is here."""
        if self.world.place_of.get(end.peer) != HEAD and not self.peering.accept(end):
            end.close()

    def on_frames(self, end: End, frames: list[NetFrame]) -> None:
        """Frames have come."""
        if end is self.head.end:
            self.head.on_frames(frames)
        else:
            self.peering.read(end, frames)
        if self.alive:
            self.settle()

    def on_wire_down(self, end: End) -> None:
        """A wire has ended."""
        if end is self.head.end:
            self.head.on_wire_down()
        else:
            self.peering.wire_down(end)
        if self.alive:
            self.settle()

    def on_struck(self, node: int) -> None:
        """The head has struck a node off: as `Membership`."""
        self.peering.on_struck(node)
        self.tree.on_struck(node)
        self.seeker.on_node_gone(node)
        self.node.store.replicas.on_node_gone(node)

    # -- the head ------------------------------------------------------------------------------------------------------

    def free(self) -> dict[str, int]:
        """What is free."""
        return {name: max(0, amount) for name, amount in self.node.dispatch.snapshot().free.items()}

    def on_head_up(self) -> None:
        """The head has taken this node in, or back."""
        self.seeker.on_head(True)
        super().on_head_up()

    def on_head_down(self) -> None:
        """The head is away."""
        self.seeker.on_head(False)
        super().on_head_down()

    def on_room(self, said: Any) -> None:
        """The head names nodes with room, or says that there never will be."""
        self.seeker.on_room(said)

    def on_try_later(self, request: int) -> None:
        """The head's table is full."""
        self.seeker.on_try_later(request)

    def on_drain(self) -> None:
        """Take nothing more."""
        self.node.dispatch.on_drain(self.local())
        self.settle()

    def is_busy(self) -> bool:
        """Whether tasks keep it from leaving."""
        return not self.node.dispatch.is_idle

"""One machine of a simulated world: its node, its template and what lies in its shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ids import ObjectId
from .memory import Memory
from .nodeside import SimNode, Template

if TYPE_CHECKING:
    from .world import World


class Machine:
    """`is_touched`: its node's machines have done something since they were last looked at."""

    def __init__(self, world: World, cpus: int, store_nbytes: int) -> None:
        self.world = world
        self.is_touched = False
        self.memory = Memory(self)
        self.template = Template(self)
        self.node = SimNode(self, cpus, store_nbytes)

    def check(self) -> None:
        """Check the node's machines."""
        self.node.dispatch.check()
        self.node.store.extents.check()

    def pins_of(self, oid: ObjectId, version: int, segment: int, offset: int) -> int:
        """Pins that the node counts on what lies in an extent."""
        entry = self.node.store.extents._entries.get((oid.owner, oid.seq, version))
        return entry.pins if entry is not None and (entry.segment, entry.offset) == (segment, offset) else 0

    def replace_template(self) -> None:
        """The node has noticed that its template is gone."""
        self.is_touched = True
        self.template = Template(self)
        workforce: Any = self.node.workforce
        workforce.template = self.template
        workforce.lose_workers()

"""One machine of a simulated world: its node, its template and what lies in its shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ids import ObjectId
from .memory import Memory
from .nodeside import SimNode, Template

if TYPE_CHECKING:
    from .netprocess import NetProcess
    from .world import TaskWorld


class Machine:
    """`process` is the node's process where that may stop and die, in worlds with a network.

    `is_touched`: its node's machines have done something since they were last looked at.
    """

    def __init__(self, world: TaskWorld, cpus: int, store_nbytes: int, process: NetProcess | None = None) -> None:
        self.world = world
        self.process = process
        self.is_joined = process is not None
        self.incarnation = world.new_incarnation() if process is None else process.incarnation
        self.is_touched = False
        self.memory = Memory(self)
        self.template = Template(self)
        self.node = SimNode(self, cpus, store_nbytes)

    @property
    def alive(self) -> bool:
        """Whether the node lives."""
        return self.process is None or self.process.alive

    def is_reachable_from(self, other: Machine) -> bool:
        """Whether another machine's node would be answered now."""
        here, there = self.process, other.process
        if here is None or there is None or not here.alive or here.stopped:
            return False
        return not {here.place, there.place} & here.world.dialling.away

    def now(self) -> float:
        """The time on the node's clock."""
        return self.world.now if self.process is None else self.process.local()

    def is_other(self, node: int) -> bool:
        """Whether a frame to or from this machine's processes names another node."""
        return self.is_joined and node not in (0, self.incarnation) and self.world.machine_of(node) is not None

    def after(self, delay: float, what: str, do: Callable[[], None]) -> None:
        """Let the node do something later, when it lives and is not stopped then."""
        if self.process is not None:
            self.process.after(delay, what, lambda: self._do(do))
        else:
            self.world.at(delay, what, lambda: self._do(do))

    def hear(self, what: str, do: Callable[[], None]) -> None:
        """Let the node take in what has come: now, or when it goes on."""
        if self.process is not None and self.process.alive:
            self.process.after(0.0, what, lambda: self._do(do), is_input=True)
        elif self.process is None:
            self._do(do)

    def _do(self, do: Callable[[], None]) -> None:
        self.is_touched = True
        do()

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
        self.template = Template(self)
        workforce: Any = self.node.workforce
        workforce.template = self.template
        workforce.lose_workers()

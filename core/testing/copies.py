"""Copies of objects of other nodes in a simulated world: the real `Replicas`, with a model of the transfer itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ids import ObjectId
from ..replicas import Replicas
from ..scheduler import pulls
from .memory import Cell
from .netlinks import NET_DELAY

if TYPE_CHECKING:
    from ..nodestore import NodeStore
    from .machine import Machine

#: Seconds after which a source that says nothing is given up.
PATIENCE = 5.0


class SimReplicas(Replicas):
    """The real one; a transfer is one event, after which all bytes are here, or it has failed."""

    def __init__(self, store: NodeStore, machine: Machine) -> None:
        super().__init__(store)
        self.machine = machine

    def _execute(self, command: pulls.Command) -> None:
        if isinstance(command, pulls.Fetch):
            delay = command.pause + NET_DELAY * (0.2 + self.machine.world.rng.random())
            self._plan(command.key, command.source, delay)
        else:
            super()._execute(command)

    def _plan(self, key: pulls.Key, source: int, delay: float) -> None:
        self._tasks[key] = self._node.loop.call_later(delay, self._bring_now, key, source)

    def _bring_now(self, key: pulls.Key, source: int) -> None:
        there = self.machine.world.machine_of(source)
        if there is None or not there.is_reachable_from(self.machine):
            self._plan_end(key, PATIENCE, "nothing came for too long")
            return
        self._end(key, self._read(there, key))

    def _plan_end(self, key: pulls.Key, delay: float, reason: str) -> None:
        self._tasks[key] = self._node.loop.call_later(delay, self._give_up, key, reason)

    def _give_up(self, key: pulls.Key, reason: str) -> None:
        del self._tasks[key]
        self.machine.world.mark("copy could not be fetched")
        self._pulls.on_failed(key, reason, is_final=False)
        self._after()

    @staticmethod
    def _read(there: Machine, key: pulls.Key) -> Cell | None:
        owner, seq, version = key
        place = there.node.store.extents.find(ObjectId(owner, seq), version)
        return there.memory.segments[place.segment].get(place.offset) if place is not None else None

    def _end(self, key: pulls.Key, cell: Cell | None) -> None:
        del self._tasks[key]
        if cell is None:
            self.machine.world.mark("copy is nowhere")
            self._pulls.on_failed(key, "no copy there", is_final=True)
        else:
            assert (cell.oid.owner, cell.oid.seq, cell.version) == key, f"{cell.oid} lies where {key} should"
            self.machine.world.mark("copy brought in")
            extent = self._rooms[key].extent
            self.machine.memory.write(extent.segment, extent.offset, cell)
            self._pulls.on_arrived(key)
        self._after()

    def _after(self) -> None:
        self._drive()
        self._node.flush_soon()

"""What breaks in the first phase: processes die, stop and hang, links stall."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from .process import Process
from .worker import WorkerProcess

if TYPE_CHECKING:
    from .world import TaskWorld

#: Virtual seconds of the first phase at most.
FAULT_SECONDS = 0.06


class Faults:
    """Breaks things at random times, and then mends what can be mended."""

    def __init__(self, world: TaskWorld) -> None:
        self._world = world
        self.ended_at = 0.0

    def begin(self) -> None:
        """Plan the first phase."""
        world = self._world
        if not world.with_faults:
            return
        for number in range(world.rng.randint(0, 5)):
            rng, part = world.rng_of(f"fault {number}"), f"fault {number}"
            at = FAULT_SECONDS * rng.random()
            if world.keeps(part):
                world.at(at, part, lambda rng=rng: self._strike(rng))  # type: ignore[misc]
        world.at(FAULT_SECONDS, "faults end", self._end)

    def _strike(self, rng: Random) -> None:
        world = self._world
        world.is_faulty = True
        machine = rng.choice(world.machines)
        workers = list(machine.template.workers.values())
        clients = [p for p in world.processes.values() if p.alive and not isinstance(p, WorkerProcess)]
        alive = [*clients, *workers]
        what = rng.random()
        if what < 0.5 and workers:
            machine.template.end(rng.choice(workers), 9)
        elif what < 0.6 and len(clients) > 1:
            world.mark("client died")
            rng.choice(clients).die(9)
        elif what < 0.7:
            machine.template.die()
        elif what < 0.85 and alive:
            self._stop(rng.choice(alive), 3.0 * rng.random())
        elif alive:
            rng.choice(rng.choice(alive).node_link.pipes).stall(0.03 * rng.random())

    def _stop(self, process: Process, seconds: float) -> None:
        process.stop()
        world = self._world
        world.mark("stopped")
        world.trace(f"{process.name} is stopped")
        world.at(seconds, f"{process.name} goes on", process.go_on)

    def _end(self) -> None:
        world = self._world
        world.faults_are_over = True
        self.ended_at = world.now

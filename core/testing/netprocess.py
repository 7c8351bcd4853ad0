"""A process in the network's world: it has an address, a clock of its own, stops and goes on, dies between commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .netlinks import KEEPALIVE, End, NetFrame

if TYPE_CHECKING:
    from .networld import Network


class NetProcess:
    """One process. What concerns it while it is stopped waits until it goes on, input or timers first."""

    def __init__(self, world: Network, name: str, place: str) -> None:
        self.world = world
        self.name = name
        self.place = place
        self.incarnation = world.new_incarnation()
        self.alive = True
        self.stopped = False
        self._origin = 1000.0 * world.rng.random()
        self._rate = world.rng.choice((1.0, 1.0, 0.97, 1.03))
        self._deferred: list[tuple[bool, Callable[[], None]]] = []

    def __repr__(self) -> str:
        return f"<{self.name} {'dead' if not self.alive else 'stopped' if self.stopped else 'alive'}>"

    def local(self) -> float:
        """The time on this process's own clock."""
        return self._origin + self._rate * self.world.now

    def after(self, delay: float, what: str, do: Callable[[], None], *, is_input: bool = False) -> None:
        """Do something after so many of the world's seconds, unless the process is dead then."""

        def act() -> None:
            if not self.alive:
                return
            if self.stopped:
                self._deferred.append((is_input, do))
                return
            self.world.awake[self.incarnation] = self
            do()

        if delay <= 0.0 and not self.stopped and is_input:
            act()  # it is an event already
        else:
            self.world.at(delay, f"{self.name} {what}", act)

    def at_local(self, due: float, what: str, do: Callable[[], None]) -> None:
        """Do something at a time on its own clock, a little late as all timers are."""
        late = 0.002 * self.world.rng.random()
        self.after(max(0.0, (due - self.local()) / self._rate) + late, what, do)

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True
        self.world.mark("stopped")

    def go_on(self) -> None:
        """SIGCONT: what has come meanwhile is there at once."""
        if not (self.alive and self.stopped):
            return
        self.stopped = False
        deferred, self._deferred = self._deferred, []
        if self.world.rng.random() < 0.5:
            deferred.sort(key=lambda entry: entry[0], reverse=self.world.rng.random() < 0.5)
        for is_input, do in deferred:
            if self.stopped or not self.alive:
                self._deferred.append((is_input, do))
            else:
                self.world.awake[self.incarnation] = self
                do()

    def die(self, *, silently: bool = False) -> None:
        """End now. Its wires end with it, or just fall silent as when its machine loses power."""
        if not self.alive:
            return
        self.world.trace(f"{self.name} dies{' silently' if silently else ''}")
        self.alive = False
        self.world.excuse(KEEPALIVE)
        for end in [end for end in self.world.ends if end.owner is self and not end.closed]:
            if silently:
                end.closed = True
                end.out.cut(0)
                self.world.at(KEEPALIVE * self.world.rng.random(), f"keepalive {end.number}", end.other.break_off)
            else:
                end.close()

    def obey(self, commands: Iterable[Any], do: Callable[[Any], None]) -> None:
        """Do what a machine commands; in the first phase the process may die between two commands."""
        for command in commands:
            if not self.alive:
                return
            do(command)
            if self.world.breaks(0.0005):
                self.world.mark("died between two commands")
                self.die()
                self.world.bring_back(self)

    # -- what it is told -----------------------------------------------------------------------------------------------

    def on_dialled(self, end: End) -> None:
        """Somebody has laid a wire to it."""
        raise NotImplementedError

    def on_frames(self, end: End, frames: list[NetFrame]) -> None:
        """Frames have come."""
        raise NotImplementedError

    def on_wire_down(self, end: End) -> None:
        """A wire has ended."""
        raise NotImplementedError

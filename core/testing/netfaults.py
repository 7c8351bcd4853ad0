"""What breaks between machines in the first phase, and what programs of this world do meanwhile.

Each fault is planned with a generator of its own, so that one can be left out and the others stay.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from .nethead import NetHead
from .netlinks import End, cut_silently
from .netnode import NetNode
from .netprocess import NetProcess

if TYPE_CHECKING:
    from .networld import NetWorld

NAMES = ("a", "b")


class NetFaults:
    """Breaks things at random times, and in the end mends what can be mended."""

    def __init__(self, world: NetWorld) -> None:
        self._world = world
        self.ended_at = 0.0

    def begin(self) -> None:
        """Plan the first phase."""
        world = self._world
        rng = world.rng_of("plan")
        seconds = rng.choice((0.5, 3.0, 8.0, 12.0))
        for number in range(rng.randint(0, 9) if world.with_faults else 0):
            self._plan(f"fault {number}", seconds, self._strike)
        for number in range(rng.randint(0, 6)):
            self._plan(f"deed {number}", seconds, self._act)
        world.at(seconds, "faults end", self._end)

    def _plan(self, part: str, seconds: float, do: Callable[[Random], None]) -> None:
        world = self._world
        rng = world.rng_of(part)
        at = seconds * rng.random()
        if world.keeps(part):
            world.at(at, part, lambda: do(rng))

    # -- what breaks ---------------------------------------------------------------------------------------------------

    def _strike(self, rng: Random) -> None:
        faults = [self._break, self._break, self._cut, self._cut, self._cut, self._stall, self._stall, self._stop]
        faults += [self._stop, self._kill, self._kill, self._part, self._part, self._head]
        faults += [self._forget] * 4
        rng.choice(faults)(rng)

    def _wire(self, rng: Random) -> End | None:
        """One end of a wire."""
        ends = [end for end in self._world.ends if not end.closed and not end.other.closed]
        return rng.choice(ends) if ends else None

    def _break(self, rng: Random) -> None:
        end = self._wire(rng)
        if end is None:
            return
        keep = rng.randint(0, 3)

        def harm() -> None:
            end.out.cut(keep)
            end.break_off()
            end.other.break_off()

        end.out.set_trap(rng.randint(0, 9), harm)

    def _cut(self, rng: Random) -> None:
        end = self._wire(rng)
        if end is None:
            return
        keep, is_two_way = rng.randint(0, 3), rng.random() < 0.3

        def harm() -> None:
            self._world.mark("half open")
            cut_silently(end, keep, is_two_way=is_two_way)

        end.out.set_trap(rng.randint(0, 9), harm)

    def _stall(self, rng: Random) -> None:
        end = self._wire(rng)
        if end is not None:
            seconds = rng.choice((0.1, 1.0, 3.0, 7.0)) * rng.random()
            end.out.stall(seconds)
            self._world.excuse(seconds)

    def _forget(self, rng: Random) -> None:
        """A relay loses frames, and those behind them come through."""
        ends = [end for end in self._world.ends if not end.closed and isinstance(end.owner, NetNode)
                and isinstance(end.other.owner, NetNode)]  # fmt: skip
        if ends:
            rng.choice(ends).out.lose(rng.randint(0, 3), rng.randint(1, 3))

    def _processes(self) -> list[NetProcess]:
        return [process for process in self._world.places.values() if process.alive]

    def _stop(self, rng: Random) -> None:
        running = [process for process in self._processes() if not process.stopped]
        if running:
            process = rng.choice(running)
            process.stop()
            seconds = rng.choice((0.5, 2.0, 7.0)) * rng.random()
            self._world.excuse(seconds)
            self._world.at(seconds, f"{process.name} goes on", process.go_on)

    def _kill(self, rng: Random) -> None:
        nodes = [process for process in self._processes() if isinstance(process, NetNode)]
        if nodes:
            process = rng.choice(nodes)
            process.die(silently=rng.random() < 0.3)
            self._world.mark("node died")
            self._world.bring_back(process)

    def _part(self, rng: Random) -> None:
        """A machine cannot be reached for a while: nothing that goes there arrives, no dial gets through."""
        world = self._world
        process = rng.choice(list(world.places.values()))
        world.mark("machine away")
        world.dialling.away.add(process.place)
        for end in [end for end in world.ends if not end.closed and end.owner is process]:
            cut_silently(end, 0, is_two_way=True)
        seconds = rng.choice((1.0, 4.0, 9.0)) * rng.random()
        world.excuse(seconds)
        world.at(seconds, f"{process.place} is back", lambda: world.dialling.away.discard(process.place))

    def _head(self, rng: Random) -> None:
        head = self._world.head
        if isinstance(head, NetHead) and head.alive:
            if rng.random() < 0.3:
                self._world.mark("head returned empty")
                self._world.disk.lose()
            head.die(silently=rng.random() < 0.2)
            self._world.mark("head died")
            self._world.bring_back(head)

    # -- what is done --------------------------------------------------------------------------------------------------

    def _act(self, rng: Random) -> None:
        deeds = [self._claim, self._claim, self._look_up, self._release, self._drain, self._leave, self._more]
        deeds += [self._more, self._connect, self._connect, self._arrive]
        rng.choice(deeds)(rng)

    def _node(self, rng: Random) -> NetNode | None:
        nodes = [p for p in self._processes() if isinstance(p, NetNode) and not p.stopped]
        return rng.choice(nodes) if nodes else None

    def _claim(self, rng: Random) -> None:
        node = self._node(rng)
        if node is not None:
            self._world.last_start += 1
            node.claim(rng.choice(NAMES), self._world.last_start)

    def _look_up(self, rng: Random) -> None:
        node = self._node(rng)
        if node is not None:
            node.look_up(rng.choice(NAMES))

    def _release(self, rng: Random) -> None:
        node = self._node(rng)
        if node is not None and node.hosted:
            node.release(rng.choice(sorted(node.hosted)))

    def _drain(self, rng: Random) -> None:
        node = self._node(rng)
        head = self._world.head
        if node is None or not node.slots:
            return
        if rng.random() < 0.5:
            node.head.drain()
        elif head.alive and not head.stopped:
            head.order_drain(node.incarnation)
        for root in list(node.roots.values()):
            node.drop_root(root)
        node.settle()

    def _leave(self, rng: Random) -> None:
        node = self._node(rng)
        if node is not None and node.roots:
            node.drop_root(rng.choice(list(node.roots.values())))

    def _more(self, rng: Random) -> None:
        node = self._node(rng)
        if node is not None and node.roots:
            root = rng.choice(list(node.roots.values()))
            for _ in range(rng.choice((1, 5, 20))):
                root.submit()
            root.place()
            node.settle()

    def _connect(self, rng: Random) -> None:
        """A client opens a session with a node that it knows from the list, as a nested call may."""
        node = self._node(rng)
        members = [m for m in node.head.members.current.values() if m.slots] if node is not None else []
        if node is not None and node.roots and members:
            root = rng.choice(list(node.roots.values()))
            wanted = rng.choice(members)
            if not wanted.draining:
                root.connect(wanted.incarnation)
                node.settle()

    def _arrive(self, rng: Random) -> None:
        node = self._node(rng)
        if node is not None and not node.is_draining:
            self._world.clients += 1
            node.add_root(f"client{self._world.clients}", rng.choice((1, 5)))
            node.settle()

    # -- the end of it -------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        world = self._world
        world.faults_are_over = True
        self.ended_at = world.now
        world.dialling.away.clear()
        for process in list(world.places.values()):
            if process.stopped:
                process.go_on()

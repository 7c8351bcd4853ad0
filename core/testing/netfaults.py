"""What breaks between machines in the first phase, and what programs of this world do meanwhile.

Each fault is planned with a generator of its own, so that one can be left out and the others stay.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from .nethead import NetHead
from .netlinks import End, cut_silently
from .netnode import NodeProcess
from .netprocess import NetProcess

NAMES = ("a", "b")


class NetFaults:
    """Breaks things at random times, and in the end mends what can be mended."""

    #: Virtual seconds of the first phase.
    lengths: tuple[float, ...] = (0.5, 3.0, 8.0, 12.0)

    def __init__(self, world: Any) -> None:
        self.world = world
        self.ended_at = 0.0

    def time_of(self, rng: Random, seconds: float) -> float:
        """When something happens."""
        return seconds * rng.random()

    def kinds(self) -> list[str]:
        """Faults to choose from, some more often than others."""
        faults = [
            "break",
            "break",
            "cut",
            "cut",
            "cut",
            "stall",
            "stall",
            "stop",
            "stop",
            "kill",
            "kill",
            "part",
            "part",
        ]
        return [*faults, "head", "forget", "forget", "forget", "forget"]

    def deeds(self) -> list[str]:
        """What else happens."""
        deeds = ["claim", "claim", "look_up", "release", "drain", "leave", "more", "more"]
        return [*deeds, "connect", "connect", "arrive"]

    def begin(self) -> None:
        """Plan the first phase."""
        world = self.world
        rng = world.rng_of("plan")
        seconds = rng.choice(self.lengths)
        for number in range(rng.randint(0, 9) if world.with_faults else 0):
            self._plan(f"fault {number}", seconds, self._strike)
        for number in range(rng.randint(0, 6)):
            self._plan(f"deed {number}", seconds, self._act)
        world.at(seconds, "faults end", self._end)

    def _plan(self, part: str, seconds: float, do: Callable[[Random], None]) -> None:
        world = self.world
        rng = world.rng_of(part)
        at = self.time_of(rng, seconds)
        if world.keeps(part):
            world.at(at, part, lambda: do(rng))

    # -- what breaks ---------------------------------------------------------------------------------------------------

    def _strike(self, rng: Random) -> None:
        self.strike(rng.choice(self.kinds()), rng)

    def strike(self, what: str, rng: Random) -> None:
        """Let one fault happen."""
        self.world.trace(what)
        getattr(self, f"fault_{what.replace(' ', '_')}")(rng)

    def _wire(self, rng: Random) -> End | None:
        """One end of a wire."""
        ends = [end for end in self.world.ends if not end.closed and not end.other.closed]
        return rng.choice(ends) if ends else None

    def fault_break(self, rng: Random) -> None:
        """A wire ends, and both ends are told."""
        end = self._wire(rng)
        if end is None:
            return
        keep = rng.randint(0, 3)

        def harm() -> None:
            end.out.cut(keep)
            end.break_off()
            end.other.break_off()

        end.out.set_trap(rng.randint(0, 9), harm)

    def fault_cut(self, rng: Random) -> None:
        """A wire is cut, and nobody is told."""
        end = self._wire(rng)
        if end is None:
            return
        keep, is_two_way = rng.randint(0, 3), rng.random() < 0.3

        def harm() -> None:
            self.world.mark("half open")
            cut_silently(end, keep, is_two_way=is_two_way)

        end.out.set_trap(rng.randint(0, 9), harm)

    def fault_stall(self, rng: Random) -> None:
        """One direction of a wire brings nothing for a while."""
        end = self._wire(rng)
        if end is not None:
            seconds = rng.choice((0.1, 1.0, 3.0, 7.0)) * rng.random()
            end.out.stall(seconds)
            self.world.excuse(seconds)

    def fault_forget(self, rng: Random) -> None:
        """A relay loses frames, and those behind them come through."""
        ends = [end for end in self.world.ends if not end.closed and isinstance(end.owner, NodeProcess)
                and isinstance(end.other.owner, NodeProcess)]  # fmt: skip
        if ends:
            rng.choice(ends).out.lose(rng.randint(0, 3), rng.randint(1, 3))

    def processes(self) -> list[NetProcess]:
        """Who lives at some place."""
        return [process for process in self.world.places.values() if process.alive]

    def fault_stop(self, rng: Random) -> None:
        """A process stops for a while."""
        running = [process for process in self.processes() if not process.stopped]
        if running:
            process = rng.choice(running)
            process.stop()
            seconds = rng.choice((0.5, 2.0, 7.0)) * rng.random()
            self.world.excuse(seconds)
            self.world.at(seconds, f"{process.name} goes on", process.go_on)

    def fault_kill(self, rng: Random) -> None:
        """A node's process is killed, or its machine loses power."""
        nodes = [process for process in self.processes() if isinstance(process, NodeProcess)]
        if nodes:
            process = rng.choice(nodes)
            process.die(silently=rng.random() < 0.3)
            self.world.mark("node died")
            self.world.bring_back(process)

    def fault_part(self, rng: Random) -> None:
        """A machine cannot be reached for a while: nothing that goes there arrives, no dial gets through."""
        world = self.world
        process = rng.choice(list(world.places.values()))
        world.mark("machine away")
        world.dialling.away.add(process.place)
        for end in [end for end in world.ends if not end.closed and end.owner is process]:
            cut_silently(end, 0, is_two_way=True)
        seconds = rng.choice((1.0, 4.0, 9.0)) * rng.random()
        world.excuse(seconds)
        world.at(seconds, f"{process.place} is back", lambda: world.dialling.away.discard(process.place))

    def fault_head(self, rng: Random) -> None:
        """The head dies, and at times its file is lost."""
        head = self.world.head
        if isinstance(head, NetHead) and head.alive:
            if rng.random() < 0.3:
                self.world.mark("head returned empty")
                self.world.disk.lose()
            head.die(silently=rng.random() < 0.2)
            self.world.mark("head died")
            self.world.bring_back(head)

    # -- what is done --------------------------------------------------------------------------------------------------

    def _act(self, rng: Random) -> None:
        what = rng.choice(self.deeds())
        self.world.trace(what)
        getattr(self, f"deed_{what}")(rng)

    def _node(self, rng: Random) -> Any:
        nodes = [p for p in self.processes() if isinstance(p, NodeProcess) and not p.stopped]
        return rng.choice(nodes) if nodes else None

    def deed_claim(self, rng: Random) -> None:
        """A named actor starts, and perhaps another one of its name elsewhere: one of them is refused."""
        name = rng.choice(NAMES)
        for node in {self._node(rng): None, self._node(rng): None}:
            if node is not None:
                self.world.last_start += 1
                node.claim(name, self.world.last_start)

    def deed_look_up(self, rng: Random) -> None:
        """Somebody asks who bears a name."""
        node = self._node(rng)
        if node is not None:
            node.look_up(rng.choice(NAMES))

    def deed_release(self, rng: Random) -> None:
        """A named actor ends."""
        node = self._node(rng)
        if node is not None and node.hosted:
            node.release(rng.choice(sorted(node.hosted)))

    def deed_drain(self, rng: Random) -> None:
        """A node is to leave."""
        node = self._node(rng)
        head = self.world.head
        if node is None or not node.slots:
            return
        if rng.random() < 0.5:
            node.head.drain()
        elif head.alive and not head.stopped:
            head.order_drain(node.incarnation)
        for root in list(node.roots.values()):
            node.drop_root(root)
        node.settle()

    def deed_leave(self, rng: Random) -> None:
        """A client ends."""
        node = self._node(rng)
        if node is not None and node.roots:
            node.drop_root(rng.choice(list(node.roots.values())))

    def deed_more(self, rng: Random) -> None:
        """A client has more tasks."""
        node = self._node(rng)
        if node is not None and node.roots:
            root = rng.choice(list(node.roots.values()))
            for _ in range(rng.choice((1, 5, 20))):
                root.submit()
            root.place()
            node.settle()

    def deed_connect(self, rng: Random) -> None:
        """A client opens a session with a node that it knows from the list, as a nested call may."""
        node = self._node(rng)
        members = [m for m in node.head.members.current.values() if m.slots] if node is not None else []
        if node is not None and node.roots and members:
            root = rng.choice(list(node.roots.values()))
            wanted = rng.choice(members)
            if not wanted.draining:
                root.connect(wanted.incarnation)
                node.settle()

    def deed_arrive(self, rng: Random) -> None:
        """One more client comes."""
        node = self._node(rng)
        if node is not None and not node.is_draining:
            self.world.clients += 1
            node.add_root(f"client{self.world.clients}", rng.choice((1, 5)))
            node.settle()

    # -- the end of it -------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        world = self.world
        world.faults_are_over = True
        self.ended_at = world.now
        world.dialling.away.clear()
        for end in world.ends:
            end.out.spare()
        for process in list(world.places.values()):
            if process.stopped:
                process.go_on()

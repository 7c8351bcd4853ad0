"""The node of the simulated world: the real node, with models of its loop, its template and its workers' processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..ids import ObjectId
from ..node import Node
from ..rpc.protos import outboard_pb2 as pb
from ..scheduler import commands
from ..scheduler.extents import Reclaim, ReleasePages
from ..workforce import Hand, Workforce
from .copies import SimReplicas
from .links import Claim, Output, Slot, boot_parts
from .netpeering import Answer, spawn
from .worker import WorkerProcess

if TYPE_CHECKING:
    from .machine import Machine

#: Seconds a fork takes at most, and the report of an exit.
FORK_SECONDS = 0.002


class Handle:
    """A timer that may be cancelled."""

    __slots__ = ("is_cancelled",)

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        """Do nothing when the time comes."""
        self.is_cancelled = True


class Loop:
    """What the node asks of its event loop."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def time(self) -> float:
        """Seconds on the node's clock."""
        return self._machine.now()

    def call_later(self, delay: float, do: Callable[..., object], *args: Any) -> Handle:
        """Call after so many virtual seconds."""
        handle = Handle()

        def act() -> None:
            if not handle.is_cancelled:
                do(*args)

        self._machine.after(delay, "node timer", act)
        return handle

    def call_soon(self, do: Callable[..., object], *args: Any) -> Handle:
        """Call in the next turn."""
        return self.call_later(0.0, do, *args)

    def spawn(self, coroutine: Coroutine[Answer, None, None]) -> None:
        """Run a coroutine."""
        spawn(coroutine)

    def add_reader(self, fd: int, do: Callable[..., None], *args: Any) -> None:
        """Nothing here has descriptors."""

    def remove_reader(self, fd: int) -> None:
        """Nothing here has descriptors."""

    def stop(self) -> None:
        """The node ends itself only for its founder, which this world does not have."""
        raise AssertionError("the node ended")


class Template:
    """A template process: forks, kills and reports, each after a while; its workers die with it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._world = machine.world
        self._last = 0.0
        self.alive = True
        self.workers: dict[int, WorkerProcess] = {}

    def _request(self, what: str, do: Callable[[], None]) -> None:
        """Requests are done in the order in which they were made."""
        world = self._world
        self._last = max(self._last, world.now + FORK_SECONDS * world.rng.random() ** 2)
        world.at_time(self._last, what, do)

    def fork(self, place: int, worker: WorkerProcess, binding: pb.Binding) -> None:
        """Be asked for a worker."""
        world = self._world
        fails = world.fault(0.02)

        def act() -> None:
            if not self.alive:
                return
            if fails:
                worker.alive = False
                self._report(lambda: self._machine.node.workforce._on_forked(place, 0, "no memory"))
                return
            self.workers[place] = worker
            pid = 1000 + worker.number
            self._report(lambda: self._machine.node.workforce._on_forked(place, pid, ""))
            worker.begin(binding)

        self._request(f"fork {worker.name}", act)

    def kill(self, place: int, number: int) -> None:
        """Be asked to end a worker's group."""

        def act() -> None:
            worker = self.workers.get(place)
            if self.alive and worker is not None:
                self.end(worker, number)

        self._request(f"kill place {place}", act)

    def signal(self, place: int, number: int) -> None:
        """Be asked to send a signal to a worker's process alone: the one that cancels."""

        def act() -> None:
            worker = self.workers.get(place)
            if self.alive and worker is not None:
                worker.after(0.0, "signal", worker.on_signal)

        self._request(f"signal place {place}", act)

    def end(self, worker: WorkerProcess, signal: int) -> None:
        """A worker is ended by a signal."""
        if worker.alive:
            worker.die(signal)
            self.exited(worker)

    def exited(self, worker: WorkerProcess) -> None:
        """A worker's process is gone: reap and report it."""
        place = next((place for place, other in self.workers.items() if other is worker), None)
        worker.die(0)
        if place is None:
            return
        del self.workers[place]
        workforce = self._machine.node.workforce
        self._report(lambda: workforce._on_exited(place, 1000 + worker.number, worker.exitcode, worker.signal, 0))

    def _report(self, do: Callable[[], None]) -> None:
        def act() -> None:
            if self.alive:
                self._machine.hear("hears of a process", do)

        self._world.at(FORK_SECONDS * self._world.rng.random(), "template reports", act)

    def die(self) -> None:
        """End, and take the workers along."""
        if not self.alive:
            return
        self._world.mark("template died")
        self.alive = False
        for worker in list(self.workers.values()):
            worker.die(9)
        self.workers.clear()
        replace = self._machine.replace_template
        self._world.at(FORK_SECONDS, "template lost", lambda: self._machine.hear("finds its template gone", replace))

    def close(self) -> None:
        """The node lets it go."""


class Dirty:
    """The links that are to be written, in an order that is the same in every run."""

    def __init__(self) -> None:
        self._links: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._links)

    def add(self, link: Any) -> None:
        """Note one."""
        self._links[id(link)] = link

    def pop(self) -> Any:
        """Take one."""
        return self._links.popitem()[1]


class SimWorkforce(Workforce):
    """The real workforce; only where it meets the kernel it meets models."""

    def __init__(self, node: SimNode, machine: Machine, boot: Any) -> None:
        self.machine = machine
        self.world = machine.world
        super().__init__(node, boot)

    def _handle(self, control: Any) -> Any:
        return self.machine.template

    def _start(self, command: commands.StartWorker) -> None:
        node, world = self.node, self.world
        client = node.peers[command.client]
        number = command.worker
        place = next(place for place in range(1 << 16) if place not in self.places)
        claim, slot = Claim(world.rng.choice((2, 8, 64)), world.rng.choice((256, 1 << 20))), Slot()
        worker = WorkerProcess(self.machine, number, world.new_incarnation(), client.root, claim, slot)
        world.add(worker)
        link: Any = worker.node_link
        peer = node.add_peer(link, worker.incarnation, client.root, number)
        link.listen(lambda _, frames: node.on_frames(peer, frames), lambda _, error: self._link_ended(number))
        sender: Any = claim
        board: Any = slot
        hand = self.hands[number] = self.places[place] = Hand(
            number, place, peer, sender, board, command.client, command.binding
        )
        output: Any = Output()
        hand.out = hand.err = output
        binding = pb.Binding.FromString(self.bindings.get((command.client, command.binding), b""))
        self.template.fork(place, worker, binding)  # type: ignore[arg-type]  # the model takes objects, not bytes
        if not binding.initializer:
            node.dispatch.on_worker_started(number, node.now())

    def _take_back(self, hand: Hand, at_most: int | None) -> list[int]:
        taken = super()._take_back(hand, at_most)
        if at_most is not None:
            self.world.mark("recall won" if taken else "recall lost the race")
        return taken

    def _send_packet(self, command: commands.SendPacket) -> None:
        super()._send_packet(command)
        if self.hands[command.worker].unsent:
            self.world.mark("socket full")

    def kill(self, worker: int) -> None:
        """End a worker's process group."""
        self.world.mark("killed by the node")
        super().kill(worker)

    def lose_workers(self) -> None:
        """The template is gone, and its workers with it."""
        for hand in list(self.hands.values()):
            death = pb.Death(pid=hand.pid, signal=9, host=self.node.host, worker=hand.number)
            self._bury(hand, death, machine_lost=True)


class SimNode(Node):
    """The real node over models."""

    def __init__(self, machine: Machine, cpus: int, store_nbytes: int) -> None:
        world = machine.world
        self._incarnation = machine.incarnation
        boot: Any = SimpleNamespace(**boot_parts(lambda place: Slot()))
        loop: Any = Loop(machine)
        settings = {"num_cpus": cpus, "num_gpus": 0, "resources": {"disk": 1}, "store_memory": store_nbytes}
        self.workforce: SimWorkforce
        super().__init__(loop, boot, settings, loop.stop, joined=machine.is_joined)
        self.machine = machine
        self.world = world
        self.name = f"node {self.incarnation:x}"
        self.founder = 0
        self.store.replicas = SimReplicas(self.store, machine)
        dirty: Any = Dirty()
        self._dirty = dirty
        self.host = "simulated"
        self.workforce = SimWorkforce(self, machine, boot)
        self._execute_store = self.store.execute
        self.store.execute = self._on_store_commands  # type: ignore[method-assign]  # looks, then does it
        self._adopt = self.exchange.adopt
        self.exchange.adopt = self._on_adoption  # type: ignore[method-assign]  # looks, then does it

    @property
    def incarnation(self) -> int:
        """Its name, which the world draws."""
        return self._incarnation

    @incarnation.setter
    def incarnation(self, _: int) -> None:
        """What the real node draws is not the same in every run."""

    def _on_store_commands(self, ordered: Any) -> None:
        ordered = list(ordered)
        for command in ordered:
            if type(command) is ReleasePages:
                self.machine.memory.release(command.segment, command.offset)
            elif type(command) is Reclaim:
                self.machine.memory.reclaim(command.segment, command.offset)
        self._execute_store(ordered)

    def expel(self, peer: Any, what: str, error: Exception) -> None:
        """Nothing that these processes say may be beyond the node."""
        raise AssertionError(f"{peer.incarnation:x}: {what}") from error

    @staticmethod
    def complain(who: str, what: str, error: Exception) -> None:
        """Nor what other nodes say."""
        raise AssertionError(f"{who}: {what}") from error

    def on_frames(self, peer: Any, frames: list[Any]) -> None:
        """Handle frames, and note that this has been done."""
        super().on_frames(peer, frames)
        for frame_type, body, node, _ in frames:
            if not self.machine.is_other(node):
                self.world.credits.handled_by_node(peer.incarnation, frame_type, body)

    def _on_adoption(self, peer: Any, message: Any, heir: Any) -> None:
        self._adopt(peer, message, heir)
        named = {ObjectId(adoption.ref.owner, adoption.ref.seq) for adoption in message.adopted}
        if heir is not None and any(oid in named for oid, _, _ in peer.words):
            self.world.mark("word repeated")

    def forget(self, peer: Any) -> None:
        """A process has ended."""
        super().forget(peer)
        for process in self.world.processes.values():
            if process.alive and any(peer.incarnation in (e.borrowers or ()) for e in process.entries()):
                self.world.mark("borrower died")

    def join_client(self, process: Any) -> None:
        """Greet a client, as `_admit`."""
        link = process.node_link
        peer = self.add_peer(link, process.incarnation, process.incarnation, None)
        peer.hello = pb.Hello(protocol=1, pid=1, incarnation=process.incarnation)
        peer.is_client = True
        link.listen(lambda _, frames: self.on_frames(peer, frames), lambda _, error: self._client_left(peer))
        self.dispatch.on_client_joined(process.incarnation, process.incarnation, self.now())

    def close(self) -> None:
        """Give back what the real store holds of the system."""
        for fd, _ in self.store._segments.values():
            os.close(fd)
        self.store._segments.clear()

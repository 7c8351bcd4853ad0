"""A simulated client or worker process: the real client over a modelled link, driven by a program that is a generator.

The program's thread is the generator `main`. It yields what it waits for; the world resumes it. Deaths drop it wherever
it stands, stops let everything that concerns it wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..client import Client
from ..ids import ObjectId
from ..rpc.protos import outboard_pb2 as pb
from ..turns import BLOCKED_AFTER
from .calls import Calls
from .ledger import Ledger
from .links import NodeLink, ProcessLink
from .memory import SimValues

if TYPE_CHECKING:
    from .machine import Machine

#: Seconds from a wake-up until the process runs, at most.
LATENCY = 0.0001

Program = Generator["Want", Any, Any]


class Want(NamedTuple):
    """What a program waits for: "time", "input" of the link or "claim"; resumed with False after `timeout`."""

    what: str
    timeout: float | None = None


class Gone(Exception):
    """The link has ended under the program."""


class Background:
    """As `background.Background`: serves the link when the program does not wait for it, once it has been started."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._nudged = False
        self.running = False

    def start(self) -> None:
        """From now on the link is read."""
        if not self.running:
            self.running, self._nudged = True, False
            self._process.after(LATENCY, "background", self._process.serve_input)

    def nudge(self) -> None:
        """Ask for a flush, once until it happened."""
        if self.running and not self._nudged:
            self._nudged = True
            self._process.after(LATENCY * self._process.world.rng.random(), "flush", self._flush)

    def _flush(self) -> None:
        self._nudged = False
        self._process.client.flush()

    def disarm(self) -> None:
        """The link is shared without threads here."""

    def rearm(self) -> None:
        """The link is shared without threads here."""

    def stop(self) -> None:
        """Serve no more."""
        self.running = False


class Process:
    """One process. `alive` and `stopped` are what the kernel knows of it."""

    def __init__(self, machine: Machine, name: str, incarnation: int, root: int) -> None:
        self.machine = machine
        self.world = machine.world
        self.name = name
        self.incarnation = incarnation
        self.root = root
        self.alive = True
        self.stopped = False
        self.failed_link = False
        self.node_link = NodeLink(machine, name, incarnation, self._arrived)
        self.link = ProcessLink(self, self.node_link.pipes[0])
        welcome = pb.Welcome.FromString(machine.node.welcome(incarnation))
        self.client = Client(self.link, incarnation, welcome)  # type: ignore[arg-type]
        self.background = Background(self)
        self.client.background = self.background  # type: ignore[assignment]
        self.values = SimValues(self.client, welcome.node, machine.memory)
        self.client.values = self.values
        self.unbound: set[int] = set()
        self.client.on_unbound = self.unbound.add
        self.in_user_code = False
        self.client.in_task = lambda: self.in_user_code
        self.ledger = Ledger(self)
        self.calls = Calls(self)
        self.refs: list[ObjectId] = []  # references that the program holds, one entry each
        self.views: list[tuple[int, int]] = []
        self.main: Program | None = None
        self.is_shielded = False  # signal handlers may not raise now
        self.pending: BaseException | None = None  # what one would have raised
        self.turn = 0  # counts resumptions, so that late timers are recognised
        self._wants = Want("nothing")
        self._deferred: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        state = "dead" if not self.alive else "stopped" if self.stopped else f"wants {self._wants.what}"
        return f"<{self.name} {state} unanswered={self.client.owner.unanswered} refs={len(self.refs)}>"

    # -- time ----------------------------------------------------------------------------------------------------------

    def after(self, delay: float, what: str, do: Callable[[], None]) -> None:
        """Do something later, unless the process is dead then; when it is stopped, as soon as it goes on."""

        def act() -> None:
            if not self.alive:
                return
            if self.stopped:
                self._deferred.append(do)
                return
            self.world.touched[self.incarnation] = self
            do()

        self.world.at(delay, f"{self.name} {what}", act)

    def start(self, program: Program) -> None:
        """Begin to run."""
        self.main = program
        self._advance(lambda: next(program))

    def _resume(self, value: Any) -> None:
        program = self.main
        if program is not None:
            self._advance(lambda: program.send(value))

    def _advance(self, step: Callable[[], Want]) -> None:
        self.turn += 1
        self.world.touched[self.incarnation] = self
        try:
            self._wants = step()
        except (StopIteration, Gone):
            self.main = None
            self._wants = Want("nothing")
            self.ended()
            return
        turn = self.turn
        if self._wants.timeout is not None:
            self.after(self._wants.timeout, "timer", lambda: self._expire(turn))
        if (self._wants.what == "input" and self.link.has_input) or (self._wants.what == "claim" and self.has_claim()):
            self.wake(self._wants.what)

    def _expire(self, turn: int) -> None:
        if turn == self.turn:
            self._resume(False)

    def wake(self, what: str) -> None:
        """What the program may wait for has happened."""
        if self.alive and self._wants.what == what:
            turn = self.turn
            self.after(LATENCY * self.world.rng.random(), f"wakes for {what}", lambda: self._woken(turn))

    def _woken(self, turn: int) -> None:
        if turn == self.turn:
            self._resume(True)

    def throw(self, error: BaseException) -> None:
        """A signal handler raises in the program, as soon as it may."""
        program = self.main
        if self.is_shielded:
            self.pending = error
        elif program is not None:
            self._advance(lambda: program.throw(error))

    def has_claim(self) -> bool:
        """Whether the claim socket has something; clients have none."""
        return False

    def ended(self) -> None:
        """The program has come to its end."""

    # -- life and death ------------------------------------------------------------------------------------------------

    def die(self, signal: int) -> None:
        """End now, wherever the program stands."""
        if not self.alive:
            return
        self.world.trace(f"{self.name} dies by {signal}")
        self.alive = False
        self.main = None
        self.values.reader.forget()
        self.world.credits.process_died(self.incarnation)
        self.node_link.pipes[1].closed = True
        self.node_link.pipes[0].write(b"")
        for other in self.world.processes.values():
            if other.alive and other.root == self.incarnation:
                other.orphaned()

    def orphaned(self) -> None:
        """The client at the top has died: it will not be long."""

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        if not (self.alive and self.stopped):
            return
        self.stopped = False
        deferred, self._deferred = self._deferred, []
        for do in deferred:
            self.after(0.0, "goes on", do)

    # -- input ---------------------------------------------------------------------------------------------------------

    def _arrived(self, chunk: bytes) -> None:
        if not self.alive:
            return
        if chunk:
            self.link.feed(chunk)
        else:
            self.link.closed = True
        if self._wants.what == "input":
            self.wake("input")
        elif self.background.running:
            self.after(0.0, "reads", self.serve_input)

    def serve_input(self) -> None:
        """Handle what has come, for a program that is not waiting for it."""
        if self.link.has_input and self._wants.what != "input":
            self.handle_input()
            self.wake("input")

    def handle_input(self) -> None:
        """Handle what has come. Raises Gone when the link has ended."""
        if not self.client.handle_input():
            raise Gone

    def wait(self, ready: Callable[[], Any], timeout: float | None = None) -> Program:
        """As `Client.wait`: read the link until ready; a task gives back its CPUs when that takes long."""
        client = self.client
        if not ready():
            client.pump_and_send()
        deadline = None if timeout is None else self.world.now + timeout
        while not ready():
            left = None if deadline is None else max(0.0, deadline - self.world.now)
            is_long = left is None or left > BLOCKED_AFTER
            may_block = self.in_user_code and is_long and not client.turns.lending.is_lent
            if self.link.has_input or (yield Want("input", BLOCKED_AFTER if may_block else left)):
                self.handle_input()
            elif may_block:
                client.turns.lend(self)
                self.world.mark("blocked")
            elif ready():
                break
            else:
                yield from self.unblock()
                return False
        yield from self.unblock()
        return True

    def unblock(self) -> Program:
        """As `Turns.ask_back`: take the CPUs back before the task goes on."""
        turns = self.client.turns
        if not turns.lending.is_lent:
            return
        turns.ask_back(self)
        self.is_shielded = True
        while turns.is_asking():
            if self.link.has_input or (yield Want("input")):
                self.handle_input()
        self.is_shielded = False
        pending, self.pending = self.pending, None
        if pending is not None:
            raise pending

    def entries(self) -> list[Any]:
        """All records of objects that the machine has."""
        refs = self.client.owner.refs
        return [*refs.owned.values(), *refs.foreign.values()]

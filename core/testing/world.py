"""One seeded world: a node, its clients and workers, a clock that only events move, and the order of these events.

The machines, the drivers' words, the codec and the node are the real ones; modelled are the kernel (links, claim
sockets, board, processes, signals), shared memory, and what users' programs do. One random generator decides
everything, so a seed is a world. In its first phase anything may break; then nothing does, and all must settle.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Set
from typing import Any

from ..ids import ObjectId
from ..reach import HOME
from ..rpc.codec import Frame
from ..rpc.protos import outboard_pb2 as pb
from ..scheduler.outcomes import BindingMark
from ..scheduler.owner import POISON_DEATHS
from .checks import check_quiet, check_world
from .course import Course
from .credits import Credits
from .faults import Faults
from .machine import Machine
from .memory import Memory
from .process import Process
from .programs import ClientProgram

#: Virtual seconds in which everything must settle once faults have ended.
SETTLE_SECONDS = 30.0

#: Frames whose bytes differ from run to run: maps have no order.
_UNORDERED = {Frame.KIND, Frame.KIND_REFUSED, Frame.WELCOME}

#: Frames that are rare enough to be counted.
_MARKED = {Frame.ADOPT: "passed on when settled", Frame.RETURNED: "returned surplus", Frame.OWNER_LOST: "owner lost"}


class TaskWorld(Course):
    """What worlds have in which processes submit and run tasks; `machines` are theirs."""

    #: Whether values are stored, here and now: small ones lie with their owner.
    has_stores = True
    #: Share of results that are.
    stored_share = 0.15
    #: Whether programs make bindings.
    has_bindings = True
    #: Virtual seconds that tasks take at most.
    task_seconds: tuple[float, ...] = (0.00001, 0.0001, 0.0005, 0.002, 0.02)
    #: Virtual seconds that programs pause at most; 0: they do not.
    pause_seconds = 0.0

    def __init__(self, seed: int, without: Set[str] = frozenset()) -> None:
        super().__init__(seed, without)
        self.with_faults = self.rng.random() < 0.65
        self.faults_are_over = not self.with_faults
        self.is_faulty = False  # something happened because of which tasks may fail
        self.last_spec = 0
        self.expected: dict[ObjectId, int | None] = {}
        self.failed: set[ObjectId] = set()
        self.processes: dict[int, Process] = {}
        self.touched: dict[int, Process] = {}
        self._begun: set[tuple[int, int, int, int]] = set()
        self.credits = Credits(self)
        self.machines: list[Machine] = []
        self.programs: list[ClientProgram] = []

    def start_client(self, machine: Machine, name: str) -> None:
        """A client comes to a node, and its program begins."""
        process = Process(machine, name, incarnation := self.new_incarnation(), incarnation)
        self.add(process)
        machine.node.join_client(process)
        process.background.start()
        program = ClientProgram(process, self.rng_of(name))
        self.programs.append(program)
        process.after(0.001 * self.rng.random(), "starts", lambda: process.start(program.run()))

    def new_incarnation(self) -> int:
        """Draw the name of a process."""
        return self.rng.getrandbits(64) | 1

    def add(self, process: Process) -> None:
        """A process exists."""
        self.processes[process.incarnation] = process

    # -- events --------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check the machines that the last event touched."""
        check_world(self)

    def read_out(self) -> None:
        """Let workers handle what they would find with their next task, and let go of what their last one kept."""
        for process in self.processes.values():
            if process.alive:
                process.calls.drop_all()
                process.client.flush()
        while self.step() or any(process.alive and process.link.has_input for process in self.processes.values()):
            for process in self.processes.values():
                if process.alive and process.link.has_input:
                    self.touched[process.incarnation] = process
                    process.handle_input()
                    check_world(self)

    def describe_stuck(self) -> str:
        """Say who has not come to an end."""
        alive = [repr(process) for process in self.processes.values() if process.alive]
        return "not settled: " + ", ".join(alive)

    def close(self) -> None:
        """Give back what the world holds of this machine."""
        for machine in self.machines:
            machine.node.close()
        super().close()

    def note_frame(self, source: str, target: str, frame_type: int, body: bytes) -> None:
        """Note a frame."""
        content = 0 if frame_type in _UNORDERED else zlib.crc32(body)
        self.lines.append(f"  {source}>{target} {frame_type} {len(body)} {content:08x}")
        if frame_type in _MARKED:
            self.mark(_MARKED[frame_type])
        if frame_type == Frame.NODE_GONE:
            self.mark("session lost" if pb.NodeGone.FromString(body).lost else "session closed")

    def all_marks(self) -> Counter[str]:
        """What was counted here, and by the machines."""
        marks = self.marks.copy()
        for machine in self.machines:
            marks += machine.node.dispatch.counts + machine.node.store.extents.ignored
        for process in self.processes.values():
            marks += process.client.owner.counts
            marks["poison"] += sum(made.kind.deaths >= POISON_DEATHS for made in process.calls.made.values())
        return marks

    def fault(self, chance: float) -> bool:
        """Whether something breaks now, which is noted."""
        if self.faults_are_over or self.rng.random() >= chance:
            return False
        self.is_faulty = True
        return True

    # -- what processes report -----------------------------------------------------------------------------------------

    def begins(self, owner: int, stream: int, index: int, attempt: int) -> None:
        """User code of a task begins: once in each attempt."""
        task = owner, stream, index, attempt
        assert task not in self._begun, f"{task} begins twice"
        self._begun.add(task)
        if attempt > 1:
            self.mark("retry")
        parent = self.processes[owner]
        if parent.client.turns.lending.is_lent:
            self.mark("child got its parent's CPU")

    def can_run(self, process: Process, asked: Mapping[str, int]) -> bool:
        """Whether tasks with this demand will be run for a process, rather than be refused."""
        return all(amount <= process.machine.node.totals[name] for name, amount in asked.items())

    def machine_of(self, node: int) -> Machine | None:
        """The machine of a node."""
        for machine in self.machines:
            if machine.incarnation == node:
                return machine
        return None

    def memory_of(self, descriptor: Any) -> Memory | None:
        """The store in which something lies; None when its machine has gone."""
        machine = self.machine_of(descriptor.node)
        return machine.memory if machine is not None and machine.alive else None

    def may_be_gone(self, value: bytes) -> bool:
        """Whether a stored value may have been lost with its machine."""
        return False

    def bind(self, process: Process, binding: pb.Binding, processes: int) -> None:
        """A client makes a binding, as `NativeEngine.bind`."""
        client = process.client
        client.binding_specs[binding.id] = binding
        if binding.ordered:
            client.actors.open(binding.id, client.owner.new_seq(), {}, None)
        elif client.reach.bindings.open(binding.id, processes, ordered=False):
            client.outbox.introduce_binding(binding.id, HOME)

    def unbind(self, process: Process, binding: int, *, force: bool) -> None:
        """A client drops a binding, as `NativeEngine.unbind`."""
        client = process.client
        anchor = client.actors.anchors.get(binding)
        if anchor is not None:  # of an actor: its last handle goes
            client.dropped.append((client.incarnation, anchor))
        if force:
            client.requests.append(lambda: self._end_binding(process, binding))
        elif anchor is None:
            client.leaving[binding] = None
        client.flush()

    def _end_binding(self, process: Process, binding: int) -> None:
        client = process.client
        client.leaving.pop(binding, None)
        client.outbox.unbind(binding, force=True)
        client.fail_binding(binding, BindingMark("", b"", None))
        for array in list(client.owner.arrays.values()):
            if client.kind_binding.get(array.kind.id) == binding:
                client.owner.cancel_array(array, kill_after=None)
        for seq, entry in list(client.owner.refs.owned.items()):
            kind = getattr(entry, "kind", None)
            if kind is not None and client.kind_binding.get(kind.id) == binding:
                client.owner.cancel(seq)
        client.reach.forget_unbound(binding)


class World(TaskWorld):
    """Everything that exists in one seed."""

    name = "node"
    rare = (
        "adoption",
        "blocked",
        "borrower died",
        "cancel of finished",
        "child",
        "child got its parent's CPU",
        "client died",
        "died between packet and first item",
        "died while running",
        "followed",
        "forgot a kind",
        "init failed",
        "interrupted",
        "killed by the node",
        "late answer",
        "owner lost",
        "part of a packet",
        "passed on when settled",
        "passing refused",
        "poison",
        "recall lost the race",
        "recall won",
        "result of cancelled",
        "retry",
        "returned surplus",
        "room came back",
        "socket full",
        "stopped",
        "store full",
        "template died",
        "word repeated",
    )

    def __init__(self, seed: int, without: Set[str] = frozenset()) -> None:
        super().__init__(seed, without)
        rng = self.rng
        self.machines.append(Machine(self, rng.choice((1, 2, 2, 4)), 4096 * rng.choice((6, 12, 64))))
        for number in range(rng.choice((1, 1, 2, 3))):
            if self.keeps(f"client{number}"):
                self.start_client(self.machines[0], f"client{number}")
        self.faults = Faults(self)

    def run(self) -> None:
        """Live through both phases. Raises what is wrong."""
        self.faults.begin()
        while self.step():
            if self.faults_are_over:
                assert self.now < self.faults.ended_at + SETTLE_SECONDS, self.describe_stuck()
        assert self.faults_are_over
        self.read_out()
        check_quiet(self)

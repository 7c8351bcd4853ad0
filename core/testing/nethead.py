"""The head's process in the network's world: the real machine and the real words, as `head.Head` joins them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from .. import keptstate
from ..gangwords import gang_note, gang_wish, gangs_told
from ..headwords import (
    membership_notes,
    name_claim,
    name_note,
    name_refusal_note,
    no_room_note,
    node_info,
    request_note,
    room_note,
)
from ..rpc.protos import cluster_pb2 as pb
from ..scheduler import cluster_commands as commands
from ..scheduler.cluster import Cluster
from ..scheduler.gang_words import (
    ConfirmBundles,
    GangBroken,
    GangReady,
    GangRefused,
    PrepareBundles,
    ReleaseBundles,
)
from ..scheduler.kept import KeptState
from ..scheduler.resources import CPULESS_PER_SLOT
from .netlinks import End, NetFrame
from .netprocess import NetProcess

if TYPE_CHECKING:
    from .networld import Network

#: Seconds the disk takes to keep a state, at most.
DISK_SECONDS = 0.01

#: Address of the head.
HEAD = "head"

#: Frame types of the wire between a node and the head; the bodies are the real messages.
REPORT, NOTE = 1, 2

CLUSTER = "boats"


class Disk:
    """The file of the head, and what was ever told because of it."""

    def __init__(self) -> None:
        self.data = keptstate.to_bytes(KeptState(CLUSTER))
        self.struck: set[int] = set()
        self.told: dict[tuple[int, int], frozenset[int]] = {}  # head's process, number of a membership: who was in it

    def members(self) -> set[int]:
        """The incarnations in the file."""
        return {member.incarnation for member in keptstate.from_bytes(self.data).nodes}

    def keep(self, state: KeptState) -> None:
        """Write a state. One that was struck off does not come back."""
        before, after = self.members(), {member.incarnation for member in state.nodes}
        self.struck |= before - after
        assert not after & self.struck, "one that was struck off is a member again"
        self.data = keptstate.to_bytes(state)

    def lose(self) -> None:
        """The file is gone."""
        self.data = keptstate.to_bytes(KeptState(CLUSTER))


class NetHead(NetProcess):
    """One start of the head."""

    def __init__(self, world: Network) -> None:
        super().__init__(world, "head", HEAD)
        self.disk = world.disk
        self.machine = Cluster(keptstate.from_bytes(self.disk.data), self.local(), release="0.4.0", protocol=1)
        self._ends: dict[int, End] = {}  # the newest wire of each node
        self._of: dict[int, int] = {}  # wire -> node
        self._registering: set[int] = set()
        self.welcomed: set[int] = set()
        self._ordered: deque[Any] = deque()
        self._is_keeping = False
        self._due: float | None = None

    def start(self) -> None:
        """Keep the new epoch, and begin to judge."""
        self._settle()

    # -- wires ---------------------------------------------------------------------------------------------------------

    def on_dialled(self, end: End) -> None:
        """A node has come; it says who it is first of all."""

    def on_wire_down(self, end: End) -> None:
        """The stream of a node broke: see whether its address refuses."""
        node = self._of.pop(end.number, 0)
        if self._ends.get(node) is end:
            del self._ends[node]
            self._registering.discard(node)
            self._probe(node, 3)

    def _probe(self, node: int, attempts: int) -> None:
        place = self.world.place_of.get(node)
        if place is None or not attempts:
            return

        def knock() -> None:
            if node not in self._ends and node in self.welcomed:
                self.world.dialling.dial(self, place, node, answered)

        def answered(outcome: End | str) -> None:
            if isinstance(outcome, End):
                outcome.close()
                self._probe(node, attempts - 1)
            elif outcome == "refused" and node not in self._ends:
                self.machine.on_link_refused(node, self.local())
                self._settle()

        self.after(0.3 * self.world.rng.random(), "probes", knock)

    def on_frames(self, end: End, frames: list[NetFrame]) -> None:
        """Reports have come."""
        for _, body, _ in frames:
            report = pb.Report.FromString(body)
            what = report.WhichOneof("body") or ""
            if what == "registration":
                self._on_registration(end, report.registration)
            elif self._of.get(end.number) and not end.closed:
                self._on_report(self._of[end.number], what, getattr(report, what))
            self._settle()

    def _on_registration(self, end: End, said: pb.Registration) -> None:
        node = said.incarnation
        older = self._ends.get(node)
        if older is not None:
            older.close()
        self._ends[node] = end
        self._of[end.number] = node
        self._registering.add(node)
        self.machine.on_registered(
            node_info(said), self.local(), is_return=said.is_return, cluster=said.cluster, epoch=said.epoch,
            free=dict(said.free) or None, hosted=[name_claim(name) for name in said.names], gangs=gangs_told(said),
        )  # fmt: skip

    def _on_report(self, node: int, what: str, said: Any) -> None:
        machine, now = self.machine, self.local()
        match what:
            case "beat":
                machine.on_beat(node, None if said.unchanged else dict(said.free), now)
            case "room":
                machine.on_wanted(node, said.id, said.python, dict(said.shape), said.waiting, now)
            case "claim":
                machine.on_claimed(node, said.id, name_claim(said), now)
            case "release":
                machine.on_released(node, said.namespace, said.name, said.owner, said.incarnation, now)
            case "name":
                machine.on_looked_up(node, said.id, said.namespace, said.name, now)
            case "gang":
                machine.on_gang_wanted(node, gang_wish(said), now)
            case "gang_release":
                machine.on_gang_released(node, said.gang, now)
            case "bundles":
                self._on_bundles(node, said)
            case "draining":
                machine.on_draining(node, now)
            case "drained":
                machine.on_left(node, now)
                self.welcomed.discard(node)
            case "members_missed":
                machine.on_members_missed(node, now)
            case _:
                raise AssertionError(f"the head is told {what}")

    def _on_bundles(self, node: int, said: pb.BundlesState) -> None:
        machine = self.machine
        on_state = {pb.BundlesState.PREPARED: machine.on_bundles_prepared,
                    pb.BundlesState.CONFIRMED: machine.on_bundles_confirmed}  # fmt: skip
        on_state.get(said.state, machine.on_bundles_declined)(node, said.gang, said.attempt, self.local())

    def order_drain(self, node: int) -> None:
        """An operator wants a node to leave."""
        self.machine.on_drain_ordered(node, self.local())
        self._settle()

    # -- orders --------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Do what the machine has ordered, up to what must be on disk first, and set the timer."""
        self._ordered.extend(self.machine.take_commands())
        while self._ordered and not self._is_keeping and self.alive:
            command = self._ordered.popleft()
            if isinstance(command, commands.Keep):
                self._keep(command.state)
            else:
                self.obey([command], self._do)
        self._set_timer()

    def _keep(self, state: KeptState) -> None:
        self._is_keeping = True
        self.after(DISK_SECONDS * self.world.rng.random(), "has kept its state", lambda: self._kept(state))

    def _kept(self, state: KeptState) -> None:
        self.disk.keep(state)
        self._is_keeping = False
        self._settle()

    def _set_timer(self) -> None:
        due = self.machine.due
        if due is not None and (self._due is None or due < self._due - 1e-3):
            self._due = due
            self.at_local(due, "judges", lambda: self._on_timer(due))

    def _on_timer(self, due: float) -> None:
        if self._due == due:
            self._due = None
            self.machine.on_timer(self.local())
            self._settle()

    def _do(self, command: Any) -> None:
        match command:
            case commands.Welcome():
                self._welcome(command)
            case commands.Rejoin():
                self._rejoin(command)
            case commands.TellMembers():
                self._tell_members(command)
            case commands.Drain():
                self._send(command.node, pb.Note(drain=pb.Drain(reason="an operator")))
            case commands.StepDown():
                self.world.mark("head stepped down")
                self.die()
                self.world.bring_back(self)
            case commands.RoomAnswer():
                self._check_offers(command)
                self._send(command.node, room_note(command))
            case commands.RoomRefused():
                self._send(command.node, no_room_note(command))
            case commands.NameAnswer():
                self._send(command.node, name_note(command))
            case commands.NameRefused():
                self._send(command.node, name_refusal_note(command))
            case commands.RefuseNode():
                raise AssertionError(f"a node is refused: {command.reason}")
            case PrepareBundles() | ConfirmBundles() | ReleaseBundles() | GangReady() | GangRefused() | GangBroken():
                self._send(command.node, gang_note(command))
            case _:
                self._send(command.node, request_note(command))

    def _send(self, node: int, note: pb.Note) -> None:
        end = self._ends.get(node)
        if end is not None:
            end.send(NOTE, note.SerializeToString())

    def _welcome(self, command: Any) -> None:
        node = command.node
        assert node in self.disk.members(), "welcomed before it was kept"
        if node in self._registering:
            self._registering.discard(node)
            self.welcomed.add(node)
            registered = pb.Registered(epoch=command.epoch, cluster=command.cluster, beat_seconds=1.0)
            self._send(node, pb.Note(registered=registered))

    def _rejoin(self, command: Any) -> None:
        node = command.node
        self.welcomed.discard(node)
        self._registering.discard(node)
        end = self._ends.pop(node, None)
        self.world.mark("zombie refused by the head" if "no such member" in command.reason else "node struck off")
        if end is not None:
            self._of.pop(end.number, None)
            end.send(NOTE, pb.Note(struck=pb.Struck(reason=command.reason)).SerializeToString())
            end.close()

    def _tell_members(self, command: Any) -> None:
        change = command.change
        assert not {member.incarnation for member in change.present} & self.disk.struck, "a struck-off node is told"
        self.disk.told[self.incarnation, change.number] = frozenset(self.disk.members())
        for note in membership_notes(change):
            for node in command.nodes:
                self._send(node, note)

    def _check_offers(self, answer: Any) -> None:
        members = {member.incarnation: member for member in self.machine._roster.membership.current.values()}
        assert self.machine.is_settled, "room is offered by a head that has not settled"
        for offer in answer.offers:
            there = members.get(offer.node)
            assert there is not None and offer.node not in self.disk.struck, "room is promised at a node that is gone"
            assert not there.is_draining and there.slots and offer.node != answer.node, "room that is none"
            assert 0 < offer.room <= CPULESS_PER_SLOT * there.slots, f"{offer.room} tasks for {there.slots} slots"

"""A node's side of the head in the network's world, as `joining.Membership`: registers, beats, drains, comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..memberlist import MemberList
from ..rpc.protos import cluster_pb2 as pb
from .nethead import CLUSTER, HEAD, REPORT
from .netlinks import End, NetFrame

if TYPE_CHECKING:
    from .netnode import NodeProcess

#: As `joining`: the first pause before the head is dialled again, and the longest.
FIRST_PAUSE_SECONDS = 0.1
SLOWEST_SECONDS = 2.0

PYTHON = "3.11"


class Attendance:
    """One incarnation's membership."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self.members = MemberList()
        self.end: End | None = None
        self.is_draining = False
        self.is_in = False
        self._is_return = False
        self._welcome = pb.Registered()
        self._told: dict[str, int] = {}
        self._gone: list[int] = []
        self._pause = FIRST_PAUSE_SECONDS

    def dial(self) -> None:
        """Go to the head and say who this is."""
        self._node.world.dialling.dial(self._node, HEAD, 0, self._dialled)

    def _dialled(self, outcome: End | str) -> None:
        if not isinstance(outcome, End):
            self._try_later()
            return
        node = self._node
        self.end = outcome
        self._told = node.free()
        names = [pb.NameClaim(name=name, owner=node.incarnation, incarnation=start)
                 for name, start in (node.hosted | node.claims).items()]  # fmt: skip
        self.say(registration=pb.Registration(
            protocol=1, release="0.4.0", python=PYTHON, incarnation=node.incarnation, cluster=self._welcome.cluster,
            address=node.address, host=node.place, totals=node.totals, epoch=self._welcome.epoch, names=names,
            is_return=self._is_return, slots=node.slots, free=self._told, draining=self.is_draining,
            held=node.bundles_held(), gangs=node.gang_wishes(),
        ))  # fmt: skip
        self._is_return = True

    def _try_later(self) -> None:
        node = self._node
        if not self.is_in:
            node.begin_again()  # the first registration must succeed
            return
        node.after(self._pause * (0.5 + 0.5 * node.world.rng.random()), "tries the head again", self.dial)
        self._pause = min(2 * self._pause, SLOWEST_SECONDS)

    def say(self, **report: Any) -> None:
        """Report to the head; nothing when there is none."""
        self.report(pb.Report(**report))

    def report(self, report: pb.Report) -> None:
        """Send a report."""
        if self.end is not None:
            self.end.send(REPORT, report.SerializeToString())

    def on_wire_down(self) -> None:
        """The stream broke."""
        if self.end is not None:
            self._node.world.mark("head lost")
        self.end = None
        self.members.break_off()
        self._node.on_head_down()
        self._try_later()

    def on_frames(self, frames: list[NetFrame]) -> None:
        """Notes have come."""
        for _, body, _ in frames:
            note = pb.Note.FromString(body)
            what = note.WhichOneof("body")
            if what == "registered":
                self._on_registered(note.registered)
            elif what == "membership":
                self._on_membership(note.membership)
            elif what == "drain":
                self.drain()
            elif what == "struck":
                self._node.begin_again()
                return
            else:
                self._node.on_note(what or "", getattr(note, what or ""))

    def _on_registered(self, welcome: pb.Registered) -> None:
        assert welcome.epoch >= self._welcome.epoch, "welcomed by an older head"
        assert welcome.cluster == CLUSTER
        if self.is_in:
            self._node.world.mark("returned to the head")
        self._welcome = welcome
        self.is_in = True
        self._pause = FIRST_PAUSE_SECONDS
        assert self.end is not None
        self._beat(self.end)
        self._node.on_head_up()

    def _on_membership(self, change: pb.Membership) -> None:
        if not self.members.apply(change):
            self.say(members_missed=pb.MembersMissed())
            self._node.world.mark("differences missed")
            return
        self._gone += change.left
        if change.more:
            return
        world, members = self._node.world, self.members
        told = world.disk.told[self.end.peer, members.number] if self.end is not None else members.current.keys()
        assert told == members.current.keys(), "the differences do not add up to the head's list"
        # Who is not in a whole list may just not be back with a head that was started again.
        for gone in self._gone:
            self._node.on_struck(gone)
        self._gone.clear()

    def _beat(self, end: End) -> None:
        if self.end is not end or not self._node.alive:
            return
        free = self._node.free()
        if free == self._told:
            self.say(beat=pb.Beat(unchanged=True))
        else:
            self._told = free
            self.say(beat=pb.Beat(free=free))
        self._node.after(1.0, "beats", lambda: self._beat(end))

    def drain(self) -> None:
        """Finish what is here and leave."""
        if not self.is_draining:
            self.is_draining = True
            self._node.world.mark("drains")
            self.say(draining=pb.Draining())
            self._node.on_drain()
            self._look_whether_idle()

    def _look_whether_idle(self) -> None:
        node = self._node
        if node.is_busy():
            node.after(0.2, "looks whether it is idle", self._look_whether_idle)
            return
        self.say(drained=pb.Drained())
        node.world.mark("left")
        node.leave()

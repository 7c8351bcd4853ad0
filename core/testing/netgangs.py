"""Gangs in the network's world: who asks for them, and a node's real machine of what is set aside.

Programs here ask for a gang, hold it for a while once it is there, let it go and ask again. What others have of a node
is made up: something takes an amount now and then and gives it back. What a node says to the head, and does at its
words, is `headgangs.HeadGangs` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..headgangs import HeadGangs
from ..ids import RESOURCE_UNIT
from ..rpc.protos import outboard_pb2 as pb
from ..scheduler.bundles import BundleCommand, Bundles, Portion
from ..scheduler.gang_placing import Strategy
from ..scheduler.resources import Demand, Resources

if TYPE_CHECKING:
    from .netnode import NetNode

#: Seconds between two looks of a program that gave its gang back, at most.
PAUSE_SECONDS = 0.5

ONE = Demand(RESOURCE_UNIT, 0, ())


class GangUser:
    """A program that asks for so many gangs, one after the other."""

    def __init__(self, node: NetNode, name: str, rounds: int) -> None:
        self.name = name
        self.python = "3.11"
        self.incarnation = node.world.new_incarnation()
        self.rounds = rounds
        self.wanted = 0  # the gang that it waits for, or has
        self.is_held = False
        self._node = node
        self._rng = node.world.rng_of(name)

    def __repr__(self) -> str:
        return f"<{self.name} {self.rounds} to go, {'has' if self.is_held else 'waits for'} {self.wanted:x}>"

    @property
    def is_done(self) -> bool:
        """Whether it wants nothing more, or its node has ended and it with that."""
        return not self._node.alive or not (self.rounds or self.wanted)

    def ask(self) -> None:
        """Ask for a gang, which may be one that no nodes could ever have."""
        if self.wanted or not self.rounds:
            return
        self.rounds -= 1
        self.wanted = self._rng.getrandbits(62) | 1
        self.is_held = False
        strategy = self._rng.choice(list(Strategy)).value
        gang = pb.Gang(number=self.wanted, strategy=strategy, owner=self.incarnation)
        for _ in range(self._rng.choice((1, 2, 2, 3))):
            gang.bundles.add(amounts={"CPU": RESOURCE_UNIT})
        self._node.gangs.request(self, pb.GangRequest(gang=gang))

    def on_state(self, said: pb.GangState) -> None:
        """Its node tells it of a gang, in order: of the last one, or late of an earlier one."""
        if said.gang != self.wanted:
            return
        world = self._node.world
        if said.outcome == pb.GangState.READY:
            assert not self.is_held, "a gang is ready twice"
            self.is_held = True
            world.mark("gang ready")
            world.check_gang(said.gang, list(said.nodes))
            self._node.after(2.0 * self._rng.random(), f"{self.name} lets go", lambda: self.let_go(said.gang))
        elif said.outcome == pb.GangState.BROKEN:
            assert self.is_held, "a gang breaks before it is ready"
            world.mark("gang broken")
            self.let_go(said.gang)
        else:
            assert said.outcome == pb.GangState.REFUSED, said
            world.mark("gang refused")
            self.wanted = 0
            self._ask_later()

    def let_go(self, gang: int) -> None:
        """Give it back."""
        if self.wanted == gang:
            self.wanted = 0
            self._node.gangs.request(self, pb.GangRequest(gang=pb.Gang(number=gang), release=True))
            self._ask_later()

    def _ask_later(self) -> None:
        self._node.after(PAUSE_SECONDS * self._rng.random(), f"{self.name} asks", self.ask)


class NodeBundles:
    """What a node does about gangs; stands for `Node` and its machine before `HeadGangs`."""

    def __init__(self, node: NetNode) -> None:
        self._node = node
        self.incarnation = node.incarnation
        self.resources = Resources(node.totals)
        self._said: list[BundleCommand] = []
        self.bundles = Bundles(self.resources, self._said)
        self.users: dict[int, GangUser] = {}
        self.dispatch = self
        self.loop = SimpleNamespace(call_later=self._call_later)
        self.head = HeadGangs(self, node.head.report)  # type: ignore[arg-type]  # stands for a Node
        self._is_settling = False
        self._due: float | None = None

    # -- what programs and others do

    def request(self, user: GangUser, request: pb.GangRequest) -> None:
        """A program asks, or lets go."""
        self.users[user.incarnation] = user
        self.head.on_request(user, request.SerializeToString())  # type: ignore[arg-type]  # stands for a Peer
        self.settle()

    def hold(self, rng: Random) -> None:
        """Something else takes a CPU for a while, if there is one."""
        if self._node.slots and self.resources.fits(ONE):
            self.resources.take(ONE, ())
            self._node.after(rng.choice((0.1, 1.0, 3.0)) * rng.random(), "gives a CPU back", self._give)

    def _give(self) -> None:
        self.resources.give(ONE, ())
        self.bundles.on_freed(self._node.local())
        self.settle()

    # -- what `HeadGangs` asks of a node

    def now(self) -> float:
        """Its clock."""
        return self._node.local()

    def send(self, client: int, frame_type: int, body: bytes) -> None:
        """A word to a program arrives a moment later."""
        said = pb.GangState.FromString(body)
        user = self.users[client]
        self._node.after(0.0, f"{user.name} hears", lambda: user.on_state(said))

    def flush_soon(self) -> None:
        """All is sent at once here."""

    def _call_later(self, delay: float, do: Callable[..., None], *arguments: Any) -> None:
        self._node.after(delay, "has waited for the head", lambda: do(*arguments))

    # -- what `HeadGangs` asks of the node's machine

    @property
    def bundles_held(self) -> Mapping[int, Portion]:
        """What is set aside."""
        return self.bundles.held()

    def on_prepare_bundles(self, gang: int, attempt: int, bundles: Mapping[int, Demand], now: float) -> None:
        """See `Dispatch`."""
        self.bundles.prepare(gang, attempt, bundles, now)
        self.settle()

    def on_confirm_bundles(self, gang: int, attempt: int, now: float) -> None:
        """See `Dispatch`."""
        self.bundles.confirm(gang, attempt)
        self.settle()

    def on_release_bundles(self, gang: int, attempt: int, now: float) -> None:
        """See `Dispatch`."""
        self.bundles.release(gang, attempt)
        self.settle()

    # -- its loop

    def settle(self) -> None:
        """Do what the machine commands, and set its timer."""
        if self._is_settling:
            return
        self._is_settling = True
        while self._said and self._node.alive:
            command = self._said.pop(0)
            self._node.obey([command], self.head.on_bundles)
        self._is_settling = False
        self.bundles.take_ended()
        self.bundles.check()
        due = self.bundles.due
        if self._node.alive and due is not None and (self._due is None or due < self._due - 1e-6):
            self._due = due
            self._node.at_local(due, "looks at its bundles", lambda: self._on_timer(due))

    def _on_timer(self, due: float) -> None:
        if self._due != due:
            return
        self._due = None
        before = len(self._said)
        self.bundles.on_timer(self._node.local())
        if len(self._said) > before:
            self._node.world.mark("bundles lapsed")
        self.settle()

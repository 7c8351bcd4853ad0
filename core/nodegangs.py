"""Gangs that clients of a node ask for, and the bundles that it sets aside; without a head it decides itself.

What there is at a node of a cluster is in `headgangs`. The machines are `scheduler.gangs` (where the bundles go, and
in which order gangs are served) and, within the node's own, `scheduler.bundles` (what is set aside here).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler import gang_words as words
from .scheduler.bundles import BundleCommand, Confirmed, Declined, Prepared
from .scheduler.gang_placing import Strategy, resources_of
from .scheduler.gangs import Gangs, Site
from .scheduler.resources import Demand, Resources
from .version import PYTHON

if TYPE_CHECKING:
    from .node import Node, Peer

#: What has become of a gang, by the names of ``GangState.Outcome``.
REFUSED, READY, UNREACHABLE = "REFUSED", "READY", "UNREACHABLE"


_STRATEGIES = {strategy.value: strategy for strategy in Strategy}


class Asked:
    """What a client here has asked for and not released."""

    __slots__ = ("client", "was_ready", "wish")

    def __init__(self, client: int, wish: words.Wish) -> None:
        self.client = client
        self.wish = wish
        self.was_ready = False


class NodeGangs:
    """Between clients and whoever decides. Every method is called in the loop's thread. `asked`: by gang."""

    def __init__(self, node: Node) -> None:
        self.asked: dict[int, Asked] = {}
        self._node = node

    def on_request(self, peer: Peer, body: bytes) -> None:
        """A client here asks for a gang, or lets its own go."""
        request = pb.GangRequest.FromString(body)
        gang = request.gang
        known = self.asked.get(gang.number)
        if request.release:
            if known is not None and known.client == peer.incarnation:
                self.let_go(gang.number)
        elif known is None:
            self._take(peer, gang)

    def _take(self, peer: Peer, gang: pb.Gang) -> None:
        bundles = tuple(Demand.of(dict(bundle.amounts)) for bundle in gang.bundles)
        strategy = _STRATEGIES.get(gang.strategy)
        wish = words.Wish(gang.number, bundles, strategy or Strategy.PACK, PYTHON)
        self.asked[gang.number] = Asked(peer.incarnation, wish)
        if strategy is None:  # of a later release
            self.tell(gang.number, REFUSED, reason=f"its node knows no strategy {gang.strategy!r}")
        else:
            self.ask(wish)

    def on_client_left(self, client: int) -> None:
        """A client has ended, and its gangs with it."""
        for number in [number for number, asked in self.asked.items() if asked.client == client]:
            self.let_go(number)

    def let_go(self, number: int) -> None:
        """A gang is over for who asked for it."""
        del self.asked[number]
        self.release(number)

    def tell(self, number: int, outcome: str, **said: Any) -> None:
        """Say to who asked what has become of it; one that is refused is forgotten.

        A head that has heard of it again says again that it is ready: that is known.
        """
        asked = self.asked.get(number)
        if asked is None or (outcome == READY and asked.was_ready):
            return
        asked.was_ready = asked.was_ready or outcome == READY
        if outcome in (REFUSED, UNREACHABLE):
            del self.asked[number]
        state = pb.GangState(gang=number, outcome=outcome, **said)
        self._node.send(asked.client, Frame.GANG_STATE, state.SerializeToString())
        self._node.flush_soon()

    def ask(self, wish: words.Wish) -> None:
        """Have a gang prepared, now or when it is its turn."""
        raise NotImplementedError

    def release(self, number: int) -> None:
        """Have given back what a gang has anywhere."""
        raise NotImplementedError

    def on_bundles(self, command: BundleCommand) -> None:
        """What has become of bundles here."""
        raise NotImplementedError


class LocalGangs(NodeGangs):
    """Of a node without a head: its gangs are its own machine's, and have no other node."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._commands: list[words.GangCommand] = []
        self._machine = Gangs(self._commands, Counter(), epoch=0)
        self._machine.start_answering()
        self._due: float | None = None

    def ask(self, wish: words.Wish) -> None:
        """See `NodeGangs.ask`."""
        self._machine.ask(self._node.incarnation, wish)
        self._go_on()

    def release(self, number: int) -> None:
        """See `NodeGangs.release`."""
        self._machine.release(number)
        self._go_on()

    def on_bundles(self, command: BundleCommand) -> None:
        """See `NodeGangs.on_bundles`."""
        me, machine = self._node.incarnation, self._machine
        match command:
            case Prepared(gang, attempt):
                machine.prepared(me, gang, attempt)
            case Confirmed(gang, attempt):
                machine.confirmed(me, gang, attempt)
            case Declined(gang, attempt):
                machine.declined(me, gang, attempt, self._node.now())
        self._go_on()

    def _sites(self) -> list[Site]:
        node = self._node
        free = resources_of(node.totals, node.dispatch.snapshot().free)
        return [Site(node.incarnation, PYTHON, Resources(node.totals), free)]

    def _go_on(self) -> None:
        self._machine.step(self._sites, self._node.now())
        while self._commands:
            command = self._commands.pop(0)
            self._do(command)
        due = self._machine.due
        if due is not None and (self._due is None or due < self._due):
            self._due = due
            self._node.loop.call_later(max(0.0, due - self._node.now()), self._on_timer, due)

    def _on_timer(self, due: float) -> None:
        if due == self._due and not self._node.ending:
            self._due = None
            self._go_on()
            self._node.settle()

    def _do(self, command: words.GangCommand) -> None:
        dispatch, now = self._node.dispatch, self._node.now()
        match command:
            case words.PrepareBundles(_, gang, attempt, bundles):
                dispatch.on_prepare_bundles(gang, attempt, bundles, now)
            case words.ConfirmBundles(_, gang, attempt):
                dispatch.on_confirm_bundles(gang, attempt, now)
            case words.ReleaseBundles(_, gang, attempt):
                dispatch.on_release_bundles(gang, attempt, now)
            case words.GangReady(_, gang, nodes):
                self.tell(gang, READY, nodes=nodes)
            case words.GangRefused(_, gang, totals, reason):
                most = dict(totals[0]) if totals else {}
                self.tell(gang, REFUSED, reason=reason, totals=most)

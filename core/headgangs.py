"""Gangs at a node of a cluster: the head decides.

What clients here ask for, and what is set aside here, is told to each head that comes, so gangs outlive the head. A
request that finds none waits for one, as long as the law says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .gangwords import gang_order, gang_request, held_bundles
from .headnames import HEAD_SECONDS
from .nodegangs import UNREACHABLE, NodeGangs
from .rpc.protos import cluster_pb2
from .scheduler import gang_words as words
from .scheduler.bundles import BundleCommand, Confirmed, Prepared

if TYPE_CHECKING:
    from .node import Node

#: Says something to the head, if it is there.
Report = Callable[[cluster_pb2.Report], object]


class HeadGangs(NodeGangs):
    """See `NodeGangs`. Every method is called in the loop's thread."""

    def __init__(self, node: Node, report: Report) -> None:
        super().__init__(node)
        self._report = report
        self._away_since: float | None = None

    def ask(self, wish: words.Wish) -> None:
        """See `NodeGangs.ask`."""
        self._report(cluster_pb2.Report(gang=gang_request(wish, was_ready=False)))
        if self._away_since is not None:
            self._node.loop.call_later(HEAD_SECONDS, self._give_up, self._away_since, wish.gang)

    def release(self, number: int) -> None:
        """See `NodeGangs.release`."""
        self._report(cluster_pb2.Report(gang_release=cluster_pb2.GangRelease(gang=number)))

    def on_bundles(self, command: BundleCommand) -> None:
        """See `NodeGangs.on_bundles`."""
        states = {Prepared: cluster_pb2.BundlesState.PREPARED, Confirmed: cluster_pb2.BundlesState.CONFIRMED}
        state = states.get(type(command), cluster_pb2.BundlesState.DECLINED)
        said = cluster_pb2.BundlesState(gang=command.gang, attempt=command.attempt, state=state)
        self._report(cluster_pb2.Report(bundles=said))

    # -- the head ------------------------------------------------------------------------------------------------------

    def on_head(self, is_there: bool) -> None:
        """A head has come, which knows what `wishes` and `held` say, or it has gone."""
        self._away_since = None if is_there else self._node.now()
        if not is_there:
            for number in self.asked:
                self._node.loop.call_later(HEAD_SECONDS, self._give_up, self._away_since, number)

    def wishes(self) -> list[cluster_pb2.GangWish]:
        """Give what clients here ask for."""
        return [gang_request(asked.wish, was_ready=asked.was_ready) for asked in self.asked.values()]

    def held(self) -> list[cluster_pb2.BundlesHeld]:
        """Give what is set aside here."""
        return held_bundles(self._node.dispatch.bundles_held)

    def on_answer(self, answer: cluster_pb2.GangAnswer) -> None:
        """The head has answered a client's request, or says that its gang is broken."""
        outcome = cluster_pb2.GangAnswer.Outcome.Name(answer.outcome)  # the same names in both
        totals: dict[str, int] = {}
        for amounts in answer.totals:
            for name, amount in amounts.amounts.items():
                totals[name] = max(totals.get(name, 0), amount)
        self.tell(answer.gang, outcome, nodes=answer.nodes, reason=answer.reason, totals=totals)

    def on_order(self, order: cluster_pb2.BundlesOrder) -> None:
        """The head orders something about bundles here."""
        dispatch, now = self._node.dispatch, self._node.now()
        if order.what == cluster_pb2.BundlesOrder.PREPARE:
            dispatch.on_prepare_bundles(order.gang, order.attempt, gang_order(order), now)
        elif order.what == cluster_pb2.BundlesOrder.CONFIRM:
            dispatch.on_confirm_bundles(order.gang, order.attempt, now)
        else:
            dispatch.on_release_bundles(order.gang, order.attempt, now)

    def _give_up(self, away_since: float, number: int) -> None:
        """Whoever waits for a gang hears that the head has been away for too long; one that is there goes on."""
        asked = self.asked.get(number)
        if asked is not None and not asked.was_ready and self._away_since == away_since:
            self.tell(number, UNREACHABLE, reason=f"no head has answered within {HEAD_SECONDS:g} s")

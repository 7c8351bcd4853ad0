"""Gangs between the head's machine and the wire: descriptions and commands there, messages here."""

from __future__ import annotations

from collections.abc import Mapping

from .rpc.protos import cluster_pb2 as pb
from .scheduler import gang_words as words
from .scheduler.bundles import Portion
from .scheduler.gang_placing import Strategy
from .scheduler.resources import Demand


def gang_wish(said: pb.GangWish) -> words.Wish:
    """Read what a node asks for; the machine judges it. A strategy of a later release is taken for the first one."""
    known = pb.GangWish.Strategy.keys()
    strategy = Strategy(known[said.strategy] if said.strategy < len(known) else known[0])
    bundles = tuple(Demand.of(dict(bundle.amounts)) for bundle in said.bundles)
    return words.Wish(said.gang, bundles, strategy, said.python, said.was_ready)


def gang_request(wish: words.Wish, *, was_ready: bool) -> pb.GangWish:
    """Write what a client of this node asks for; the way back is `gang_wish`."""
    bundles = [pb.Amounts(amounts=amounts_of(demand)) for demand in wish.bundles]
    return pb.GangWish(gang=wish.gang, bundles=bundles, strategy=wish.strategy.value, python=wish.python,
                       was_ready=was_ready)  # fmt: skip


def held_bundles(portions: Mapping[int, Portion]) -> list[pb.BundlesHeld]:
    """Write what a node that registers has set aside, by gang."""
    return [
        pb.BundlesHeld(gang=gang, attempt=portion.attempt, indices=sorted(portion.pools))
        for gang, portion in portions.items()
    ]


def gang_order(order: pb.BundlesOrder) -> dict[int, Demand]:
    """Read the bundles that a node is to set aside, by index; the way back is `gang_note`."""
    return {bundle.index: Demand.of(dict(bundle.amounts)) for bundle in order.bundles}


def gangs_told(said: pb.Registration) -> words.GangsTold:
    """Read what a node that registers says of gangs."""
    held = tuple(words.Report(one.gang, one.attempt, frozenset(one.indices)) for one in said.held)
    return words.GangsTold(held, tuple(map(gang_wish, said.gangs)))


def gang_note(command: words.GangCommand) -> pb.Note:
    """Tell a node what the machine has decided about a gang."""
    match command:
        case words.PrepareBundles():
            bundles = [pb.Bundle(index=index, amounts=amounts_of(d)) for index, d in command.bundles.items()]
            return _order(command, pb.BundlesOrder.PREPARE, bundles)
        case words.ConfirmBundles():
            return _order(command, pb.BundlesOrder.CONFIRM)
        case words.ReleaseBundles():
            return _order(command, pb.BundlesOrder.RELEASE)
        case words.GangReady():
            return pb.Note(gang=pb.GangAnswer(gang=command.gang, outcome=pb.GangAnswer.READY, nodes=command.nodes))
        case words.GangBroken():
            return pb.Note(gang=pb.GangAnswer(gang=command.gang, outcome=pb.GangAnswer.BROKEN, nodes=[command.lost]))
        case words.GangRefused():
            totals = [pb.Amounts(amounts=amounts) for amounts in command.totals]
            return pb.Note(gang=pb.GangAnswer(gang=command.gang, reason=command.reason, totals=totals))


def amounts_of(demand: Demand) -> dict[str, int]:
    """Name what a demand needs; the way back is `Demand.of`."""
    amounts = {"CPU": demand.cpu, "GPU": demand.gpu, **dict(demand.others)}
    return {name: amount for name, amount in amounts.items() if amount}


def _order(
    command: words.PrepareBundles | words.ConfirmBundles | words.ReleaseBundles,
    what: pb.BundlesOrder.What, bundles: list[pb.Bundle] | None = None,
) -> pb.Note:  # fmt: skip
    order = pb.BundlesOrder(gang=command.gang, attempt=command.attempt, what=what, bundles=bundles)
    return pb.Note(bundles=order)

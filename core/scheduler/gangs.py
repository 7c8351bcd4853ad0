"""The head's part in gangs: prepared one at a time in order of arrival, on all their nodes or on none.

Two phases. Every node of a placement is told to set its bundles aside; when all have, they are told to confirm. One
that declines, in either phase, sends the gang back to the front of the queue, and what the others have set aside is
released. So no two gangs ever hold a half each. What only waits for others' tasks is prepared nevertheless, since
nodes gather for it; what other gangs hold is waited for. A lost node breaks a gang that was ready: the rest is held
until its owner releases it.

Attempts count up over starts of the head (the epoch is their upper half), so nodes tell late words from new ones.
After a start the nodes say in one message what they have set aside and which gangs they ask for: a gang whose bundles
are all there is confirmed, of others the rest is released.

Invariant: ``_waiting`` are the gangs that are neither READY nor BROKEN, in order of arrival; at most one that was not
taken up from the last head is PREPARING or CONFIRMING.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from ..ids import RESOURCE_UNIT
from .admission import fault_of_amounts, is_minor
from .bundles import CONFIRM_SECONDS, GATHER_SECONDS
from .gang_placing import place, resources_of
from .gang_words import (
    ConfirmBundles,
    GangBroken,
    GangReady,
    GangRefused,
    GangsTold,
    PrepareBundles,
    ReleaseBundles,
    Report,
    Wish,
)
from .resources import Demand, Resources

#: Gangs at a time: more is a mistake of the program.
GANGS = 10_000

#: Bundles of one gang. The search for their places goes as deep as there are bundles, and calls may nest 1000 deep.
BUNDLES = 250

#: Totals that a refusal lists: enough for people.
TOTALS_TOLD = 8

#: How long a gang that was declined waits before it is prepared again, in awake seconds: what gathered for it in vain
#: is used by tasks for that long.
PAUSE_SECONDS = 1.0

#: How often a gang for which there is no room is looked at again, in awake seconds; releases are noticed at once.
LOOK_SECONDS = 0.5

#: How long an attempt may last: nodes answer after ``GATHER_SECONDS`` or keep a portion for ``CONFIRM_SECONDS``.
ATTEMPT_SECONDS = GATHER_SECONDS + CONFIRM_SECONDS / 2


class Site(NamedTuple):
    """A node that takes work: totals and what it says is free."""

    node: int
    python: str
    totals: Resources
    free: Resources


class State(Enum):
    """Of a gang at the head."""

    WAITING = "WAITING"
    PREPARING = "PREPARING"
    CONFIRMING = "CONFIRMING"
    READY = "READY"
    BROKEN = "BROKEN"


#: States of gangs that wait for nothing.
RESTING = (State.READY, State.BROKEN)


class Gang:
    """One gang. ``missing`` are the nodes whose answer an attempt still waits for."""

    __slots__ = ("asker", "attempt", "due", "missing", "nodes", "state", "wish")

    def __init__(self, asker: int, wish: Wish) -> None:
        self.asker = asker
        self.wish = wish
        self.state = State.WAITING
        self.attempt = 0
        self.nodes: tuple[int, ...] = ()
        self.missing: set[int] = set()
        self.due = 0.0

    def share(self, node: int) -> dict[int, Demand]:
        """The bundles that a node is to have."""
        return {i: self.wish.bundles[i] for i, other in enumerate(self.nodes) if other == node}


class Gangs:
    """Part of the head's machine. ``awake`` is the head's time in seconds."""

    __slots__ = ("_attempt", "_commands", "_counts", "_gangs", "_is_answering", "_reports", "_waiting")

    def __init__(self, commands: list[Any], counts: Counter[str], epoch: int) -> None:
        self._commands = commands
        self._counts = counts
        self._attempt = epoch << 32
        self._gangs: dict[int, Gang] = {}
        self._waiting: dict[int, Gang] = {}
        self._is_answering = False
        self._reports: dict[int, dict[int, Report]] = {}

    @property
    def due(self) -> float | None:
        """When ``step`` is to be called next."""
        return min((gang.due for gang in self._waiting.values() if gang.due), default=None)

    def start_answering(self) -> None:
        """All nodes are back: take up again what they have set aside, and release what nobody asks for."""
        self._is_answering = True
        reports, self._reports = self._reports, {}
        for number, by_node in reports.items():
            gang = self._gangs.get(number)
            if gang is not None and by_node:
                self._take_up(gang, by_node)
            else:
                self._commands.extend(ReleaseBundles(node, number, r.attempt) for node, r in by_node.items())

    def ask(self, asker: int, wish: Wish) -> None:
        """A node asks for a gang; one that it has asked for before is answered again.

        One that broke before it heard that it was ready begins anew.
        """
        gang = self._gangs.get(wish.gang)
        if gang is not None:
            gang.asker = asker
            if gang.state is State.READY:
                self._commands.append(GangReady(asker, wish.gang, gang.nodes))
            elif gang.state is State.BROKEN and wish.was_ready:
                self._commands.append(GangBroken(asker, wish.gang, 0))
            elif gang.state is State.BROKEN:
                self._requeue(gang, 0.0)
                del self._gangs[wish.gang]
                self._gangs[wish.gang] = self._waiting[wish.gang] = gang
        elif reason := fault_of_wish(wish) or ("there are too many gangs" if len(self._gangs) >= GANGS else ""):
            self._commands.append(GangRefused(asker, wish.gang, (), reason))
        else:
            self._gangs[wish.gang] = self._waiting[wish.gang] = Gang(asker, wish)

    def release(self, number: int) -> None:
        """The owner has let a gang go, or has ended."""
        gang = self._gangs.pop(number, None)
        if gang is not None:
            self._waiting.pop(number, None)
            self._let_go(gang)
            for other in self._waiting.values():
                if other.state is State.WAITING:
                    other.due = 0.0  # there is room now

    def report(self, node: int, told: GangsTold) -> None:
        """A node that registers says what it has set aside, and asks; what else was counted on there is gone."""
        wanted = {wish.gang for wish in told.wishes}
        for number in [n for n, gang in self._gangs.items() if gang.asker == node and n not in wanted]:
            self.release(number)
        for wish in told.wishes:
            self.ask(node, wish)
        held = {report.gang: report for report in told.held}
        if not self._is_answering:
            for number, report in held.items():
                self._reports.setdefault(number, {})[node] = report
            return
        for gang in [gang for gang in self._gangs.values() if node in gang.nodes]:
            found = held.pop(gang.wish.gang, None)
            if found is not None and (found.attempt, found.indices) == (gang.attempt, frozenset(gang.share(node))):
                self._say_again(gang, node)
                continue
            if found is not None:
                self._commands.append(ReleaseBundles(node, found.gang, found.attempt))
            self._lose(gang, node)
        self._commands.extend(ReleaseBundles(node, report.gang, report.attempt) for report in held.values())

    def prepared(self, node: int, number: int, attempt: int) -> None:
        """A node has set its bundles aside."""
        gang = self._hear(node, number, attempt, State.PREPARING)
        if gang is not None and not gang.missing:
            gang.state = State.CONFIRMING
            gang.missing = set(gang.nodes)
            self._commands.extend(ConfirmBundles(other, number, attempt) for other in sorted(gang.missing))

    def confirmed(self, node: int, number: int, attempt: int) -> None:
        """The bundles of a node can be used."""
        gang = self._hear(node, number, attempt, State.CONFIRMING)
        if gang is not None and not gang.missing:
            gang.state = State.READY
            gang.due = 0.0
            del self._waiting[number]
            self._commands.append(GangReady(gang.asker, number, gang.nodes))

    def declined(self, node: int, number: int, attempt: int, awake: float) -> None:
        """A node has nothing set aside for an attempt, or no longer."""
        gang = self._gangs.get(number)
        if gang is None or gang.attempt != attempt or gang.state not in (State.PREPARING, State.CONFIRMING):
            self._counts["late_declined"] += 1
        else:
            self._requeue(gang, awake + PAUSE_SECONDS)

    def drop_node(self, node: int) -> None:
        """A node is gone: gangs of its clients end, those with bundles there break or start over."""
        for by_node in self._reports.values():
            by_node.pop(node, None)
        for gang in list(self._gangs.values()):
            if gang.asker == node:
                self.release(gang.wish.gang)
            elif node in gang.nodes:
                self._lose(gang, node)

    def step(self, sites: Callable[[], Sequence[Site]], awake: float) -> None:
        """Give up attempts that last too long, and prepare the next gang; to be called after every event."""
        if not self._is_answering:
            return
        for gang in self._waiting.values():
            if gang.due and gang.due <= awake:
                gang.due = 0.0
                if gang.state is not State.WAITING:
                    self._requeue(gang, awake + PAUSE_SECONDS)
        found: Sequence[Site] | None = None
        for gang in list(self._waiting.values()):
            if gang.state is not State.WAITING or gang.due:
                return
            found = sites() if found is None else found
            if not self._refuse(gang, found):
                self._prepare(gang, found, awake)
                return

    def waiting(self) -> list[Gang]:
        """Gangs that are not ready yet, the next one first."""
        return list(self._waiting.values())

    def __len__(self) -> int:
        return len(self._gangs)

    def askers(self) -> set[int]:
        """The nodes that have asked for gangs."""
        return {gang.asker for gang in self._gangs.values()}

    def _refuse(self, gang: Gang, sites: Sequence[Site]) -> bool:
        """Refuse a gang that even empty nodes could not have; while there are no nodes at all it waits."""
        wish = gang.wish
        fitting = [site for site in sites if site.python == wish.python]
        ever = place(wish.bundles, {site.node: site.totals for site in fitting}, wish.strategy)
        if ever.nodes or not ever.is_sure or not sites:
            return False
        totals = tuple(dict(site.totals.totals) for site in fitting[:TOTALS_TOLD])
        self._commands.append(GangRefused(gang.asker, wish.gang, totals))
        del self._gangs[wish.gang], self._waiting[wish.gang]
        return True

    def _prepare(self, gang: Gang, sites: Sequence[Site], awake: float) -> None:
        """Have its bundles set aside where they fit now, or where only tasks are in their way."""
        wish = gang.wish
        fitting = [site for site in sites if site.python == wish.python]
        left = self._left_by_gangs(fitting)
        now = {site.node: _least(left[site.node], site.free) for site in fitting}  # what is free was said a while ago
        found = place(wish.bundles, now, wish.strategy)
        if not found.nodes:
            found = place(wish.bundles, left, wish.strategy)
        if not found.nodes:
            gang.due = awake + LOOK_SECONDS
            return
        self._attempt += 1
        gang.attempt, gang.nodes, gang.state = self._attempt, found.nodes, State.PREPARING
        gang.missing, gang.due = set(found.nodes), awake + ATTEMPT_SECONDS
        for node in sorted(gang.missing):
            self._commands.append(PrepareBundles(node, wish.gang, gang.attempt, gang.share(node)))

    def _left_by_gangs(self, sites: Sequence[Site]) -> dict[int, Resources]:
        """What nodes would have free if only gangs had anything of them."""
        left = {site.node: Resources(site.totals.totals) for site in sites}
        for gang in self._gangs.values():
            for demand, node in zip(gang.wish.bundles, gang.nodes, strict=False):
                resources = left.get(node)
                if resources is not None:
                    resources.take(demand, (resources.pick_gpus(demand) or ()) if demand.gpu else ())
        return left

    def _take_up(self, gang: Gang, by_node: Mapping[int, Report]) -> None:
        """Go on with a gang of the last head's, where every bundle is there in its last attempt, or it was ready."""
        number = gang.wish.gang
        last = max(report.attempt for report in by_node.values())
        placed = {i: node for node, r in by_node.items() if r.attempt == last for i in r.indices}
        nodes = tuple(placed.get(i, 0) for i in range(len(gang.wish.bundles)))
        if 0 in nodes and not gang.wish.was_ready:
            self._commands.extend(ReleaseBundles(node, number, r.attempt) for node, r in by_node.items())
            return
        gang.attempt, gang.nodes = last, nodes
        if 0 in nodes:
            gang.state = State.BROKEN
            del self._waiting[number]
            self._commands.append(GangBroken(gang.asker, number, 0))
            return
        gang.state, gang.missing = State.CONFIRMING, set(nodes)
        self._commands.extend(ConfirmBundles(node, number, last) for node in sorted(gang.missing))

    def _hear(self, node: int, number: int, attempt: int, state: State) -> Gang | None:
        gang = self._gangs.get(number)
        if gang is None or gang.attempt != attempt or node not in gang.nodes:
            self._commands.append(ReleaseBundles(node, number, attempt))
            return None
        if gang.state is not state:
            return None
        gang.missing.discard(node)
        return gang

    def _say_again(self, gang: Gang, node: int) -> None:
        """Repeat to a node that is back, with its bundles, what it may not have heard or said."""
        if gang.state is State.PREPARING:
            self.prepared(node, gang.wish.gang, gang.attempt)
        elif gang.state is not State.WAITING:
            self._commands.append(ConfirmBundles(node, gang.wish.gang, gang.attempt))

    def _lose(self, gang: Gang, node: int) -> None:
        """What a gang has at a node is gone."""
        if gang.state is State.READY:
            gang.state = State.BROKEN
            self._commands.append(GangBroken(gang.asker, gang.wish.gang, node))
        if gang.state is State.BROKEN:
            gang.nodes = tuple(0 if other == node else other for other in gang.nodes)
        else:
            self._requeue(gang, 0.0)

    def _requeue(self, gang: Gang, due: float) -> None:
        self._let_go(gang)
        gang.state, gang.nodes, gang.missing, gang.due = State.WAITING, (), set(), due

    def _let_go(self, gang: Gang) -> None:
        nodes = sorted(set(gang.nodes) - {0})
        self._commands.extend(ReleaseBundles(node, gang.wish.gang, gang.attempt) for node in nodes)

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        assert list(self._waiting) == [n for n, gang in self._gangs.items() if gang.state not in RESTING], "waiting"
        busy = [gang for gang in self._waiting.values() if gang.state is not State.WAITING]
        taken_up = [gang for gang in busy if gang.attempt >> 32 < self._attempt >> 32]
        assert len(busy) - len(taken_up) <= 1, "two gangs are prepared at a time"
        for gang in self._gangs.values():
            assert (gang.state is State.WAITING) == (not gang.nodes), gang.state
            assert bool(gang.missing) == (gang in busy), gang.state


def fault_of_wish(wish: Wish) -> str:
    """Say what is wrong with a wish, or nothing."""
    if not 0 < len(wish.bundles) <= BUNDLES:
        return f"a gang has 1 to {BUNDLES} bundles, not {len(wish.bundles)}"
    for demand in wish.bundles:
        if not any((demand.cpu, demand.gpu, *demand.others)):
            return "a bundle is empty"
        if demand.gpu > RESOURCE_UNIT and demand.gpu % RESOURCE_UNIT:
            return "GPUs of a bundle are a share of one or a whole number"
        if fault := fault_of_amounts({"CPU": demand.cpu, "GPU": demand.gpu, **dict(demand.others)}):
            return fault
    return "" if is_minor(wish.python) else "its Python version is no major.minor"


def _least(left: Resources, said: Resources) -> Resources:
    """What is free by both accounts."""
    free = said.free()
    return resources_of(left.totals, {name: min(amount, free[name]) for name, amount in left.free().items()})

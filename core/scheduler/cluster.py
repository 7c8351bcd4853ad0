"""The head's machine: which nodes are members, where there is room, who has which name, which gangs there are.

Events are methods; what they decide lies in commands until the driver takes it. The driver calls from one thread, with
``now`` from its monotonic clock in seconds, does the commands in order, and calls ``on_timer`` no later than ``due``.
It closes a node's older link when the node registers over a newer one. Whatever a node says counts as life. What an
unknown or struck-off incarnation says changes nothing: it is counted in ``counts`` and answered with ``Rejoin``.

After a start the machine *settles*: until the nodes that were members are back or found gone, ten seconds at most, it
offers no room and answers nothing about names. A head that hears of a higher epoch than its own steps down, and from
then on does nothing any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..version import PROTOCOL, __version__
from .admission import fault_of, fault_of_amounts, is_minor
from .awake import AwakeClock
from .cluster_commands import (
    ClientAccepted,
    ClientRefused,
    Command,
    Drain,
    Keep,
    NameClaim,
    NodeInfo,
    RefusalCause,
    RefuseNode,
    StepDown,
)
from .clusterview import ClusterView, view_awaited, view_node
from .gang_placing import resources_of
from .gang_words import GangsTold, Wish
from .gangs import Gangs, Site
from .kept import LAST_EPOCH, KeptState
from .naming import Naming
from .resources import Resources
from .room import Room
from .roster import Node, Roster

#: Largest figure of waiting tasks that is taken at its word; more makes no difference.
MOST_WAITING = 1 << 40


class Cluster:
    """Knows nodes, capacity and names of one cluster; soft state but for ``Keep``.

    Args:
        kept: what the last start kept last; a new cluster's is ``KeptState(name)``.
        now: the driver's monotonic time.
        release, protocol: of this head.
    """

    __slots__ = ("_awake", "_clock", "_commands", "_gangs", "_naming", "_protocol", "_room", "_roster", "counts",
                 "superseded_by")  # fmt: skip

    def __init__(self, kept: KeptState, now: float, *, release: str = __version__, protocol: int = PROTOCOL) -> None:
        self.counts: Counter[str] = Counter()
        self.superseded_by = 0  # the higher epoch that this head has heard of, if any
        self._commands: list[Command] = []
        self._protocol = protocol
        self._clock = AwakeClock(now)
        self._awake = now
        self._room = Room(self._commands, self.counts)
        self._naming = Naming(self._commands, self.counts)
        self._gangs = Gangs(self._commands, self.counts, kept.epoch + 1)
        self._roster = Roster(kept, release, self._room, self._naming, self._gangs, self._commands, self.counts)
        self._roster.start(now)

    def __repr__(self) -> str:
        state = "superseded" if self.superseded_by else "settled" if self.is_settled else "settling"
        counts = f"nodes={len(self._roster.nodes)} awaited={len(self._roster.awaited)} names={len(self._naming)}"
        return f"<Cluster {self._roster.cluster} epoch={self.epoch} {state} {counts}>"

    @property
    def epoch(self) -> int:
        """Which start of the head this is."""
        return self._roster.membership.epoch

    @property
    def is_settled(self) -> bool:
        """Whether room is offered and look-ups are answered."""
        return self._roster.is_settled

    def awaited(self) -> list[tuple[int, str]]:
        """The members that have not registered since the start, each with its address; empty where it has none."""
        return [(node, member.address) for node, member in self._roster.awaited.items()]

    def is_member(self, node: int) -> bool:
        """Whether an incarnation is on the list: it has registered, or is awaited, and was not struck off since."""
        return node in self._roster.membership.current

    @property
    def due(self) -> float | None:
        """When ``on_timer`` is to be called next, by the driver's clock; None when nothing is to be judged or told."""
        if self.superseded_by:
            return None
        deadlines = [d for d in (self._roster.next_deadline(), self._gangs.due) if d is not None]
        due = self._roster.flush_due
        if deadlines:
            deadline = min(deadlines)
            watch = min(self._clock.tick_due, self._clock.real(deadline))
            due = watch if due is None else min(watch, due)
        return due

    def take_commands(self) -> list[Command]:
        """The commands decided since the last call, in the order in which they are to be done."""
        if not self.superseded_by:
            self._gangs.step(self._sites, self._awake)
        commands = self._commands[:]
        self._commands.clear()  # the parts hold this list
        return commands

    def on_registered(
        self,
        info: NodeInfo,
        now: float,
        *,
        is_return: bool = False,
        cluster: str = "",
        epoch: int = 0,
        free: Mapping[str, int] | None = None,
        hosted: Sequence[NameClaim] = (),
        gangs: GangsTold | None = None,
    ) -> None:
        """A node says who it is, first of all on every link it dials.

        An incarnation is new once: when its first link breaks before it was welcomed, it may have been struck off
        since, by a head that has been started anew since. It has nothing to lose yet and joins as another one.

        Args:
            info: what never changes, and whether it drains.
            now: the driver's time.
            is_return: this incarnation has registered before, whether or not it heard an answer.
            cluster, epoch: of the last welcome that this incarnation heard; nothing and 0 if there was none.
            free: what is free; None when everything is.
            hosted: the names its actors have, those granted to actors that are still starting among them.
            gangs: what is set aside there, and all that it asks for; None for nothing.
        """
        self._awake = self._clock.note(now)
        roster = self._roster
        if self.superseded_by:
            self.counts["superseded_registered"] += 1
        elif reason := fault_of(info) or ("" if 0 <= epoch <= LAST_EPOCH else "its epoch is out of range"):
            self._refuse(info, RefusalCause.MALFORMED, reason)
        elif info.protocol != self._protocol:
            reason = f"it speaks protocol {info.protocol} (release {info.release}), this cluster {self._protocol}"
            self._refuse(info, RefusalCause.VERSION, reason)
        elif cluster and cluster != roster.cluster:
            self._refuse(info, RefusalCause.OTHER_CLUSTER, f"it belongs to cluster {cluster}, not {roster.cluster}")
        elif epoch > self.epoch:
            self._step_down(epoch)
        else:
            free = info.totals if free is None else free
            roster.register(info, free, hosted, gangs or GangsTold(), self._awake, is_return=is_return or epoch > 0)
            roster.flush(now, self._awake)

    def on_beat(self, node: int, free: Mapping[str, int] | None, now: float) -> None:
        """A node lives; ``free`` is what is free there when that has changed, else None."""
        found = self._hear(node, "beat", now)
        if found is None:
            return
        if free is not None:
            found.free = free
        host = found.host
        if host is None:
            return
        if free is not None:
            self._room.capacity.set_free(host, free)
        elif not self._room.capacity.end_promises(host, self._awake):
            return
        self._room.offer(host, self._awake)

    def on_draining(self, node: int, now: float) -> None:
        """A node finishes what it has, takes nothing more, and will leave."""
        found = self._hear(node, "draining", now)
        if found is not None:
            self._roster.drain(found, self._awake)
            self._roster.flush(now, self._awake)

    def on_drain_ordered(self, node: int, now: float) -> None:
        """Somebody wants a node to drain; one that is not registered is counted and nothing else."""
        self._awake = self._clock.note(now)
        found = self._roster.nodes.get(node)
        if self.superseded_by or found is None:
            self.counts["late_drain_ordered"] += 1
            return
        self._commands.append(Drain(node))
        self._roster.drain(found, self._awake)
        self._roster.flush(now, self._awake)

    def on_left(self, node: int, now: float) -> None:
        """A node says goodbye: it has nothing any more, and its incarnation does not come back."""
        self._strike(node, "left", "", now, is_lost=False)

    def on_link_refused(self, node: int, now: float) -> None:
        """A node's address refuses to be dialled: its process is gone. (A link that merely broke says nothing.)"""
        self._strike(node, "link_refused", "its address refused to be dialled", now, is_lost=True)

    def on_members_missed(self, node: int, now: float) -> None:
        """A node has got a difference that does not follow on what it has: it is told everything."""
        if self._hear(node, "members_missed", now) is not None:
            self._roster.ask_full(node)
            self._roster.flush(now, self._awake)

    def on_wanted(
        self, node: int, request: int, python: str, resources: Mapping[str, int], waiting: int, now: float
    ) -> None:
        """A node says how many tasks with this demand wait there for room elsewhere: an absolute figure, 0 for none.

        ``request`` counts up with the node's questions; one that is repeated gets its answer again. Amounts are
        1/10000. The question stands until the node takes it back, or registers anew.
        """
        if self._hear(node, "wanted", now) is None:
            return
        if not is_minor(python) or fault_of_amounts(resources) or waiting < 0:
            self.counts["malformed_wanted"] += 1
        else:
            self._room.ask(node, request, python, resources, min(waiting, MOST_WAITING), self._awake)

    def on_client_arrived(self, node: int, request: int, python: str, now: float) -> None:
        """A client that runs this Python minor has come to a node: it is refused when no node fits it any more."""
        if self._hear(node, "client_arrived", now) is None:
            return
        pythons = self._roster.membership.pythons
        if not pythons or python in pythons:
            self._commands.append(ClientAccepted(node, request))
        else:
            self._commands.append(ClientRefused(node, request, python, tuple(sorted(pythons))))

    def on_claimed(self, node: int, request: int, claim: NameClaim, now: float) -> None:
        """A node is about to start an actor with a name."""
        if self._hear(node, "claimed", now) is not None:
            self._naming.claim(node, request, claim)

    def on_looked_up(self, node: int, request: int, namespace: str, name: str, now: float) -> None:
        """Somebody at a node asks for the actor of a name."""
        if self._hear(node, "looked_up", now) is not None:
            self._naming.look_up(node, request, namespace, name)

    def on_released(self, node: int, namespace: str, name: str, owner: int, incarnation: int, now: float) -> None:
        """A named actor of this owner has ended at a node, or one that had no node any more is given up."""
        if self._hear(node, "released", now) is not None:
            self._naming.release(node, namespace, name, owner, incarnation)

    def on_gang_wanted(self, node: int, wish: Wish, now: float) -> None:
        """A client at a node asks for a gang; what is repeated is answered again."""
        if self._hear(node, "gang_wanted", now) is not None:
            self._gangs.ask(node, wish)

    def on_gang_released(self, node: int, gang: int, now: float) -> None:
        """A client at a node lets its gang go, or has ended."""
        if self._hear(node, "gang_released", now) is not None:
            self._gangs.release(gang)

    def on_bundles_prepared(self, node: int, gang: int, attempt: int, now: float) -> None:
        """A node has set aside its bundles of a gang."""
        if self._hear(node, "bundles_prepared", now) is not None:
            self._gangs.prepared(node, gang, attempt)

    def on_bundles_confirmed(self, node: int, gang: int, attempt: int, now: float) -> None:
        """Its bundles at a node can be used."""
        if self._hear(node, "bundles_confirmed", now) is not None:
            self._gangs.confirmed(node, gang, attempt)

    def on_bundles_declined(self, node: int, gang: int, attempt: int, now: float) -> None:
        """A node has nothing set aside for this attempt, or no longer."""
        if self._hear(node, "bundles_declined", now) is not None:
            self._gangs.declined(node, gang, attempt, self._awake)

    def on_timer(self, now: float) -> None:
        """Judge who was silent for too long, and tell what has changed."""
        self._awake = self._clock.note(now)
        if not self.superseded_by:
            self._roster.judge(self._awake)
            self._room.expire(self._awake)
            self._roster.flush(now, self._awake)

    def snapshot(self, now: float) -> ClusterView:
        """What the head knows, for people; no event."""
        roster = self._roster
        awake = self._awake + max(0.0, now - self._clock.real(self._awake))
        nodes = [view_node(node, awake) for node in roster.nodes.values()]
        nodes += [view_awaited(member) for member in roster.awaited.values()]
        return ClusterView(
            roster.cluster,
            self.epoch,
            self.is_settled,
            sorted(nodes, key=lambda node: (node.host, node.incarnation)),
            self._room.views(),
            len(self._naming),
            self._naming.waiting,
            dict(self.counts),
        )

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold; for tests."""
        self._roster.check()
        self._room.check()
        self._naming.check()
        self._gangs.check()
        assert self._gangs.askers() <= self._roster.nodes.keys(), "one that is no member asks for a gang"
        assert self._naming.nodes() <= self._roster.nodes.keys(), "a name is hosted by one that is no member"
        assert self._room.askers() <= self._roster.nodes.keys(), "one that is no member asks for room"

    def _sites(self) -> list[Site]:
        """The nodes that take work, as gangs see them, in the order in which they came."""
        hosts = [(n.host.order, n) for n in self._roster.nodes.values() if n.host is not None]
        return [
            Site(n.info.incarnation, n.info.python, Resources(n.info.totals), resources_of(n.info.totals, n.free))
            for _, n in sorted(hosts, key=lambda pair: pair[0])
        ]

    def _hear(self, node: int, event: str, now: float) -> Node | None:
        self._awake = self._clock.note(now)
        if self.superseded_by:
            self.counts[f"superseded_{event}"] += 1
            return None
        return self._roster.hear(node, event, self._awake)

    def _strike(self, node: int, event: str, reason: str, now: float, *, is_lost: bool) -> None:
        self._awake = self._clock.note(now)
        if self.superseded_by:
            self.counts[f"superseded_{event}"] += 1
            return
        self._roster.strike(node, event, reason, self._awake, is_lost=is_lost)
        self._roster.flush(now, self._awake)

    def _refuse(self, info: NodeInfo, cause: RefusalCause, reason: str) -> None:
        self._commands.append(RefuseNode(info.incarnation, cause, reason))

    def _step_down(self, epoch: int) -> None:
        """Another head was started after this one; the next start here is later than that."""
        self.superseded_by = epoch
        self._commands += [Keep(self._roster.kept()._replace(epoch=epoch)), StepDown(epoch)]

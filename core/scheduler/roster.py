"""The nodes of the cluster: who joins, who is back, who is lost, and when everybody hears of it.

State that the next start needs is kept before anybody hears of it: a node is welcomed, and a loss is told, by the next
*flush*, at most ten times a second, which orders ``Keep`` first. So a node that was ever told that it is a member is
in the kept list until it is struck off, and a later start knows whom to wait for and whom to refuse.

Collections and their invariants:

- ``nodes``: registered and not struck off, longest silent first; all are in the membership. Those which have slots,
  have been welcomed and do not drain are hosts in the room's table.
- ``awaited``: members of the kept list that have not registered since the start; members until ``_awaited_until``.
- ``_joining``: nodes that the next flush welcomes.
- ``_gone``: the last incarnations struck off. A node that registers again says so and is refused for ever when it is no
  member; this memory is for a first registration that came late, over a link that had broken.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence

from .admission import Releases
from .capacity import Host
from .cluster_commands import Command, Drain, Keep, NameClaim, NodeInfo, RefusalCause, RefuseNode, Rejoin, Welcome
from .gang_words import GangsTold
from .gangs import Gangs
from .kept import MEMBERS, KeptState
from .members import Member
from .membership import Membership
from .naming import Naming
from .room import Room

#: A node of which nothing was heard for so long is lost; it beats each second. The law's number.
NODE_LOST_SECONDS = 5.0

#: A head that has started waits so long for the nodes it knows, then goes on without the missing. The law's number.
SETTLE_SECONDS = 10.0

#: Time between two flushes: changes of the membership are told at most ten times a second. The law's number.
FLUSH_SECONDS = 0.1

#: Struck-off incarnations that are remembered; a frame is hardly ever older than so many. An entry takes 100 bytes.
REMEMBERED = 10_000

#: What rounding may take off a deadline that went through the clock and back.
_SLACK = 1e-6


class Node:
    """One registered node. ``free`` is what it said last; ``heard`` is in awake seconds."""

    __slots__ = ("free", "heard", "host", "info", "is_draining")

    def __init__(self, info: NodeInfo, free: Mapping[str, int], is_draining: bool, awake: float) -> None:
        self.info = info
        self.free = free
        self.heard = awake
        self.host: Host | None = None
        self.is_draining = is_draining

    def member(self) -> Member:
        """The node as others know it."""
        info = self.info
        return Member(info.incarnation, info.address, info.host, info.python, info.slots, self.is_draining)


class Roster:
    """Part of the head's machine: the members and their lives."""

    __slots__ = (
        "_awaited_until", "_commands", "_counts", "_flushed", "_gangs", "_gone", "_joining", "_missing", "_naming",
        "_releases", "_room", "awaited", "cluster", "is_settled", "membership", "nodes",
    )  # fmt: skip

    def __init__(
        self, kept: KeptState, release: str, room: Room, naming: Naming, gangs: Gangs, commands: list[Command],
        counts: Counter[str],
    ) -> None:  # fmt: skip
        self._commands = commands
        self._counts = counts
        self._room = room
        self._naming = naming
        self._gangs = gangs
        self._releases = Releases(release)
        self._flushed = float("-inf")
        self._gone: dict[int, None] = {}
        self._joining: dict[int, None] = {}
        self._awaited_until = 0.0
        self._missing = sum(1 for member in kept.nodes if member.slots)
        self.cluster = kept.cluster
        self.nodes: OrderedDict[int, Node] = OrderedDict()
        self.awaited = {member.incarnation: member for member in kept.nodes}
        self.membership = Membership(kept.epoch + 1, kept.nodes)
        self.is_settled = False

    def start(self, awake: float) -> None:
        """Keep the new epoch, and wait for the listed nodes if there are any."""
        self._awaited_until = awake + SETTLE_SECONDS
        self._commands.append(Keep(self.kept()))
        if not self._missing:
            self._settle(awake)

    def kept(self) -> KeptState:
        """What the next start needs to know now."""
        return KeptState(self.cluster, self.membership.epoch, tuple(self.membership.current.values()))

    def hear(self, node: int, event: str, awake: float) -> Node | None:
        """Note that a node lives; a stranger is told to join as a new one."""
        found = self.nodes.get(node)
        if found is not None:
            found.heard = awake
            self.nodes.move_to_end(node)
        elif node in self.awaited:
            self._counts[f"early_{event}"] += 1  # it has yet to register
        else:
            self._turn_away(node, event)
        return found

    def register(
        self, info: NodeInfo, free: Mapping[str, int], hosted: Sequence[NameClaim], gangs: GangsTold, awake: float, *,
        is_return: bool,
    ) -> None:  # fmt: skip
        """Take in a node, or take it back over another link; ``is_return``: it has registered before."""
        node = info.incarnation
        known = self.nodes.get(node)
        if known is not None:
            self._take_back(known, info, free, hosted, gangs, awake)
        elif node in self._gone or (is_return and node not in self.awaited):
            self._turn_away(node, "registered")
        elif misfit := self._releases.misfit(info.release):
            reason = f"it runs release {info.release}; nodes of release {misfit} are here, and these do not fit"
            self._commands.append(RefuseNode(node, RefusalCause.VERSION, reason))
        elif len(self.membership.current) >= MEMBERS and node not in self.awaited:
            self._commands.append(RefuseNode(node, RefusalCause.FULL, f"the cluster has {MEMBERS} nodes and gateways"))
        else:
            self._enter(info, free, hosted, gangs, awake)

    def drain(self, node: Node, awake: float) -> None:
        """Offer a node to nobody any more."""
        if node.is_draining:
            return
        node.is_draining = True
        self.membership.put(node.member())
        if node.host is not None:
            self._room.remove_host(node.host, awake, is_lost=False)
            node.host = None

    def strike(self, node: int, event: str, reason: str, awake: float, *, is_lost: bool) -> None:
        """Strike a node off for ever; a lost one is told so, in case it hears it."""
        if node in self.awaited:
            self._strike_awaited(node, awake)
            return
        found = self.nodes.pop(node, None)
        if found is None:
            self._counts[f"late_{event}"] += 1
            return
        self._joining.pop(node, None)
        self._releases.discard(found.info.release)
        self._cross_out(node)
        self._room.drop_asker(node)
        self._naming.drop_node(node)
        self._gangs.drop_node(node)
        if found.host is not None:
            self._room.remove_host(found.host, awake, is_lost=is_lost)
        if is_lost:
            self._commands.append(Rejoin(node, reason))

    def ask_full(self, node: int) -> None:
        """Have a node told all members; one that is not welcomed yet will be in any case."""
        if node not in self._joining:
            self.membership.want_full(node)

    def judge(self, awake: float) -> None:
        """Strike off whom nothing was heard of for too long."""
        while self.nodes:
            node, found = next(iter(self.nodes.items()))
            if awake < found.heard + NODE_LOST_SECONDS - _SLACK:
                break
            reason = f"nothing was heard of it for {NODE_LOST_SECONDS:g} s"
            self.strike(node, "silence", reason, awake, is_lost=True)
        if self.awaited and awake >= self._awaited_until - _SLACK:
            for node in list(self.awaited):
                self._strike_awaited(node, awake)

    def next_deadline(self) -> float | None:
        """When, in awake seconds, ``judge`` has something to do next; None when there is nobody to judge."""
        deadlines = [self._awaited_until] if self.awaited else []
        if self.nodes:
            deadlines.append(next(iter(self.nodes.values())).heard + NODE_LOST_SECONDS)
        return min(deadlines, default=None)

    @property
    def flush_due(self) -> float | None:
        """When, by the driver's clock, changes may be told; None when there are none."""
        return self._flushed + FLUSH_SECONDS if self._joining or self.membership.is_due else None

    def flush(self, now: float, awake: float) -> None:
        """Keep, then tell what has changed, if it is time."""
        due = self.flush_due
        if due is None or now < due:
            return
        self._flushed = now
        if self.membership.has_changed:
            self._commands.append(Keep(self.kept()))
        joining, self._joining = self._joining, {}
        for node in joining:
            self._welcome(node)
        self._commands += self.membership.flush(self.nodes)
        self._host([self.nodes[node] for node in joining], awake)

    def _enter(
        self, info: NodeInfo, free: Mapping[str, int], hosted: Sequence[NameClaim], gangs: GangsTold, awake: float
    ) -> None:
        expected = self.awaited.pop(info.incarnation, None)
        is_draining = info.is_draining or (expected is not None and expected.is_draining)
        node = self.nodes[info.incarnation] = Node(info, free, is_draining, awake)
        self._releases.add(info.release)
        self.membership.put(node.member())
        self._naming.report(info.incarnation, hosted)
        self._gangs.report(info.incarnation, gangs)
        if expected is None:
            self._joining[info.incarnation] = None
            return
        self._welcome(info.incarnation)
        self._host([node], awake)
        self._note_back(expected, awake)

    def _take_back(
        self, node: Node, info: NodeInfo, free: Mapping[str, int], hosted: Sequence[NameClaim], gangs: GangsTold,
        awake: float,
    ) -> None:  # fmt: skip
        """The link broke and was dialled again. What the node asked over the old one, it asks again."""
        old = node.info
        if (info.release, info.python, info.slots, info.totals) != (old.release, old.python, old.slots, old.totals):
            reason = "another process has the same incarnation, or it has changed what never changes"
            self._commands.append(RefuseNode(info.incarnation, RefusalCause.MALFORMED, reason))
            return
        self.hear(info.incarnation, "registered", awake)
        node.info, node.free = info, free
        self._room.drop_asker(info.incarnation)
        self._naming.forget_requests(info.incarnation)
        self._naming.report(info.incarnation, hosted)
        self._gangs.report(info.incarnation, gangs)
        if info.is_draining:
            self.drain(node, awake)
        self.membership.put(node.member())
        if info.incarnation in self._joining:
            return
        self._welcome(info.incarnation)
        if node.host is not None:
            node.host.address = info.address
            self._room.capacity.set_free(node.host, free)
            self._room.offer(node.host, awake)

    def _welcome(self, node: int) -> None:
        self._commands.append(Welcome(node, self.cluster, self.membership.epoch))
        if self.nodes[node].is_draining and not self.nodes[node].info.is_draining:
            self._commands.append(Drain(node))  # it was told over a link that broke, or before this start
        self.membership.want_full(node)

    def _host(self, nodes: list[Node], awake: float) -> None:
        """Offer welcomed nodes to those who wait; all are entered before any is offered or found wanting."""
        hosts: list[Host] = []
        for node in nodes:
            info = node.info
            if info.slots and not node.is_draining:
                add = self._room.capacity.add
                node.host = add(info.incarnation, info.address, info.python, info.slots, info.totals, node.free)
                hosts.append(node.host)
        if hosts:
            self._room.on_hosts_added(hosts, awake)

    def _strike_awaited(self, node: int, awake: float) -> None:
        member = self.awaited.pop(node)
        self._cross_out(node)
        self._note_back(member, awake)

    def _note_back(self, member: Member, awake: float) -> None:
        """One node fewer to wait for; gateways are not waited for, since clients come and go."""
        if member.slots:
            self._missing -= 1
            if not self._missing:
                self._settle(awake)

    def _settle(self, awake: float) -> None:
        self.is_settled = True
        self._naming.start_answering()
        self._gangs.start_answering()
        self._room.start_answering(awake)

    def _turn_away(self, node: int, event: str) -> None:
        self._counts[f"stranger_{event}"] += 1
        self._commands.append(Rejoin(node, "the cluster has no such member (any more)"))

    def _cross_out(self, node: int) -> None:
        """Take an incarnation off the list for good."""
        self.membership.remove(node)
        self._gone[node] = None
        if len(self._gone) > REMEMBERED:
            del self._gone[next(iter(self._gone))]

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        self.membership.check()
        self._releases.check(node.info.release for node in self.nodes.values())
        assert self.nodes.keys() | self.awaited.keys() == self.membership.current.keys()
        assert not self.nodes.keys() & self.awaited.keys() and self._joining.keys() <= self.nodes.keys()
        heard = [node.heard for node in self.nodes.values()]
        assert heard == sorted(heard), "nodes are not in the order in which they were heard"
        for name, node in self.nodes.items():
            assert self.membership.current[name] == node.member(), name
            takes_work = name not in self._joining and bool(node.info.slots) and not node.is_draining
            assert (node.host is not None) == takes_work, name
        assert self._missing == sum(1 for member in self.awaited.values() if member.slots)
        assert self.is_settled == (not self._missing)
        assert not (self._gone.keys() & self.membership.current.keys()) and len(self._gone) <= REMEMBERED

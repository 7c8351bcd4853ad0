"""A random walk over the head's machine: nodes that join, stop, vanish and come back, and heads that are killed.

The model knows what every node has heard. A head may be killed between any two commands; what it had kept by then is
what the next one starts from. Clocks of heads have origins of their own. At the end faults end, and all must settle.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from outboard import keptstate
from outboard.ids import RESOURCE_UNIT as UNIT
from outboard.scheduler.awake import ASLEEP_SECONDS, TICK_SECONDS
from outboard.scheduler.capacity import needs_of
from outboard.scheduler.cluster import Cluster
from outboard.scheduler.cluster_commands import (
    Drain,
    Keep,
    KillActor,
    Member,
    NameAnswer,
    NameClaim,
    NameGranted,
    NameRefused,
    NodeInfo,
    Rejoin,
    RoomAnswer,
    RoomRefused,
    TellMembers,
    Welcome,
)
from outboard.scheduler.kept import KeptState
from outboard.scheduler.resources import CPULESS_PER_SLOT, Demand, Resources
from outboard.scheduler.roster import FLUSH_SECONDS, NODE_LOST_SECONDS, SETTLE_SECONDS

EPSILON = 1e-4
TOTALS = [
    {"CPU": 2 * UNIT},
    {"CPU": 4 * UNIT, "GPU": 2 * UNIT},
    {"CPU": UNIT, "disk": 3 * UNIT},
    {},
]
SHAPES = [
    {"CPU": UNIT},
    {"CPU": 2 * UNIT},
    {},
    {"GPU": UNIT // 2},
    {"CPU": UNIT, "disk": 2 * UNIT},
    {"GPU": 9 * UNIT},
]
EVERYTHING = {name: 1_000_000 * UNIT for name in ("CPU", "GPU", "disk")}  # room for all who ever wait
PYTHONS = ["3.11", "3.12"]
NAMES = ["a", "b"]


class ModelNode:
    """A node's process, and what it has heard."""

    def __init__(self, info: NodeInfo) -> None:
        self.info = info
        self.id = info.incarnation
        self.free = dict(info.totals)
        self.is_dead = False
        self.is_stopped = False
        self.is_linked = False
        self.has_registered = False
        self.epoch = 0
        self.number = (0, 0)
        self.members: dict[int, Member] = {}
        self.hosted: dict[str, NameClaim] = {}
        self.wants: dict[int, list[Any]] = {}  # by shape: request, waiting, whether it was answered
        self.claims: dict[int, NameClaim] = {}
        self.look_ups: dict[int, str] = {}
        self.request = 0
        self.inbox: list[tuple[Any, dict[int, Member]]] = []

    @property
    def can_speak(self) -> bool:
        return self.is_linked and not self.is_stopped and not self.is_dead


class ClusterMachine(RuleBasedStateMachine):
    """One cluster over the lives of several heads."""

    @initialize()
    def begin(self) -> None:
        self.disk = keptstate.to_bytes(KeptState("boats"))
        self.nodes: dict[int, ModelNode] = {}
        self.struck: set[int] = set()
        self.draining: set[int] = set()
        self.heard: dict[int, float] = {}
        self.last_id = 0
        self.now = 0.0
        self.slept = 0.0
        self.head: Cluster | None = None
        self.crash_in: int | None = None
        self.start_head()
        for totals in TOTALS:
            self.start_node(totals, "3.11")
        self.run_for(FLUSH_SECONDS)

    # -- heads

    def start_head(self) -> None:
        kept = keptstate.from_bytes(self.disk)
        self.origin = 1000.0 * (kept.epoch + 1) - self.now
        self.missing = {member.incarnation for member in kept.nodes if member.slots}
        self.draining = {member.incarnation for member in kept.nodes if member.is_draining}
        self.patience = self.now - self.slept + SETTLE_SECONDS
        self.heard = {}
        self.welcomed: set[int] = set()
        self.told_at = float("-inf")
        self.head = Cluster(kept, self.now + self.origin, release="0.4.0", protocol=1)
        self.obey(self.head.take_commands())

    def kill_head(self) -> None:
        self.head = None
        self.crash_in = None
        for node in self.nodes.values():
            node.is_linked = False

    def is_settled(self) -> bool:
        return not self.missing or self.now - self.slept >= self.patience - EPSILON

    def say(self, event: str, *args: Any, **named: Any) -> list[Any]:
        """Give one event to the head, and do what it orders."""
        if self.head is None:
            return []
        getattr(self.head, f"on_{event}")(*args, now=self.now + self.origin, **named)
        commands = self.head.take_commands()
        self.obey(commands)
        return commands

    def node_says(self, node: ModelNode, event: str, *args: Any) -> list[Any]:
        self.heard[node.id] = self.now - self.slept
        return self.say(event, node.id, *args)

    def obey(self, commands: list[Any]) -> None:
        if self.crash_in is not None and self.crash_in <= len(commands):
            commands = commands[: self.crash_in]
            self.crash_in = None
            for command in commands:
                self.obey_one(command)
            self.kill_head()
            return
        for command in commands:
            self.obey_one(command)

    def obey_one(self, command: Any) -> None:
        match command:
            case Keep(state):
                before = {member.incarnation for member in keptstate.from_bytes(self.disk).nodes}
                after = {member.incarnation for member in state.nodes}
                self.struck |= before - after
                assert not after & self.struck, "one that was struck off is a member again"
                self.disk = keptstate.to_bytes(state)
            case Welcome(number, "boats", _):
                kept = {member.incarnation for member in keptstate.from_bytes(self.disk).nodes}
                assert number in kept, "welcomed before it was kept"
                self.welcomed.add(number)
                self.deliver(number, command)
            case TellMembers(numbers, change):
                assert self.told_at == self.now or self.now - self.told_at >= FLUSH_SECONDS - EPSILON
                self.told_at = self.now
                assert not {member.incarnation for member in change.present} & self.struck
                for number in numbers:
                    self.deliver(number, command)
            case RoomAnswer():
                self.check_answer(command)
            case RoomRefused():
                self.check_refusal(command)
            case NameAnswer() | NameGranted() | NameRefused():
                assert self.is_settled(), "answered about a name while nodes are missing"
                self.deliver(command.node, command)
            case Rejoin(number, reason):
                if "nothing was heard" in reason:
                    assert self.now - self.slept - self.heard[number] >= NODE_LOST_SECONDS - EPSILON
                self.welcomed.discard(number)
                self.deliver(number, command)
            case Drain(number) | KillActor(number):
                self.deliver(number, command)
            case _:
                raise AssertionError(f"unexpected {command}")

    def check_answer(self, answer: RoomAnswer) -> None:
        assert self.is_settled() and 0 < len(answer.offers) <= 32 and answer.node not in self.struck
        node = self.nodes[answer.node]
        shape, want = next((s, w) for s, w in node.wants.items() if w[0] == answer.request)
        want[2] = True
        for offer in answer.offers:
            host = self.nodes[offer.node]
            assert offer.node in self.welcomed and offer.node != answer.node, "named one that is no member"
            assert offer.node not in self.struck | self.draining, "named a lost or draining node"
            assert host.info.slots and host.info.python == node.info.python
            free = {**host.free, "": CPULESS_PER_SLOT * host.info.slots}
            room = min(free.get(name, 0) // amount for name, amount in needs_of(Demand.of(SHAPES[shape])))
            assert 0 < offer.room <= room, "named a full node"

    def check_refusal(self, refusal: RoomRefused) -> None:
        assert self.is_settled()
        node = self.nodes[refusal.node]
        shape = next(s for s, w in node.wants.items() if w[0] == refusal.request)
        for number in self.welcomed - self.draining - self.struck:
            info = self.nodes[number].info
            fits = info.slots and Resources(info.totals).capacity(Demand.of(SHAPES[shape]))
            assert info.python != node.info.python or not fits, "refused what a node can meet"
        assert refusal.asked == SHAPES[shape] and refusal.pythons
        del node.wants[shape]

    # -- nodes

    def deliver(self, number: int, command: Any) -> None:
        """What the head says to a node, which may hear it much later, or never."""
        node = self.nodes.get(number)
        if node is None or node.is_dead or not node.is_linked:
            return
        everybody = {member.incarnation: member for member in keptstate.from_bytes(self.disk).nodes}
        node.inbox.append((command, everybody))
        if not node.is_stopped:
            self.read(node)

    def read(self, node: ModelNode) -> None:
        while node.inbox:
            command, everybody = node.inbox.pop(0)
            match command:
                case Welcome(_, _, epoch):
                    assert epoch >= node.epoch
                    node.epoch = epoch
                case TellMembers(_, change):
                    self.apply(node, change, everybody)
                case Drain():
                    node.info = node.info._replace(is_draining=True)
                case KillActor(_, _, name, owner, incarnation):
                    held = node.hosted.get(name)
                    if held is not None and (held.owner, held.incarnation) == (owner, incarnation):
                        del node.hosted[name]
                case NameGranted(_, request):
                    claim = node.claims.pop(request, None)
                    if claim is not None:
                        node.hosted[claim.name] = claim
                case NameRefused(_, request):
                    node.claims.pop(request, None)
                case NameAnswer(_, request):
                    node.look_ups.pop(request, None)
                case Rejoin():
                    self.bury(node)
                    self.register(self.make(node.info._replace(is_draining=False)))

    def apply(self, node: ModelNode, change: Any, everybody: dict[int, Member]) -> None:
        if change.is_full:
            node.members = {}
        elif (change.epoch, change.since) != node.number:
            self.node_says(node, "members_missed")
            return
        node.members.update((member.incarnation, member) for member in change.present)
        for number in change.gone:
            del node.members[number]
        node.number = change.epoch, change.number
        assert node.members == everybody, "the differences do not add up to the head's list"

    def make(self, info: NodeInfo) -> ModelNode:
        self.last_id += 1
        node = self.nodes[self.last_id] = ModelNode(info._replace(incarnation=self.last_id))
        return node

    def bury(self, node: ModelNode) -> None:
        node.is_dead = True
        node.is_linked = False
        node.inbox.clear()

    def register(self, node: ModelNode) -> None:
        """A node dials, and says who it is; then it says again what it waits for."""
        if self.head is None or node.is_dead:
            return
        node.is_linked = True
        node.inbox.clear()
        self.heard[node.id] = self.now - self.slept
        if node.id not in self.struck:
            self.missing.discard(node.id)
        told = "boats" if node.epoch else ""
        hosted = [*node.hosted.values(), *node.claims.values()]
        named = {"is_return": node.has_registered, "cluster": told, "epoch": node.epoch}
        node.has_registered = True
        if node.info.is_draining:
            self.draining.add(node.id)
        self.say("registered", node.info, free=node.free, hosted=hosted, **named)
        for shape, want in list(node.wants.items()):
            if node.can_speak:
                want[2] = False
                self.node_says(node, "wanted", want[0], node.info.python, SHAPES[shape], want[1])
        for request, name in list(node.look_ups.items()):
            if node.can_speak:
                self.node_says(node, "looked_up", request, "", name)
        for request, claim in list(node.claims.items()):
            if node.can_speak:
                self.node_says(node, "claimed", request, claim)

    def speaking(self) -> list[ModelNode]:
        return [node for node in self.nodes.values() if node.can_speak and node.id in self.welcomed]

    def pick(self, data: st.DataObject, nodes: list[ModelNode]) -> ModelNode | None:
        return nodes[data.draw(st.integers(0, len(nodes) - 1))] if nodes else None

    def run_for(self, seconds: float) -> None:
        """Let time pass: nodes beat each half second, the head's timer is never late."""
        end = self.now + seconds
        while self.now < end:
            due = self.head.due if self.head is not None else None
            step = min(end, self.now + 0.5)
            self.now = step if due is None else max(self.now, min(step, due - self.origin))
            for node in self.speaking():
                if node.can_speak:
                    self.node_says(node, "beat", None)
            if self.now - self.slept >= self.patience - EPSILON:
                self.missing.clear()
            self.say("timer")
        self.say("timer")

    # -- what may happen

    @rule(totals=st.sampled_from(TOTALS), python=st.sampled_from([*PYTHONS, "3.11"]))
    def start_node(self, totals: dict[str, int], python: str) -> None:
        slots = totals.get("CPU", 0) // UNIT
        name = f"host{self.last_id}"
        info = NodeInfo(0, f"{name}:7000" if slots else "", name, "0.4.0", 1, python, totals, slots)
        self.register(self.make(info))

    @rule(seconds=st.sampled_from([0.02, 0.3, 1.0, 3.0, 6.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.run_for(seconds)

    @rule(data=st.data())
    def stop_or_go_on(self, data: st.DataObject) -> None:
        node = self.pick(data, [node for node in self.nodes.values() if not node.is_dead])
        if node is None:
            return
        node.is_stopped = not node.is_stopped
        if not node.is_stopped and node.is_linked:
            if data.draw(st.booleans()):
                self.node_says(node, "beat", None)  # before it reads what has come meanwhile
            self.read(node)

    @rule(data=st.data())
    def cut_or_dial(self, data: st.DataObject) -> None:
        node = self.pick(data, [n for n in self.nodes.values() if not n.is_dead and not n.is_stopped])
        if node is None:
            return
        if node.is_linked and data.draw(st.booleans()):
            node.is_linked = False
        else:
            self.register(node)

    @rule(data=st.data(), way=st.sampled_from(["dies", "refused", "left"]))
    def end_node(self, data: st.DataObject, way: str) -> None:
        node = self.pick(data, self.speaking())
        if node is None:
            return
        if way != "dies":
            self.missing.discard(node.id)
            self.welcomed.discard(node.id)
            self.say("link_refused" if way == "refused" else "left", node.id)
        self.bury(node)

    @rule(data=st.data(), is_ordered=st.booleans())
    def drain(self, data: st.DataObject, is_ordered: bool) -> None:
        node = self.pick(data, self.speaking())
        if node is None:
            return
        self.draining.add(node.id)
        if is_ordered:
            self.say("drain_ordered", node.id)
        else:
            node.info = node.info._replace(is_draining=True)
            self.node_says(node, "draining")

    @rule(data=st.data(), share=st.sampled_from([0.0, 0.5, 1.0, 1.0]))
    def free_changes(self, data: st.DataObject, share: float) -> None:
        node = self.pick(data, self.speaking())
        if node is not None:
            node.free = {name: int(total * share) for name, total in node.info.totals.items()}
            self.node_says(node, "beat", node.free)

    @rule(data=st.data(), shape=st.integers(0, len(SHAPES) - 1), waiting=st.sampled_from([0, 1, 3, 3, 1000, 1000]))
    def want(self, data: st.DataObject, shape: int, waiting: int) -> None:
        node = self.pick(data, self.speaking())
        if node is None:
            return
        node.request += 1
        if waiting:
            node.wants[shape] = [node.request, waiting, False]
        else:
            node.wants.pop(shape, None)
        self.node_says(node, "wanted", node.request, node.info.python, SHAPES[shape], waiting)

    @rule(data=st.data(), name=st.sampled_from(NAMES), incarnation=st.integers(1, 3), is_detached=st.booleans())
    def claim(self, data: st.DataObject, name: str, incarnation: int, is_detached: bool) -> None:
        node = self.pick(data, self.speaking())
        if node is None or name in node.hosted or any(claim.name == name for claim in node.claims.values()):
            return
        node.request += 1
        claim = node.claims[node.request] = NameClaim("", name, node.id, incarnation, b"how", is_detached)
        self.node_says(node, "claimed", node.request, claim)

    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def look_up(self, data: st.DataObject, name: str) -> None:
        node = self.pick(data, self.speaking())
        if node is not None:
            node.request += 1
            node.look_ups[node.request] = name
            self.node_says(node, "looked_up", node.request, "", name)

    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def release(self, data: st.DataObject, name: str) -> None:
        node = self.pick(data, [node for node in self.speaking() if name in node.hosted])
        if node is not None:
            held = node.hosted.pop(name)
            self.node_says(node, "released", "", name, held.owner, held.incarnation)

    @rule(data=st.data())
    def miss_a_number(self, data: st.DataObject) -> None:
        node = self.pick(data, self.speaking())
        if node is not None:
            node.number = 0, 0

    @precondition(lambda self: self.struck)
    @rule(data=st.data(), event=st.sampled_from(["beat", "wanted", "looked_up", "claimed", "registered", "draining"]))
    def zombie_speaks(self, data: st.DataObject, event: str) -> None:
        if self.head is None:
            return
        number = data.draw(st.sampled_from(sorted(self.struck)))
        info, claim = self.nodes[number].info, NameClaim("", "a", 1, 9)
        args = {
            "beat": (number, None),
            "wanted": (number, 1, "3.11", SHAPES[0], 5),
            "looked_up": (number, 1, "", "a"),
            "claimed": (number, 1, claim),
            "registered": (info,),
            "draining": (number,),
        }[event]
        named = {"is_return": True} if event == "registered" else {}
        commands = self.say(event, *args, **named)
        assert commands and all(isinstance(c, Rejoin | Keep | TellMembers | Welcome | RoomAnswer) for c in commands)
        assert isinstance(commands[0], Rejoin) and commands[0].node == number

    @precondition(lambda self: self.head is not None)
    @rule(after=st.sampled_from([None, None, None, 0, 1, 2, 3]))
    def crash(self, after: int | None) -> None:
        """The head will be killed when it has done so many commands of an event that orders as many."""
        self.crash_in = after

    @precondition(lambda self: self.head is None)
    @rule(data=st.data(), pause=st.sampled_from([0.0, 2.0, 30.0]))
    def start_again(self, data: st.DataObject, pause: float) -> None:
        self.now += pause
        self.start_head()
        for node in list(self.nodes.values()):
            if not node.is_stopped and data.draw(st.booleans()):
                self.register(node)

    @precondition(lambda self: self.head is not None)
    @rule(seconds=st.sampled_from([2.0, 8.0, 100.0]))
    def head_sleeps(self, seconds: float) -> None:
        self.say("timer")
        if self.head is None:
            return
        self.now += seconds
        assert seconds - TICK_SECONDS > ASLEEP_SECONDS
        self.slept += seconds - TICK_SECONDS
        self.say("timer")

    @invariant()
    def is_sound(self) -> None:
        if getattr(self, "head", None) is None:
            return
        head = self.head
        assert head is not None
        head.check()
        assert head.is_settled or not self.is_settled()
        assert not head.is_settled or self.is_settled()
        view = head.snapshot(self.now + self.origin)
        present = {node.incarnation for node in view.nodes if node.state != "awaited"}
        for number in present:
            assert self.now - self.slept - self.heard[number] < NODE_LOST_SECONDS + EPSILON, "silent, and a member"
        for node in self.nodes.values():
            if node.can_speak and node.id in self.welcomed and node.id not in self.struck:
                silent = self.now - self.slept - self.heard[node.id]
                assert node.id in present or silent >= NODE_LOST_SECONDS - EPSILON, "a member that beats was dropped"

    # -- the end

    def teardown(self) -> None:
        if not hasattr(self, "disk"):
            return
        self.crash_in = None
        if self.head is None:
            self.start_head()
        for node in list(self.nodes.values()):
            node.is_stopped = False
            self.register(node)
        self.run_for(SETTLE_SECONDS + 1.0)
        head = self.head
        assert head is not None and head.is_settled
        alive = {node.id: node for node in self.nodes.values() if not node.is_dead}
        assert {node.incarnation for node in head.snapshot(self.now).nodes} == alive.keys()
        for node in alive.values():
            assert node.members.keys() == alive.keys(), "a node has another list than the head"
            assert not node.look_ups and not node.claims, "nobody answered"
        for name in NAMES:
            assert sum(name in node.hosted for node in alive.values()) <= 1, "two actors with one name live"
        self.newcomer_gets_work()

    def newcomer_gets_work(self) -> None:
        """A large node joins: whoever waits for room is sent to it within 200 ms."""
        waiting = [
            (node.id, shape)
            for node in self.nodes.values()
            for shape, want in node.wants.items()
            if not node.is_dead and not want[2] and node.info.python == "3.11"
        ]
        info = NodeInfo(0, "big:7000", "big", "0.4.0", 1, "3.11", EVERYTHING, 60_000)
        self.register(self.make(info))
        self.run_for(0.2)
        for number, shape in waiting:
            assert self.nodes[number].wants[shape][2], "nobody told it of the node that joined"
        self.is_sound()


ClusterMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestRandomWalk = pytest.mark.timeout(120)(ClusterMachine.TestCase)

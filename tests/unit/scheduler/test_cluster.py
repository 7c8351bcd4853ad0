"""The head's machine: events in, commands out, every invariant after each event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from outboard.ids import RESOURCE_UNIT as UNIT
from outboard.scheduler import roster
from outboard.scheduler.awake import TICK_SECONDS
from outboard.scheduler.cluster import Cluster
from outboard.scheduler.cluster_commands import (
    ClientAccepted,
    ClientRefused,
    Drain,
    Keep,
    KillActor,
    Member,
    NameAnswer,
    NameClaim,
    NameEntry,
    NameGranted,
    NodeInfo,
    Offer,
    RefusalCause,
    RefuseNode,
    Rejoin,
    RoomAnswer,
    RoomRefused,
    StepDown,
    TellMembers,
    TryLater,
    Welcome,
)
from outboard.scheduler.kept import KeptState
from outboard.scheduler.members import MembersChanged
from outboard.scheduler.roster import FLUSH_SECONDS, NODE_LOST_SECONDS, SETTLE_SECONDS

pytestmark = pytest.mark.timeout(10)

ONE = {"CPU": UNIT}
PYTHON = "3.11"
A, B, C, D = 0xA, 0xB, 0xC, 0xD


def info(node: int, *, cpus: int = 2, **changes: Any) -> NodeInfo:
    described = NodeInfo(
        node, f"host{node:x}:7000", f"host{node:x}", "0.4.1", 1, PYTHON, {"CPU": cpus * UNIT} if cpus else {}, cpus
    )
    return described._replace(**changes)


def member(node: int, *, cpus: int = 2, is_draining: bool = False) -> Member:
    return Member(node, f"host{node:x}:7000", f"host{node:x}", PYTHON, cpus, is_draining)


def claim(name: str = "counter", incarnation: int = 1, **changes: Any) -> NameClaim:
    return NameClaim("default", name, 77, incarnation, b"record")._replace(**changes)


class Head:
    """A machine, its clock, and nodes that beat; `say` returns what one event ordered."""

    def __init__(self, kept: KeptState | None = None, now: float = 100.0, release: str = "0.4.0") -> None:
        self.now = now
        self.cluster = Cluster(kept or KeptState("boats"), now, release=release, protocol=1)
        self.started = self.take()

    def take(self) -> list[Any]:
        self.cluster.check()
        return self.cluster.take_commands()

    def say(self, event: str, *args: Any, **named: Any) -> list[Any]:
        getattr(self.cluster, f"on_{event}")(*args, now=self.now, **named)
        return self.take()

    def register(self, node: int | NodeInfo, **named: Any) -> list[Any]:
        return self.say("registered", node if isinstance(node, NodeInfo) else info(node), **named)

    def join(self, *nodes: int | NodeInfo) -> list[Any]:
        """Let nodes register and be welcomed."""
        commands = [command for node in nodes for command in self.register(node)]
        return commands + self.run(FLUSH_SECONDS)

    def run(self, seconds: float, beating: tuple[int, ...] = ()) -> list[Any]:
        """Let time pass with a timer at every due time; who beats does so every half second."""
        end, commands = self.now + seconds, []
        while True:
            due = self.cluster.due
            self.now = min(end, self.now + 0.5 if beating else end, end if due is None else due)
            for node in beating:
                commands += self.say("beat", node, None)
            commands += self.say("timer")
            if self.now >= end:
                return commands

    def want(self, node: int, waiting: int = 1, request: int = 1, demand: dict[str, int] | None = None) -> list[Any]:
        return self.say("wanted", node, request, PYTHON, ONE if demand is None else demand, waiting)

    def restart(self) -> Head:
        """A head that starts from what this one has kept, at another clock's time."""
        return Head(self.kept, now=5.0)

    @property
    def kept(self) -> KeptState:
        return self.cluster._roster.kept()


@pytest.fixture
def head() -> Iterator[Head]:
    head = Head()
    yield head
    head.cluster.check()


def offers(commands: list[Any]) -> list[tuple[int, dict[int, int]]]:
    """(asker, {node: room}) of each answer."""
    return [(c.node, {o.node: o.room for o in c.offers}) for c in commands if isinstance(c, RoomAnswer)]


def of_type(commands: list[Any], *kinds: type) -> list[Any]:
    return [command for command in commands if isinstance(command, kinds)]


# -- epochs


def test_start_keeps_a_higher_epoch_before_anything_else(head: Head) -> None:
    assert head.started == [Keep(KeptState("boats", 1))]
    assert head.restart().started == [Keep(KeptState("boats", 2))]
    assert head.cluster.is_settled and head.cluster.due is None


def test_head_that_hears_of_a_higher_epoch_steps_down(head: Head) -> None:
    head.join(A)
    assert head.register(B, cluster="boats", epoch=9) == [Keep(KeptState("boats", 9, (member(A),))), StepDown(9)]
    assert head.cluster.due is None and "superseded" in repr(head.cluster)
    assert head.say("beat", A, None) == head.say("left", A) == head.register(C) == head.say("timer") == []
    assert head.say("drain_ordered", A) == []
    assert head.cluster.counts.total() == 4


# -- joining, beating, being lost


def test_newcomer_is_kept_then_welcomed_then_told_all_members(head: Head) -> None:
    everybody = MembersChanged(1, 0, 1, (member(A),), (), True)
    assert head.register(A) == [
        Keep(KeptState("boats", 1, (member(A),))),
        Welcome(A, "boats", 1),
        TellMembers((A,), everybody),
    ]


def test_others_are_told_the_difference_ten_times_a_second_at_most(head: Head) -> None:
    head.register(A)
    assert head.register(B) == head.register(C) == []
    assert head.cluster.due == pytest.approx(head.now + FLUSH_SECONDS)
    told = of_type(head.run(FLUSH_SECONDS), TellMembers)
    assert told == [
        TellMembers((A,), MembersChanged(1, 1, 2, (member(B), member(C)), (), False)),
        TellMembers((B, C), MembersChanged(1, 0, 2, (member(A), member(B), member(C)), (), True)),
    ]


def test_node_that_missed_numbers_is_told_everything(head: Head) -> None:
    head.join(A, B)
    head.run(1.0, (A, B))
    assert head.say("members_missed", B) == [
        TellMembers((B,), MembersChanged(1, 0, 2, (member(A), member(B)), (), True))
    ]
    assert head.say("members_missed", B) == []  # not before its time
    assert len(head.run(FLUSH_SECONDS)) == 1


def test_silent_node_is_lost_after_five_seconds(head: Head) -> None:
    head.join(A, B)
    assert head.run(NODE_LOST_SECONDS - FLUSH_SECONDS - 0.01, (A,)) == []
    commands = head.run(0.02, (A,))
    assert commands == [
        Rejoin(B, "nothing was heard of it for 5 s"),
        Keep(KeptState("boats", 1, (member(A),))),
        TellMembers((A,), MembersChanged(1, 2, 3, (), (B,), False)),
    ]


def test_any_word_counts_as_life(head: Head) -> None:
    head.join(A)
    for _ in range(20):
        head.run(0.5)
        head.want(A, 0)
    assert head.cluster.is_settled and A in head.cluster._roster.nodes


def test_own_sleep_is_not_held_against_nodes(head: Head) -> None:
    head.join(A, B)
    head.now += 60.0  # stopped: the timer comes a minute late, before what lies in the links is read
    assert head.say("timer") == []
    assert head.run(NODE_LOST_SECONDS - 1.5, (A,)) == []
    assert of_type(head.run(1.5, (A,)), Rejoin) == [Rejoin(B, "nothing was heard of it for 5 s")]


def test_short_delay_of_the_timer_is_no_sleep(head: Head) -> None:
    head.join(A)
    for _ in range(3):
        head.now += TICK_SECONDS + 0.9
        head.say("timer")
    head.now += TICK_SECONDS + 0.9
    assert of_type(head.say("timer"), Rejoin)


def test_node_whose_address_refuses_is_lost_at_once(head: Head) -> None:
    head.join(A, B)
    head.run(1.0, (A, B))
    commands = head.say("link_refused", B)
    assert commands[0] == Rejoin(B, "its address refused to be dialled")
    assert commands[-1] == TellMembers((A,), MembersChanged(1, 2, 3, (), (B,), False))


def test_zombie_is_told_to_rejoin_whatever_it_says(head: Head) -> None:
    head.join(A, B)
    head.say("link_refused", B)
    for event, args in {
        "beat": (None,),
        "draining": (),
        "members_missed": (),
        "wanted": (1, PYTHON, ONE, 1),
        "client_arrived": (1, PYTHON),
        "claimed": (1, claim()),
        "looked_up": (1, "default", "counter"),
        "released": ("default", "counter", 77, 1),
    }.items():
        assert [type(c) for c in head.say(event, B, *args)] == [Rejoin], event
        assert head.cluster.counts[f"stranger_{event}"] == 1
    assert head.say("left", B) == []


def test_struck_incarnation_is_refused_for_ever(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "REMEMBERED", 1)
    head.join(A, B, C)
    head.say("link_refused", B)
    assert of_type(head.register(B), Rejoin)  # a registration that was under way when it was struck off
    head.say("left", C)  # and B is forgotten
    head.run(FLUSH_SECONDS)
    assert of_type(head.register(B, cluster="boats", epoch=1), Rejoin)
    new = head.restart()
    assert of_type(new.register(B, cluster="boats", epoch=1), Rejoin)
    assert of_type(new.register(B, is_return=True), Rejoin)  # it never heard that it was welcome
    assert head.cluster._roster.nodes.keys() == {A}


def test_node_struck_off_before_anybody_heard_of_it_is_never_told(head: Head) -> None:
    head.join(A)
    head.run(1.0, (A,))
    head.register(B)
    head.register(C)
    head.say("link_refused", C)
    assert head.run(FLUSH_SECONDS, (A, B)) == []


def test_node_that_dials_again_is_the_same(head: Head) -> None:
    head.join(A, B)
    head.want(A, 5)
    assert head.register(A, cluster="boats", epoch=1)[0] == Welcome(A, "boats", 1)
    assert head.cluster.snapshot(head.now).waiting == []  # it asks again
    assert head.kept.nodes == (member(A), member(B))


def test_two_processes_with_one_incarnation_are_not_taken_for_one(head: Head) -> None:
    head.join(A)
    refused = head.register(info(A, cpus=3))
    assert [(c.node, c.cause) for c in refused] == [(A, RefusalCause.MALFORMED)]


def test_gateway_is_a_member_and_never_offered(head: Head) -> None:
    head.join(A, info(B, cpus=0, address=""))
    assert Member(B, "", "hostb", PYTHON, 0) in head.kept.nodes
    assert head.want(A) == []


def test_drained_node_is_offered_no_more_and_leaves(head: Head) -> None:
    head.join(A, B)
    head.run(1.0, (A, B))
    assert head.say("drain_ordered", B) == [
        Drain(B),
        Keep(KeptState("boats", 1, (member(A), member(B, is_draining=True)))),
        TellMembers((A, B), MembersChanged(1, 2, 3, (member(B, is_draining=True),), (), False)),
    ]
    assert head.say("draining", B) == []
    assert head.want(A) == []
    assert head.run(1.0, (A, B)) == []
    assert head.say("left", B)[-1] == TellMembers((A,), MembersChanged(1, 3, 4, (), (B,), False))


def test_drain_is_ordered_again_over_a_new_link_and_by_a_new_head(head: Head) -> None:
    head.join(A)
    head.say("drain_ordered", A)
    assert Drain(A) in head.register(A, cluster="boats", epoch=1)
    assert Drain(A) in head.restart().register(A, cluster="boats", epoch=1)
    assert Drain(A) not in head.register(info(A, is_draining=True), cluster="boats", epoch=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"incarnation": 0},
        {"incarnation": 1 << 64},
        {"address": "x" * 301},
        {"address": ""},
        {"host": "\x1b[31m"},
        {"python": "3"},
        {"python": "3.11.2"},
        {"python": "3.0011"},
        {"release": "new"},
        {"slots": -1},
        {"slots": 1 << 17},
        {"labels": {"zone": "x" * 129}},
        {"labels": {str(i): "" for i in range(65)}},
        {"totals": {"": UNIT}},
        {"totals": {"CPU": -1}},
        {"totals": {"CPU": 1 << 64}},
        {"totals": {str(i): 1 for i in range(65)}},
    ],
)
def test_malformed_node_is_refused(head: Head, changes: dict[str, Any]) -> None:
    [refused] = head.register(info(A)._replace(**changes))
    assert isinstance(refused, RefuseNode) and refused.cause is RefusalCause.MALFORMED and refused.reason


def test_members_are_bounded(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "MEMBERS", 2)
    head.join(A, B)
    assert [c.cause for c in head.register(C)] == [RefusalCause.FULL]


def test_node_of_another_cluster_is_refused(head: Head) -> None:
    [refused] = head.register(A, cluster="ships", epoch=50)
    assert refused.cause is RefusalCause.OTHER_CLUSTER and "ships" in refused.reason
    assert head.cluster.superseded_by == 0


# -- versions


def test_neighbouring_releases_work_together_and_others_are_refused_with_both(head: Head) -> None:
    assert of_type(head.join(info(A, release="0.5.0")), Welcome)
    for release in ("0.3.9", "0.6.0", "1.4.0"):
        [refused] = head.register(info(B, release=release))
        assert refused.cause is RefusalCause.VERSION
        assert release in refused.reason and ("0.4" in refused.reason or "0.5" in refused.reason)
    head.say("left", A)
    assert of_type(head.join(info(C, release="0.3.9")), Welcome)


def test_other_protocol_is_refused(head: Head) -> None:
    [refused] = head.register(info(A, protocol=2))
    assert refused.cause is RefusalCause.VERSION and "2" in refused.reason


def test_client_without_a_node_of_its_python_is_refused_with_both(head: Head) -> None:
    head.join(info(A, cpus=0, address="", python="3.13"))
    assert head.say("client_arrived", A, 1, "3.13") == [ClientAccepted(A, 1)]  # nodes may still come
    head.join(B)
    assert head.say("client_arrived", A, 2, "3.13") == [ClientRefused(A, 2, "3.13", ("3.11",))]
    assert head.say("client_arrived", A, 3, "3.11") == [ClientAccepted(A, 3)]


def test_node_of_another_python_is_not_offered(head: Head) -> None:
    head.join(A, B, info(C, cpus=64, python="3.12"))
    assert offers(head.want(A)) == [(A, {B: 1})]
    [refused] = head.say("wanted", A, 2, "3.13", ONE, 1)
    assert refused == RoomRefused(A, 2, "3.13", ONE, ("3.11", "3.12"), ())


# -- room


def test_most_free_nodes_are_offered_first(head: Head) -> None:
    head.join(A, B, info(C, cpus=8), info(D, cpus=4))
    [answer] = head.want(A, waiting=10)
    assert answer == RoomAnswer(A, 1, (Offer(C, "hostc:7000", 8), Offer(D, "hostd:7000", 2)))


def test_many_askers_are_sent_to_different_nodes(head: Head) -> None:
    head.join(*range(1, 21))
    named = [offers(head.want(asker, waiting=2))[0][1] for asker in range(1, 21)]
    assert sorted(node for answer in named for node in answer) == list(range(1, 21))


def test_answer_names_at_most_32_nodes(head: Head) -> None:
    head.join(*range(1, 51))
    [(_, named)] = offers(head.want(1, waiting=1000))
    assert len(named) == 32 and 1 not in named


def test_one_who_waits_is_answered_when_something_is_free(head: Head) -> None:
    head.join(A, B)
    head.say("beat", B, {"CPU": 0})
    assert head.want(A, waiting=3) == []
    assert head.say("beat", B, None) == []
    assert offers(head.say("beat", B, {"CPU": UNIT})) == [(A, {B: 1})]


def test_one_who_waits_is_told_of_a_node_that_joins_within_a_flush(head: Head) -> None:
    head.join(A, B)
    assert offers(head.want(A, waiting=1000)) == [(A, {B: 2})]
    head.register(D)
    commands = head.register(C) + head.run(FLUSH_SECONDS)
    assert offers(commands) == [(A, {D: 2}), (A, {C: 2})]
    order = [type(c) for c in commands]
    assert order.index(Keep) < order.index(Welcome) < order.index(TellMembers) < order.index(RoomAnswer)


def test_promised_room_is_offered_again_when_nobody_came(head: Head) -> None:
    head.join(A, B, C)
    for node in (A, C):
        head.say("beat", node, {"CPU": 0})
    head.want(A, waiting=2)
    assert head.want(C, waiting=2) == []
    assert offers(head.say("beat", B, None)) == []  # sent before anybody could have come
    head.run(0.6)
    assert offers(head.say("beat", B, None)) == [(C, {B: 2})]


def test_node_with_something_free_goes_to_askers_in_turns(head: Head) -> None:
    head.join(A, B, C, D)
    for node in (A, B, C, D):
        head.say("beat", node, {"CPU": 0})
    for asker in (A, B, C):
        head.want(asker, waiting=100)
    served = [offers(head.say("beat", D, {"CPU": UNIT}))[0][0] for _ in range(3)]
    assert served == [A, B, C]
    assert offers(head.say("beat", D, {"CPU": UNIT})) == []  # all of them know it


def test_question_is_taken_back(head: Head) -> None:
    head.join(A, B)
    head.say("beat", B, {"CPU": 0})
    head.want(A, waiting=3)
    head.want(A, waiting=0, request=2)
    assert head.say("beat", B, {"CPU": UNIT}) == []


def test_repeated_question_gets_its_answer_again_and_a_late_one_none(head: Head) -> None:
    head.join(A, B)
    head.want(A, request=4)
    assert head.want(A, request=4) == [RoomAnswer(A, 4, (Offer(B, "hostb:7000", 1),))]
    assert head.want(A, request=3, waiting=9) == []
    assert head.cluster.counts["late_wanted"] == 1


def test_new_figure_is_offered_room_that_was_not_offered_before(head: Head) -> None:
    head.join(A, B, C)
    assert offers(head.want(A, waiting=2, request=1)) == [(A, {B: 2})]
    assert offers(head.want(A, waiting=2, request=2)) == [(A, {C: 2})]


def test_who_was_sent_to_a_lost_node_is_sent_elsewhere(head: Head) -> None:
    head.join(A, B, C)
    head.say("beat", C, {"CPU": 0})
    assert offers(head.want(A, waiting=2)) == [(A, {B: 2})]
    head.say("link_refused", B)
    assert offers(head.say("beat", C, {"CPU": 2 * UNIT})) == [(A, {C: 2})]


def test_who_was_sent_to_a_lost_node_is_sent_at_once_to_one_that_has_room(head: Head) -> None:
    head.join(A, B, C)
    assert offers(head.want(A, waiting=2)) == [(A, {B: 2})]
    assert offers(head.say("link_refused", B)) == [(A, {C: 2})]


def test_nobody_is_sent_to_itself(head: Head) -> None:
    head.join(A, B)
    for node in (A, B):
        head.say("beat", node, {"CPU": 0})
    assert head.want(A, waiting=9) == []
    assert head.say("beat", A, {"CPU": UNIT}) == []  # unanswered
    assert offers(head.say("beat", B, {"CPU": UNIT})) == [(A, {B: 1})]
    assert head.say("beat", A, {"CPU": 2 * UNIT}) == []  # open


def test_node_that_comes_back_has_room_at_once_unless_it_drains(head: Head) -> None:
    head.join(A, B)
    head.say("beat", B, {"CPU": 0})
    head.want(A)
    assert offers(head.register(B, cluster="boats", epoch=1)) == [(A, {B: 1})]
    head.register(info(B, is_draining=True), cluster="boats", epoch=1)
    assert head.want(A, request=2) == []


def test_demand_that_no_node_meets_is_refused_with_what_there_is(head: Head) -> None:
    head.join(A, info(B, totals={"CPU": UNIT, "GPU": UNIT}))
    demand = {"CPU": UNIT, "GPU": 8 * UNIT, "disk": 0}
    totals = ({"CPU": 2 * UNIT}, {"CPU": UNIT, "GPU": UNIT})
    asked = {"CPU": UNIT, "GPU": 8 * UNIT}
    assert head.want(A, demand=demand) == [RoomRefused(A, 1, PYTHON, asked, (PYTHON,), totals)]
    assert head.cluster.snapshot(head.now).waiting == []


def test_demand_that_only_the_asker_meets_waits(head: Head) -> None:
    head.join(info(A, totals={"CPU": UNIT, "GPU": UNIT}), B)
    assert head.want(A, demand={"GPU": UNIT}) == []


def test_demand_waits_while_there_is_no_node_at_all_and_the_first_one_decides(head: Head) -> None:
    gateway = info(A, cpus=0, address="")
    head.join(gateway)
    assert head.want(A, request=1) == head.want(A, request=2, demand={"GPU": UNIT}) == []
    commands = head.join(B)
    assert offers(commands) == [(A, {B: 1})]
    assert [c.request for c in of_type(commands, RoomRefused)] == [2]


def test_demand_waits_when_the_last_node_leaves(head: Head) -> None:
    head.join(info(A, cpus=0, address=""), B)
    head.want(A)
    assert of_type(head.say("left", B), RoomRefused) == []
    assert offers(head.join(C)) == [(A, {C: 1})]


def test_demand_that_a_lost_node_met_waits_for_its_return_and_is_refused_after(head: Head) -> None:
    head.join(A, info(B, totals={"GPU": UNIT}))
    head.want(A, demand={"GPU": UNIT})
    head.say("link_refused", B)
    assert of_type(head.run(9.0, (A,)), RoomRefused, RoomAnswer) == []
    assert offers(head.join(info(C, totals={"GPU": UNIT}))) == [(A, {C: 1})]
    head.say("link_refused", C)
    assert head.run(9.5, (A,)) == []
    assert of_type(head.run(1.0, (A,)), RoomRefused)


def test_demand_that_a_drained_node_met_is_refused(head: Head) -> None:
    head.join(A, info(B, totals={"GPU": UNIT}))
    head.want(A, demand={"GPU": UNIT})
    assert of_type(head.say("draining", B), RoomRefused)


def test_tasks_without_cpu_find_room_and_are_spread(head: Head) -> None:
    head.join(A, B, C)
    assert offers(head.want(A, demand={}, waiting=10)) == [(A, {B: 8, C: 2})]
    assert offers(head.want(B, demand={}, waiting=10)) == [(B, {A: 8, C: 2})]


def test_node_says_more_is_free_than_it_has(head: Head) -> None:
    head.join(A, B)
    head.say("beat", B, {"CPU": 1 << 70, "gold": 5})
    assert offers(head.want(A, waiting=100)) == [(A, {B: 2})]


def test_shapes_of_one_node_are_bounded(head: Head) -> None:
    head.join(A, info(B, totals={"CPU": 10 * UNIT}, cpus=10))
    for shape in range(64):
        head.want(A, request=shape + 1, demand={"CPU": 100 + shape})
    assert head.want(A, request=65, demand={"CPU": 99}) == [TryLater(A, 65)]
    head.want(A, request=66, demand={"CPU": 100}, waiting=0)
    assert offers(head.want(A, request=67, demand={"CPU": 99}))


def test_malformed_question_is_counted(head: Head) -> None:
    head.join(A)
    head.say("wanted", A, 1, "three", ONE, 1)
    head.say("wanted", A, 1, PYTHON, {"": 1}, 1)
    head.say("wanted", A, 1, PYTHON, ONE, -1)
    assert head.cluster.counts["malformed_wanted"] == 3


# -- a new start


def test_new_start_waits_for_the_nodes_it_knows(head: Head) -> None:
    head.join(A, B, info(C, cpus=0, address=""))
    new = head.restart()
    assert not new.cluster.is_settled
    back = new.register(info(A), cluster="boats", epoch=1, free={"CPU": UNIT})
    assert back[0] == Welcome(A, "boats", 2)
    [told] = of_type(back, TellMembers)
    assert {m.incarnation for m in told.change.present} == {A, B, C}  # those to come are not lost yet
    assert new.say("client_arrived", A, 1, "3.13") == [ClientRefused(A, 1, "3.13", (PYTHON,))]
    assert new.want(A) == new.say("looked_up", A, 2, "default", "counter") == new.say("claimed", A, 3, claim()) == []
    commands = new.register(B, cluster="boats", epoch=1)
    assert new.cluster.is_settled  # a gateway is not waited for
    assert of_type(commands, NameAnswer, NameGranted) == [NameAnswer(A, 2, None), NameGranted(A, 3)]
    assert offers(commands) == [(A, {B: 1})]


def test_new_start_gives_up_the_missing_after_ten_seconds(head: Head) -> None:
    head.join(A, B)
    new = head.restart()
    new.register(A, cluster="boats", epoch=1)
    new.say("looked_up", A, 1, "default", "counter")
    assert of_type(new.run(SETTLE_SECONDS - 0.01, (A,)), NameAnswer) == []
    commands = new.run(0.02, (A,))
    assert NameAnswer(A, 1, None) in commands
    assert TellMembers((A,), MembersChanged(2, 0, 1, (), (B,), False)) in commands
    assert of_type(new.register(B, cluster="boats", epoch=1), Rejoin)


def test_known_node_that_refuses_or_leaves_is_not_waited_for(head: Head) -> None:
    head.join(A, B)
    new = head.restart()
    assert [node for node, _ in new.cluster.awaited()] == [A, B]
    assert new.say("beat", A, None) == []  # it has to register first
    assert new.cluster.counts["early_beat"] == 1
    new.say("link_refused", A)
    assert not new.cluster.is_settled and not new.cluster.is_member(A) and new.cluster.is_member(B)
    new.say("left", B)
    assert new.cluster.is_settled and new.kept.nodes == () and not new.cluster.awaited()


def test_sleep_while_settling_gives_the_nodes_their_time(head: Head) -> None:
    head.join(A)
    new = head.restart()
    new.now += 100.0
    new.say("timer")
    assert not new.cluster.is_settled
    new.register(A, cluster="boats", epoch=1)
    assert new.cluster.is_settled


# -- names


def test_names_of_a_lost_node_are_free_and_those_reported_again_are_not(head: Head) -> None:
    head.join(A, B)
    head.say("claimed", B, 1, claim())
    head.say("claimed", A, 1, claim("other"))
    head.say("link_refused", B)
    assert head.say("looked_up", A, 2, "default", "counter") == [NameAnswer(A, 2, None)]
    head.register(A, cluster="boats", epoch=1, hosted=[claim("other")])
    assert head.say("looked_up", A, 3, "default", "other") == [NameAnswer(A, 3, NameEntry(claim("other"), A))]
    head.say("released", A, "default", "other", 77, 1)
    assert head.say("looked_up", A, 4, "default", "other") == [NameAnswer(A, 4, None)]


def test_actor_whose_name_another_node_reported_higher_is_killed(head: Head) -> None:
    head.join(A, B)
    new = head.restart()
    new.register(A, cluster="boats", epoch=1, hosted=[claim(incarnation=5)])
    commands = new.register(B, cluster="boats", epoch=1, hosted=[claim(incarnation=4)])
    assert of_type(commands, KillActor) == [KillActor(B, "default", "counter", 77, 4)]


def test_requests_that_wait_end_with_their_node(head: Head) -> None:
    head.join(A, B)
    new = head.restart()
    new.register(A, cluster="boats", epoch=1)
    assert new.say("looked_up", A, 1, "default", "counter") == []
    assert new.cluster.snapshot(new.now).requests == 1
    new.say("left", A)
    assert new.cluster.snapshot(new.now).requests == 0


# -- for people


def test_snapshot_shows_nodes_and_what_waits(head: Head) -> None:
    head.join(A, B)
    head.say("beat", B, {"CPU": 0})
    head.say("draining", A)
    head.want(A, waiting=7)
    head.say("claimed", B, 1, claim())
    view = head.cluster.snapshot(head.now + 2.0)
    assert [(n.host, n.state, n.free) for n in view.nodes] == [
        ("hosta", "draining", {"CPU": 2 * UNIT}),
        ("hostb", "ready", {"CPU": 0}),
    ]
    assert view.nodes[1].silent_seconds == pytest.approx(2.0)
    assert [(s.python, s.askers, s.tasks, s.unanswered) for s in view.waiting] == [(PYTHON, 1, 7, 1)]
    assert view.names == 1 and view.is_settled
    assert {n.state for n in head.restart().cluster.snapshot(5.0).nodes} == {"awaited"}
    assert repr(head.cluster) == "<Cluster boats epoch=1 settled nodes=2 awaited=0 names=1>"

"""The machine that seeks room at other nodes: event by event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from outboard.ids import RESOURCE_UNIT as UNIT
from outboard.scheduler.questions import NAMED_NODES
from outboard.scheduler.room import SHAPES_PER_NODE
from outboard.scheduler.seeking import (
    CONNECT_SECONDS,
    KEPT_SHAPES,
    AskRoom,
    Command,
    Connect,
    Refuse,
    Seeking,
    Stay,
)
from outboard.scheduler.stranded import TOLD_AFTER_SECONDS
from outboard.scheduler.wants import CALM_SECONDS, HASTY_SECONDS, REPEAT_SECONDS

pytestmark = pytest.mark.timeout(10)

ME = 1
ONE = {"CPU": UNIT}
PY = "3.12"


class Seeker:
    """A machine whose every event is followed by a check; each call returns the commands."""

    def __init__(self) -> None:
        self.machine = Seeking(ME)
        self.on_head_up(0.0)

    def __getattr__(self, event: str) -> Any:
        def call(*args: object, **named: object) -> list[Command]:
            getattr(self.machine, event)(*args, **named)
            self.machine.check()
            return self.machine.take_commands()

        return call

    def want(
        self, waiting: int, now: float, client: int = 7, kind: int = 1, *, is_home: bool = True, **needs: int
    ) -> list[Command]:
        return self.on_want(client, kind, needs or ONE, PY, waiting, now, is_home=is_home)

    def strand(self, now: float, kind: int = 1, **needs: int) -> list[Command]:
        """A client waits for what its own node cannot run."""
        return self.on_want(7, kind, needs or ONE, PY, 1, now, is_home=False)

    def due(self) -> float | None:
        return self.machine.due


def asked(commands: list[Command]) -> list[tuple[int, int]]:
    return [(c.request, c.waiting) for c in commands if isinstance(c, AskRoom)]


def connects(commands: list[Command]) -> list[tuple[int, int]]:
    return [(c.client, c.node) for c in commands if isinstance(c, Connect)]


def offer(*rooms: tuple[int, int]) -> list[tuple[int, str, int]]:
    return [(node, f"host{node}:1", room) for node, room in rooms]


@pytest.fixture
def seeker() -> Iterator[Seeker]:
    made = Seeker()
    yield made
    made.machine.check()


# -- what the head is told


def test_first_word_is_said_at_once(seeker: Seeker) -> None:
    assert seeker.want(10, 0.0) == [AskRoom(1, ONE, PY, 10)]


def test_kinds_and_clients_of_one_shape_are_one_figure(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    assert seeker.want(10, 1.0, client=8) == [AskRoom(2, ONE, PY, 20)]
    assert seeker.want(20, 2.0, client=8, kind=5) == [AskRoom(3, ONE, PY, 40)]


def test_demands_and_pythons_are_told_apart(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    assert asked(seeker.want(10, 0.0, kind=2, CPU=2 * UNIT)) == [(2, 10)]
    assert seeker.on_want(7, 3, ONE, "3.13", 4, 0.0, is_home=True) == [AskRoom(3, ONE, "3.13", 4)]
    assert seeker.want(0, 1.0, kind=2, CPU=2 * UNIT) == [AskRoom(4, {"CPU": 2 * UNIT}, PY, 0)]


def test_small_changes_are_told_a_second_later(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    assert seeker.want(15, 0.5) == [] and seeker.due() == CALM_SECONDS
    assert seeker.on_timer(0.9) == []
    assert asked(seeker.on_timer(1.0)) == [(2, 15)]


def test_change_by_two_is_told_at_once_but_not_in_a_burst(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    assert seeker.want(20, 0.01) == [] and seeker.due() == HASTY_SECONDS
    assert asked(seeker.want(40, 0.03)) == [(2, 40)]
    assert asked(seeker.want(20, 0.06)) == [(3, 20)]


def test_zero_closes_the_question(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    assert asked(seeker.want(0, 0.1)) == [(2, 0)]
    assert seeker.due() is None
    assert asked(seeker.want(1, 0.2)) == [(3, 1)]


def test_answered_question_is_put_anew_while_as_much_waits(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    seeker.on_offers(1, offer((2, 10)), 0.1)
    assert seeker.due() == CALM_SECONDS
    assert asked(seeker.on_timer(1.0)) == [(2, 10)]


def test_unanswered_question_stands_and_is_repeated_rarely_as_it_was(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    assert seeker.on_timer(5.0) == [] and seeker.due() == REPEAT_SECONDS
    assert asked(seeker.on_timer(10.0)) == [(1, 10)]


def test_who_leaves_or_drops_a_kind_waits_no_more(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    seeker.want(4, 0.0, client=8)
    seeker.want(6, 0.0, client=8, kind=2)
    seeker.on_timer(1.0)
    assert seeker.on_kind_dropped(8, 2) == [] and seeker.on_kind_dropped(8, 9) == []
    assert asked(seeker.on_timer(2.0)) == [(3, 14)]
    assert seeker.on_client_left(8) == [] and seeker.on_client_left(99) == []
    seeker.on_client_left(7)
    assert asked(seeker.on_timer(2.1)) == [(4, 0)] and not seeker.machine._clients


def test_head_that_is_full_is_asked_again_a_second_later(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    assert seeker.on_try_later(1, 0.1) == []
    assert seeker.want(100, 0.5) == [] and seeker.due() == 1.1
    assert asked(seeker.on_timer(1.1)) == [(2, 100)]
    assert seeker.on_try_later(1, 1.2) == [] and seeker.machine.counts["late_try_later"] == 1


def test_more_shapes_than_the_head_takes_wait_their_turn(seeker: Seeker) -> None:
    for size in range(SHAPES_PER_NODE):
        seeker.want(1, 0.0, kind=size, CPU=size + 1)
    assert seeker.want(1, 0.0, kind=99, CPU=99) == []
    seeker.want(0, 1.0, kind=5, CPU=6)
    assert seeker.due() <= 1.0
    assert [c.needs for c in seeker.on_timer(1.0)] == [{"CPU": 99}]


# -- where who waits is sent


def test_named_nodes_are_connected_with_until_what_waits_has_room(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    commands = seeker.on_offers(1, offer((2, 6), (3, 6), (4, 6)), 0.1)
    assert commands == [Connect(7, 2, "host2:1"), Connect(7, 3, "host3:1")]


def test_nobody_is_sent_where_he_is_or_to_his_own_node(seeker: Seeker) -> None:
    seeker.on_connected(7, 2)
    seeker.want(10, 0.0)
    assert connects(seeker.on_offers(1, offer((2, 6), (ME, 6), (3, 6)), 0.1)) == [(7, 3)]
    assert seeker.on_offers(1, offer((3, 6)), 0.2) == []


def test_connection_that_does_not_come_about_may_be_tried_again(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    seeker.on_offers(1, offer((2, 6), (3, 6)), 0.0)
    seeker.on_connected(7, 2)
    late = CONNECT_SECONDS + 0.1
    seeker.on_timer(late)
    assert connects(seeker.on_offers(2, offer((2, 6), (3, 6)), late)) == [(7, 3)]


def test_lost_session_may_be_opened_again_a_second_later(seeker: Seeker) -> None:
    seeker.on_connected(7, 2)
    seeker.want(10, 5.0)
    seeker.on_disconnected(7, 2)
    seeker.on_disconnected(8, 2)
    assert seeker.on_offers(1, offer((2, 6)), 5.5) == []
    assert connects(seeker.on_offers(1, offer((2, 6)), 6.0)) == [(7, 2)]


def test_who_has_fewest_nodes_comes_first_then_who_waits_most(seeker: Seeker) -> None:
    seeker.on_connected(7, 2)
    for client, waiting in ((7, 100), (8, 5), (9, 50)):
        seeker.want(waiting, 0.0, client=client)
    seeker.on_timer(1.0)
    assert connects(seeker.on_offers(2, offer((3, 1), (4, 1), (5, 1)), 1.0)) == [(9, 3), (8, 4), (7, 5)]


def test_room_of_one_node_is_shared(seeker: Seeker) -> None:
    seeker.want(100, 0.0)
    seeker.want(2, 0.0, client=8)
    # 8 needs no second node: what it wants fits the first.
    commands = seeker.on_offers(1, offer((2, 8), (3, 8)), 0.0)
    assert connects(commands) == [(7, 2), (8, 2), (7, 3)]


def test_newcomer_uses_an_answer_that_is_fresh(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    seeker.on_offers(1, offer((2, 10)), 0.1)
    assert seeker.want(3, 0.5, client=8) == [Connect(8, 2, "host2:1")]
    assert connects(seeker.want(1, 1.5, client=9)) == []


def test_answer_that_crosses_the_next_question_counts(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    seeker.want(20, 0.1)
    assert connects(seeker.on_offers(1, offer((2, 10)), 0.1)) == [(7, 2)]
    seeker.want(40, 0.2)
    assert seeker.on_offers(1, offer((3, 10)), 0.2) == [] and seeker.machine.counts["late_offers"] == 1


def test_no_more_nodes_are_remembered_than_are_named(seeker: Seeker) -> None:
    seeker.want(1000, 0.0)
    for first in (10, 100):
        seeker.on_offers(1, offer(*((first + n, 1) for n in range(NAMED_NODES))), 0.0)
    seeker.on_head_down(0.0)
    assert {node for _, node in connects(seeker.want(1000, 0.5, client=8))} == set(range(100, 100 + NAMED_NODES))


# -- what no node can run


def test_what_no_node_can_run_is_refused_to_all_who_wait(seeker: Seeker) -> None:
    seeker.want(10, 0.0, is_home=False)
    seeker.want(5, 0.0, client=8, kind=3, is_home=False)
    seeker.on_timer(1.0)
    commands = seeker.on_never(2, ONE, [{"CPU": 1}], [PY])
    assert commands == [Refuse(7, 1, ONE, [{"CPU": 1}], [PY]), Refuse(8, 3, ONE, [{"CPU": 1}], [PY])]
    assert seeker.due() is None and not seeker.machine._clients
    assert asked(seeker.want(1, 2.0)) == [(3, 1)]


def test_what_runs_at_its_own_node_is_not_refused_and_asked_about_again(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    seeker.want(5, 0.0, client=8, kind=3, is_home=False)
    seeker.on_timer(1.0)
    assert seeker.on_never(2, ONE, [], [PY]) == [Refuse(8, 3, ONE, [], [PY])]
    assert seeker.due() == 2.0
    assert asked(seeker.on_timer(2.0)) == [(3, 10)]
    assert connects(seeker.on_offers(3, offer((2, 4)), 2.1)) == [(7, 2)]


def test_refusal_of_an_older_question_is_late(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    seeker.want(30, 0.5)
    assert seeker.on_never(1, ONE, [], []) == [] and seeker.machine.counts["late_never"] == 1


# -- heads and nodes that come and go


def test_new_head_is_asked_everything(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    seeker.want(4, 0.0, kind=2, CPU=2 * UNIT)
    seeker.on_head_down(0.5)
    assert seeker.want(11, 0.6) == []
    assert sorted(c.waiting for c in seeker.on_head_up(0.7)) == [4, 11]
    assert seeker.on_offers(1, offer((2, 1)), 0.8) == []


def test_without_a_head_the_last_answer_is_used(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    seeker.on_offers(1, offer((2, 4), (3, 4)), 0.0)
    seeker.on_connected(7, 2)
    seeker.on_connected(7, 3)
    seeker.want(0, 5.0)
    seeker.on_disconnected(7, 2)
    seeker.on_disconnected(7, 3)
    seeker.on_head_down(20.0)
    assert seeker.due() is None
    assert connects(seeker.want(10, 30.0)) == [(7, 2), (7, 3)]
    # One of them does not come about: it is tried again.
    seeker.on_connected(7, 2)
    assert seeker.due() == 31.0
    assert seeker.on_timer(31.0) == []
    assert connects(seeker.on_timer(36.0)) == [(7, 3)]


def test_node_that_is_gone_is_not_tried_again(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    seeker.on_offers(1, offer((2, 4), (3, 4)), 0.0)
    seeker.on_head_down(1.0)
    seeker.on_node_gone(3)
    assert connects(seeker.on_timer(20.0)) == [(7, 2)]


def test_only_so_many_old_answers_are_kept(seeker: Seeker) -> None:
    for kind in range(2 * KEPT_SHAPES):
        seeker.want(1, kind, kind=kind, CPU=kind + 1)
        seeker.on_offers(seeker.machine._last_request, offer((2, 1)), kind)
        seeker.want(0, kind + 0.5, kind=kind)
    assert len(seeker.machine._shapes) == KEPT_SHAPES
    assert len(seeker.machine._requests) <= 2 * KEPT_SHAPES


# -- who can be sent nowhere


def stays(commands: list[Command]) -> list[tuple[int, list[dict[str, int]]]]:
    return [(c.client, [dict(needs) for needs in c.needs]) for c in commands if isinstance(c, Stay)]


def test_who_can_be_sent_nowhere_is_told_once(seeker: Seeker) -> None:
    seeker.strand(1.0)
    seeker.want(1, 1.0, kind=2, GPU=UNIT)  # its own node will run these
    assert stays(seeker.on_timer(2.9)) == []
    assert seeker.due() == 1.0 + TOLD_AFTER_SECONDS
    assert stays(seeker.on_timer(3.0)) == [(7, [ONE])]
    seeker.strand(4.0, kind=3, CPU=2 * UNIT)
    assert stays(seeker.on_timer(100.0)) == []


def test_who_waits_while_its_own_node_works_is_told_nothing(seeker: Seeker) -> None:
    seeker.want(10, 0.0)
    assert stays(seeker.on_timer(100.0)) == []


def test_who_has_somewhere_to_go_in_time_is_told_nothing(seeker: Seeker) -> None:
    seeker.strand(0.0)
    assert connects(seeker.on_offers(1, offer((2, 1)), 1.9)) == [(7, 2)]
    seeker.on_connected(7, 2)
    assert stays(seeker.on_timer(100.0)) == []


def test_time_begins_when_the_last_way_ends(seeker: Seeker) -> None:
    seeker.strand(0.0)
    seeker.on_offers(1, offer((2, 1)), 0.1)
    seeker.on_connected(7, 2)
    seeker.on_timer(50.0)
    seeker.on_node_gone(2)
    assert stays(seeker.on_timer(51.9)) == []
    assert stays(seeker.on_timer(52.0)) == [(7, [ONE])]


def test_who_waits_for_nothing_any_more_is_told_nothing(seeker: Seeker) -> None:
    seeker.strand(0.0)
    seeker.on_kind_dropped(7, 1)
    assert stays(seeker.on_timer(100.0)) == []
    seeker.strand(100.0)
    seeker.on_client_left(7)
    assert stays(seeker.on_timer(200.0)) == [] and seeker.due() is None


def test_who_is_stranded_without_a_head_is_told_too(seeker: Seeker) -> None:
    seeker.on_head_down(0.0)
    seeker.strand(0.0)
    assert seeker.due() == TOLD_AFTER_SECONDS
    assert stays(seeker.on_timer(TOLD_AFTER_SECONDS)) == [(7, [ONE])]

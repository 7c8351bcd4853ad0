"""Which node is told of a binding, with how many processes, and when it has gone."""

from __future__ import annotations

import random

import pytest

from outboard.bindings import Bindings, Told

pytestmark = pytest.mark.timeout(10)

HOME, FIRST, SECOND = 0, 11, 12
CPU = 10_000


def in_cluster(slots: int = 2) -> Bindings:
    return Bindings(HOME, slots, {"CPU": slots * CPU}, is_alone=False)


def join(bindings: Bindings, node: int, slots: int = 4, **totals: int) -> list[int]:
    return bindings.on_node_joined(node, slots, {"CPU": slots * CPU} | totals)


def test_embedded_node_is_told_of_everything_at_once() -> None:
    bindings = Bindings(HOME, 0, {}, is_alone=True)
    for binding, processes, ordered in ((1, 8, False), (2, 1, True), (3, 0, False)):
        assert bindings.open(binding, processes, ordered=ordered)
        assert bindings.tell(binding, HOME) == Told(processes, True)
        assert bindings.tell(binding, HOME) is None


def test_own_node_takes_all_when_it_is_the_only_one() -> None:
    bindings = in_cluster(slots=2)
    assert bindings.open(1, 7, ordered=False)
    join(bindings, FIRST)
    assert bindings.places(1) == {HOME}
    assert bindings.tell(1, HOME) == Told(7, True)


def test_own_node_takes_what_is_beyond_the_slots_of_all() -> None:
    bindings = in_cluster(slots=2)
    bindings.open(1, 9, ordered=False, elsewhere=4)
    assert bindings.is_seeking(1)
    join(bindings, FIRST, 4)
    assert [bindings.tell(1, node) for node in (HOME, FIRST)] == [Told(5, True), Told(4, True)]


def test_processes_are_dealt_own_node_first_and_at_most_the_slots() -> None:
    bindings = in_cluster(slots=2)
    join(bindings, FIRST, 4)
    bindings.open(1, 9, ordered=False, elsewhere=36)
    assert bindings.places(1) == {HOME, FIRST}
    assert bindings.is_seeking(1)
    assert join(bindings, SECOND, 16) == [1]
    assert [bindings.tell(1, node) for node in (HOME, FIRST, SECOND)] == [Told(2, True), Told(4, True), Told(3, True)]
    assert join(bindings, 13, 16) == []
    assert not bindings.is_seeking(1)


def test_what_a_node_without_slots_is_told_starts_nothing() -> None:
    bindings = in_cluster(slots=0)
    assert bindings.open(1, 3, ordered=False)
    assert bindings.places(1) == frozenset()
    assert bindings.tell(1, HOME) == Told(3, False)
    assert join(bindings, FIRST, 4) == [1]
    assert bindings.places(1) == {FIRST}
    assert bindings.tell(1, FIRST) == Told(3, True)


def test_binding_without_limit_may_go_anywhere() -> None:
    bindings = in_cluster()
    join(bindings, FIRST)
    bindings.open(1, 0, ordered=False)
    assert bindings.places(1) is None
    assert bindings.is_seeking(1)
    assert bindings.tell(1, FIRST) == Told(0, True)


def test_actor_goes_to_the_own_node_if_that_can_run_its_calls() -> None:
    bindings = in_cluster(slots=2)
    join(bindings, FIRST)
    assert bindings.open(1, 1, ordered=True, demand={"CPU": CPU})
    assert bindings.places(1) == {HOME}
    assert bindings.tell(1, HOME) == Told(1, True)


def test_actors_go_where_the_others_have_left_room_or_where_they_fit_at_all() -> None:
    bindings = in_cluster(slots=2)
    join(bindings, FIRST, 3)
    for binding, place in ((1, HOME), (2, FIRST), (3, HOME)):
        assert bindings.open(binding, 1, ordered=True, demand={"CPU": 2 * CPU}) == (place == HOME)
        assert bindings.places(binding) == {place}
    assert bindings.open(4, 1, ordered=True), "it holds nothing"


def test_what_is_confined_goes_nowhere_else_and_seeks_no_room() -> None:
    bindings = in_cluster(slots=2)
    assert not bindings.open(1, 0, ordered=False, nodes=frozenset({FIRST, SECOND}))
    assert bindings.open(2, 0, ordered=False, nodes=frozenset({HOME}))
    assert not bindings.open(3, 1, ordered=True, nodes=frozenset({SECOND}))
    assert (bindings.places(1), bindings.places(2), bindings.places(3)) == (set(), {HOME}, set())
    assert join(bindings, FIRST) == [1]
    assert join(bindings, SECOND) == [1, 3]
    assert (bindings.places(1), bindings.places(3)) == ({FIRST, SECOND}, {SECOND})
    assert not any(bindings.is_seeking(binding) for binding in (1, 2, 3))
    assert bindings.tell(1, FIRST) == Told(0, False), "its workers come with its tasks"
    assert bindings.tell(3, SECOND) == Told(1, True)
    assert bindings.on_node_gone(FIRST).moved == [1]
    assert bindings.places(1) == {SECOND}


def test_processes_of_a_pool_are_dealt_among_the_nodes_it_is_confined_to() -> None:
    bindings = in_cluster(slots=2)
    join(bindings, FIRST, 4)
    bindings.open(1, 5, ordered=False, nodes=frozenset({HOME, FIRST}))
    bindings.open(2, 9, ordered=False, nodes=frozenset({FIRST}))
    assert [bindings.tell(1, node) for node in (HOME, FIRST)] == [Told(2, True), Told(3, True)]
    assert bindings.tell(2, FIRST) == Told(9, True)


def test_an_actor_with_gpus_begins_with_its_first_call() -> None:
    bindings = in_cluster(slots=0)
    join(bindings, FIRST, 4, GPU=CPU)
    bindings.open(1, 1, ordered=True, demand={"GPU": CPU})
    assert bindings.tell(1, FIRST) == Told(1, False), "which says for how many"


@pytest.mark.parametrize(("restarts", "again"), [(0, False), (1, True), (-1, True)])
def test_an_actor_that_may_be_started_again_goes_to_another_node(restarts: int, again: bool) -> None:
    bindings = in_cluster(slots=0)
    join(bindings, FIRST)
    bindings.open(1, 1, ordered=True, restarts=restarts)
    bindings.tell(1, FIRST)
    join(bindings, SECOND)
    left = bindings.on_node_gone(FIRST)
    assert (left.moved, left.bereft) == (([1], []) if again else ([], [1]))
    assert (bindings.places(1) == {SECOND}) == again
    bindings.tell(1, SECOND)
    assert bool(bindings.on_node_gone(SECOND).moved) == (restarts < 0)


@pytest.mark.parametrize(("slots", "demand"), [(0, {}), (2, {"GPU": CPU})])
def test_actor_waits_for_a_node_that_can_run_it(slots: int, demand: dict[str, int]) -> None:
    bindings = in_cluster(slots)
    bindings.open(1, 1, ordered=True, demand=demand)
    assert bindings.places(1) == frozenset()
    assert bindings.is_seeking(1)
    assert bindings.tell(1, HOME) == Told(1, False), "it looks for others"
    assert join(bindings, FIRST, 0) == []
    assert join(bindings, SECOND, 4, GPU=CPU) == [1]
    assert join(bindings, 13, 4, GPU=CPU) == []
    assert bindings.places(1) == {SECOND}
    assert not bindings.is_seeking(1)


def test_share_of_a_node_that_left_is_dealt_again() -> None:
    bindings = in_cluster(slots=1)
    join(bindings, FIRST, 4)
    bindings.open(1, 5, ordered=False)
    bindings.tell(1, FIRST)
    assert bindings.on_node_gone(FIRST) == ([1], [], [])
    assert bindings.places(1) == {HOME}
    assert join(bindings, SECOND, 8) == [1]
    assert bindings.tell(1, SECOND) == Told(4, True)
    assert join(bindings, FIRST, 4) == []


def test_node_that_comes_back_is_told_again() -> None:
    bindings = in_cluster(slots=1)
    join(bindings, FIRST, 4)
    bindings.open(1, 5, ordered=False)
    assert bindings.tell(1, FIRST) == Told(4, True)
    bindings.on_node_gone(FIRST)
    join(bindings, FIRST, 2)
    assert bindings.tell(1, FIRST) == Told(2, True)


def test_actor_is_lost_with_its_node_only_once_it_was_told_there() -> None:
    bindings = in_cluster(slots=0)
    for binding in (1, 2):
        bindings.open(binding, 1, ordered=True)
    join(bindings, FIRST)
    bindings.tell(1, FIRST)
    join(bindings, SECOND)
    assert bindings.on_node_gone(FIRST) == ([2], [], [1])
    assert bindings.places(2) == {SECOND}
    assert SECOND not in (bindings.places(1) or ()), "its state is gone"


def test_binding_has_gone_when_all_who_were_told_have_said_so() -> None:
    bindings = in_cluster(slots=1)
    for node in (FIRST, SECOND, 13):
        join(bindings, node)
    bindings.open(1, 99, ordered=False)
    for node in (HOME, FIRST, SECOND):
        bindings.tell(1, node)
    assert bindings.close(1, force=False) == [HOME, FIRST, SECOND]
    assert not bindings.has_ended(1)
    assert not bindings.on_unbound(1, FIRST)
    assert not bindings.on_unbound(1, HOME)
    assert bindings.on_node_gone(SECOND).ended == [1]
    assert not bindings.has_ended(1), "it is said once"


def test_binding_that_nobody_was_told_of_has_gone_at_once() -> None:
    bindings = in_cluster()
    bindings.open(1, 1, ordered=True)
    assert bindings.close(1, force=True) == []
    assert bindings.has_ended(1)
    assert bindings.close(1, force=True) == []


def test_failure_at_one_node_ends_it_at_the_others() -> None:
    bindings = in_cluster(slots=1)
    join(bindings, FIRST)
    join(bindings, SECOND)
    bindings.open(1, 9, ordered=False)
    for node in (HOME, FIRST, SECOND):
        bindings.tell(1, node)
    assert bindings.fail(1, FIRST) == [HOME, SECOND]
    assert not bindings.on_unbound(1, HOME)
    assert bindings.fail(1, SECOND) == [FIRST], "each is told once"
    assert bindings.close(1, force=False) == []
    assert not bindings.on_unbound(1, SECOND)
    assert bindings.on_unbound(1, FIRST)


def test_forced_end_is_told_to_those_who_finish_at_leisure() -> None:
    bindings = in_cluster()
    bindings.open(1, 2, ordered=False)
    bindings.tell(1, HOME)
    assert bindings.close(1, force=False) == [HOME]
    assert bindings.close(1, force=False) == []
    assert bindings.close(1, force=True) == [HOME]


def test_words_about_unknown_bindings_change_nothing() -> None:
    bindings = in_cluster()
    assert bindings.places(5) is None
    assert bindings.tell(5, HOME) is None
    assert bindings.close(5, force=True) == bindings.fail(5, HOME) == []
    assert bindings.on_unbound(5, HOME), "whoever told the node of it learns that it has gone"
    assert repr(bindings) == "<Bindings 0 over 1 nodes>"


@pytest.mark.parametrize("seed", range(40))
def test_processes_never_exceed_their_number(seed: int) -> None:
    rng = random.Random(seed)
    own = rng.randint(0, 3)
    bindings = in_cluster(own)
    slots: dict[int, int] = {HOME: own}
    asked = {binding: rng.randint(1, 12) for binding in (1, 2, 3)}
    told: dict[tuple[int, int], int] = {}
    for _ in range(60):
        node, binding = rng.randint(1, 5), rng.choice(list(asked))
        action = rng.randrange(4)
        if action == 0 and node not in slots:
            slots[node] = rng.randint(0, 6)
            join(bindings, node, slots[node])
        elif action == 1 and node in slots:
            del slots[node]
            bindings.on_node_gone(node)
            told = {key: count for key, count in told.items() if key[1] != node}
        elif action == 2 and bindings.places(binding) is None:
            bindings.open(binding, asked[binding], ordered=False)
        elif action == 3:
            for place in bindings.places(binding) or ():
                said = bindings.tell(binding, place)
                if said is not None:
                    told[binding, place] = said.processes
                    assert said.processes > 0 and (place == HOME or said.processes <= slots[place])
        for each, processes in asked.items():
            assert sum(count for key, count in told.items() if key[0] == each) <= processes
            assert (bindings.places(each) or frozenset()) <= slots.keys()

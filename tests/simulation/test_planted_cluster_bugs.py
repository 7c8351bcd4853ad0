"""The world of several nodes finds bugs in what makes them one cluster: owners over nodes, trees, copies of objects."""

from __future__ import annotations

from typing import Any

import pytest

from outboard import client, reach, tree
from outboard.scheduler import owner, seeking
from tests.simulation.planting import Plant, assert_is_found, nothing

SEEDS = 300


# -- owners over several nodes


def forget_the_tasks_of_a_lost_session(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(owner.Owner, "on_session_lost", nothing)
    patch.setattr(owner.Owner, "on_session_closed", nothing)


def run_what_was_lost_in_the_same_attempt(patch: pytest.MonkeyPatch) -> None:
    lost = owner.Owner.on_session_lost
    closed = owner.Owner.on_session_closed
    assert lost is not closed
    patch.setattr(owner.Owner, "on_session_lost", lambda self, node, reason="": closed(self, node))


def answer_for_the_own_node_always(patch: pytest.MonkeyPatch) -> None:
    on_finished = owner.Owner.on_finished

    def planted(self: Any, stream: int, first: int, attempt: int, stride: int, values: Any, extras: Any = None,
                node: int = 0) -> None:  # fmt: skip
        on_finished(self, stream, first, attempt, stride, values, extras, 0)

    patch.setattr(owner.Owner, "on_finished", planted)


def count_what_comes_back_from_elsewhere_at_home(patch: pytest.MonkeyPatch) -> None:
    on_returned = owner.Owner.on_returned
    patch.setattr(owner.Owner, "on_returned", lambda self, spans, node=0: on_returned(self, spans, 0))


def take_grants_of_others_for_ours(patch: pytest.MonkeyPatch) -> None:
    on_grant = owner.Owner.on_grant
    patch.setattr(owner.Owner, "on_grant", lambda self, kind, credit, node=0: on_grant(self, kind, credit, 0))


# -- trees


def pass_nothing_on_to_other_nodes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tree.Tree, "_forward", nothing)


def tell_nobody_that_a_node_has_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tree.Tree, "_on_over", nothing)


def tell_nobody_elsewhere_that_a_process_has_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tree.Tree, "on_process_ended", nothing)


def keep_peers_of_lost_sessions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tree.Tree, "_forget_members", nothing)


def free_at_the_own_node_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reach.Reach, "note_travelled", nothing)


# -- nodes in a cluster


def never_seek_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(seeking.Seeking, "on_want", nothing)


# -- copies of objects


def never_give_pins_of_copies_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(client.Client, "unpin_pulled", nothing)


PLANTS: list[Plant] = [
    forget_the_tasks_of_a_lost_session,
    run_what_was_lost_in_the_same_attempt,
    answer_for_the_own_node_always,
    count_what_comes_back_from_elsewhere_at_home,
    take_grants_of_others_for_ours,
    pass_nothing_on_to_other_nodes,
    tell_nobody_that_a_node_has_gone,
    tell_nobody_elsewhere_that_a_process_has_ended,
    keep_peers_of_lost_sessions,
    free_at_the_own_node_alone,
    never_seek_room,
    never_give_pins_of_copies_back,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_is_found(plant, monkeypatch, "cluster", SEEDS)

"""The client's machine, task arrays: exactly these commands, and every invariant after each event."""

from __future__ import annotations

from typing import Any

import pytest

from outboard.ids import ObjectId, Span, item_object
from outboard.scheduler.arrays import Array, Completed
from outboard.scheduler.kinds import POISON_DEATHS
from outboard.scheduler.notices import Free, Release
from outboard.scheduler.outcomes import (
    CancelledMark,
    EncodeFailedMark,
    LostCause,
    LostMark,
    NodeLostMark,
    PoisonMark,
    RefusedMark,
)
from outboard.scheduler.owner import Extra, SendCancel, SendItems, Want

pytestmark = pytest.mark.timeout(10)

ME = 7
VALUE = b"\x80value"
STORED = b"\x0astored"
CANCELLED = CancelledMark("f")
REFUSED = RefusedMark("f", "too large", {"CPU": 2}, {"CPU": 1})


def sends(commands: list[Any]) -> list[tuple[int, int, int]]:
    """What was sent: (first, count, attempt) each."""
    return [(c.first, c.count, c.attempt) for c in commands if isinstance(c, SendItems)]


def completed(array: Array) -> list[tuple[int, int, Any]]:
    """Take the completions."""
    taken = [tuple(c) for c in array.completions]
    array.completions.clear()
    return taken


def lose(program: Any, array: Array, first: int, count: int = 1, attempt: int = 1, **options: Any) -> None:
    cause = options.pop("cause", LostCause.PROCESS)
    program.on_lost(cause, [Span(array.stream, first, count, attempt)], "death", **options)


def give_back(program: Any, array: Array, first: int, count: int = 1, attempt: int = 1) -> None:
    program.on_returned([Span(array.stream, first, count, attempt)])


# -- sending and finishing --------------------------------------------------------------------------------------------


def test_items_are_sent_within_credit_and_come_back_as_they_finish(program: Any) -> None:
    array = program.array(5, program.add_kind(credit=4))
    assert repr(array) == "<Array 1 f 0/5 finished, 0 sent>"
    assert program.commands() == [SendItems(array, 0, 4, 1), Want(array.kind, 1)]
    program.finish_items(array, 1, [VALUE, VALUE])
    assert completed(array) == [(1, 2, [VALUE, VALUE])] and program.unanswered == 3
    assert program.commands() == [SendItems(array, 4, 1, 1), Want(array.kind, 0)]
    program.finish_items(array, 0, [VALUE])
    program.finish_items(array, 3, [VALUE, VALUE])
    assert array.finished == 5 and not program.unanswered and not array.kind.outstanding
    program.dispose_array(array)
    assert not program.arrays


def test_array_grows(program: Any) -> None:
    array = program.array(1)
    assert sends(program.commands()) == [(0, 1, 1)]
    program.extend(array, 0)
    assert not program.backlog
    program.extend(array, 2)
    program.extend(array, 1)
    assert sends(program.commands()) == [(1, 3, 1)]


def test_arrays_of_a_kind_are_sent_one_after_the_other(program: Any) -> None:
    kind = program.add_kind(credit=3)
    first, second = program.array(2, kind), program.array(2, kind)
    index = program.submit(kind=kind)
    commands = program.commands()
    assert commands[0].first == index and sends(commands) == [(0, 2, 1)]
    program.finish_items(first, 0, [VALUE, VALUE])
    assert program.commands() == [SendItems(second, 0, 2, 1), Want(kind, 0)]


def test_results_of_an_older_attempt_and_of_unknown_arrays_are_dropped(program: Any) -> None:
    array = program.array(3)
    program.commands()
    lose(program, array, 1)
    program.finish_items(array, 0, [VALUE, VALUE, VALUE])
    assert completed(array) == [(0, 1, [VALUE]), (2, 1, [VALUE])]
    program.commands()
    program.finish_items(array, 1, [VALUE])
    program.on_finished(99, 0, 1, 1, [VALUE, STORED], {1: Extra(1, ())})
    program.finish_items(array, 3, [VALUE])
    assert program.counts["late result"] == 1 + 1 + 2 + 1
    assert program.take_commands() == [Free(item_object(ME, 99, 1), 1)]
    program.finish_items(array, 1, [VALUE], attempt=2)
    assert completed(array) == [(1, 1, [VALUE])] and array.attempt_of(1) == 2


def test_first_runs_beside_second_ones_finish_together(program: Any) -> None:
    array = program.array(6)
    program.commands()
    lose(program, array, 0)
    program.commands()
    program.finish_items(array, 1, [VALUE] * 5)
    assert completed(array) == [(1, 5, [VALUE] * 5)]


def test_success_ends_a_row_of_deaths_and_a_late_result_does_not(program: Any) -> None:
    array = program.array(2)
    program.commands()
    lose(program, array, 0)
    program.finish_items(array, 0, [VALUE])
    assert array.kind.deaths == 1
    program.finish_items(array, 1, [VALUE])
    assert not array.kind.deaths


# -- losses and returns -----------------------------------------------------------------------------------------------


def test_lost_items_go_again_before_new_ones_each_with_its_attempt(program: Any) -> None:
    kind = program.add_kind(credit=4)
    array = program.array(6, kind)
    program.commands()
    lose(program, array, 2)
    assert sends(program.commands()) == [(2, 1, 2)]
    lose(program, array, 0)
    give_back(program, array, 1)
    lose(program, array, 2, attempt=2)
    give_back(program, array, 3)
    assert sends(program.commands()) == [(0, 1, 2), (1, 1, 1), (2, 1, 3), (3, 1, 1)]
    for index, attempt in enumerate((2, 1, 3, 1)):
        assert array.attempt_of(index) == attempt
        program.finish_items(array, index, [VALUE], attempt=attempt)
    assert sends(program.commands()) == [(4, 2, 1)]


def test_items_lost_together_go_again_together_as_far_as_credit_goes(program: Any) -> None:
    kind = program.add_kind(credit=4)
    array = program.array(4, kind)
    program.commands()
    lose(program, array, 0, 4, cause=LostCause.MACHINE)
    program.on_grant(kind.id, 3)
    assert array.unsent() == 4 and sends(program.commands()) == [(0, 3, 2)]
    program.on_grant(kind.id, 4)
    assert sends(program.commands()) == [(3, 1, 2)]


@pytest.mark.parametrize("mark", [None, "why"])
def test_item_without_attempts_left_fails_and_its_neighbours_go_on(program: Any, mark: Any) -> None:
    array = program.array(3, program.add_kind(retries=0))
    program.commands()
    lose(program, array, 1, mark=mark)
    assert completed(array) == [(1, 1, mark or LostMark(LostCause.PROCESS, "f", 1, 1, "death"))]
    assert array.sent == 2 and not program.take_commands()


def test_losses_of_an_item_are_counted_by_cause(program: Any) -> None:
    array = program.array(1, program.add_kind(retries=1, machine_retries=1))
    program.commands()
    for attempt, cause in enumerate([LostCause.PROCESS, LostCause.MACHINE, LostCause.PROCESS], 1):
        assert not completed(array)
        lose(program, array, 0, attempt=attempt, cause=cause)
        program.commands()
    assert completed(array) == [(0, 1, LostMark(LostCause.PROCESS, "f", 0, 3, "death"))]


def test_items_of_a_lost_binding_are_not_run_again(program: Any) -> None:
    array = program.array(1)
    program.commands()
    lose(program, array, 0, cause=LostCause.BINDING)
    assert completed(array) == [(0, 1, LostMark(LostCause.BINDING, "f", 0, 1, "death"))]


def test_function_that_only_ends_its_workers_fails_the_rest_of_its_array(program: Any) -> None:
    array = program.array(POISON_DEATHS + 5, program.add_kind(retries=0, credit=POISON_DEATHS + 1))
    program.commands()
    lose(program, array, 0, POISON_DEATHS)
    taken = completed(array)
    assert [first for first, _, _ in taken] == [*range(POISON_DEATHS), POISON_DEATHS + 1]
    assert taken[-1] == (POISON_DEATHS + 1, 4, PoisonMark("f", POISON_DEATHS, "death"))
    assert program.unanswered == 1 and not sends(program.commands())
    program.finish_items(array, POISON_DEATHS, [VALUE])
    assert array.finished == array.count


def test_late_losses_and_returns_are_counted_and_change_nothing(program: Any) -> None:
    array = program.array(2)
    lose(program, array, 0, 2)
    program.commands()
    lose(program, array, 0, attempt=2)
    give_back(program, array, 1, 4, attempt=2)
    program.on_lost(LostCause.PROCESS, [Span(99, 0, 3, 1)], None)
    program.on_returned([Span(99, 0, 2, 1)])
    assert program.counts == {"late loss": 2 + 1 + 3, "late return": 4 + 2} and array.sent == 2


# -- what could not be sent -------------------------------------------------------------------------------------------


def test_unsent_items_come_back_and_go_first(program: Any) -> None:
    array = program.array(4, program.add_kind(credit=3))
    program.commands()
    program.on_unsent(array, 1, 2, 1)
    assert array.kind.outstanding == 1 and sends(program.commands()) == [(1, 2, 1)]


def test_item_that_does_not_pickle_fails_alone(program: Any) -> None:
    array = program.array(2)
    program.commands()
    mark = EncodeFailedMark(ValueError())
    program.on_item_failed(array, 0, mark)
    assert completed(array) == [(0, 1, mark)] and array.kind.outstanding == 1


def test_what_an_item_carries_is_held_until_it_is_answered_for(program: Any) -> None:
    held = program.put()
    array = program.array(3)
    program.commands()
    program.on_item_bytes(array, 0, 10, (program.name(held),))
    program.on_item_bytes(array, 2, 5, ())
    program.drop(held)
    lose(program, array, 0)
    assert not program.refs.owned and array.kind.nbytes == 5
    program.commands()
    held = program.put()
    program.on_item_bytes(array, 0, 20, (program.name(held),))
    program.drop(held)
    program.finish_items(array, 0, [VALUE, VALUE, VALUE])
    assert held in program.refs.owned, "a late result is no answer for the run that has the object"
    program.finish_items(array, 0, [VALUE], attempt=2)
    assert not program.refs.owned and not array.kind.nbytes


def test_items_cancelled_while_the_driver_pickles_them_are_not_sent_again(program: Any) -> None:
    array = program.array(4)
    program.commands()
    program.cancel_array(array, kill_after=None)
    program.on_item_failed(array, 0, EncodeFailedMark(ValueError()))
    program.on_unsent(array, 1, 2, 1)
    assert array.kind.outstanding == 1 and not array.unsent()
    program.finish_items(array, 3, [VALUE])
    assert completed(array) == [(0, 4, CANCELLED)] and program.counts["result of cancelled"] == 1


def test_driver_that_pickles_while_the_node_is_lost_changes_nothing(program: Any) -> None:
    array, held = program.array(3), program.put()
    program.commands()
    program.on_link_lost(NodeLostMark("gone"))
    program.on_item_bytes(array, 0, 10, (program.name(held),))
    program.on_item_failed(array, 1, EncodeFailedMark(ValueError()))
    program.on_unsent(array, 1, 2, 1)
    assert program.refs.owned[held].count == 1 and not program.commands() and not array.kind.outstanding


# -- cancel, refuse, dispose, lose the node ---------------------------------------------------------------------------


def test_cancel_settles_all_and_the_node_is_told_what_it_has(program: Any) -> None:
    kind = program.add_kind(credit=4)
    array = program.array(6, kind)
    program.commands()
    lose(program, array, 0)
    assert sends(program.commands()) == [(0, 1, 2)]
    program.finish_items(array, 2, [VALUE])
    program.cancel_array(array, kill_after=1.0)
    spans = [Span(array.stream, 0, 1, 2), Span(array.stream, 1, 1, 1), Span(array.stream, 3, 1, 1)]
    assert program.take_commands() == [SendCancel(spans, False, 1.0)]
    assert completed(array)[1:] == [(4, 2, CANCELLED), (0, 1, CANCELLED), (1, 1, CANCELLED), (3, 1, CANCELLED)]
    assert not program.unanswered and kind.outstanding == 3
    program.extend(array, 2)
    assert completed(array) == [(6, 2, CANCELLED)]
    program.finish_items(array, 1, [STORED], extras={0: Extra(1, ())})
    assert program.take_commands() == [Free(item_object(ME, array.stream, 1), 1), Want(kind, 0)][:1]
    lose(program, array, 0, attempt=2)
    give_back(program, array, 3)
    assert not kind.outstanding and not sends(program.commands()) and not completed(array)
    assert program.counts["result of cancelled"] == 1


def test_cancel_of_what_was_not_sent_needs_no_word(program: Any) -> None:
    array = program.array(2)
    program.cancel_array(array, kill_after=None)
    program.cancel_array(array, kill_after=None)
    assert completed(array) == [(0, 2, CANCELLED)] and not program.commands()


def test_items_of_a_refused_kind_fail_before_and_after_they_are_appended(program: Any) -> None:
    array = program.array(5, program.add_kind(credit=2))
    program.commands()
    program.on_refused(array.kind.id, REFUSED)
    program.extend(array, 1)
    assert completed(array) == [(2, 3, REFUSED), (5, 1, REFUSED)]
    lose(program, array, 0)
    give_back(program, array, 1)
    assert completed(array) == [(0, 1, REFUSED), (1, 1, REFUSED)]
    assert program.commands() == [Want(array.kind, 0)] and not array.kind.outstanding


def test_fail_leaves_settled_items_alone(program: Any) -> None:
    array = program.array(5)
    program.commands()
    for index in (0, 2):
        program.finish_items(array, index, [VALUE])
    completed(array)
    assert array.fail(0, 5, CANCELLED) == 3
    assert list(array.completions) == [Completed(1, 1, CANCELLED), Completed(3, 2, CANCELLED)]
    program.owner._books.unanswered -= 3


def test_array_disposed_of_is_forgotten_when_the_node_has_answered(program: Any) -> None:
    array = program.array(4, program.add_kind(credit=3))
    program.commands()
    program.finish_items(array, 0, [VALUE])
    program.dispose_array(array)
    assert program.take_commands() == [SendCancel([Span(array.stream, 1, 2, 1)], False, None)]
    assert not program.unanswered and not array.completions and array.kind.outstanding == 2
    program.finish_items(array, 1, [STORED], extras={0: Extra(1, ())})
    assert program.take_commands() == [Free(item_object(ME, array.stream, 1), 1)] and program.arrays
    lose(program, array, 2)
    assert not program.arrays and not array.kind.outstanding and not array.completions
    lose(program, array, 2)
    assert program.counts["late loss"] == 1


def test_array_disposed_of_while_the_driver_pickles_is_forgotten_too(program: Any) -> None:
    first, second = program.array(1), program.array(1)
    program.commands()
    program.dispose_array(first)
    program.dispose_array(second)
    program.on_unsent(first, 0, 1, 1)
    program.on_item_failed(second, 0, EncodeFailedMark(ValueError()))
    assert not program.arrays and not program.kind.outstanding


def test_lost_node_fails_every_item_and_owes_no_answer(program: Any) -> None:
    held = program.put()
    kind = program.add_kind(credit=3)
    array, gone = program.array(5, kind), program.array(1, program.add_kind())
    program.commands()
    program.on_item_bytes(array, 0, 10, (program.name(held),))
    program.finish_items(array, 1, [STORED], extras={0: Extra(1, ())})
    program.drop(held)
    program.dispose_array(gone)
    program.on_link_lost(NodeLostMark("gone"))
    assert array.finished == 5 and not program.unanswered and not kind.outstanding and not kind.nbytes
    assert set(program.arrays) == {array.stream}
    program.dispose_array(array)
    assert not program.arrays and not program.refs.owned


# -- results with more than bytes -------------------------------------------------------------------------------------


def test_stored_result_lives_until_it_was_taken_and_its_views_have_ended(program: Any) -> None:
    array = program.array(2)
    oid = item_object(ME, array.stream, 1)
    program.commands()
    program.finish_items(array, 0, [VALUE, STORED], extras={1: Extra(1, ())})
    assert completed(array) == [(0, 2, [VALUE, STORED])] and program.refs.owned[oid.seq].value == STORED
    program.refs.hold(oid)  # a view
    program.take_extra(array, 1, array.extras.pop(1))
    assert not program.take_commands()
    program.refs.drop(oid)
    assert program.take_commands() == [Free(oid, 1)]


def test_extras_that_nobody_took_are_freed_with_the_array(program: Any) -> None:
    inner = program.put()
    array = program.array(2)
    program.commands()
    program.finish_items(array, 0, [STORED, STORED], extras={0: Extra(1, ()), 1: Extra(None, (program.name(inner),))})
    program.drop(inner)
    program.dispose_array(array)
    assert program.take_commands() == [Free(item_object(ME, array.stream, 0), 1)] and not program.refs.owned


def test_reference_in_a_result_is_held_before_the_item_lets_it_go(program: Any) -> None:
    inner = program.put(stored=0)
    array = program.array(1)
    program.commands()
    program.on_item_bytes(array, 0, 1, (program.name(inner),))
    program.drop(inner)
    program.finish_items(array, 0, [STORED], extras={0: Extra(None, (program.name(inner),))})
    assert not program.take_commands() and inner in program.refs.owned
    program.take_extra(array, 0, array.extras.pop(0))
    assert program.take_commands() == [Free(ObjectId(ME, inner), 0)]


def test_extras_of_an_unwanted_result_end_what_only_they_would_have_kept(program: Any) -> None:
    array = program.array(1)
    program.commands()
    lose(program, array, 0)
    inner = ObjectId(5, 1)
    program.finish_items(array, 0, [STORED], extras={0: Extra(1, (inner,))})
    assert program.take_commands() == [Free(item_object(ME, array.stream, 0), 1), Release(inner, None, 1)]

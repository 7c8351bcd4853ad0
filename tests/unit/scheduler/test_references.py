"""References: what keeps objects alive, and what other processes are told of them."""

from __future__ import annotations

from typing import Any

import pytest

from outboard.ids import NO_EXTENT, ObjectId
from outboard.scheduler.outcomes import NodeLostMark, OwnerLostMark, ReleasedMark
from outboard.scheduler.owner import Adopted, Answer, Ask, Extra, Send, Settled
from outboard.scheduler.references import Borrow, Forward, Free, Release, ReleaseTo, Unpin

pytestmark = pytest.mark.timeout(10)

ME, OTHER, THIRD = 7, 8, 9
VALUE = b"\x80value"
ERROR = b"\x12error"
STORED = b"\x0astored"
LOST = OwnerLostMark(OTHER)


def mine(seq: int) -> ObjectId:
    return ObjectId(ME, seq)


def theirs(seq: int) -> ObjectId:
    return ObjectId(OTHER, seq)


def borrowed(program: Any, seq: int = 1) -> ObjectId:
    """Refer to an object of another process."""
    program.refs.hold(theirs(seq))
    assert program.take_commands() == [Borrow(theirs(seq))]
    return theirs(seq)


def adopted(program: Any, seq: int, value: Any = VALUE, extra: Extra | None = None, borrower: int = OTHER) -> ObjectId:
    program.on_adopted([Adopted(theirs(seq), value, extra, borrower)])
    return theirs(seq)


# -- own objects ------------------------------------------------------------------------------------------------------


def test_stored_object_is_freed_with_its_last_reference(program: Any) -> None:
    seq = program.put(stored=0)
    program.refs.hold(mine(seq))
    program.drop(seq)
    assert not program.take_commands()
    program.drop(seq)
    assert program.take_commands() == [Free(mine(seq), 0)] and not program.refs.owned


def test_references_to_an_object_that_is_gone_change_nothing(program: Any) -> None:
    program.refs.hold(mine(99))
    program.drop(99)
    program.refs.drop(theirs(99))
    program.refs.on_released(mine(99), OTHER)
    assert program.refs.find(mine(99)) is None and not program.take_commands()


def test_value_holds_what_it_contains(program: Any) -> None:
    inner = program.put(stored=0)
    other = borrowed(program)
    outer = program.put(contained=(mine(inner), other, mine(99)))
    program.drop(inner)
    program.refs.drop(other)
    assert not program.take_commands()
    program.drop(outer)
    assert sorted(program.take_commands(), key=repr) == [Free(mine(inner), 0), Release(other, None)]
    assert not program.refs.owned and not program.refs.foreign


def test_value_that_contains_an_object_twice_holds_it_twice(program: Any) -> None:
    inner = program.put()
    outer = program.put(contained=(mine(inner), mine(inner)))
    assert program.refs.owned[inner].count == 3
    program.drop(inner)
    program.drop(outer)
    assert not program.refs.owned


def test_deep_nesting_ends_without_recursion(program: Any) -> None:
    outer = program.put()
    for _ in range(10_000):
        inner, outer = outer, program.owner.new_seq()
        program.owner.put(outer, VALUE, None, (mine(inner),))
        program.owner.refs.drop(mine(inner))
    program.drop(outer)
    assert not program.refs.owned


# -- borrowers --------------------------------------------------------------------------------------------------------


def test_object_lives_while_it_is_borrowed(program: Any) -> None:
    seq = program.put(stored=0)
    assert program.refs.on_borrowed(mine(seq), OTHER) and program.refs.on_borrowed(mine(seq), THIRD)
    program.drop(seq)
    program.refs.on_released(mine(seq), OTHER)
    program.refs.on_released(mine(seq), OTHER)
    assert not program.take_commands()
    program.refs.on_released(mine(seq), THIRD)
    assert program.take_commands() == [Free(mine(seq), 0)]
    assert not program.refs.on_borrowed(mine(seq), OTHER)


def test_release_of_what_was_never_borrowed_changes_nothing(program: Any) -> None:
    seq = program.put()
    program.refs.on_released(mine(seq), OTHER)
    assert seq in program.refs.owned


def test_task_that_is_borrowed_before_it_has_finished(program: Any) -> None:
    index = program.sent()
    program.refs.on_borrowed(mine(index), OTHER)
    program.drop(index)
    program.finish(index)
    assert index in program.refs.owned
    program.refs.on_released(mine(index), OTHER)
    assert not program.refs.owned


def test_borrower_that_dies_gives_back_everything_and_gets_no_answer(program: Any) -> None:
    kept, gone, index = program.put(), program.put(stored=0), program.sent()
    other = adopted(program, 1, STORED, Extra(2, ()), borrower=OTHER)
    for seq in (kept, gone):
        program.refs.on_borrowed(mine(seq), OTHER)
    program.refs.on_borrowed(mine(kept), THIRD)
    program.on_asked(mine(index), OTHER)
    program.on_asked(mine(index), THIRD)
    program.drop(kept, gone)
    program.take_commands()
    program.refs.on_borrower_died(OTHER)
    assert program.take_commands() == [Free(mine(gone), 0), Free(other, 2)] and set(program.refs.owned) == {kept, index}
    program.finish(index)
    assert program.take_commands() == [Answer(mine(index), VALUE, THIRD)]
    program.refs.on_borrower_died(THIRD)
    assert set(program.refs.owned) == {index}


def test_borrowers_are_answered_now_or_when_the_value_is_there(program: Any) -> None:
    index, there = program.sent(), program.put()
    program.on_asked(mine(index), OTHER)
    program.on_asked(mine(there), OTHER)
    program.on_asked(mine(99), OTHER)
    first, gone = program.take_commands()
    assert first == Answer(mine(there), VALUE, OTHER)
    assert (gone.oid, gone.asker) == (mine(99), OTHER) and isinstance(gone.value, ReleasedMark)
    program.finish(index, ERROR)
    assert program.take_commands() == [Answer(mine(index), ERROR, OTHER)]


# -- borrowed objects -------------------------------------------------------------------------------------------------


def test_first_reference_borrows_and_the_last_one_releases(program: Any) -> None:
    oid = borrowed(program)
    program.refs.hold(oid)
    program.refs.drop(oid)
    assert not program.take_commands()
    program.refs.drop(oid)
    assert program.take_commands() == [Release(oid, None)] and not program.refs.foreign


def test_value_of_a_borrowed_object_is_asked_for_once(program: Any) -> None:
    oid = borrowed(program)
    program.ask(oid)
    program.ask(oid)
    program.ask(mine(99))
    assert program.take_commands() == [Ask(oid)]
    program.refs.foreign[oid].watched = True
    program.on_answered(oid, VALUE, None)
    program.ask(oid)
    assert program.take_commands() == [Settled(oid, program.refs.foreign[oid])]
    program.refs.drop(oid)
    assert program.take_commands() == [Release(oid, None)]


def test_release_gives_back_the_pin_that_came_with_the_answer(program: Any) -> None:
    oid, inner = borrowed(program), program.put()
    program.on_answered(oid, STORED, Extra(3, (mine(inner),)))
    program.drop(inner)
    program.refs.drop(oid)
    assert program.take_commands() == [Release(oid, 3)] and not program.refs.owned


def test_answer_that_nobody_waits_for_gives_its_pin_back(program: Any) -> None:
    oid = borrowed(program)
    program.on_answered(oid, STORED, Extra(3, ()))
    program.on_answered(oid, STORED, Extra(3, ()))
    program.on_answered(theirs(99), STORED, Extra(1, ()))
    program.on_answered(theirs(99), VALUE, None)
    assert program.take_commands() == [Unpin(oid, 3), Unpin(theirs(99), 1)] and program.counts["late answer"] == 3
    program.refs.drop(oid)


@pytest.mark.parametrize("value", [VALUE, ERROR])
def test_task_waits_for_a_borrowed_input(program: Any, value: bytes) -> None:
    index = program.owner.submit(program.kind, b"call", (theirs(1),))
    assert program.commands() == [Borrow(theirs(1)), Ask(theirs(1))]
    program.on_answered(theirs(1), value, None)
    if value == VALUE:
        assert isinstance(program.commands()[0], Send)
        program.finish(index)
    assert program.value(index) == value and program.take_commands() == [Release(theirs(1), None)]


def test_what_a_lost_owner_had_not_answered_is_asked_again_for_it_may_have_passed_on(program: Any) -> None:
    first, second, other = borrowed(program, 1), borrowed(program, 2), ObjectId(THIRD, 1)
    program.on_answered(first, VALUE, None)
    program.refs.hold(other)
    index = program.owner.submit(program.kind, b"call", (second,))
    program.commands()
    program.on_owner_lost(OTHER, LOST)
    foreign = program.refs.foreign
    assert program.commands() == [Ask(second)]
    assert (foreign[first].value, foreign[second].value, foreign[other].value) == (VALUE, None, None)
    program.owner.on_object_lost(second, LOST)
    assert program.value(index) == LOST


def test_lost_owner_fails_what_it_had_handed_over_unfinished(program: Any) -> None:
    oid = theirs(1)
    program.owner.on_adopted([Adopted(oid, None, None, 0)])
    program.refs.hold(oid)
    program.on_owner_lost(OTHER, LOST)
    assert program.refs.foreign[oid].value == LOST


def test_lost_node_fails_borrowed_objects(program: Any) -> None:
    small, stored, missing = borrowed(program, 1), borrowed(program, 2), borrowed(program, 3)
    program.on_answered(small, VALUE, None)
    program.on_answered(stored, STORED, Extra(1, ()))
    gone = NodeLostMark("gone")
    program.on_node_lost(gone)
    assert [program.refs.foreign[oid].value for oid in (small, stored, missing)] == [VALUE, gone, gone]
    for oid in (small, stored, missing):
        program.refs.drop(oid)
    assert {command.version for command in program.take_commands()} == {None}


# -- objects that pass to another owner -------------------------------------------------------------------------------


def test_adopted_object_is_freed_when_neither_we_nor_its_borrower_refer_to_it(program: Any) -> None:
    oid = adopted(program, 1, STORED, Extra(2, ()))
    program.refs.hold(oid)
    program.refs.on_released(oid, OTHER)
    assert not program.take_commands()
    program.refs.drop(oid)
    assert program.take_commands() == [Free(oid, 2)] and not program.refs.foreign


def test_node_hears_of_the_end_of_an_adopted_object_that_is_not_stored(program: Any) -> None:
    oid = adopted(program, 1)
    program.refs.on_released(oid, OTHER)
    assert program.take_commands() == [Free(oid, NO_EXTENT)]


def test_adopted_object_waits_for_the_result_that_it_came_with(program: Any) -> None:
    index = program.sent()
    oid = adopted(program, 1, borrower=0)
    assert oid in program.refs.foreign
    program.finish(index, STORED, extra=Extra(None, (oid,)))
    assert not program.take_commands()
    program.drop(index)
    assert program.take_commands() == [Free(oid, NO_EXTENT)]


def test_adopted_object_ends_with_an_unwanted_result(program: Any) -> None:
    index = program.sent()
    program.cancel(index)
    program.take_commands()
    oid = adopted(program, 1, borrower=0)
    program.finish(index, STORED, extra=Extra(None, (oid, theirs(99))))
    assert program.take_commands() == [Free(oid, NO_EXTENT)]


def test_pending_object_is_adopted_first_and_gets_its_value_later(program: Any) -> None:
    oid = adopted(program, 1, None)
    program.refs.hold(oid)
    index = program.submit()
    waiting = program.owner.submit(program.kind, b"call", (oid,))
    program.ask(oid)
    assert all(isinstance(command, Send) for command in program.commands())
    program.refs.drop(oid)
    adopted(program, 1, ERROR)
    assert program.value(waiting) == ERROR and program.value(index) is None
    program.refs.on_released(oid, OTHER)
    assert program.take_commands() == [Free(oid, NO_EXTENT)]


def test_pending_object_that_nobody_refers_to_ends_with_its_value(program: Any) -> None:
    oid = adopted(program, 1, None)
    program.refs.on_released(oid, OTHER)
    assert oid in program.refs.foreign
    adopted(program, 1, STORED, Extra(1, ()), borrower=0)
    assert program.take_commands() == [Free(oid, 1)]


def test_objects_adopted_together_may_contain_each_other_in_any_order(program: Any) -> None:
    outer, inner = theirs(1), theirs(2)
    index = program.sent()
    program.on_adopted([Adopted(outer, STORED, Extra(None, (inner,)), OTHER), Adopted(inner, VALUE, None, OTHER)])
    assert not program.take_commands(), "nothing is borrowed"
    program.finish(index, STORED, extra=Extra(None, (outer,)))
    for oid in (outer, inner):
        program.refs.on_released(oid, OTHER)
    program.drop(index)
    assert program.take_commands() == [Free(outer, NO_EXTENT), Free(inner, NO_EXTENT)]


def test_object_adopted_with_several_borrowers_waits_for_all_of_them(program: Any) -> None:
    oid = theirs(1)
    program.on_adopted([Adopted(oid, VALUE, None, OTHER), Adopted(oid, None, None, THIRD)])
    assert program.refs.foreign[oid].borrowers == {OTHER, THIRD} and not program.refs.foreign[oid].pending
    program.refs.on_released(oid, OTHER)
    assert not program.take_commands()
    program.refs.on_released(oid, THIRD)
    assert program.take_commands() == [Free(oid, NO_EXTENT)]


def test_borrowed_object_that_passes_to_us_gives_back_its_pin_too(program: Any) -> None:
    oid = borrowed(program)
    program.ask(oid)
    program.on_answered(oid, STORED, Extra(1, ()))
    program.take_commands()
    adopted(program, 1, STORED, Extra(1, ()), borrower=0)
    assert program.refs.on_borrowed(oid, ME), "a word of ours from before that comes back to us"
    program.refs.drop(oid)
    assert program.take_commands() == [Unpin(oid, 1), Free(oid, 1)]


def test_nothing_passes_when_a_task_of_our_own_has_run_here(program: Any) -> None:
    seq = program.put()
    program.on_adopted([Adopted(mine(seq), None, None, ME)])
    assert not program.refs.foreign


def test_object_that_passed_on_lives_here_while_we_refer_to_it(program: Any) -> None:
    seq = program.put(stored=0)
    entry = program.refs.owned[seq]
    program.refs.on_borrowed(mine(seq), THIRD)
    entry.handed_to = OTHER
    program.drop(seq)
    assert program.take_commands() == [ReleaseTo(mine(seq), OTHER)] and not program.refs.owned


def test_object_that_passed_on_and_ended_here_comes_back_as_anothers(program: Any) -> None:
    seq = program.put()
    program.refs.owned[seq].handed_to = OTHER
    program.drop(seq)
    assert program.take_commands() == [ReleaseTo(mine(seq), OTHER)]
    index = program.owner.submit(program.kind, b"call", (mine(seq),))
    assert program.take_commands() == [Borrow(mine(seq)), Ask(mine(seq))]
    program.on_answered(mine(seq), VALUE, None)
    assert isinstance(program.commands()[0], Send)
    program.finish(index)
    assert program.take_commands() == [Release(mine(seq), None)] and not program.refs.foreign


def test_borrowers_of_an_object_that_passed_on_are_forwarded_to_who_has_it(program: Any) -> None:
    seq = program.put()
    program.refs.owned[seq].handed_to = OTHER
    assert program.refs.on_borrowed(mine(seq), THIRD)
    program.refs.on_released(mine(seq), THIRD)
    assert program.take_commands() == [Forward(mine(seq), THIRD, OTHER, False), Forward(mine(seq), THIRD, OTHER, True)]
    program.on_asked(mine(seq), THIRD)
    assert program.take_commands() == [Answer(mine(seq), VALUE, THIRD)]

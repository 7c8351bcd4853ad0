"""References: what keeps objects alive, and what other processes are told of them."""

from __future__ import annotations

from typing import Any

import pytest

from outboard.ids import ObjectId
from outboard.scheduler.notices import Borrow, Free, Release, Unpin
from outboard.scheduler.outcomes import NodeLostMark, OwnerLostMark, ReleasedMark
from outboard.scheduler.owner import Answer, Ask, Extra, Send, Settled

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
    assert sorted(program.take_commands(), key=repr) == [Free(mine(inner), 0), Release(other, None, 1)]
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
    program.refs.on_borrowed(mine(seq), OTHER)
    program.refs.on_borrowed(mine(seq), THIRD)
    program.drop(seq)
    program.refs.on_released(mine(seq), OTHER)
    assert not program.take_commands()
    program.refs.on_released(mine(seq), THIRD)
    assert program.take_commands() == [Free(mine(seq), 0)]
    program.refs.on_borrowed(mine(seq), OTHER)
    assert not program.refs.owned, "a word that comes too late changes nothing"


def test_borrower_is_counted_as_often_as_it_was_told_of(program: Any) -> None:
    seq = program.put(stored=0)
    assert program.refs.lend((mine(seq), mine(seq)), OTHER) == ()
    program.refs.on_borrowed(mine(seq), OTHER)
    program.drop(seq)
    program.refs.on_released(mine(seq), OTHER, 1)
    assert not program.take_commands()
    program.refs.on_released(mine(seq), OTHER, 2)
    assert program.take_commands() == [Free(mine(seq), 0)]


def test_release_may_overtake_what_it_takes_back(program: Any) -> None:
    seq = program.put(stored=0)
    program.refs.on_released(mine(seq), OTHER, 2)
    program.drop(seq)
    program.refs.on_borrowed(mine(seq), OTHER)
    assert seq in program.refs.owned
    program.refs.on_borrowed(mine(seq), OTHER)
    assert program.take_commands() == [Free(mine(seq), 0)]


def test_references_of_others_are_counted_by_their_owners(program: Any) -> None:
    oid, seq = borrowed(program), program.put()
    assert program.refs.lend((oid, mine(seq)), THIRD) == (oid,)
    assert program.refs.owned[seq].borrowers == {THIRD: 1} and program.refs.foreign[oid].borrowers is None


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
    for seq in (kept, gone, gone):
        program.refs.on_borrowed(mine(seq), OTHER)
    program.refs.on_borrowed(mine(kept), THIRD)
    program.on_asked(mine(index), OTHER)
    program.on_asked(mine(index), THIRD)
    program.drop(kept, gone)
    program.take_commands()
    program.refs.on_borrower_died(OTHER)
    assert program.take_commands() == [Free(mine(gone), 0)] and set(program.refs.owned) == {kept, index}
    program.finish(index)
    assert program.take_commands() == [Answer(mine(index), VALUE, THIRD, ())]
    program.refs.on_borrower_died(THIRD)
    assert set(program.refs.owned) == {index}


def test_borrowers_are_answered_now_or_when_the_value_is_there(program: Any) -> None:
    index, there = program.sent(), program.put()
    program.on_asked(mine(index), OTHER)
    program.on_asked(mine(there), OTHER)
    program.on_asked(mine(99), OTHER)
    first, gone = program.take_commands()
    assert first == Answer(mine(there), VALUE, OTHER, ())
    assert (gone.oid, gone.asker) == (mine(99), OTHER) and isinstance(gone.value, ReleasedMark)
    program.finish(index, ERROR)
    assert program.take_commands() == [Answer(mine(index), ERROR, OTHER, ())]


def test_answer_lends_what_the_value_contains(program: Any) -> None:
    other, inner = borrowed(program), program.put()
    outer = program.put(contained=(mine(inner), other))
    program.on_asked(mine(outer), THIRD)
    assert program.take_commands() == [Answer(mine(outer), VALUE, THIRD, (other,))]
    assert program.refs.owned[inner].borrowers == {THIRD: 1}


# -- borrowed objects -------------------------------------------------------------------------------------------------


def test_first_reference_borrows_and_the_last_one_releases(program: Any) -> None:
    oid = borrowed(program)
    program.refs.hold(oid)
    program.refs.drop(oid)
    assert not program.take_commands()
    program.refs.drop(oid)
    assert program.take_commands() == [Release(oid, None, 1)] and not program.refs.foreign


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
    assert program.take_commands() == [Release(oid, None, 1)]


def test_release_gives_back_the_pin_that_came_with_the_answer(program: Any) -> None:
    oid, inner = borrowed(program), program.put()
    program.refs.on_borrowed(mine(inner), ME)  # by the node, as it passed the answer on
    program.on_answered(oid, STORED, Extra(3, (mine(inner),)))
    program.drop(inner)
    program.refs.drop(oid)
    assert program.take_commands() == [Release(oid, 3, 1)] and not program.refs.owned


def test_each_reference_in_a_value_that_comes_is_given_back(program: Any) -> None:
    index, oid = program.sent(), theirs(1)
    program.finish(index, STORED, extra=Extra(None, (oid, oid)))
    program.refs.hold(oid)
    assert program.take_commands() == [], "its owner was told before the value came"
    program.drop(index)
    program.refs.drop(oid)
    assert program.take_commands() == [Release(oid, None, 2)]


def test_references_in_a_value_that_nobody_wants_are_given_back(program: Any) -> None:
    index, mine_too = program.sent(), program.put()
    program.cancel(index)
    program.take_commands()
    program.finish(index, STORED, extra=Extra(None, (theirs(1), mine(mine_too))))
    program.on_answered(theirs(9), STORED, Extra(None, (theirs(2),)))
    assert program.take_commands() == [Release(theirs(1), None, 1), Release(theirs(2), None, 1)]
    assert program.refs.owned[mine_too].borrowers is None


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
    assert program.value(index) == value and program.take_commands() == [Release(theirs(1), None, 1)]


def test_what_a_lost_owner_had_not_answered_is_asked_again_for_it_may_have_passed_on(program: Any) -> None:
    first, second, other = borrowed(program, 1), borrowed(program, 2), ObjectId(THIRD, 1)
    program.on_answered(first, VALUE, None)
    program.refs.hold(other)
    index = program.owner.submit(program.kind, b"call", (second,))
    program.commands()
    program.on_owner_lost(OTHER)
    foreign = program.refs.foreign
    assert program.commands() == [Ask(second)]
    assert (foreign[first].value, foreign[second].value, foreign[other].value) == (VALUE, None, None)
    program.owner.on_object_lost(second, LOST)
    assert program.value(index) == LOST


def test_lost_node_fails_borrowed_objects(program: Any) -> None:
    small, stored, missing = borrowed(program, 1), borrowed(program, 2), borrowed(program, 3)
    program.on_answered(small, VALUE, None)
    program.on_answered(stored, STORED, Extra(1, ()))
    gone = NodeLostMark("gone")
    program.on_link_lost(gone)
    assert [program.refs.foreign[oid].value for oid in (small, stored, missing)] == [VALUE, gone, gone]
    for oid in (small, stored, missing):
        program.refs.drop(oid)
    assert {command.version for command in program.take_commands()} == {None}

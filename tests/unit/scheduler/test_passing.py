"""Objects that pass to another owner: who counts their borrowers when, and what if nobody takes them."""

from __future__ import annotations

from typing import Any

import pytest

from outboard.ids import NO_EXTENT, PLAIN_STREAM, ObjectId
from outboard.scheduler.notices import Borrow, Free, PassOn, Release, Unpin
from outboard.scheduler.outcomes import OwnerLostMark
from outboard.scheduler.owner import Adopted, Answer, Ask, Extra, Parcel, Send
from outboard.scheduler.passing import Passed

pytestmark = pytest.mark.timeout(10)

ME, OTHER, THIRD, FOURTH = 7, 8, 9, 10
VALUE = b"\x80value"
ERROR = b"\x12error"
STORED = b"\x0astored"


def mine(seq: int) -> ObjectId:
    return ObjectId(ME, seq)


def theirs(seq: int) -> ObjectId:
    return ObjectId(OTHER, seq)


def adopted(program: Any, oid: ObjectId, value: Any = VALUE, extra: Extra | None = None, **others: int) -> ObjectId:
    """Take over an object which who passed it on, and perhaps we, hold."""
    holdings = {OTHER: 1} | ({ME: others["me"]} if others else {})
    program.on_adopted([Adopted(oid, value, extra, tuple(holdings.items()))])
    return oid


def passed(program: Any, *oids: ObjectId, to: int = OTHER) -> Parcel:
    parcel: Parcel = program.pass_on(oids, to)
    return parcel


# -- passing on -------------------------------------------------------------------------------------------------------


def test_object_in_a_result_passes_with_all_that_its_value_contains(program: Any) -> None:
    inner, index = program.put(stored=0), program.sent()
    outer = program.put(contained=(mine(inner), mine(index), theirs(1)))
    program.take_commands()
    parcel = passed(program, mine(outer))
    assert parcel.passed == [
        Passed(mine(outer), VALUE, ((OTHER, 1), (ME, 1))),
        Passed(mine(inner), VALUE, ((OTHER, 1), (ME, 1))),
    ]
    assert parcel.lent == [theirs(1)] and parcel.receiver == OTHER
    assert program.refs.heirs == {mine(index): OTHER}, "it has no value yet"


def test_passed_object_is_held_until_the_node_has_confirmed(program: Any) -> None:
    seq = program.put(stored=0)
    passed(program, mine(seq))
    program.drop(seq)
    assert not program.take_commands()
    program.on_passed(mine(seq), is_refused=False)
    assert program.take_commands() == [Release(mine(seq), 0, 1)] and not program.refs.owned


def test_what_is_said_meanwhile_is_the_new_owners(program: Any) -> None:
    """The node repeats it to that one."""
    seq = program.put()
    passed(program, mine(seq))
    program.drop(seq)
    program.refs.on_borrowed(mine(seq), THIRD)
    program.on_passed(mine(seq), is_refused=False)
    assert program.take_commands() == [Release(mine(seq), None, 1)] and not program.refs.owned


def test_object_that_was_passed_on_is_answered_for_until_its_end_here(program: Any) -> None:
    seq = program.put()
    passed(program, mine(seq))
    program.on_asked(mine(seq), THIRD)
    assert program.take_commands() == [Answer(mine(seq), VALUE, THIRD, ())]
    program.on_passed(mine(seq), is_refused=False)
    program.drop(seq)
    program.take_commands()
    program.on_asked(mine(seq), THIRD)
    assert program.take_commands() == [Answer(mine(seq), OwnerLostMark(OTHER), THIRD, ())]


def test_object_passes_on_once_however_often_it_is_returned(program: Any) -> None:
    seq = program.put()
    assert [p.oid for p in passed(program, mine(seq), mine(seq)).passed] == [mine(seq)]
    again = passed(program, mine(seq), to=THIRD)
    assert (again.passed, again.lent) == ([], [mine(seq)])


def test_nothing_passes_to_a_task_of_our_own(program: Any) -> None:
    seq, index = program.put(), program.sent()
    parcel = passed(program, mine(seq), mine(index), to=ME)
    assert (parcel.passed, parcel.lent) == ([], []) and not program.refs.heirs
    program.drop(seq)
    assert seq in program.refs.owned, "until the result is here"
    program.on_finished(PLAIN_STREAM, index, 1, 1, [STORED], {0: Extra(None, (mine(seq),))})
    assert program.refs.owned[seq].borrowers is None and program.refs.owned[seq].count == 1


# -- heirs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [VALUE, ERROR])
def test_pending_object_passes_to_its_heir_with_its_value(program: Any, value: bytes) -> None:
    index = program.sent()
    passed(program, mine(index))
    program.drop(index)
    program.finish(index, value)
    assert program.take_commands() == [PassOn(mine(index))]
    parcel = program.hand_over(mine(index))
    assert parcel == Parcel(OTHER, [Passed(mine(index), value, ((OTHER, 1), (ME, 1)))], [])


def test_pending_object_that_nobody_wants_any_more_ends_with_its_value(program: Any) -> None:
    index = program.sent()
    passed(program, mine(index))
    program.drop(index)
    program.refs.on_released(mine(index), OTHER)
    program.finish(index)
    program.take_commands()
    assert program.hand_over(mine(index)) is None
    assert not program.refs.owned and not program.refs.heirs


def test_heir_names_the_next_one_before_it_inherits(program: Any) -> None:
    index = program.sent()
    passed(program, mine(index))
    program.refs.on_borrowed(mine(index), FOURTH, THIRD)
    assert program.refs.heirs == {mine(index): OTHER}, "only the heir may"
    program.refs.on_borrowed(mine(index), THIRD, OTHER)
    program.finish(index)
    assert program.take_commands() == [PassOn(mine(index))]
    assert program.hand_over(mine(index)).receiver == THIRD


def test_heir_that_has_inherited_meanwhile_passes_on_to_the_one_it_named(program: Any) -> None:
    oid = adopted(program, theirs(1), me=1)
    program.refs.on_borrowed(oid, THIRD, ME)
    assert program.take_commands() == [PassOn(oid)]
    assert program.hand_over(oid).receiver == THIRD


def test_heir_that_died_inherits_nothing(program: Any) -> None:
    index = program.sent()
    passed(program, mine(index))
    program.refs.on_borrower_died(OTHER)
    program.finish(index)
    assert not program.take_commands() and not program.refs.heirs and index in program.refs.owned


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_refused_object_stays_ours_and_what_was_said_of_it_counts(program: Any) -> None:
    seq = program.put(stored=0)
    passed(program, mine(seq))
    program.drop(seq)
    program.refs.on_borrowed(mine(seq), THIRD)
    program.on_passed(mine(seq), is_refused=True)
    program.refs.on_borrower_died(OTHER)
    assert program.take_commands() == [Release(mine(seq), None, 1)], "to us: behind all that we have lent meanwhile"
    program.refs.on_released(mine(seq), ME)
    assert program.refs.owned[seq].borrowers == {THIRD: 1}
    program.refs.on_released(mine(seq), THIRD)
    assert program.take_commands() == [Free(mine(seq), 0)]


def test_refused_object_passes_to_the_heir_whom_the_refused_one_had_named(program: Any) -> None:
    seq = program.put()
    passed(program, mine(seq))
    program.refs.on_borrowed(mine(seq), THIRD, OTHER)
    program.on_passed(mine(seq), is_refused=True)
    assert PassOn(mine(seq)) in program.take_commands()
    assert program.hand_over(mine(seq)).receiver == THIRD


def test_process_that_ends_passes_on_what_others_refer_to(program: Any) -> None:
    seq, unused = program.put(), program.put()
    for oid in (mine(seq), adopted(program, theirs(1))):
        program.refs.on_borrowed(oid, THIRD)
    program.bequeath(FOURTH)
    assert program.take_commands() == [PassOn(mine(seq)), PassOn(theirs(1))]
    parcel = program.hand_over(theirs(1))
    assert parcel == Parcel(FOURTH, [Passed(theirs(1), VALUE, ((OTHER, 1), (THIRD, 1), (ME, 1)))], [])
    assert mine(unused) not in program.refs.heirs


# -- taking over ------------------------------------------------------------------------------------------------------


def test_adopted_object_is_freed_when_neither_we_nor_another_refer_to_it(program: Any) -> None:
    oid = adopted(program, theirs(1), STORED, Extra(2, ()))
    program.refs.hold(oid)
    program.refs.on_released(oid, OTHER)
    assert not program.take_commands()
    program.refs.drop(oid)
    assert program.take_commands() == [Free(oid, 2)] and not program.refs.foreign


def test_node_hears_of_the_end_of_an_adopted_object_that_is_not_stored(program: Any) -> None:
    oid = adopted(program, theirs(1))
    program.refs.on_released(oid, OTHER)
    assert program.take_commands() == [Free(oid, NO_EXTENT)]


def test_borrowed_object_that_passes_to_us_settles_what_waits_for_it(program: Any) -> None:
    index = program.owner.submit(program.kind, b"call", (theirs(1),))
    assert program.commands() == [Borrow(theirs(1)), Ask(theirs(1))]
    adopted(program, theirs(1), me=1)
    assert [type(command) for command in program.commands()] == [Release, Send]
    program.refs.on_released(theirs(1), ME)
    program.on_answered(theirs(1), VALUE, None)
    program.finish(index)
    program.refs.on_released(theirs(1), OTHER)
    assert program.take_commands() == [Free(theirs(1), NO_EXTENT)]


def test_borrowed_object_that_passes_to_us_gives_back_its_pin_too(program: Any) -> None:
    oid = theirs(1)
    program.refs.hold(oid)
    program.ask(oid)
    program.on_answered(oid, STORED, Extra(1, (theirs(5),)))
    program.take_commands()
    adopted(program, oid, STORED, Extra(1, (theirs(5),)), me=1)
    assert program.take_commands() == [Release(oid, None, 1)]
    for process in (ME, OTHER):
        program.refs.on_released(oid, process)
    program.refs.drop(oid)
    assert program.take_commands() == [Unpin(oid, 1), Free(oid, 1), Release(theirs(5), None, 2)]


def test_objects_adopted_together_may_contain_each_other_in_any_order(program: Any) -> None:
    outer, inner = theirs(1), theirs(2)
    index = program.sent()
    holdings = ((OTHER, 1), (ME, 1))
    program.on_adopted([Adopted(outer, STORED, Extra(None, (inner,)), holdings), Adopted(inner, VALUE, None, holdings)])
    program.finish(index, STORED, extra=Extra(None, (outer,)))
    assert program.take_commands() == [Release(inner, None, 1)], "to us: it was borrowed before it was ours"
    for oid, process in ((inner, ME), (outer, OTHER), (inner, OTHER)):
        program.refs.on_released(oid, process)
    program.drop(index)
    assert program.take_commands() == [Free(outer, NO_EXTENT), Free(inner, NO_EXTENT)]


def test_adopted_objects_end_with_an_unwanted_result(program: Any) -> None:
    index = program.sent()
    program.cancel(index)
    program.take_commands()
    oid = adopted(program, theirs(1), me=1)
    program.finish(index, STORED, extra=Extra(None, (oid,)))
    program.refs.on_released(oid, OTHER)
    assert program.take_commands() == [Free(oid, NO_EXTENT)]


def test_object_that_was_passed_on_and_ended_here_comes_back_as_anothers(program: Any) -> None:
    seq = program.put()
    passed(program, mine(seq))
    program.on_passed(mine(seq), is_refused=False)
    program.drop(seq)
    program.take_commands()
    index = program.owner.submit(program.kind, b"call", (mine(seq),))
    assert program.take_commands() == [Borrow(mine(seq)), Ask(mine(seq))]
    program.on_answered(mine(seq), VALUE, None)
    assert isinstance(program.commands()[0], Send)
    program.finish(index)
    assert program.take_commands() == [Release(mine(seq), None, 1)] and not program.refs.foreign


def test_object_that_was_passed_on_may_pass_back_to_its_maker(program: Any) -> None:
    seq = program.put(stored=0)
    passed(program, mine(seq))
    program.on_passed(mine(seq), is_refused=False)
    adopted(program, mine(seq), STORED, Extra(0, ()), me=1)
    assert program.take_commands() == [Unpin(mine(seq), 0), Release(mine(seq), None, 1)]
    program.refs.on_released(mine(seq), ME)
    program.refs.on_released(mine(seq), OTHER)
    program.drop(seq)
    assert program.take_commands() == [Free(mine(seq), 0)]

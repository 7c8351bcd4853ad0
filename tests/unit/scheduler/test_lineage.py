"""Stored results that are lost are made again: by their task, by those before it, once, and not for ever."""

from __future__ import annotations

from typing import Any

import pytest

from outboard.ids import PLAIN_STREAM, ObjectId, item_object
from outboard.scheduler import lineage
from outboard.scheduler.notices import Borrow, Free, Release, Unpin
from outboard.scheduler.outcomes import CancelledMark, LostMark, ObjectLostMark, RefusedMark
from outboard.scheduler.owner import Adopted, Answer, Ask, Extra, LostCause, Owner, Send, SendItems, Settled
from outboard.scheduler.states import TaskState

pytestmark = pytest.mark.timeout(20)

ME, YOU, HOME, FAR = 7, 8, 90, 91
VALUE, STORED, ERROR = b"\x80value", b"\x0astored", b"\x12error"


@pytest.fixture
def program(program: Any) -> Any:
    """As everywhere, in a cluster."""
    program.owner = Owner(ME, 64, HOME, joined=True)
    program.refs = program.owner.refs
    program.kind = program.owner.add_kind("f", process_retries=0, machine_retries=2, stride=1)
    return program


def sends(commands: list[Any]) -> list[tuple[int, int]]:
    """What was sent: (first, attempt) of each task."""
    plain = [(t.index, t.attempt) for c in commands if isinstance(c, Send) for t in c.tasks]
    return plain + [(c.first, c.attempt) for c in commands if isinstance(c, SendItems)]


def finish(program: Any, index: int, attempt: int = 1, *, node: int = FAR, inner: tuple[ObjectId, ...] = ()) -> None:
    """A task stores its result."""
    extras = {0: Extra(attempt, inner, node, 100)}
    program.count_us(extras)
    program.on_finished(PLAIN_STREAM, index, attempt, 1, [STORED], extras)


def made(program: Any, *inputs: int, **options: Any) -> int:
    """A task that has stored its result."""
    index: int = program.sent(*inputs, **options)
    finish(program, index)
    program.take_commands()
    return index


def lose(program: Any, seq: int, version: int = 1) -> None:
    program.rebuild(program.name(seq), version)


def records(program: Any) -> set[int]:
    return set(program.owner._books.lineage.records)


def reason(program: Any, seq: int) -> str:
    mark = program.value(seq)
    assert isinstance(mark, ObjectLostMark) and mark.oid == program.name(seq)
    return mark.reason


# -- one task ---------------------------------------------------------------------------------------------------------


def test_lost_result_is_made_again_once_however_many_wait(program: Any) -> None:
    index = made(program)
    dependents = [program.submit(index) for _ in range(2)]
    program.commands()
    entry = program.refs.owned[index]
    lose(program, index)
    lose(program, index)
    assert entry.value is None and program.unanswered == 3 and not program.refs.located
    commands = program.commands()
    assert sends(commands) == [(index, 2)] and Free(program.name(index), 1) in commands
    lose(program, index)
    finish(program, index, 2)
    assert program.refs.owned[index] is entry and (entry.value, entry.stored) == (STORED, 2)
    lose(program, index)  # of the version before
    assert not sends(program.commands()) and program.counts["rebuilt"] == 1
    for dependent in dependents:
        program.finish(dependent)


def test_result_that_comes_from_the_first_run_meanwhile_is_late(program: Any) -> None:
    index = made(program)
    lose(program, index)
    program.commands()
    finish(program, index, 1)
    assert program.value(index) is None and program.take_commands() == [Free(program.name(index), 1)]
    program.finish(index, attempt=2)
    assert program.value(index) == VALUE and not records(program)


def test_tasks_that_were_ready_wait_for_their_input_again(program: Any) -> None:
    index = made(program)
    program.on_grant(program.kind.id, 1)
    other = program.sent()
    dependent = program.submit(index, index)
    assert not sends(program.commands())
    lose(program, index)
    program.on_grant(program.kind.id, 64)
    assert sends(program.commands()) == [(index, 2)]
    assert program.refs.owned[dependent].state is TaskState.WAITING
    finish(program, index, 2)
    assert sends(program.commands()) == [(dependent, 1)]
    program.finish(dependent)
    program.finish(other)


def test_task_that_waits_for_another_input_too_waits_for_both(program: Any) -> None:
    index, other = made(program), program.sent()
    dependent = program.submit(index, other)
    lose(program, index)
    program.finish(other)
    assert sends(program.commands()) == [(index, 2)]
    finish(program, index, 2)
    assert sends(program.commands()) == [(dependent, 1)]


def test_rebuild_that_fails_fails_who_waits(program: Any) -> None:
    index = made(program)
    dependent = program.submit(index)
    lose(program, index)
    program.commands()
    program.lose(index, LostCause.PROCESS, attempt=2)
    assert program.value(index) == program.value(dependent) == LostMark(LostCause.PROCESS, "f", None, 2, "death")
    assert not records(program) and not program.unanswered


def test_rebuild_may_be_retried_and_cancelled(program: Any) -> None:
    index = made(program)
    lose(program, index)
    program.commands()
    program.lose(index, LostCause.MACHINE, attempt=2)
    assert sends(program.commands()) == [(index, 3)]
    program.cancel(index)
    assert program.value(index) == CancelledMark("f")
    program.lose(index, LostCause.CANCELLED, attempt=3)
    program.drop(index)
    assert not program.refs.owned and not program.kind.outstanding


def test_released_result_is_made_to_the_end_and_freed(program: Any) -> None:
    index = made(program)
    lose(program, index)
    program.commands()
    program.drop(index)
    assert program.unanswered == 1
    finish(program, index, 2)
    assert not program.refs.owned and program.take_commands() == [Free(program.name(index), 2)]
    assert not records(program) and program.kind.records == 0


def test_who_watches_and_who_asked_hears_of_the_new_value(program: Any) -> None:
    index = made(program)
    program.on_asked(program.name(index), YOU)
    program.take_commands()
    program.on_asked(program.name(index), YOU, 1)
    program.refs.owned[index].watched = True
    assert sends(program.commands()) == [(index, 2)]
    finish(program, index, 2)
    commands = program.take_commands()
    assert [type(c) for c in commands] == [Settled, Answer] and commands[1].asker == YOU


def test_references_inside_a_lost_value_are_let_go(program: Any) -> None:
    inner = program.put(stored=0)
    index = program.sent()
    finish(program, index, inner=(program.name(inner),))
    program.drop(inner)
    lose(program, index)
    assert Free(program.name(inner), 0) in program.commands()
    finish(program, index, 2)


# -- several results --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first_dropped", [False, True])
def test_other_results_of_the_task_stay_as_they_are(program: Any, is_first_dropped: bool) -> None:
    kind = program.add_kind(stride=3)
    index = program.sent(kind=kind)
    extras = {0: Extra(1, (), FAR, 9), 2: Extra(1, (), FAR, 9)}
    program.on_finished(PLAIN_STREAM, index, 1, 3, [STORED, VALUE, STORED], extras)
    program.drop(index + 1)
    if is_first_dropped:
        program.drop(index)
    program.take_commands()
    lose(program, index + 2)
    assert sends(program.commands()) == [(index, 2)]
    if not is_first_dropped:
        assert program.value(index) == STORED and program.value(index + 2) is None
        program.drop(index)  # while it runs
    extras = {0: Extra(2, (), FAR, 9), 1: Extra(2, (), FAR, 9), 2: Extra(2, (), FAR, 9)}
    program.on_finished(PLAIN_STREAM, index, 2, 3, [STORED, STORED, STORED], extras)
    assert set(program.refs.owned) == {index + 2} and program.refs.owned[index + 2].stored == 2
    freed = [c for c in program.take_commands() if isinstance(c, Free)]
    assert {c.oid.seq - index for c in freed} == {0, 1}
    program.drop(index + 2)
    assert not records(program)


def test_two_lost_results_of_one_task_need_one_run(program: Any) -> None:
    kind = program.add_kind(stride=2)
    index = program.sent(kind=kind)
    extras = {0: Extra(1, (), FAR, 9), 1: Extra(1, (), FAR, 9)}
    program.on_finished(PLAIN_STREAM, index, 1, 2, [STORED, STORED], extras)
    lose(program, index + 1)
    lose(program, index)
    assert sends(program.commands()) == [(index, 2)]
    program.on_finished(PLAIN_STREAM, index, 2, 2, [STORED, VALUE], {0: Extra(2, (), FAR, 9)})
    assert program.value(index) == STORED and program.value(index + 1) == VALUE
    program.drop(index)
    assert not records(program)


def test_result_of_a_task_that_failed_when_it_ran_again_is_lost_for_good(program: Any) -> None:
    kind = program.add_kind(stride=2, retries=0)
    index = program.sent(kind=kind)
    extras = {0: Extra(1, (), FAR, 9), 1: Extra(1, (), FAR, 9)}
    program.on_finished(PLAIN_STREAM, index, 1, 2, [STORED, STORED], extras)
    lose(program, index + 1)
    program.commands()
    program.lose(index, attempt=2, stride=2)
    assert isinstance(program.value(index + 1), LostMark) and program.value(index) == STORED
    lose(program, index)
    assert reason(program, index) == "f failed when it was to run again"


# -- what was made from what ------------------------------------------------------------------------------------------


def test_parents_that_were_released_are_made_first(program: Any) -> None:
    a = made(program)
    b = made(program, a)
    c = made(program, b, a)
    program.drop(a, b)
    assert set(program.refs.owned) == {c} and records(program) == {a, b, c}
    program.take_commands()
    lose(program, c)
    assert sends(program.commands()) == [(a, 2)]
    finish(program, a, 2)
    assert sends(program.commands()) == [(b, 2)]
    finish(program, b, 2)
    assert sends(program.commands()) == [(c, 2)]
    finish(program, c, 2)
    assert program.value(c) == STORED and set(program.refs.owned) == {c} and records(program) == {a, b, c}
    program.drop(c)
    assert not records(program) and not program.owner._books.lineage.nbytes


def test_chain_of_ten_thousand_is_rebuilt_and_forgotten_without_recursion(program: Any) -> None:
    owner = program.owner
    last = 0
    for _ in range(10_000):
        index = owner.submit(program.kind, b"call", (program.name(last),) if last else ())
        owner.plan_sends()
        owner.on_finished(PLAIN_STREAM, index, 1, 1, [STORED], {0: Extra(1, (), FAR, 9)})
        if last:
            owner.refs.drop(program.name(last))
        last = index
    owner.take_commands()
    owner.rebuild(program.name(last), 1)
    assert owner.unanswered == 10_000
    for index in range(1, last + 1):
        owner.plan_sends()
        assert sends(owner.take_commands()) == [(index, 2)]
        owner.on_finished(PLAIN_STREAM, index, 2, 1, [STORED], {0: Extra(2, (), FAR, 9)})
    assert program.value(last) == STORED and set(program.refs.owned) == {last}
    program.drop(last)
    assert not records(program)


def test_small_inputs_and_what_they_refer_to_are_kept_as_they_were(program: Any) -> None:
    inner = made(program)
    small = program.put(contained=(program.name(inner),))
    index = made(program, small)
    program.drop(inner, small)
    assert set(program.refs.owned) == {index}
    lose(program, index)
    assert sends(program.commands()) == [(index, 2), (inner, 2)]
    assert program.value(small) == VALUE and program.value(inner) is None
    finish(program, inner, 2)
    finish(program, index, 2)
    assert set(program.refs.owned) == {index}


def test_object_put_and_released_cannot_come_back(program: Any) -> None:
    put = program.put(stored=0)
    index = made(program, held=(program.name(put),))
    program.drop(put)
    lose(program, index)
    assert "was released and cannot be made again" in reason(program, index)
    assert not records(program) and not program.unanswered
    lose(program, index)
    program.drop(index)
    assert Free(program.name(index), 1) in program.take_commands()


def test_foreign_input_is_asked_for_again(program: Any) -> None:
    theirs = ObjectId(YOU, 5)
    index = program.owner.submit(program.kind, b"call", (theirs,))
    program.on_answered(theirs, VALUE, None)
    program.commands()
    finish(program, index)
    assert Release(theirs, None, 1) in program.take_commands()
    lose(program, index)
    assert program.take_commands()[-2:] == [Borrow(theirs), Ask(theirs)]
    program.on_answered(theirs, VALUE, None)
    assert sends(program.commands()) == [(index, 2)]


# -- what is not made again -------------------------------------------------------------------------------------------


def test_reasons_why_nothing_is_made_again(program: Any) -> None:
    put = program.put(stored=0)
    program.rebuild(program.name(put), 0)
    assert "put into the store" in reason(program, put)
    once = made(program, kind=program.add_kind(machine_retries=0))
    assert not records(program)
    lose(program, once)
    assert reason(program, once) == "f may not run twice"
    refused = program.add_kind()
    index = made(program, kind=refused)
    program.on_refused(refused.id, RefusedMark("f", "", {}, {}))
    lose(program, index)
    assert "failed when it was to run again" in reason(program, index)
    array = program.array(1)
    program.commands()
    program.finish_items(array, 0, [STORED], extras={0: Extra(1, (), FAR, 9)})
    item = item_object(ME, array.stream, 0)
    program.rebuild(item, 1)
    assert reason(program, item.seq) == "nothing is known of how it was made"


def test_losses_of_results_count_as_lost_machines(program: Any) -> None:
    index = made(program)
    for attempt in (1, 2):
        lose(program, index, attempt)
        program.commands()
        finish(program, index, attempt + 1)
    lose(program, index, 3)
    assert "as often as its retries allow" in reason(program, index)


def test_oldest_records_go_when_there_are_too_many(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "LINEAGE_NBYTES", 2 * lineage.RECORD_NBYTES + 100)
    a = made(program)
    b = made(program, a)
    c = made(program, b)
    assert records(program) == {b, c} and program.kind.records == 2
    lose(program, a)
    assert "the oldest went" in reason(program, a)
    program.drop(a)
    program.check()


def test_outside_of_a_cluster_nothing_is_kept(program: Any) -> None:
    program.owner = Owner(ME, 64)
    program.refs = program.owner.refs
    kind = program.owner.add_kind("f", process_retries=3, machine_retries=3, stride=1)
    index = program.sent(kind=kind)
    finish(program, index)
    assert not records(program) and not program.refs.located
    lose(program, index)
    assert reason(program, index)


def test_kind_is_needed_while_its_tasks_may_run_again(program: Any) -> None:
    kind = program.add_kind()
    index = made(program, kind=kind)
    assert not program.drop_kind(kind)
    program.drop(index)
    assert program.drop_kind(kind)


# -- objects of others ------------------------------------------------------------------------------------------------


def test_owner_of_a_borrowed_object_is_told_which_version_is_lost(program: Any) -> None:
    theirs = ObjectId(YOU, 5)
    program.refs.hold(theirs)
    program.ask(theirs)
    program.on_answered(theirs, STORED, Extra(4, (), FAR, 9))
    program.take_commands()
    program.rebuild(theirs, 4)
    program.rebuild(theirs, 4)
    assert program.take_commands() == [Unpin(theirs, 4), Ask(theirs, 4)]
    program.on_answered(theirs, STORED, Extra(5, (), FAR, 9))
    assert program.refs.foreign[theirs].stored == 5
    program.refs.drop(theirs)
    assert program.take_commands() == [Release(theirs, 5, 1)]


@pytest.mark.parametrize("is_adopted", [False, True])
def test_what_others_put_or_passed_to_us_is_lost(program: Any, is_adopted: bool) -> None:
    theirs, version = ObjectId(YOU, 5), int(is_adopted)
    program.refs.hold(theirs)
    if is_adopted:
        program.on_adopted([Adopted(theirs, STORED, Extra(1, (), FAR, 9), ((YOU, 1), (ME, 1)))])
    else:
        program.on_answered(theirs, STORED, Extra(0, (), FAR, 9))
    program.rebuild(theirs, version)
    assert isinstance(program.refs.foreign[theirs].value, ObjectLostMark)


def test_complaint_about_what_cannot_be_made_again_is_answered(program: Any) -> None:
    index = made(program, kind=program.add_kind(machine_retries=0))
    program.on_asked(program.name(index), YOU, 1)
    (answer,) = program.take_commands()
    assert isinstance(answer.value, ObjectLostMark)
    program.on_asked(ObjectId(ME, 999), YOU, 1)
    assert isinstance(program.take_commands()[0], Answer)


# -- tasks that could not get an input --------------------------------------------------------------------------------


def test_task_that_could_not_get_its_input_runs_when_that_is_there_again(program: Any) -> None:
    index = made(program)
    dependent = program.sent(index)
    program.on_input_lost(dependent, 1, program.name(index), 1)
    assert sends(program.commands()) == [(index, 2)]
    assert program.refs.owned[dependent].state is TaskState.WAITING
    finish(program, index, 2)
    assert sends(program.commands()) == [(dependent, 1)]
    program.on_input_lost(dependent, 1, program.name(index), 1)  # it was made with what is gone
    assert sends(program.commands()) == [(dependent, 1)]
    program.finish(dependent)


def test_task_whose_input_is_lost_for_good_fails_with_the_reason(program: Any) -> None:
    put = program.put(stored=0)
    index = program.sent(put)
    program.on_input_lost(index, 1, program.name(put), 0)
    assert program.value(index) == program.value(put) and "put into the store" in reason(program, put)
    other = program.submit(put)
    assert program.value(other) == program.value(put)
    gone = program.sent()
    program.on_input_lost(gone, 1, program.name(999), 1)
    assert isinstance(program.value(gone), ObjectLostMark) and not program.kind.outstanding


def test_ready_task_whose_input_is_lost_for_good_fails_when_its_turn_comes(program: Any) -> None:
    put = program.put(stored=0)
    index = program.submit(put)
    program.rebuild(program.name(put), 0)
    assert not sends(program.commands()) and program.value(index) == program.value(put)


def test_input_at_the_own_node_is_not_lost_because_another_could_not_get_it(program: Any) -> None:
    program.on_node_joined(FAR, 64, 1)
    put = program.owner.new_seq()
    program.owner.put(put, STORED, 0, node=HOME, nbytes=9)
    kind = program.add_kind(credit=0)
    index, array = program.submit(put, kind=kind), program.array(1, kind)
    for attempt in (1, 2, 3, 4):
        assert sends(program.commands()) == [(index, attempt), (0, attempt)]
        program.on_input_lost(index, attempt, program.name(put), 0, FAR)
        program.on_item_input_lost(array.stream, 0, attempt, program.name(put), 0, FAR)
    assert program.value(put) == STORED and isinstance(program.value(index), ObjectLostMark)
    assert isinstance(array.completions[0].values, LostMark)


def test_item_that_could_not_get_its_input_has_it_made_and_runs_again(program: Any) -> None:
    index = made(program)
    array = program.array(1)
    program.commands()
    program.on_item_input_lost(array.stream, 0, 1, program.name(index), 1)
    assert set(sends(program.commands())) == {(index, 2), (0, 2)}
    program.on_item_input_lost(99, 0, 1, program.name(index), 1)
    assert program.counts["late loss"] == 1


def test_input_that_seems_to_be_there_is_not_looked_for_without_end(program: Any) -> None:
    put = program.put()
    index = program.sent(put)
    for attempt in (1, 2, 3):
        program.on_input_lost(index, attempt, program.name(put), 1)
        program.commands()
    assert isinstance(program.value(index), ObjectLostMark)


def test_word_of_a_lost_input_that_comes_late_changes_nothing(program: Any) -> None:
    index = made(program)
    dependent = program.sent(index)
    program.on_input_lost(dependent, 2, program.name(index), 1)
    program.on_input_lost(dependent, 1, program.name(index), 1, FAR)
    assert program.counts["late result"] == 2 and program.value(index) == STORED
    program.cancel(dependent)
    program.on_input_lost(dependent, 1, program.name(index), 1)
    assert program.counts["result of cancelled"] == 1 and not program.kind.outstanding


def test_error_of_a_task_that_ran_again_is_its_value(program: Any) -> None:
    index = made(program)
    lose(program, index)
    program.commands()
    program.finish(index, ERROR, attempt=2)
    assert program.value(index) == ERROR and not records(program)


def test_attempt_of_a_run_that_failed_is_not_given_twice(program: Any) -> None:
    kind = program.add_kind(stride=3, retries=0)
    index = program.sent(kind=kind)
    extras = {at: Extra(1, (), FAR, 9) for at in range(3)}
    program.on_finished(PLAIN_STREAM, index, 1, 3, [STORED] * 3, extras)
    program.drop(index)
    lose(program, index + 1)
    program.commands()
    program.lose(index, attempt=2, stride=3)
    assert set(program.refs.owned) == {index + 1, index + 2}
    lose(program, index + 2)
    assert sends(program.commands()) == [(index, 3)]

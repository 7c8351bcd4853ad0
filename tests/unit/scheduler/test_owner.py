"""The client's machine, plain tasks: exactly these commands, and every invariant after each event."""

from __future__ import annotations

from typing import Any

import pytest

from outboard.ids import PLAIN_STREAM, ObjectId, Span
from outboard.scheduler.kinds import POISON_DEATHS
from outboard.scheduler.notices import Free
from outboard.scheduler.outcomes import (
    CancelledMark,
    EncodeFailedMark,
    LostMark,
    NodeLostMark,
    RefusedMark,
    ReleasedMark,
    is_failure,
)
from outboard.scheduler.owner import (
    OUTSTANDING_MIN,
    OUTSTANDING_NBYTES,
    Extra,
    LostCause,
    SendCancel,
    Settled,
    Want,
)
from outboard.scheduler.states import InvalidTransition, TaskEvent, TaskState

pytestmark = pytest.mark.timeout(10)

ME = 7
VALUE = b"\x80value"
ERROR = b"\x12error"
STORED = b"\x0astored"
REFUSED = RefusedMark("f", "too large", {"CPU": 2}, {"CPU": 1})
GONE = NodeLostMark("gone")


def sends(commands: list[Any]) -> list[tuple[int, int, int]]:
    """What was sent: (first, count, attempt) each."""
    return [(c.first, len(c.tasks), c.attempt) for c in commands if hasattr(c, "tasks")]


def name(seq: int) -> ObjectId:
    return ObjectId(ME, seq)


# -- submit, send, finish ---------------------------------------------------------------------------------------------


def test_a_task_is_sent_and_its_value_stays_until_its_reference_is_dropped(program: Any) -> None:
    index = program.submit()
    assert program.unanswered == 1 and repr(program.owner) == "<Owner 7 1 unanswered, 1 objects>"
    (send,) = program.commands()
    assert (send.kind, send.first, send.attempt) == (program.kind, index, 1) and send.tasks[0].call == b"call"
    assert repr(send.tasks[0]) == f"<Task {index} f sent attempt 1>"
    program.finish(index)
    assert program.value(index) == VALUE and not program.unanswered and not program.kind.outstanding
    program.drop(index)
    assert not program.refs.owned and not program.commands()


def test_lone_task_may_be_sent_without_a_turn(program: Any) -> None:
    index = program.submit_at_once(program.kind, b"call")
    assert index and not program.commands() and program.kind.outstanding == 1
    program.lose(index)
    assert sends(program.commands()) == [(index, 1, 2)]


def test_task_takes_its_turn_when_something_else_waits_or_it_cannot_be_sent(program: Any) -> None:
    refused = program.add_kind()
    program.on_refused(refused.id, REFUSED)
    for kind in (refused, program.add_kind(stride=2), program.add_kind(credit=0)):
        assert program.submit_at_once(kind, b"call") == 0
    program.submit()
    assert program.submit_at_once(program.kind, b"call") == 0 and program.unanswered == 1


def test_tasks_whose_indices_follow_each_other_are_sent_together(program: Any) -> None:
    first = program.submit()
    program.submit()
    program.new_seq()
    third = program.submit()
    assert sends(program.commands()) == [(first, 2, 1), (third, 1, 1)]


def test_tasks_of_several_attempts_are_sent_apart(program: Any) -> None:
    first, second = program.sent(), program.sent()
    program.lose(first)
    program.give_back(second)
    assert sends(program.commands()) == [(first, 1, 2), (second, 1, 1)]


def test_each_result_of_a_task_with_several_is_an_object(program: Any) -> None:
    kind = program.add_kind(stride=3)
    index = program.sent(kind=kind)
    assert program.new_seq() == index + 3
    dependent = program.submit(index + 2)
    program.on_finished(PLAIN_STREAM, index, 1, 3, [VALUE, ERROR, STORED], {2: Extra(1, ())})
    assert [program.value(index + i) for i in range(3)] == [VALUE, ERROR, STORED]
    assert program.refs.owned[dependent].state is TaskState.READY
    program.drop(index, index + 1)
    assert set(program.refs.owned) == {index + 2, dependent}
    program.drop(index + 2)
    assert sends(program.commands()) == [(dependent, 1, 1)]  # which holds it
    program.finish(dependent)
    assert program.take_commands() == [Free(name(index + 2), 1)]


def test_results_of_several_tasks_with_extras_come_in_one_frame(program: Any) -> None:
    first, second = program.submit(), program.submit()
    program.commands()
    program.on_finished(PLAIN_STREAM, first, 1, 1, [VALUE, STORED], {1: Extra(1, ())})
    program.drop(first, second)
    assert program.take_commands() == [Free(name(second), 1)]


def test_result_of_a_released_reference_is_freed_when_it_comes(program: Any) -> None:
    index = program.sent()
    program.drop(index)
    assert program.refs.owned and program.unanswered == 1
    program.finish(index, STORED, extra=Extra(1, ()))
    assert not program.refs.owned and program.take_commands() == [Free(name(index), 1)]


def test_small_result_of_a_released_reference_is_forgotten(program: Any) -> None:
    index = program.sent()
    program.drop(index)
    program.finish(index)
    assert not program.refs.owned and not program.take_commands()


def test_watched_object_is_reported_once(program: Any) -> None:
    index = program.sent()
    entry = program.refs.owned[index]
    assert not entry.watched
    entry.watched = True
    assert entry.watched
    program.finish(index)
    assert program.take_commands() == [Settled(name(index), entry)] and not entry.watched
    program.on_link_lost(GONE)
    assert not program.take_commands()


def test_is_failure_knows_marks_and_errors() -> None:
    assert is_failure(ERROR) and is_failure(CancelledMark("f"))
    assert not is_failure(VALUE) and not is_failure(STORED)


# -- inputs -----------------------------------------------------------------------------------------------------------


def test_task_waits_for_all_of_its_inputs(program: Any) -> None:
    a, b = program.sent(), program.sent()
    c = program.submit(a, b, a)
    assert not program.commands() and program.refs.owned[c].state is TaskState.WAITING
    program.finish(a)
    assert not program.commands()
    program.finish(b)
    assert sends(program.commands()) == [(c, 1, 1)]
    program.drop(a, b)
    assert {a, b} < set(program.refs.owned), "the task holds them until it has settled"
    program.finish(c)
    assert set(program.refs.owned) == {c}


def test_task_with_inputs_that_are_there_is_ready(program: Any) -> None:
    a = program.put()
    assert sends((program.submit(a), program.commands())[1])


def test_objects_that_a_task_holds_live_as_long_as_it_may_run(program: Any) -> None:
    held = program.put(stored=0)
    index = program.submit(held=(name(held),))
    program.drop(held)
    assert sends(program.commands()) and held in program.refs.owned
    program.finish(index)
    assert program.take_commands() == [Free(name(held), 0)]


def test_dependency_that_fails_fails_its_dependents_with_the_same_error(program: Any) -> None:
    a = program.sent()
    b = program.submit(a)
    c = program.submit(b)
    program.finish(a, ERROR)
    assert program.value(b) == program.value(c) == ERROR and not program.unanswered
    assert not program.commands()
    d = program.submit(c)
    assert program.value(d) == ERROR and program.refs.owned[d].state is TaskState.FAILED


def test_dependency_that_is_cancelled_cancels_its_dependents(program: Any) -> None:
    a = program.submit()
    b = program.submit(a)
    program.cancel(a)
    assert program.value(b) == CancelledMark("f")


def test_dependency_that_is_lost_fails_its_dependents(program: Any) -> None:
    a = program.sent(kind=program.add_kind(retries=0))
    b = program.submit(a)
    program.lose(a)
    assert program.value(b) == LostMark(LostCause.PROCESS, "f", None, 1, "death")


def test_task_whose_input_was_released_fails(program: Any) -> None:
    gone = program.put()
    program.drop(gone)
    index = program.submit(gone)
    assert isinstance(program.value(index), ReleasedMark)


def test_failed_and_missing_inputs_together_fail_at_once(program: Any) -> None:
    a, b = program.sent(), program.put()
    program.refs.owned[b].value = EncodeFailedMark(ValueError())
    index = program.submit(a, b)
    assert is_failure(program.value(index))
    program.finish(a)
    assert program.refs.owned[index].state is TaskState.FAILED


@pytest.mark.parametrize("value", [VALUE, ERROR])
def test_chain_of_ten_thousand_dependents_needs_no_recursion(program: Any, value: bytes) -> None:
    owner = program.owner
    first = program.sent()
    last = first
    for _ in range(10_000):
        last = owner.submit(program.kind, b"call", (name(last),))
    program.finish(first, value)
    if value == VALUE:
        for index in range(first + 1, last + 1):
            owner.plan_sends()
            owner.take_commands()
            owner.on_finished(PLAIN_STREAM, index, 1, 1, [value])
    assert program.value(last) == value and not program.unanswered
    for index in range(first, last + 1):
        owner.refs.drop(name(index))
    assert not program.refs.owned


def test_failed_chain_ends_although_nobody_refers_to_it(program: Any) -> None:
    a = program.sent()
    b = program.submit(a)
    c = program.submit(b)
    program.drop(a, b, c)
    program.finish(a, ERROR)
    assert not program.refs.owned


# -- losses, retries, returns -----------------------------------------------------------------------------------------


def test_lost_task_is_sent_again_with_the_next_attempt(program: Any) -> None:
    index = program.sent()
    program.lose(index)
    assert sends(program.commands()) == [(index, 1, 2)]
    program.finish(index, attempt=2)
    assert program.value(index) == VALUE


@pytest.mark.parametrize("cause", [LostCause.PROCESS, LostCause.MACHINE])
def test_losses_are_limited_by_cause(program: Any, cause: LostCause) -> None:
    index = program.sent(kind=program.add_kind(retries=1, machine_retries=1))
    program.lose(index, cause)
    other = LostCause.MACHINE if cause is LostCause.PROCESS else LostCause.PROCESS
    program.commands()
    program.lose(index, other, attempt=2)
    program.commands()
    program.lose(index, cause, attempt=3)
    assert program.value(index) == LostMark(cause, "f", None, 3, "death") and not program.kind.outstanding


def test_limits_below_zero_are_none(program: Any) -> None:
    index = program.sent(kind=program.add_kind(retries=-1, machine_retries=-1))
    for attempt in range(1, POISON_DEATHS):
        program.lose(index, LostCause.MACHINE if attempt % 2 else LostCause.PROCESS, attempt=attempt)
        program.commands()
    assert program.refs.owned[index].state is TaskState.SENT


def test_no_retry_of_a_function_whose_runs_all_ended_their_workers(program: Any) -> None:
    kind = program.add_kind(retries=-1)
    index = program.sent(kind=kind)
    for attempt in range(1, POISON_DEATHS + 1):
        program.lose(index, attempt=attempt)
        program.commands()
    assert program.value(index).attempts == POISON_DEATHS
    program.finish(program.sent(kind=kind))
    index = program.sent(kind=kind)
    program.lose(index)
    assert sends(program.commands()) == [(index, 1, 2)], "a success ends the row"


@pytest.mark.parametrize("mark", [None, "why"])
def test_task_of_a_lost_binding_is_not_run_again(program: Any, mark: Any) -> None:
    index = program.sent()
    program.lose(index, LostCause.BINDING, mark=mark)
    assert program.value(index) == (mark or LostMark(LostCause.BINDING, "f", None, 1, "death"))


def test_late_result_after_a_retry_is_dropped(program: Any) -> None:
    index = program.sent()
    program.lose(index)
    program.finish(index, STORED, extra=Extra(1, ()))
    assert program.take_commands() == [Free(name(index), 1)] and program.value(index) is None
    program.commands()
    program.finish(index)
    assert program.counts["late result"] == 2 and program.value(index) is None
    program.finish(index, attempt=2)
    program.finish(index, attempt=2)
    assert program.counts["late result"] == 3 and program.value(index) == VALUE


def test_late_loss_and_late_return_change_nothing(program: Any) -> None:
    index = program.sent()
    program.lose(index)
    program.commands()
    program.lose(index)
    program.give_back(index)
    program.lose(999)
    assert program.counts["late loss"] == 2
    assert program.refs.owned[index].attempt == 2 and program.kind.outstanding == 1


def test_returned_task_is_sent_again_at_no_cost(program: Any) -> None:
    held = program.put()
    index = program.sent(held=(name(held),), nbytes=5)
    program.drop(held)
    program.give_back(index)
    assert not program.kind.outstanding and not program.kind.nbytes
    assert sends(program.commands()) == [(index, 1, 1)] and held in program.refs.owned


def test_raised_task_runs_again_while_it_may(program: Any) -> None:
    index = program.sent(kind=program.add_kind(retries=1))
    assert program.on_raised(index, 1)
    assert sends(program.commands()) == [(index, 1, 2)]
    assert not program.on_raised(index, 1) and not program.on_raised(index, 2) and not program.on_raised(999, 1)
    program.finish(index, ERROR, attempt=2)
    assert program.value(index) == ERROR


def test_raising_shows_that_the_worker_lives(program: Any) -> None:
    index = program.sent()
    program.lose(index)
    program.commands()
    assert program.kind.deaths == 1 and program.on_raised(index, 2) and not program.kind.deaths


def test_raised_task_of_a_refused_kind_keeps_its_error(program: Any) -> None:
    index = program.sent()
    program.on_refused(program.kind.id, REFUSED)
    assert not program.on_raised(index, 1)


# -- cancel -----------------------------------------------------------------------------------------------------------


def test_task_that_was_not_sent_is_cancelled_without_a_word(program: Any) -> None:
    index = program.submit()
    program.cancel(index)
    assert program.value(index) == CancelledMark("f") and not program.commands() and not program.backlog


def test_waiting_task_is_cancelled_and_lets_its_inputs_go(program: Any) -> None:
    a = program.sent()
    b = program.submit(a)
    program.cancel(b)
    program.drop(a)
    program.finish(a)
    assert set(program.refs.owned) == {b}


def test_sent_task_is_cancelled_at_once_and_counts_until_the_node_answers(program: Any) -> None:
    held = program.put()
    index = program.sent(held)
    program.cancel(index, force=True, kill_after=0.0)
    assert program.take_commands() == [SendCancel([Span(PLAIN_STREAM, index, 1, 1)], True, 0.0)]
    assert program.value(index) == CancelledMark("f") and program.kind.outstanding == 1
    program.drop(held)
    assert held in program.refs.owned
    program.lose(index, LostCause.CANCELLED)
    assert not program.kind.outstanding and set(program.refs.owned) == {index}
    assert not program.counts["late loss"]


def test_result_while_being_cancelled_is_freed(program: Any) -> None:
    index = program.sent()
    program.cancel(index)
    program.take_commands()
    program.finish(index, STORED, extra=Extra(1, ()))
    assert program.take_commands() == [Free(name(index), 1)]
    assert program.counts["result of cancelled"] == 1 and not program.kind.outstanding


def test_lost_while_cancelled_is_no_retry(program: Any) -> None:
    index = program.sent()
    program.cancel(index)
    program.lose(index)
    assert not sends(program.commands()) and not program.kind.outstanding


def test_returned_then_cancelled(program: Any) -> None:
    index = program.sent()
    program.give_back(index)
    program.cancel(index)
    assert not program.commands() and not program.kind.outstanding


def test_returned_while_cancelled(program: Any) -> None:
    index = program.sent()
    program.cancel(index)
    program.give_back(index)
    assert not sends(program.commands()) and not program.kind.outstanding


def test_answer_for_a_cancelled_task_that_nobody_refers_to_gives_the_credit_back(program: Any) -> None:
    index = program.sent()
    program.cancel(index)
    program.drop(index)
    assert not program.refs.owned and program.kind.outstanding == 1
    program.lose(index, LostCause.CANCELLED, attempt=2)
    assert program.kind.outstanding == 1, "of another attempt"
    program.finish(index)
    assert not program.kind.outstanding


def test_finished_and_unknown_tasks_are_not_cancelled(program: Any) -> None:
    index = program.sent()
    program.finish(index)
    stored = program.put()
    for seq in (index, stored, 999):
        program.cancel(seq)
    assert program.value(index) == VALUE and not program.take_commands()


def test_task_is_cancelled_by_any_of_its_results(program: Any) -> None:
    kind = program.add_kind(stride=3)
    index = program.sent(kind=kind)
    program.cancel(index + 2)
    assert program.take_commands() == [SendCancel([Span(PLAIN_STREAM, index, 1, 1, 3)], False, None)]
    assert {program.value(index + i) for i in range(3)} == {CancelledMark("f")}
    program.lose(index, LostCause.CANCELLED, stride=3)
    assert not kind.outstanding


# -- refused kinds, lost node -----------------------------------------------------------------------------------------


def test_task_of_a_refused_kind_fails_when_it_is_submitted(program: Any) -> None:
    program.on_refused(program.kind.id, REFUSED)
    index = program.submit()
    assert program.value(index) == REFUSED and not program.commands()
    failed = program.submit(index)
    assert program.value(failed) == REFUSED


def test_refused_kind_fails_what_waits_and_leaves_what_was_sent(program: Any) -> None:
    sent = program.sent()
    waiting, ready, other = program.submit(sent), program.submit(), program.submit(kind=program.add_kind())
    program.on_refused(program.kind.id, REFUSED)
    program.on_refused(program.kind.id, "again")
    program.on_refused(99, REFUSED)
    assert program.value(waiting) == program.value(ready) == REFUSED and program.value(sent) is None
    assert sends(program.commands()) == [(other, 1, 1)]
    program.finish(sent)
    assert program.value(sent) == VALUE


@pytest.mark.parametrize("event", ["lose", "give_back"])
def test_what_a_refused_kind_had_sent_is_not_sent_again(program: Any, event: str) -> None:
    index = program.sent()
    program.on_refused(program.kind.id, REFUSED)
    getattr(program, event)(index)
    assert program.value(index) == REFUSED and not program.commands() and not program.kind.outstanding


def test_want_is_taken_back_from_a_refused_kind(program: Any) -> None:
    kind = program.add_kind(credit=0)
    program.submit(kind=kind)
    assert program.commands() == [Want(kind, 1)]
    program.on_refused(kind.id, REFUSED)
    assert program.commands() == [Want(kind, 0)]


def test_lost_node_fails_everything_in_flight(program: Any) -> None:
    sent, cancelled, put = program.sent(nbytes=5, held=()), program.sent(), program.put(stored=0)
    program.cancel(cancelled)
    waiting = program.submit(sent)
    ready = program.submit(put, held=(name(put),), nbytes=9)
    small = program.put()
    program.take_commands()
    program.on_link_lost(GONE)
    assert [program.value(seq) for seq in (sent, waiting, ready, put)] == [GONE] * 4
    assert program.value(small) == VALUE and program.value(cancelled) == CancelledMark("f")
    assert not program.unanswered and not program.backlog and not program.kind.outstanding
    program.finish(sent)
    program.drop(sent, cancelled, put, waiting, ready, small)
    assert not program.refs.owned and not program.commands()


# -- credit -----------------------------------------------------------------------------------------------------------


def test_no_more_is_sent_than_credit_allows(program: Any) -> None:
    kind = program.add_kind(credit=2)
    first, *_ = [program.submit(kind=kind) for _ in range(5)]
    commands = program.commands()
    assert sends(commands) == [(first, 2, 1)] and commands[-1] == Want(kind, 3)
    assert not program.commands()
    program.finish(first)
    assert sends(program.commands()) == [(first + 2, 1, 1)]
    assert repr(kind) == f"<Kind {kind.id} f 2/2 outstanding, 2 waiting>"


def test_grant_lets_more_be_sent_and_the_node_is_told_again_when_it_was_not_enough(program: Any) -> None:
    kind = program.add_kind(credit=1)
    first, *_ = [program.submit(kind=kind) for _ in range(3)]
    assert program.commands()[-1] == Want(kind, 2)
    for _ in range(5):
        program.submit(kind=kind)
    program.on_grant(kind.id, 3)  # by the node's reckoning nobody waits now
    commands = program.commands()
    assert sends(commands) == [(first + 1, 2, 1)] and commands[-1] == Want(kind, 5)
    program.on_grant(kind.id, 4)
    assert sends(program.commands()) == [(first + 3, 1, 1)] and kind.wanted == 4
    program.on_grant(kind.id, 64)
    assert sends(program.commands()) == [(first + 4, 4, 1)] and not kind.wanted


def test_node_is_told_when_nothing_waits_any_more(program: Any) -> None:
    kind = program.add_kind(credit=1)
    first, second = program.submit(kind=kind), program.submit(kind=kind)
    program.commands()
    program.finish(first)
    assert program.commands()[-1] == Want(kind, 0)
    program.finish(second)
    program.on_grant(99, 5)
    assert not program.commands()


def test_lowered_credit_holds_sends_back(program: Any) -> None:
    kind = program.add_kind(credit=3)
    first, *_ = [program.submit(kind=kind) for _ in range(3)]
    program.commands()
    program.on_grant(kind.id, 1)
    program.submit(kind=kind)
    assert program.commands() == [Want(kind, 1)]
    program.on_finished(PLAIN_STREAM, first, 1, 1, [VALUE, VALUE])
    assert not program.commands()
    program.finish(first + 2)
    assert sends(program.commands()) == [(first + 3, 1, 1)]


def test_cancelled_tasks_use_no_credit(program: Any) -> None:
    kind = program.add_kind(credit=1)
    first, second = program.submit(kind=kind), program.submit(kind=kind)
    program.cancel(first)
    assert sends(program.commands()) == [(second, 1, 1)]


def test_large_arguments_stop_the_flow_at_the_window(program: Any) -> None:
    held = program.put()
    tasks = [program.submit(held=(name(held),), nbytes=OUTSTANDING_NBYTES // 2 + 1) for _ in range(OUTSTANDING_MIN + 2)]
    assert sends(program.commands()) == [(tasks[0], OUTSTANDING_MIN, 1)]
    program.finish(tasks[0])
    assert sends(program.commands()) == [(tasks[OUTSTANDING_MIN], 1, 1)]
    for index in tasks[1 : OUTSTANDING_MIN + 1]:
        program.finish(index)
    assert sends(program.commands()) == [(tasks[-1], 1, 1)]
    program.finish(tasks[-1])
    assert not program.kind.nbytes


def test_impossible_event_is_an_error_that_names_the_task_and_changes_nothing(program: Any) -> None:
    task = program.refs.owned[program.submit()]
    with pytest.raises(InvalidTransition, match=r"Task 1 f ready attempt 1.*finish while ready"):
        task.move(TaskEvent.FINISH)
    assert task.state is TaskState.READY

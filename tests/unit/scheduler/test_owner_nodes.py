"""The client's machine over several nodes: where tasks go, and what becomes of them when sessions end."""

from __future__ import annotations

from typing import Any

import pytest

from outboard.ids import PLAIN_STREAM, ObjectId, Span
from outboard.scheduler.notices import Free
from outboard.scheduler.outcomes import LostMark, NodeLostMark
from outboard.scheduler.owner import (
    OUTSTANDING_NBYTES,
    Array,
    Extra,
    LostCause,
    Owner,
    Send,
    SendCancel,
    SendItems,
    Want,
)

pytestmark = pytest.mark.timeout(10)

ME, HOME, FAR, OTHER = 7, 90, 91, 92
VALUE, STORED = b"\x80value", b"\x0astored"


def sent(commands: list[Any]) -> list[tuple[int, int, int, int]]:
    """What was sent: (node, first, count, attempt) each."""
    plain = [(c.node, c.first, len(c.tasks), c.attempt) for c in commands if isinstance(c, Send)]
    return plain + [(c.node, c.first, c.count, c.attempt) for c in commands if isinstance(c, SendItems)]


def wants(commands: list[Any]) -> list[tuple[int, int]]:
    return [(c.node, c.waiting) for c in commands if isinstance(c, Want)]


@pytest.fixture
def program(program: Any) -> Any:
    """As everywhere, with a home that has a name."""
    program.owner = Owner(ME, 4, HOME, joined=True)
    program.refs = program.owner.refs
    program.kind = program.owner.add_kind("f", process_retries=3, machine_retries=3, stride=1)
    return program


def finish(program: Any, index: int, node: int, attempt: int = 1, value: bytes = VALUE, **extra: Any) -> None:
    extras = {0: Extra(attempt, (), node, extra["nbytes"])} if extra else None
    program.on_finished(PLAIN_STREAM, index, attempt, 1, [value], extras, node)


def test_own_node_is_known_by_its_name_and_by_zero(program: Any) -> None:
    a, b = program.submit(), program.submit()
    assert sent(program.commands()) == [(0, a, 2, 1)]
    finish(program, a, HOME)
    finish(program, b, 0)
    assert not program.unanswered and not program.counts
    program.on_grant(program.kind.id, 9, HOME)
    assert program.kind.home.credit == 9


def test_tasks_go_on_to_further_nodes_in_blocks(program: Any) -> None:
    program.on_node_joined(FAR, 2, 1)
    first = program.submit()
    for _ in range(8):
        program.submit()
    commands = program.commands()
    assert sent(commands) == [(0, first, 4, 1), (FAR, first + 4, 2, 1)]
    assert wants(commands) == [(0, 3), (FAR, 3)]
    finish(program, first + 4, FAR)
    assert sent(program.commands()) == [(FAR, first + 6, 1, 1)]
    program.on_grant(program.kind.id, 4, FAR)
    commands = program.commands()
    assert sent(commands) == [(FAR, first + 7, 2, 1)] and wants(commands) == [(0, 0), (FAR, 0)]


def test_few_tasks_are_dealt_by_the_credit_that_is_left(program: Any) -> None:
    program.on_node_joined(FAR, 4, 4)
    array = program.array(6)
    assert sent(program.commands()) == [(0, 0, 3, 1), (FAR, 3, 3, 1)]
    assert array.sent_spans(0) == [Span(array.stream, 0, 3, 1)]
    assert array.sent_spans(FAR) == [Span(array.stream, 3, 3, 1)]


def test_lone_task_stays_at_home(program: Any) -> None:
    program.on_node_joined(FAR, 64, 4)
    assert program.submit_at_once(program.kind, b"call")
    assert program.kind.home.outstanding == 1


def test_without_credit_at_home_all_goes_elsewhere(program: Any) -> None:
    program.on_grant(program.kind.id, 0)
    assert program.submit_at_once(program.kind, b"call") == 0
    index = program.submit()
    commands = program.commands()
    assert not sent(commands) and wants(commands) == [(0, 1)]
    program.on_node_joined(FAR, 2, 1)
    assert sent(program.commands()) == [(FAR, index, 1, 1)]


def test_draining_node_gives_back_and_gets_nothing_more(program: Any) -> None:
    program.on_node_joined(FAR, 4, 1)
    array = program.array(6)
    program.commands()
    program.on_grant(program.kind.id, 0, FAR)
    program.on_returned([Span(array.stream, 4, 2, 1)], FAR)
    assert sent(program.commands()) == [(0, 4, 1, 1)] and program.kind.shares[FAR].outstanding == 1
    program.finish_items(array, 0, [VALUE] * 3)
    assert sent(program.commands()) == [(0, 5, 1, 1)]


def test_task_goes_where_most_bytes_of_its_inputs_lie(program: Any) -> None:
    program.on_node_joined(FAR, 4, 1)
    program.on_node_joined(OTHER, 4, 1)
    big, small = program.submit(), program.submit()
    program.commands()
    finish(program, big, 0, value=STORED, nbytes=1 << 20)  # it says so itself, whatever was dealt where
    program.on_finished(PLAIN_STREAM, small, 1, 1, [STORED], {0: Extra(1, (), OTHER, 1 << 16)}, FAR)
    here = program.submit(big, small)
    there = program.submit(small)
    assert set(sent(program.commands())) == {(0, here, 1, 1), (OTHER, there, 1, 1)}


def test_location_goes_with_its_object(program: Any) -> None:
    seq = program.owner.new_seq()
    program.owner.put(seq, STORED, 0, node=HOME, nbytes=5)
    assert program.refs.located[program.name(seq)] == (0, 5)
    program.drop(seq)
    assert not program.refs.located and program.take_commands() == [Free(program.name(seq), 0)]


def test_answers_count_only_from_where_the_task_is(program: Any) -> None:
    program.on_node_joined(FAR, 4, 1)
    program.on_grant(program.kind.id, 0)
    index, array = program.submit(), program.array(1)
    assert sent(program.commands()) == [(FAR, index, 1, 1), (FAR, 0, 1, 1)]
    for node in (0, HOME, OTHER):
        finish(program, index, node)
        program.on_finished(array.stream, 0, 1, 1, [STORED], {0: Extra(1, (), node, 1)}, node)
        spans = [Span(array.stream, 0, 1, 1), Span(PLAIN_STREAM, index, 1, 1)]
        program.on_lost(LostCause.MACHINE, spans, None, None, node)
        program.on_returned(spans, node)
        assert not program.on_raised(index, 1, node)
    assert program.unanswered == 2 and program.counts["late result"] == 6 and program.counts["late loss"] == 6
    finish(program, index, FAR)
    program.on_finished(array.stream, 0, 1, 1, [VALUE], None, FAR)
    assert not program.unanswered and not program.kind.outstanding


def test_index_that_one_node_gave_back_counts_from_the_next_one_only(program: Any) -> None:
    program.on_node_joined(FAR, 4, 1)
    array = program.array(6)
    program.commands()
    program.on_returned([Span(array.stream, 0, 1, 1)], 0)
    program.on_grant(program.kind.id, 0)
    assert sent(program.commands()) == [(FAR, 0, 1, 1)]
    program.finish_items(array, 0, [b"\x80late"])
    program.on_finished(array.stream, 0, 1, 1, [VALUE], None, FAR)
    assert [tuple(c) for c in array.completions] == [(0, 1, [VALUE])]


def test_cancel_goes_to_each_node_that_has_something(program: Any) -> None:
    program.on_node_joined(FAR, 4, 1)
    array = program.array(7)
    program.commands()
    program.cancel_array(array, kill_after=None)
    assert program.take_commands() == [
        SendCancel([Span(array.stream, 0, 4, 1)], False, None),
        SendCancel([Span(array.stream, 4, 3, 1)], False, None, FAR),
    ]
    program.on_grant(program.kind.id, 0)
    index = program.submit()
    program.commands()
    program.cancel(index)
    assert program.take_commands() == [SendCancel([Span(PLAIN_STREAM, index, 1, 1)], False, None, FAR)]
    program.on_session_lost(FAR)
    program.on_lost(LostCause.CANCELLED, [Span(array.stream, 0, 4, 1)], None)
    assert not program.kind.outstanding and not program.owner._books.owed
    program.dispose_array(array)
    assert not program.arrays


# -- sessions that end ------------------------------------------------------------------------------------------------


def away(program: Any, **limits: int) -> tuple[int, Array]:
    """One task and an array of three, all at a further node."""
    program.on_node_joined(FAR, 9, 1)
    kind = program.owner.add_kind("g", process_retries=0, machine_retries=limits.get("machine_retries", 3), stride=1)
    program.on_grant(kind.id, 0)
    index, array = program.submit(kind=kind), program.array(3, kind)
    assert sent(program.commands()) == [(FAR, index, 1, 1), (FAR, 0, 3, 1)]
    return index, array


def test_closed_session_had_begun_nothing(program: Any) -> None:
    index, array = away(program, machine_retries=0)
    program.on_session_closed(FAR)
    assert array.kind.shares == {0: array.kind.home} and array.unsent() == 3 and FAR not in program.nodes
    program.on_node_joined(FAR, 9, 1)
    assert sent(program.commands()) == [(FAR, index, 1, 1), (FAR, 0, 3, 1)]


def test_what_a_lost_session_had_runs_again_with_the_next_attempt(program: Any) -> None:
    index, array = away(program)
    program.on_finished(array.stream, 1, 1, 1, [VALUE], None, FAR)
    program.on_session_lost(FAR, "silent")
    program.on_grant(array.kind.id, 9)
    assert sent(program.commands()) == [(0, index, 1, 2), (0, 0, 1, 2), (0, 2, 1, 2)]
    finish(program, index, FAR)  # it was not dead after all
    program.on_finished(array.stream, 0, 1, 1, [VALUE], None, FAR)
    assert program.counts["late result"] == 2 and program.unanswered == 3


def test_without_retries_what_a_lost_session_had_fails_and_what_waited_runs(program: Any) -> None:
    program.on_node_joined(FAR, 1, 1)
    kind = program.owner.add_kind("g", process_retries=0, machine_retries=0, stride=1)
    program.on_grant(kind.id, 0)
    a, b = program.submit(kind=kind), program.submit(kind=kind)
    program.commands()
    program.on_session_lost(FAR, "silent")
    assert program.value(a) == LostMark(LostCause.MACHINE, "g", None, 1, None, "silent")
    program.on_grant(kind.id, 1)
    assert sent(program.commands()) == [(0, b, 1, 1)]


@pytest.mark.parametrize(("retries", "is_tried_again"), [(9, False), (-1, True)])
def test_task_under_which_two_nodes_were_lost_gets_no_third(program: Any, retries: int, is_tried_again: bool) -> None:
    index, array = away(program, machine_retries=retries)
    program.on_session_lost(FAR, "silent")
    program.on_node_joined(OTHER, 9, 1)
    assert sent(program.commands()) == [(OTHER, index, 1, 2), (OTHER, 0, 3, 2)]
    program.on_session_lost(OTHER, "gone")
    assert bool(array.unsent()) is is_tried_again and (program.value(index) is None) is is_tried_again
    if not is_tried_again:
        mark = LostMark(LostCause.MACHINE, "g", 0, 2, None, "gone")
        assert array.completions[0].values == mark and array.finished == 3
    program.on_session_lost(OTHER, "again")


def test_losses_that_a_node_survives_are_limited_by_retries_alone(program: Any) -> None:
    index = program.sent()
    for attempt in (1, 2, 3):
        program.lose(index, LostCause.MACHINE, attempt=attempt)
        program.commands()
    assert program.value(index) is None
    program.lose(index, LostCause.MACHINE, attempt=4)
    assert program.value(index) == LostMark(LostCause.MACHINE, "f", None, 4, "death")


def test_items_handed_back_before_their_session_ended_have_lost_nothing(program: Any) -> None:
    _, array = away(program, machine_retries=0)
    program.on_unsent(array, 1, 2, 1, FAR)
    program.on_session_lost(FAR)
    program.on_grant(array.kind.id, 9)
    assert array.finished == 1 and sent(program.commands()) == [(0, 1, 2, 1)]
    program.on_unsent(array, 1, 2, 1, FAR)  # too late: they are elsewhere
    assert array.kind.home.outstanding == 2


def test_bytes_are_counted_where_they_go(program: Any) -> None:
    _, array = away(program)
    program.on_item_bytes(array, 0, OUTSTANDING_NBYTES, (), FAR)
    share = array.kind.shares[FAR]
    assert share.nbytes == array.kind.nbytes == OUTSTANDING_NBYTES and share.is_window_full() and share.room() <= 0
    assert repr(share) == "<Share of 5b 4/9 outstanding>"
    program.on_item_failed(array, 0, NodeLostMark("no"), FAR)
    assert not array.kind.nbytes and not share.is_window_full()
    program.on_item_bytes(array, 1, 5, (), FAR)
    program.on_session_lost(FAR)
    assert not array.kind.nbytes


def test_large_calls_do_not_all_go_at_once_to_any_node(program: Any) -> None:
    program.on_grant(program.kind.id, 64)
    program.on_node_joined(FAR, 64, 1)
    held = program.put()
    indices = [program.submit(held=(program.name(held),), nbytes=OUTSTANDING_NBYTES // 4) for _ in range(20)]
    commands = program.commands()
    assert sum(count for _, _, count, _ in sent(commands)) == 8
    for command in commands:
        for task in command.tasks if isinstance(command, Send) else ():
            finish(program, task.index, command.node)
    assert sum(count for _, _, count, _ in sent(program.commands())) == 8
    assert program.unanswered == len(indices) - 8


def test_lost_link_ends_everything_everywhere(program: Any) -> None:
    index, array = away(program)
    program.cancel(index)
    program.on_link_lost(NodeLostMark("gone"))
    assert not program.unanswered and not array.kind.outstanding and not program.nodes
    program.on_session_lost(FAR)
    program.dispose_array(array)
    assert not program.arrays


# -- places and wants -------------------------------------------------------------------------------------------------


def test_confined_kind_uses_only_its_places(program: Any) -> None:
    program.on_node_joined(FAR, 4, 1)
    program.confine(program.kind, [FAR])
    assert program.submit_at_once(program.kind, b"call") == 0
    array = program.array(6)
    commands = program.commands()
    assert sent(commands) == [(FAR, 0, 4, 1)] and wants(commands) == [(FAR, 2)]
    program.confine(program.kind, [HOME])
    assert sent(program.commands()) == [(0, 4, 2, 1)]
    program.on_finished(array.stream, 0, 1, 1, [VALUE] * 4, None, FAR)
    program.finish_items(array, 4, [VALUE] * 2)
    program.confine(program.kind, None)
    program.extend(array, 8)
    assert sent(program.commands()) == [(0, 6, 4, 1), (FAR, 10, 4, 1)]


@pytest.mark.parametrize("is_seeking", [False, True])
def test_kind_without_a_place_waits_and_the_own_node_may_hear_of_it(program: Any, is_seeking: bool) -> None:
    program.confine(program.kind, [], is_seeking=is_seeking)
    index = program.submit()
    commands = program.commands()
    assert not sent(commands) and wants(commands) == [(0, 1)] * is_seeking
    program.on_node_joined(FAR, 4, 1)
    program.confine(program.kind, [FAR], is_seeking=is_seeking)
    commands = program.commands()
    assert sent(commands) == [(FAR, index, 1, 1)] and wants(commands) == [(0, 0)] * is_seeking


def test_own_node_hears_again_when_the_figure_has_doubled_or_halved(program: Any) -> None:
    array = program.array(8)
    assert wants(program.commands()) == [(0, 4)]
    program.extend(array, 3)
    assert wants(program.commands()) == []
    program.extend(array, 1)
    assert wants(program.commands()) == [(0, 8)]
    program.finish_items(array, 0, [VALUE] * 4)
    assert wants(program.commands()) == [(0, 4)]
    assert program.kind.wanted == 4


def test_grants_of_nodes_and_kinds_that_have_gone_change_nothing(program: Any) -> None:
    program.on_grant(program.kind.id, 5, FAR)
    program.on_grant(99, 5)
    assert program.kind.shares == {0: program.kind.home}
    program.on_node_joined(FAR, 1, 1)
    program.on_grant(program.kind.id, 5, FAR)
    assert program.kind.shares[FAR].credit == 5 and program.kind.credit == 9
    assert ObjectId(ME, 1) not in program.refs.located

"""What is reported, given back, and what became of each task of a dead worker."""

from __future__ import annotations

from typing import Any, cast

import pytest

from outboard.ids import Span
from outboard.scheduler.claims import Fate, Packet, Range
from outboard.scheduler.commands import InvalidTransition
from outboard.scheduler.intervals import Interval, cut

pytestmark = pytest.mark.timeout(10)

OWNER = 7


def interval(first: int, count: int, *, stride: int = 1, attempt: int = 0, owner: int = OWNER) -> Interval:
    return Interval(owner, 1, first, attempt, stride, 1, [b"%d" % i for i in range(count)], {0: ("held",)})


def packet(number: int, *intervals: Interval) -> Packet:
    return Packet(number, cast(Any, None), list(intervals), sum(len(i.calls) for i in intervals), 0.001)


def range_of(*packets: Packet) -> Range:
    made = Range()
    for one in packets:
        made.add(one)
    return made


def indices(intervals: list[Interval]) -> list[int]:
    return [i.first + n * i.stride for i in intervals for n in range(len(i.calls))]


def told(fate: Fate) -> tuple[list[int], list[int], list[int]]:
    return indices(fate.suspect), indices(fate.unreported), indices(fate.untouched)


# -- intervals


def test_part_keeps_calls_holds_and_indices_together() -> None:
    whole = Interval(OWNER, 0, 10, 2, 3, 1, [b"a", b"b", b"c"], {0: ("x",), 2: ("y",)}, order=5)
    part = whole.part(1, 3)
    assert (part.first, part.calls, part.holds, part.order, part.attempt) == (13, [b"b", b"c"], {1: ("y",)}, 5, 2)


@pytest.mark.parametrize(
    ("span", "kept", "taken"),
    [
        (Span(1, 10, 5, 0), [], [10, 11, 12, 13, 14]),
        (Span(1, 12, 1, 0), [10, 11, 13, 14], [12]),
        (Span(1, 0, 12, 0), [12, 13, 14], [10, 11]),
        (Span(1, 14, 9, 0), [10, 11, 12, 13], [14]),
        (Span(1, 10, 5, 1), [10, 11, 12, 13, 14], []),
        (Span(2, 10, 5, 0), [10, 11, 12, 13, 14], []),
        (Span(1, 15, 5, 0), [10, 11, 12, 13, 14], []),
    ],
)
def test_cut_parts_named_tasks_from_others(span: Span, kept: list[int], taken: list[int]) -> None:
    rest, gone = cut([interval(10, 5)], [span])
    assert indices(rest) == kept
    assert [i for s in gone for i in range(s.first, s.end)] == taken


def test_cut_counts_in_strides() -> None:
    rest, gone = cut([interval(10, 4, stride=3)], [Span(1, 13, 2, 0, 3)])
    assert indices(rest) == [10, 19] and gone == [Span(1, 13, 2, 0, 3)]


# -- reports


def test_whole_packet_is_reported_at_once() -> None:
    claims = range_of(packet(1, interval(0, 3)), packet(2, interval(3, 2)))
    assert claims.report(1, [(OWNER, 1, 0, 3, 1, 0)], True)[1] == 3
    assert [p.number for p in claims.packets] == [2] and claims.tasks == 2
    assert claims.seconds == pytest.approx(0.002)


def test_packet_is_reported_in_parts() -> None:
    claims = range_of(packet(1, interval(0, 3), interval(10, 2)))
    assert claims.report(1, [(OWNER, 1, 0, 2, 1, 0)], False)[1] == 2
    assert indices(claims.packets[0].intervals) == [2, 10, 11]
    assert claims.report(1, [(OWNER, 1, 2, 1, 1, 0), (OWNER, 1, 10, 1, 1, 0)], False)[1] == 2
    assert claims.report(1, [(OWNER, 1, 11, 1, 1, 0)], True)[1] == 1
    assert claims.tasks == 0 and claims.seconds == 0.0


def test_one_entry_may_name_adjacent_intervals() -> None:
    claims = range_of(packet(1, interval(0, 1), interval(1, 1), interval(2, 2)))
    assert claims.report(1, [(OWNER, 1, 0, 3, 1, 0)], False)[1] == 3
    assert indices(claims.packets[0].intervals) == [3]


@pytest.mark.parametrize(
    ("number", "done", "packet_done"),
    [
        (2, [(OWNER, 1, 3, 2, 1, 0)], True),  # not the packet being run
        (1, [(OWNER, 1, 1, 2, 1, 0)], False),  # not its next task
        (1, [(OWNER, 1, 0, 3, 1, 1)], True),  # another attempt
        (1, [(8, 1, 0, 3, 1, 0)], True),  # another owner
        (1, [(OWNER, 1, 0, 4, 1, 0)], True),  # more than there are
        (1, [(OWNER, 1, 0, 2, 1, 0)], True),  # said to be done with a task left
    ],
)
def test_impossible_report_changes_nothing(number: int, done: list[Any], packet_done: bool) -> None:
    claims = range_of(packet(1, interval(0, 3)), packet(2, interval(3, 2)))
    with pytest.raises(InvalidTransition):
        claims.report(number, done, packet_done)
    assert [indices(p.intervals) for p in claims.packets] == [[0, 1, 2], [3, 4]] and claims.tasks == 5


# -- recalls


def test_packets_given_back_leave_the_range() -> None:
    claims = range_of(*(packet(n, interval(10 * n, 2)) for n in range(1, 5)))
    assert [p.number for p in claims.take_back([3, 2])] == [2, 3]
    assert [p.number for p in claims.packets] == [1, 4] and claims.tasks == 4


def test_packet_that_is_not_outstanding_cannot_come_back() -> None:
    claims = range_of(packet(1, interval(0, 2)))
    with pytest.raises(InvalidTransition):
        claims.take_back([1, 9])
    assert claims.tasks == 2


def test_end_of_the_packet_being_run_is_given_back() -> None:
    claims = range_of(packet(1, interval(0, 3), interval(10, 2)), packet(2, interval(20, 2)))
    claims.report(1, [(OWNER, 1, 0, 1, 1, 0)], False)
    ran, rest = claims.give_back(1, 3)
    assert indices(rest) == [2, 10, 11] and indices(ran.intervals) == [1]
    assert rest[1].holds == {0: ("held",)}
    assert claims.tasks == 3 and claims.seconds == pytest.approx(0.003)
    assert claims.report(1, [(OWNER, 1, 1, 1, 1, 0)], True)[1] == 1


def test_all_that_is_left_may_be_given_back() -> None:
    claims = range_of(packet(1, interval(0, 3)))
    claims.report(1, [(OWNER, 1, 0, 1, 1, 0)], False)
    assert indices(claims.give_back(1, 2)[1]) == [1, 2]
    assert claims.tasks == 0 and [p.number for p in claims.packets] == [1]
    assert claims.report(1, [], True)[1] == 0
    assert not claims.packets


@pytest.mark.parametrize(("number", "count"), [(2, 1), (1, 4), (1, 0)])
def test_what_is_not_there_cannot_be_given_back(number: int, count: int) -> None:
    claims = range_of(packet(1, interval(0, 3)), packet(2, interval(3, 2)))
    with pytest.raises(InvalidTransition):
        claims.give_back(number, count)
    assert claims.tasks == 5 and indices(claims.packets[0].intervals) == [0, 1, 2]


# -- deaths


def test_returned_packets_have_not_begun() -> None:
    claims = range_of(packet(1, interval(0, 3)), packet(2, interval(3, 2)))
    fates = claims.autopsy([2], (OWNER, 1, 0))
    assert told(fates[0]) == ([0], [], [1, 2])
    assert told(fates[1]) == ([], [], [3, 4])
    assert not claims.packets and claims.tasks == 0


def test_tasks_before_the_suspect_ran_and_died_with_the_worker() -> None:
    claims = range_of(packet(1, interval(0, 5)))
    assert told(claims.autopsy([], (OWNER, 1, 3))[0]) == ([3], [0, 1, 2], [4])


def test_reported_tasks_are_settled_and_not_lost() -> None:
    claims = range_of(packet(1, interval(0, 5)))
    claims.report(1, [(OWNER, 1, 0, 2, 1, 0)], False)
    assert told(claims.autopsy([], (OWNER, 1, 3))[0]) == ([3], [2], [4])


def test_suspect_is_found_among_several_intervals() -> None:
    claims = range_of(packet(1, interval(0, 2), interval(10, 3, stride=2), interval(30, 2)))
    assert told(claims.autopsy([], (OWNER, 1, 12))[0]) == ([12], [0, 1, 10], [14, 30, 31])


def test_nothing_has_begun_when_the_board_names_nothing() -> None:
    claims = range_of(packet(1, interval(0, 2)), packet(2, interval(2, 2)))
    assert [told(f) for f in claims.autopsy([2], None)] == [([], [], [0, 1]), ([], [], [2, 3])]


def test_packet_taken_but_not_begun_is_untouched_when_the_board_names_a_reported_task() -> None:
    claims = range_of(packet(1, interval(0, 2)), packet(2, interval(2, 2)))
    claims.report(1, [(OWNER, 1, 0, 2, 1, 0)], True)
    assert [told(f) for f in claims.autopsy([], (OWNER, 1, 1))] == [([], [], [2, 3])]


def test_word_that_names_another_owner_names_nothing_here() -> None:
    claims = range_of(packet(1, interval(0, 2)))
    assert told(claims.autopsy([], (8, 1, 0))[0]) == ([], [], [0, 1])

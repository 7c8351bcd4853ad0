"""What a worker says of a packet and when, by a clock that goes only when a test says so.

The real worker, part and client over a link that only listens. The alarm goes off in the middle of whatever lets time
pass: a task, the pickling of its result, or the look at the clock after it.
"""

from __future__ import annotations

import mmap
import os
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from outboard import packetpart
from outboard.client import Client
from outboard.clientvalues import ClientValues
from outboard.failures import as_exception
from outboard.ids import ObjectId
from outboard.packetpart import ITEM_SECONDS
from outboard.process.board import SLOT_NBYTES, Slot
from outboard.results import PART_NBYTES
from outboard.rpc.codec import Frame
from outboard.rpc.protos import outboard_pb2 as pb
from outboard.scheduler.outcomes import NodeLostMark
from outboard.values import Encoded
from outboard.worker import RunningKind, Worker

pytestmark = pytest.mark.timeout(10)

WORKER, OWNER, PACKET, STREAM, FIRST, ATTEMPT = 5, 7, 3, 2, 100, 1

Said = list[tuple[list[Any], int, bool]]


class Clock:
    """Time, and the one alarm in it. `lag`: how long the next look at the clock takes."""

    fileno = -1

    def __init__(self) -> None:
        self.now = 0.0
        self.lag = 0.0
        self.due: float | None = None
        self.on_due: Callable[[], None]

    def set(self, seconds: float) -> None:
        self.due = self.now + max(seconds, 1e-9)

    def clear(self) -> None:
        pass

    def look(self) -> float:
        lag, self.lag = self.lag, 0.0
        self.advance(lag)
        return self.now

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.due is not None and self.due <= end:
            self.now, self.due = self.due, None
            self.on_due()
        self.now = end


class Brings(NamedTuple):
    """A result with a stored object and a reference in it, or one of them."""

    seq: int | None
    ref: ObjectId | None


class Values(ClientValues):
    def encode_value(self, value: Any, *args: Any, **named: Any) -> Encoded:
        if not isinstance(value, Brings):
            return super().encode_value(value, *args, **named)
        stored, refs = [], []
        if value.seq is not None:
            stored.append(pb.Descriptor(owner=OWNER, seq=value.seq))
            self._unannounced[ObjectId(OWNER, value.seq)] = stored[0]
        if value.ref is not None:
            refs.append(value.ref)
            self.release_hold(value.ref)  # the task's own reference ends with it
        return Encoded(pickle.dumps(value.seq or 0), tuple(stored), tuple(refs))


class Link:
    """Keeps what is said of tasks, and when."""

    closed = False

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.order: list[int] = []  # types of all frames
        self.finished: list[pb.Finished] = []
        self.times: list[float] = []

    def fileno(self) -> int:
        return -1

    def send(self, frame_type: int, body: bytes, destination: int = 0, fds: tuple[int, ...] = ()) -> None:
        self.order.append(frame_type)
        if frame_type == Frame.FINISHED:
            assert destination == OWNER
            self.finished.append(pb.Finished.FromString(body))
            self.times.append(self.clock.now)


class FakeWorker(Worker):
    """A worker without processes around it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = self.alarm = cast(Any, clock)
        clock.on_due = self._on_alarm
        self.sent = Link(clock)
        self.link = cast(Any, self.sent)
        self.slot = Slot(mmap.mmap(-1, SLOT_NBYTES), 0)
        self.pid = os.getpid()
        self.main_thread = threading.get_ident()
        self.kinds, self.watched, self.sending, self.concurrency = {}, None, threading.Lock(), None
        self.in_user_code = self.missed_cancel = self.is_encoding = self.is_ordered = self.printed = False
        self.client = Client(self.link, WORKER, pb.Welcome(initial_credit=64))
        self.client.values = Values(self.client, 0)
        self.client.background.stop(for_good=True)
        self.ran: list[int] = []
        self.renew_lone()

    def has_printed(self, seconds: float) -> bool:
        return False

    def serve_packet(self, function: Callable[[int], Any], *counts: int, num_returns: int = 1) -> Said:
        """Run a packet with intervals of so many tasks, numbered throughout; returns what was said."""

        def task(number: int) -> Any:
            running = OWNER, STREAM, FIRST + number * num_returns
            assert self.slot.running() == running
            self.ran.append(number)
            result = function(number)
            assert self.slot.running() == running
            return result

        self.kinds[OWNER, 1] = RunningKind(task, b"", num_returns, False)
        submit = pb.Submit(packet=PACKET, owner=OWNER)
        number = 0
        for count in counts:
            calls = [pickle.dumps(((n,), {})) for n in range(number, number + count)]
            submit.intervals.add(kind=1, stream=STREAM, first=FIRST + number * num_returns, attempt=ATTEMPT,
                                 stride=num_returns, calls=calls)  # fmt: skip
            number += count
        self.serve(submit.SerializeToString())
        self.check(number * num_returns, num_returns)
        return [(values(f), f.given_back, f.packet_done) for f in self.sent.finished]

    def check(self, results: int, stride: int) -> None:
        """Everything is said once and in order, of whole tasks, and the end of the packet last."""
        finished = self.sent.finished
        expected = FIRST
        for done in [done for f in finished for done in f.done]:
            assert (done.stream, done.attempt, done.stride, done.first) == (STREAM, ATTEMPT, stride, expected)
            assert done.values and len(done.values) % stride == 0
            expected += len(done.values)
        assert expected == FIRST + len(self.ran) * stride
        assert expected + sum(f.given_back for f in finished) * stride == FIRST + results
        assert [f.packet for f in finished] == [PACKET] * len(finished)
        assert [f.packet_done for f in finished] == [False] * (len(finished) - 1) + [True]
        assert self.slot.running() is None


def values(finished: pb.Finished) -> list[Any]:
    return [as_exception(body) or pickle.loads(body) for done in finished.done for body in done.values]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(packetpart, "time", SimpleNamespace(perf_counter=made.look))
    return made


@pytest.fixture
def worker(clock: Clock) -> Iterator[FakeWorker]:
    made = FakeWorker(clock)
    yield made
    assert not made.sending.locked()


def taking(clock: Clock, **seconds: float) -> Callable[[int], int]:
    """Make a task that returns its number, after so many seconds for `t<number>` and at once for others."""

    def function(number: int) -> int:
        clock.advance(seconds.get(f"t{number}", 0.0))
        return number

    return function


class SlowToPickle:
    def __init__(self, clock: Clock, number: int) -> None:
        self.clock, self.number = clock, number

    def __reduce__(self) -> tuple[Any, ...]:
        self.clock.advance(0.05)
        return int, (self.number,)


# -- parts


def test_quick_items_go_out_in_one_message_at_the_end(worker: FakeWorker) -> None:
    assert worker.serve_packet(lambda n: n, 4) == [([0, 1, 2, 3], 0, True)]
    assert not worker.sent.finished[0].done[0].mixed


def test_lone_task_sets_no_alarm(worker: FakeWorker, clock: Clock) -> None:
    assert worker.serve_packet(lambda n: n, 1) == [([0], 0, True)]
    assert clock.due is None


def test_results_of_a_packet_that_lasts_go_out_in_parts(worker: FakeWorker, clock: Clock) -> None:
    function = taking(clock, t0=0.0015, t1=0.0015, t2=0.0015, t3=0.0015, t4=0.0015)
    assert worker.serve_packet(function, 5) == [([0, 1], 0, False), ([2, 3], 0, False), ([4], 0, True)]
    assert [f.done[0].seconds for f in worker.sent.finished] == pytest.approx([0.003, 0.003, 0.0015])


def test_many_bytes_of_results_go_out_in_parts(worker: FakeWorker) -> None:
    said = worker.serve_packet(lambda n: bytes(60_000), 40)
    assert [len(results) for results, _, _ in said] == [PART_NBYTES // 60_000 + 1] * 2 + [4]


def test_intervals_of_a_packet_have_messages_of_their_own(worker: FakeWorker) -> None:
    assert worker.serve_packet(lambda n: n, 1, 2) == [([0], 0, False), ([1, 2], 0, True)]


# -- slow items


def test_slow_item_holds_up_neither_what_ended_nor_what_is_behind(worker: FakeWorker, clock: Clock) -> None:
    assert worker.serve_packet(taking(clock, t1=0.05), 4, 3, 2) == [([0], 7, False), ([1], 0, True)]
    assert worker.ran == [0, 1]
    assert worker.sent.times == pytest.approx([ITEM_SECONDS, 0.05])


def test_slow_item_alone_in_its_interval_lets_the_others_go(worker: FakeWorker, clock: Clock) -> None:
    assert worker.serve_packet(taking(clock, t0=0.05), 1, 3) == [([], 3, False), ([0], 0, True)]


def test_alarm_that_finds_a_young_item_waits_for_its_time(worker: FakeWorker, clock: Clock) -> None:
    said = worker.serve_packet(taking(clock, t0=0.001, t1=0.05), 4)
    assert said == [([0], 2, False), ([1], 0, True)]
    assert worker.sent.times[0] == pytest.approx(0.001 + ITEM_SECONDS)


def test_item_that_ends_just_in_time_disturbs_nothing(worker: FakeWorker, clock: Clock) -> None:
    assert worker.serve_packet(taking(clock, t0=0.001, t1=0.0049), 3) == [([0, 1], 0, False), ([2], 0, True)]


def test_each_slow_item_of_an_ordered_worker_lets_results_out_and_gives_nothing_back(
    worker: FakeWorker, clock: Clock
) -> None:
    worker.is_ordered = True
    said = worker.serve_packet(taking(clock, t0=0.02, t1=0.001, t2=0.05), 4, 1)
    assert said == [([0], 0, False), ([1], 0, False), ([2], 0, False), ([3], 0, False), ([4], 0, True)]
    assert worker.sent.times[:3] == pytest.approx([0.02, 0.021 + ITEM_SECONDS, 0.071])


def test_all_is_given_back_at_a_moment_when_no_item_runs(worker: FakeWorker, clock: Clock) -> None:
    def function(number: int) -> int:
        clock.lag = 0.05 * (number == 1)  # the thread does not come to its turn after this one
        return number

    assert worker.serve_packet(function, 3, 2) == [([0, 1], 3, False), ([], 0, True)]
    assert worker.ran == [0, 1] and not worker.sent.finished[-1].done


def test_item_that_is_given_back_at_the_moment_it_is_taken_does_not_run(
    worker: FakeWorker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Raced(deque[bytes]):
        def popleft(self) -> bytes:
            clock.advance(0.05 if worker.ran else 0.0)
            return super().popleft()

    monkeypatch.setattr(packetpart, "deque", Raced)
    assert worker.serve_packet(lambda n: n, 3) == [([0], 2, False), ([], 0, True)]


def test_alarm_between_two_packets_finds_nothing(worker: FakeWorker, clock: Clock) -> None:
    worker.serve_packet(lambda n: n, 3)
    clock.advance(1.0)
    assert len(worker.sent.finished) == 1 and clock.due is None


# -- results


def test_item_whose_result_is_being_pickled_still_runs(worker: FakeWorker, clock: Clock) -> None:
    said = worker.serve_packet(lambda n: SlowToPickle(clock, n) if n == 1 else n, 4)
    assert said == [([0], 2, False), ([1], 0, True)]


def test_results_of_one_task_are_not_torn_apart(worker: FakeWorker, clock: Clock) -> None:
    def function(number: int) -> list[Any]:
        return [number, SlowToPickle(clock, -number) if number == 1 else -number]

    said = worker.serve_packet(function, 3, 1, num_returns=2)
    assert said == [([0, 0], 2, False), ([1, -1], 0, True)]


def test_error_stands_where_its_task_stood(worker: FakeWorker) -> None:
    ((results, _, _),) = worker.serve_packet(lambda n: 1 // (n - 1), 3)
    assert [type(result) for result in results] == [int, ZeroDivisionError, int]
    assert worker.sent.finished[0].done[0].mixed


@pytest.mark.parametrize("wrong", [3, [1, 2, 3]])
def test_each_result_of_a_task_that_fails_is_its_error(worker: FakeWorker, wrong: Any) -> None:
    said = worker.serve_packet(lambda n: 1 // (n - 1) if n == 1 else wrong, 2, num_returns=2)
    kinds = [type(error) for error in said[0][0]]
    assert kinds == [TypeError if wrong == 3 else ValueError] * 2 + [ZeroDivisionError] * 2
    assert worker.sent.finished[0].done[0].mixed


def bring(worker: FakeWorker, clock: Clock, *slow: int) -> Callable[[int], list[Any]]:
    """Make a task whose first result has a stored object and a reference in it, numbered as the task."""
    client = worker.client

    def function(number: int) -> list[Any]:
        ref = ObjectId(WORKER, 1000 + number)
        client.owner.put(ref.seq, pickle.dumps(number), None)
        return [Brings(number, ref), SlowToPickle(clock, number) if number in slow else number]

    return function


def brought(finished: pb.Finished) -> tuple[list[int], list[int], list[int]]:
    """Numbers of the tasks whose objects were announced, passed on, and lent."""
    passed = [a.ref.seq - 1000 for a in finished.adopted]
    return [d.seq for d in finished.announced], passed, [ref.seq - 1000 for ref in finished.lent]


def test_what_a_result_brings_along_goes_with_it_and_is_held_until_then(worker: FakeWorker, clock: Clock) -> None:
    said = worker.serve_packet(bring(worker, clock, 1), 2, 1, num_returns=2)
    assert said == [([], 1, False), ([0, 0], 0, False), ([1, 1], 0, True)]
    assert [brought(f) for f in worker.sent.finished] == [([], [], []), ([0], [0], []), ([1], [1], [])]
    for number in range(2):
        oid = ObjectId(WORKER, 1000 + number)
        worker.client.owner.on_passed(oid, is_refused=False)
        assert worker.client.owner.refs.find(oid) is None


def test_next_packet_brings_nothing_of_the_last_one(worker: FakeWorker, clock: Clock) -> None:
    worker.serve_packet(bring(worker, clock), 1, num_returns=2)
    assert brought(worker.sent.finished.pop()) == ([0], [0], [])
    worker.ran.clear()
    assert worker.serve_packet(lambda n: (n, n), 1, num_returns=2) == [([0, 0], 0, True)]
    assert brought(worker.sent.finished.pop()) == ([], [], [])


@pytest.mark.parametrize("bring_ref", [True, False])
def test_one_kind_of_thing_is_brought_without_the_other(worker: FakeWorker, bring_ref: bool) -> None:
    ref = ObjectId(WORKER, 1000)
    worker.client.owner.put(ref.seq, pickle.dumps(0), None)
    worker.serve_packet(lambda n: (Brings(None if bring_ref else 0, ref if bring_ref else None), n), 1, num_returns=2)
    assert brought(worker.sent.finished[0]) == (([], [0], []) if bring_ref else ([0], [], []))


@pytest.mark.parametrize("seconds", [{}, {"t0": 0.003}, {"t1": 0.05}], ids=["end", "part", "review"])
def test_who_is_borrowed_from_hears_of_it_before_the_result_is_told(
    worker: FakeWorker, clock: Clock, seconds: dict[str, float]
) -> None:
    wait = taking(clock, **seconds)

    def function(number: int) -> int:
        if number == 0:
            worker.client.hold(ObjectId(OWNER, 9))
        return wait(number)

    worker.serve_packet(function, 3)
    words_before_results = next(place for place, f in enumerate(worker.sent.finished) if f.done)
    assert worker.sent.order.index(Frame.BORROW) == words_before_results


# -- forks


class Left(SystemExit):
    """A process has ended, with this code."""


@pytest.fixture(autouse=True)
def leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr(os, "_exit", leave)


@pytest.mark.parametrize(("outcome", "code"), [(None, 0), (SystemExit(3), 3), (KeyError("of the child"), 1)])
def test_forked_child_that_comes_back_from_its_task_ends(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch, outcome: BaseException | None, code: int
) -> None:
    def become_child(number: int) -> None:
        worker.pid += 1
        worker.client.closed_mark = NodeLostMark("of the parent")
        if outcome is not None:
            raise outcome

    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    with pytest.raises(Left) as left:
        worker.serve_packet(become_child, 3, 1)
    assert left.value.code == code
    assert worker.ran == [0] and not worker.sent.finished


def test_worker_that_lost_its_node_is_no_child(worker: FakeWorker) -> None:
    def lose_node(number: int) -> int:
        worker.client.closed_mark = NodeLostMark("gone")
        return number

    assert worker.serve_packet(lose_node, 2) == [([0, 1], 0, True)]

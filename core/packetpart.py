"""How a worker runs the tasks of a packet and says what became of them.

The results of an interval go out as one message, or in parts: after an item that ends when more than `PART_SECONDS`
have passed since the last message, and when an item takes long. That is found by the worker's background thread, whom
an alarm wakes `ITEM_SECONDS` after the last item ended: it sends what is finished and gives back to the node what has
not begun, so that a slow item holds up nobody.

Who has an item is never in doubt: both threads take it from one deque. What was taken off `values` and the number of
the first of them change together, under the worker's `sending`.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .frames import REUSE_NBYTES
from .ids import ObjectId, item_object
from .results import PART_NBYTES, encode_results
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .store import serialize
from .values import INLINE_MAX

if TYPE_CHECKING:
    from .worker import Worker

dumps_small = serialize.dumps_small

#: Bytes of one packet at most; the claim socket's buffer is larger.
PACKET_MAX = 1 << 20

#: Seconds after which results of a packet that is still being run are sent.
PART_SECONDS = 0.002

#: Seconds an item may run before what stands before and behind it in its packet is let go. Longer than packets take,
#: and than the system lets a process wait for its turn; shorter frees those tasks sooner, and disturbs more.
ITEM_SECONDS = 0.005


class Extent(NamedTuple):
    """How much of a part: so many values, and of what they bring along."""

    values: int
    announced: int
    contained: int


class PacketPart:
    """Runs the items of one interval. `behind`: the intervals of the packet that come after it."""

    __slots__ = ("announced", "array", "attempt", "behind", "calls", "contained", "ended_at", "first", "holds", "kind",
                 "mixed", "nbytes", "number", "owner", "since", "stream", "stride", "values", "worker")  # fmt: skip

    def __init__(self, worker: Worker, interval: pb.Interval, owner: int, number: int,
                 behind: deque[pb.Interval]) -> None:  # fmt: skip
        self.worker = worker
        self.owner = owner
        self.number = number
        self.behind = behind
        self.stream = interval.stream
        self.first = interval.first
        self.kind = worker.kinds.get((owner, interval.kind)) or worker.fetch_kind(self, interval.kind)
        self.stride = interval.stride
        self.attempt = interval.attempt
        self.array = interval.array
        self.calls = deque(interval.calls)  # not begun
        self.holds = {hold.position: hold.objects for hold in interval.holds} if interval.holds else None
        self.values: list[bytes] = []  # of items that have ended; the last thing that is said of one
        self.announced: list[pb.Descriptor] = []
        self.contained: list[ObjectId] = []
        self.mixed = False  # some value is no plain one
        self.nbytes = 0  # of values, about
        self.since = 0.0  # when the first item that has not been reported began
        self.ended_at = 0.0  # when the last one ended

    def run(self) -> None:
        """Run every item."""
        worker, kind, calls = self.worker, self.kind, self.calls
        index, stride, values = self.first, self.stride, self.values
        position = 0
        call_task, now, turns = worker.call, time.perf_counter, worker.client.turns
        plain = kind.num_returns == 1 or self.array
        self.since = self.ended_at = now()
        if len(calls) > 1 or self.behind:
            worker.watch(self, ITEM_SECONDS)
        while calls:
            try:
                call = calls.popleft()
            except IndexError:
                break  # given back at this moment
            ok, value = call_task(kind, self, index, call)
            if self.holds is not None:
                worker.client.unpin_untaken(self.holds.pop(position, ()))
                position += 1
            if turns.lending.is_lent:
                turns.end_task()
            if ok and plain:
                worker.is_encoding = True  # pickling it may be the task's own code, and wait
                try:
                    body = dumps_small(value)
                except BaseException:  # SystemExit of the result's own pickling: told by the second try
                    body = None
                worker.is_encoding = False
                if body is not None and len(body) <= INLINE_MAX:
                    self.nbytes += len(body)
                    values.append(body)
                else:
                    self._encode([value], index)
            elif ok:
                self._encode(value if kind.num_returns else [None], index)
            else:
                self.mixed = True
                self.nbytes += len(value) * stride
                values += [value] * stride
            value = None
            index += stride
            self.ended_at = ended_at = now()
            if calls and (self.nbytes > PART_NBYTES or ended_at - self.since > PART_SECONDS):
                self._send_part()
        self._send_last()

    def _encode(self, parts: list[Any], index: int) -> None:
        """Encode all results of one task, then let them be sent together with what they bring along."""
        worker = self.worker
        worker.is_encoding = True
        results = encode_results(worker.client, parts, self._names(index), self.attempt, self.nbytes)
        worker.is_encoding = False
        self.nbytes += sum(map(len, results.bodies))
        self.mixed = self.mixed or results.mixed
        with worker.sending:
            self.announced += results.announced
            self.contained += results.contained
            self.values += results.bodies

    def _names(self, index: int) -> Iterator[ObjectId]:
        """The ids of a task's results, in order."""
        if self.array:
            return iter((item_object(self.owner, self.stream, index),))
        return (ObjectId(self.owner, index + position) for position in itertools.count())

    # -- messages -----------------------------------------------------------------------------------------------------

    def _send_part(self) -> None:
        """Say what has ended, with items left."""
        worker = self.worker
        if worker.client.closed_mark is not None:
            worker.leave_fork(None)
        self._flush()
        with worker.sending:
            self._send(self._all(), is_done=False)
        worker.watch(self, ITEM_SECONDS)

    def _send_last(self) -> None:
        """Say what has ended; it is the packet's end unless intervals are left."""
        worker = self.worker
        if worker.client.closed_mark is not None:
            worker.leave_fork(None)
        self._flush()
        with worker.sending:
            worker.watched = None
            self._send(self._all(), is_done=not self.behind)

    def review(self) -> None:
        """In the background thread, when the alarm has gone off: let go of what a slow item holds up."""
        worker = self.worker
        with worker.sending:
            if worker.watched is not self:
                return
            left = ITEM_SECONDS - (time.perf_counter() - self.ended_at)
            if left > 0:
                worker.watch(self, left)
                return
            given_back = 0 if worker.is_ordered else self._give_back()
            first, ended = self.first, self._all()
            if not self._is_flush_due():
                self._send(ended, is_done=False, given_back=given_back)
                return
            self._send(Extent(0, 0, 0), is_done=False, given_back=given_back)  # room may be what the flush waits for
        self._flush()  # for these; one that ends now may refer to what we have not told anybody of
        with worker.sending:
            if worker.watched is self and self.first == first:
                self._send(ended, is_done=False)

    def _is_flush_due(self) -> bool:
        client = self.worker.client
        return bool(client.owner.commands or client.dropped or client.values.reader.ended or client.has_unsent)

    def _flush(self) -> None:
        """Whom we borrow from must hear of it before our task's end releases what it held. Not under `sending`: it may
        pickle items of the task's own, which is its code.
        """
        if self._is_flush_due():
            self.worker.client.flush()

    def _give_back(self) -> int:
        """Part with everything that has not begun; returns the number of tasks."""
        count = 0
        while self.behind:
            count += len(self.behind.pop().calls)
        while True:
            try:
                self.calls.pop()
            except IndexError:
                return count
            count += 1

    def _all(self) -> Extent:
        """What has ended and was not sent, under `sending`."""
        return Extent(len(self.values), len(self.announced), len(self.contained))

    def _send(self, extent: Extent, *, is_done: bool, given_back: int = 0) -> None:
        """Say what has ended, as far as `extent` goes, under `sending`."""
        worker = self.worker
        client = worker.client
        count, _, held = extent
        if not (count or is_done or given_back):
            return
        ended_at = self.ended_at
        with client.lock:
            finished = self._message(extent, ended_at - self.since, is_done, given_back)
            worker.link.send(Frame.FINISHED, finished.SerializeToString(), self.owner)
        if is_done:
            worker.slot.clear()  # not before: what a dead worker does not name, the node runs again
        if held:
            client.dropped.extend(self.contained[:held])
            del self.contained[:held]
        if count:
            del self.values[:count]
            self.first += count
            self.since, self.nbytes = ended_at, 0

    def _message(self, extent: Extent, seconds: float, is_done: bool, given_back: int) -> pb.Finished:
        worker = self.worker
        count, told, held = extent
        values = self.values[:count]
        worker.passed += sum(map(len, values))
        if worker.passed > REUSE_NBYTES:
            worker.renew_lone()
        finished = worker.lone
        if not is_done or not count or told or held:
            finished = pb.Finished(packet_done=is_done, given_back=given_back, announced=self.announced[:told])
            del self.announced[:told]
            if count:
                finished.done.add()
            if held:
                worker.pass_on(finished, self.contained[:held], self.owner)
        finished.packet = self.number
        finished.printed = worker.has_printed(seconds)
        if count:
            done = finished.done[0]
            done.stream, done.first, done.attempt, done.stride = self.stream, self.first, self.attempt, self.stride
            del done.values[:]
            done.values.extend(values)
            done.seconds, done.mixed = seconds, self.mixed
        return finished

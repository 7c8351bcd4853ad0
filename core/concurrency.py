"""Calls of one actor at the same time: in threads, or as coroutines of one event loop.

The node deals no more calls than may run at a time, so all that come begin at once. Each says what became of it as it
ends; what ends together is said together. Nobody interrupts a thread: a call that was cancelled goes on there, and its
result is dropped. A coroutine is cancelled where it waits.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from . import engine as engines
from .actorhost import leave_after_exit
from .failures import encode_error, input_cause
from .ids import ObjectId
from .packetpart import PACKET_MAX
from .results import Results, encode_results
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .runtime_context import running_call

if TYPE_CHECKING:
    from .worker import RunningKind, Worker


#: What calls are taken to last when output is looked for that Python did not write: not long enough for a look at each.
LOOKED_SECONDS = 0.0


class _Call:
    """One call that runs. `left`: how many of its packet have not ended, in a list that its packet's calls share."""

    __slots__ = ("attempt", "began", "body", "holds", "index", "kind", "left", "number", "owner", "stream")

    def __init__(self, number: int, owner: int, kind: RunningKind, interval: pb.Interval, position: int,
                 left: list[int]) -> None:  # fmt: skip
        self.number = number
        self.owner = owner
        self.kind = kind
        self.stream = interval.stream
        self.index = interval.first + position * interval.stride
        self.attempt = interval.attempt
        self.body = interval.calls[position]
        self.holds: tuple[pb.Descriptor, ...] = ()
        self.left = left
        self.began = 0.0


class Concurrency:
    """Runs what a worker is given. `most`: threads, where there is no loop."""

    def __init__(self, worker: Worker, most: int, *, is_async: bool) -> None:
        self._worker = worker
        self._decoding = threading.Lock()
        self._ended: deque[tuple[_Call, Results]] = deque()
        self._sending = threading.Lock()
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_flush_due = False
        if is_async:
            self._loop = asyncio.new_event_loop()
        else:
            self._threads = ThreadPoolExecutor(most, "outboard-actor")

    def make(self, initializer: Callable[[], object]) -> None:
        """Make the actor's object, within the loop if there is one; raises what that raises."""
        if self._loop is None:
            initializer()
            return

        async def make() -> None:
            initializer()

        self._loop.run_until_complete(make())

    def run(self) -> None:
        """Serve packets until the claim socket ends; in the main thread, whose loop that is if there is one."""
        claim, serve = self._worker.claim, self._worker.serve
        if self._loop is None:
            while packet := claim.recv(PACKET_MAX):
                serve(packet)
            return
        loop = self._loop

        def read() -> None:
            try:
                packet = claim.recv(PACKET_MAX, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return  # the node took it back
            if packet:
                serve(packet)
            else:
                loop.stop()

        loop.add_reader(claim.fileno(), read)
        loop.run_forever()

    def begin(self, packet: pb.Submit) -> None:
        """Begin all calls of a packet."""
        left = [sum(len(interval.calls) for interval in packet.intervals)]
        calls: list[_Call] = []
        for interval in packet.intervals:
            kind = self._worker.find_kind(packet.owner, interval.kind)
            holds = {hold.position: tuple(hold.objects) for hold in interval.holds}
            for position in range(len(interval.calls)):
                call = _Call(packet.packet, packet.owner, kind, interval, position, left)
                call.holds = holds.get(position, ())
                calls.append(call)
        if self._loop is not None:
            self._begin_all(calls)
        else:
            for call in calls:
                self._threads.submit(self._run, call)

    def _call(self, call: _Call) -> tuple[bool, Any]:
        """Rebuild the arguments and call; returns (ok, what came or the value bytes of its error)."""
        worker, kind = self._worker, call.kind
        call.began = time.perf_counter()
        running_call.set(ObjectId(call.owner, call.index))
        try:
            with self._decoding:  # one at a time, so that each knows which pins it has taken over
                worker.client.values.taken.clear()
                try:
                    args, kwargs = worker.decode_call(call.body, kind.writable)
                finally:
                    worker.client.unpin_untaken(call.holds)
        except BaseException as error:
            return False, encode_error(error, input_cause(error))
        if kind.failure:
            return False, kind.failure
        try:
            value = kind.function(*args, **kwargs)
        except BaseException as error:
            return False, self._encode(error)
        self._leave_fork(None)
        return True, value

    def _leave_fork(self, error: BaseException | None) -> None:
        """End a child that a method has forked and that comes back from it."""
        if self._worker.client.closed_mark is not None:
            self._worker.leave_fork(error)

    def _encode(self, error: BaseException) -> bytes:
        """Turn what a method raised into value bytes."""
        self._leave_fork(error)
        if isinstance(error, asyncio.CancelledError):
            return encode_error(error, pb.Error.CANCELLED)
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            error.__traceback__ = error.__traceback__.tb_next  # our own frame tells the user nothing
        return encode_error(error)

    # -- in threads ----------------------------------------------------------------------------------------------------

    def _run(self, call: _Call) -> None:
        ok, value = self._call(call)
        self._ended.append((call, self._encode_results(call, ok, value)))
        self._send_ended()

    # -- in the loop ---------------------------------------------------------------------------------------------------

    def _begin_all(self, calls: list[_Call]) -> None:
        assert self._loop is not None
        for call in calls:
            ok, value = self._call(call)
            if ok and inspect.iscoroutine(value):
                task = self._loop.create_task(self._await(call, value))
                self._tasks[call.owner, call.index] = task
            else:
                self._end_in_loop(call, ok, value)

    async def _await(self, call: _Call, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            ok, value = True, await leave_after_exit(coroutine)
            self._leave_fork(None)
        except BaseException as error:
            ok, value = False, self._encode(error)
        self._tasks.pop((call.owner, call.index), None)
        self._end_in_loop(call, ok, value)

    def _end_in_loop(self, call: _Call, ok: bool, value: Any) -> None:
        """What ends in the same turn of the loop goes out together."""
        self._ended.append((call, self._encode_results(call, ok, value)))
        if not self._is_flush_due:
            self._is_flush_due = True
            assert self._loop is not None
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        self._send_ended()

    def cancel(self, owner: int, cancel: pb.Cancel) -> None:
        """An owner takes calls back that have begun. From any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, owner, cancel)

    def _cancel(self, owner: int, cancel: pb.Cancel) -> None:
        for span in cancel.spans:
            for index in range(span.first, span.first + span.count * span.stride, span.stride):
                task = self._tasks.get((owner, index))
                if task is not None:
                    task.cancel()

    # -- results -------------------------------------------------------------------------------------------------------

    def _encode_results(self, call: _Call, ok: bool, value: Any) -> Results:
        stride = max(1, call.kind.num_returns)
        if ok and call.kind.num_returns != 1:
            try:
                parts = engines.split_results(call.kind.function, value, stride) if call.kind.num_returns else [None]
            except BaseException as error:
                ok, value = False, encode_error(error)
        elif ok:
            parts = [value]
        if not ok:
            return Results([value] * stride, [], [], mixed=True)
        names = (ObjectId(call.owner, call.index + position) for position in range(stride))
        return encode_results(self._worker.client, parts, names, call.attempt)

    def _send_ended(self) -> None:
        """Say what has ended, in one message a packet."""
        worker = self._worker
        client = worker.client
        client.flush()  # whom we borrow from must hear of it before the ends of calls release what they held
        with self._sending, client.lock:
            messages: dict[int, tuple[int, pb.Finished, list[ObjectId]]] = {}
            while self._ended:
                call, results = self._ended.popleft()
                owner, finished, contained = messages.setdefault(
                    call.number, (call.owner, pb.Finished(packet=call.number), [])
                )
                call.left[0] -= 1
                finished.packet_done = not call.left[0]
                finished.announced.extend(results.announced)
                contained += results.contained
                finished.done.add(stream=call.stream, first=call.index, attempt=call.attempt,
                                  stride=max(1, call.kind.num_returns), values=results.bodies, mixed=results.mixed,
                                  seconds=time.perf_counter() - call.began)  # fmt: skip
            for owner, finished, contained in messages.values():
                finished.printed = worker.has_printed(LOOKED_SECONDS)
                if contained:
                    worker.pass_on(finished, contained, owner)
                worker.link.send(Frame.FINISHED, finished.SerializeToString(), owner)
                client.dropped.extend(contained)
            if client.parting is not None:
                client.parting()
        client.flush()

"""A simulated worker: serves its claim socket as `worker.Worker` does, with programs in place of user functions."""

from __future__ import annotations

import pickle
from collections import deque
from typing import TYPE_CHECKING, Any

from ..errors import OutboardError
from ..failures import as_exception, encode_error, input_cause
from ..ids import ObjectId, item_object
from ..packetpart import ITEM_SECONDS, PART_SECONDS
from ..rpc.codec import Frame
from ..rpc.protos import outboard_pb2 as pb
from ..worker import TaskInterrupt, Worker
from .calls import Full, TaskFailed
from .links import Claim, Slot
from .process import Process, Program, Want
from .tasks import run_task

if TYPE_CHECKING:
    from .machine import Machine


class WorkerProcess(Process):
    """One worker. `driver` is the real one's part that deals with what tasks leave behind."""

    def __init__(self, machine: Machine, number: int, incarnation: int, root: int, claim: Claim, slot: Slot) -> None:
        super().__init__(machine, f"worker{number}", incarnation, root)
        self.number = number
        self.claim = claim
        self.slot = slot
        self.has_packet = False
        self.exitcode = 0
        self.signal = 0
        self.kinds: dict[tuple[int, int], list[tuple[int, int]]] = {}  # views of each over stored parts of its function
        self.child_kinds: list[Any] = []
        self.driver = object.__new__(Worker)
        self.driver.client = self.client
        self.driver.link = self.link  # type: ignore[assignment]
        self.client.on_kinds_dropped = self._forget_kinds
        claim.wake = lambda: self.wake("claim")

    def has_claim(self) -> bool:
        """Whether a packet lies there, or the end."""
        return self.claim.has_news

    def begin(self, binding: pb.Binding) -> None:
        """The process has been forked."""
        self.start(self._live(binding))

    def ended(self) -> None:
        """It has run to its end: exit."""
        self.machine.template.exited(self)

    def die(self, signal: int) -> None:
        """Be ended by a signal."""
        if self.alive:
            self.signal = signal
            if self.slot.running() is not None:
                self.world.mark("died while running")
            elif self.has_packet:
                self.world.mark("died between packet and first item")
            super().die(signal)

    def orphaned(self) -> None:
        """What is stored of its functions goes with the client that kept it, a moment before the worker does."""
        for views in self.kinds.values():
            while views:
                self.values.reader.end_view(views.pop())

    def on_signal(self) -> None:
        """The cancel signal: raise when what is running is what is to be ended."""
        if self.in_user_code and self.slot.is_cancelled():
            self.in_user_code = False
            self.world.mark("interrupted")
            self.world.is_faulty = True  # what the task started is cancelled with it
            self.throw(TaskInterrupt())

    # -- life ----------------------------------------------------------------------------------------------------------

    def _live(self, binding: pb.Binding) -> Program:
        world = self.world
        if binding.initializer:
            yield Want("time", 0.001 * world.rng.random())
            if binding.initializer == b"\x80fails":
                outcome = encode_error(ValueError("initialiser"))
                self.link.send(Frame.INIT_FAILED, pb.InitFailed(outcome=outcome).SerializeToString())
                world.mark("init failed")
                return
            if binding.initializer == b"\x80dies":
                self.exitcode = 3
                return
            self.client.flush()
            self.link.send(Frame.STARTED, b"")
        while True:
            while not self.claim.has_news:
                yield Want("claim")
            packet = self.claim.take_back()
            if packet is None:
                break
            self.has_packet = True
            yield from self._serve(packet)
            self.has_packet = False
        self.calls.drop_all()
        self.client.flush()
        has_finished, replies = self.driver.has_finished_children, self.client.inbox.replies
        yield from self.wait(has_finished)
        self.link.send(Frame.LEAVING, b"")
        yield from self.wait(lambda: Frame.LEAVING in replies and has_finished())
        self.client.owner.bequeath(self.root)
        yield from self.wait(has_finished)

    def _serve(self, packet: bytes) -> Program:
        submit = pb.Submit.FromString(packet)
        if not submit.intervals:
            self.world.mark("long packet")
            request = pb.GetPacket(packet=submit.packet).SerializeToString()
            submit = yield from self.calls.ask_node(Frame.GET_PACKET, request, Frame.PACKET)
        if self.world.rng.random() < 0.3:
            yield Want("time", 0.0001)  # between the packet and its first item
        intervals = deque(submit.intervals)
        while intervals:
            yield from Part(self, intervals.popleft(), submit.owner, submit.packet, intervals).run()
        client = self.client
        if client.values.reader.ended or client.owner.commands or client.dropped:
            client.flush()

    def fetch_kind(self, owner: int, kind_id: int) -> Program:
        """Ask the node for a kind that this worker meets for the first time."""
        request = pb.GetKind(owner=owner, id=kind_id).SerializeToString()
        spec = yield from self.calls.ask_node(Frame.GET_KIND, request, Frame.KIND)
        if spec.function[:1] != b"\x80":
            self.background.start()
            yield from self.calls.bring(spec.function, is_call=True)
            self.values.open_parcel(pb.Parcel.FromString(spec.function), writable=False, pinned=False)
        self.kinds[owner, kind_id] = self.values.reader.opened[:]
        self.values.reader.opened.clear()

    def _forget_kinds(self, dropped: pb.DropKinds) -> None:
        for kind in dropped.ids:
            self.world.mark("forgot a kind")
            for view in self.kinds.pop((dropped.owner, kind)):
                self.values.reader.end_view(view)

    def arguments(self, call: bytes) -> Program:
        """Rebuild a call: its specification, and tokens and attempts of what was given beside it."""
        if call[0] == 0x80:
            (spec, refs), inputs = pickle.loads(call), list[bytes]()
        else:
            yield from self.calls.bring(call, is_call=True)
            (spec, refs), inputs = self.values.decode_call(call, writable=False)
            self.views += self.values.reader.opened
            self.values.reader.opened.clear()
        self.calls.hold(refs)
        given = []
        for body in inputs:
            error = as_exception(body)
            if error is not None:
                raise error
            yield from self.calls.bring(body)
            given.append(self.calls.open_value(body, pinned=True))
        return spec, given


class Part:
    """One interval of a packet, as `PacketPart`."""

    def __init__(self, worker: WorkerProcess, interval: pb.Interval, owner: int, number: int,
                 behind: deque[pb.Interval]) -> None:  # fmt: skip
        self.worker = worker
        self.interval = interval
        self.owner = owner
        self.number = number
        self.behind = behind
        self.calls = deque(interval.calls)
        self.holds = {interval.first + hold.position * interval.stride: hold.objects for hold in interval.holds}
        self.first = interval.first
        self.since = self.ended_at = worker.world.now
        self.is_over = False
        self._clear()
        self._begin_task()

    def _clear(self) -> None:
        self.values: list[bytes] = []
        self.announced: list[pb.Descriptor] = []
        self.contained: list[ObjectId] = []
        self.mixed = False

    def run(self) -> Program:
        """Run every item, and send what they gave."""
        worker, interval = self.worker, self.interval
        world = worker.world
        index = self.first
        if (self.owner, interval.kind) not in worker.kinds:
            worker.slot.set_running(self.owner, interval.stream, index)
            yield from worker.fetch_kind(self.owner, interval.kind)
        self.since = self.ended_at = world.now
        if len(self.calls) > 1 or self.behind:
            worker.after(ITEM_SECONDS, "alarm", self._review)
        while self.calls:
            yield from self._call(self.calls.popleft(), index)
            worker.client.unpin_untaken(self.holds.pop(index, ()))
            if world.rng.random() < 0.7:  # else it has kept them in a global, for the next one
                worker.calls.drop_all()
            if world.rng.random() < 0.1:
                yield Want("time", 2 * ITEM_SECONDS * world.rng.random())  # the alarm may go off between two items
            index += interval.stride
            self.ended_at = world.now
            if self.calls and world.now - self.since > PART_SECONDS:
                world.mark("part of a packet")
                self._send(is_done=False)
                worker.after(ITEM_SECONDS, "alarm", self._review)
        self.is_over = True
        self._send(is_done=not self.behind)

    def _review(self) -> None:
        """As the background thread does when the alarm goes off."""
        left = ITEM_SECONDS - (self.worker.world.now - self.ended_at)
        if self.is_over:
            return
        if left > 1e-9:
            self.worker.after(left, "alarm", self._review)
            return
        given_back = len(self.calls) + sum(len(interval.calls) for interval in self.behind)
        self.calls.clear()
        self.behind.clear()
        if given_back:
            self.worker.world.mark("given back")
        self._send(is_done=False, given_back=given_back)

    def _call(self, call: bytes, index: int) -> Program:
        worker, interval = self.worker, self.interval
        try:
            worker.slot.set_running(self.owner, interval.stream, index)
            worker.in_user_code = True
            kept = len(worker.refs)
            spec, inputs = yield from worker.arguments(call)
            given = worker.refs[kept:]
            worker.world.begins(self.owner, interval.stream, index, interval.attempt)
            token, refs, pages = yield from run_task(worker, spec, inputs, given, interval.attempt)
            worker.in_user_code = False
            for at in range(interval.stride):
                yield from self._encode(token, refs if at == 0 else (), pages, index + at)
            self._commit()
        except TaskInterrupt as interrupt:
            yield from worker.unblock()
            worker.driver._cancel_children()
            self._fail(interrupt, pb.Error.CANCELLED)
        except (TaskFailed, Full, ValueError) as error:
            worker.in_user_code = False
            yield from worker.unblock()
            self._fail(error, pb.Error.RAISED)
        except OutboardError as error:
            worker.in_user_code = False
            worker.world.mark("argument lost")
            self._fail(error, input_cause(error))

    def _fail(self, error: BaseException, cause: Any) -> None:
        self.mixed = True
        self.fresh += [encode_error(error, cause)] * (self.interval.stride - len(self.fresh))
        self._commit()

    def _commit(self) -> None:
        """All results of one task are there: from now on they may be sent."""
        self.values += self.fresh
        self.announced += self.fresh_announced
        self.contained += self.fresh_contained
        self._begin_task()

    def _begin_task(self) -> None:
        self.fresh: list[bytes] = []
        self.fresh_announced: list[pb.Descriptor] = []
        self.fresh_contained: list[ObjectId] = []

    def _encode(self, token: int, refs: tuple[ObjectId, ...], pages: int, index: int) -> Program:
        worker, interval = self.worker, self.interval
        is_item = interval.array
        oid = item_object(self.owner, interval.stream, index) if is_item else ObjectId(self.owner, index)
        if pages:
            worker.in_user_code = True  # who waits for room gives back its CPUs
            yield from worker.calls.make_room(pages)
            worker.in_user_code = False
        encoded = worker.values.encode((token, interval.attempt, refs), oid, interval.attempt, refs, pages)
        self.fresh.append(encoded.body)
        self.mixed = self.mixed or encoded.body[0] != 0x80
        self.fresh_announced += worker.values.take_unannounced(encoded.objects)
        for contained in encoded.refs:
            worker.client.hold(contained)
        self.fresh_contained += encoded.refs

    def _send(self, *, is_done: bool, given_back: int = 0) -> None:
        worker, interval = self.worker, self.interval
        count = len(self.values)
        if not (count or is_done or given_back):
            return
        client = worker.client
        client.flush()
        finished = pb.Finished(packet_done=is_done, packet=self.number, announced=self.announced, given_back=given_back)
        if self.contained:
            worker.driver.pass_on(finished, self.contained, self.owner)
            worker.world.marks["adoption"] += len(finished.adopted)
        if count:
            finished.done.add(stream=interval.stream, first=self.first, attempt=interval.attempt,
                              stride=interval.stride, values=self.values, seconds=self.ended_at - self.since,
                              mixed=self.mixed)  # fmt: skip
        worker.link.send(Frame.FINISHED, finished.SerializeToString(), self.owner)
        if is_done:
            worker.slot.clear()
        client.dropped.extend(self.contained)
        self.first += count
        self.since = self.ended_at
        self._clear()

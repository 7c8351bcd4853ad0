"""Nodes and clients of the scale run: the real machines over a network without faults and workers that only take time.

All messages are the real ones, encoded and decoded, so that their bytes count; sessions carry what goes between
machines. Loops, links and processes are left out.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from ..frames import add_interval
from ..ids import RESOURCE_UNIT, Span
from ..rpc.codec import Frame
from ..rpc.protos import outboard_pb2 as pb
from ..scheduler import commands, orders
from ..scheduler.dispatch import Dispatch
from ..scheduler.intervals import Interval
from ..scheduler.seeking import AskRoom, Connect, Seeking
from ..scheduler.session_words import Deliver, Dial, Role, SendFrame, SetTimer
from ..scheduler.sessions import Sessions

if TYPE_CHECKING:
    from .scale import Scale

#: As the node: credit that kinds start with at home, and a slot's elsewhere.
HOME_CREDIT, REMOTE_CREDIT = 64, 2

#: Bytes of a call, and of a result.
CALL, RESULT = b"\x80" + bytes(29), b"\x80" + bytes(9)

#: Bytes that frames and sessions put before a message: the frame's header, the session's, source and destination.
FRAME_NBYTES, TRUNK_NBYTES = 16, 62 + 16

NEEDS = {"CPU": RESOURCE_UNIT}
PYTHON = "3.11"


class Ends:
    """The sessions of one process end: `Sessions` with its driver."""

    def __init__(self, scale: Scale, role: Role, me: int, heard: Any) -> None:
        self.scale = scale
        self.sessions = Sessions(role, me)
        self._heard = heard
        self._due = 0

    def settle(self) -> None:
        """Do what the machine commands."""
        for command in self.sessions.take_commands():
            match command:
                case SendFrame():
                    self._send(command)
                case Deliver(name, frame_type, body):
                    self._heard(name, frame_type, body)
                case Dial():
                    self._dial(command)
                case SetTimer(due):
                    self._set_timer(due)

    def _send(self, sent: SendFrame) -> None:
        scale, name = self.scale, sent.header.name
        scale.count(FRAME_NBYTES + TRUNK_NBYTES + len(sent.body))
        other = scale.ends[name.node if self.sessions.role is Role.OWNER else name.owner]
        scale.at(scale.net_seconds, lambda: other.arrives(sent))

    def _dial(self, dial: Dial) -> None:
        self.scale.at(2 * self.scale.net_seconds, lambda: self._up(dial))

    def _set_timer(self, due: float) -> None:
        self._due += 1
        number = self._due
        self.scale.at(due - self.scale.now, lambda: self._tick(number))

    def arrives(self, sent: SendFrame) -> None:
        """A frame has come."""
        self.sessions.on_frame(sent.path, sent.header, sent.frame_type, sent.body, self.scale.now)
        self.settle()

    def _up(self, dial: Dial) -> None:
        self.scale.paths += 1
        self.sessions.on_path_up(dial.name, dial.dial, self.scale.paths, self.scale.now)
        self.settle()

    def _tick(self, number: int) -> None:
        if number == self._due:
            self.sessions.on_timer(self.scale.now)
            self.settle()


class Worker:
    """A worker that only takes time: `packets` wait, the first is being run."""

    __slots__ = ("packets",)

    def __init__(self) -> None:
        self.packets: deque[commands.SendPacket] = deque()


class ScaleNode:
    """One node."""

    def __init__(self, scale: Scale, incarnation: int, slots: int) -> None:
        self.scale = scale
        self.incarnation = incarnation
        self.slots = slots
        self.totals = {"CPU": slots * RESOURCE_UNIT}
        self.dispatch = Dispatch(self.totals, initial_credit=HOME_CREDIT, joined=True)
        self.ends = Ends(scale, Role.NODE, incarnation, self._heard)
        self.seeking = Seeking(incarnation)
        self.clients: dict[int, ScaleClient] = {}
        self.workers: dict[int, Worker] = {}
        self.busy = 0
        self._due: float | None = None
        self._seeks_at: float | None = None

    # -- what clients say ----------------------------------------------------------------------------------------------

    def _heard(self, name: Any, frame_type: int, body: bytes) -> None:
        if frame_type == Frame.HELLO:
            credit = min(HOME_CREDIT, REMOTE_CREDIT * self.slots)
            self.dispatch.on_client_joined(name.owner, name.owner, self.scale.now, credit=credit)
            welcome = pb.Welcome(node=self.incarnation, initial_credit=credit, slots=self.slots, totals=self.totals)
            self.say(name.owner, Frame.WELCOME, welcome.SerializeToString())
        else:
            self.hear(name.owner, frame_type, body)
        self.settle()

    def hear(self, client: int, frame_type: int, body: bytes) -> None:
        """A client here or elsewhere says something."""
        now, dispatch = self.scale.now, self.dispatch
        if frame_type == Frame.SUBMIT:
            for i in pb.Submit.FromString(body).intervals:
                interval = Interval(client, i.stream, i.first, i.attempt, i.stride, i.kind, list(i.calls), array=True)
                dispatch.on_submitted(client, interval, now)
        elif frame_type == Frame.KIND:
            kind = pb.Kind.FromString(body)
            dispatch.on_kind(client, commands.KindSpec(kind.id, 0, dict(kind.resources), 1, kind.name))
        elif frame_type == Frame.WANT:
            want = pb.Want.FromString(body)
            dispatch.on_want(client, want.kind, want.waiting, now)
            if client in self.clients:
                is_home = dispatch.takes(client, want.kind)
                self.seeking.on_want(client, want.kind, NEEDS, PYTHON, want.waiting, now, is_home=is_home)

    def say(self, client: int, frame_type: int, body: bytes) -> None:
        """Say something to a client."""
        scale, local = self.scale, self.clients.get(client)
        if local is not None:
            scale.count(FRAME_NBYTES + len(body))
            scale.at(scale.local_seconds, lambda: local.hears(0, frame_type, body))
            return
        session = self.ends.sessions.with_peer(client)
        assert session is not None
        session.send(frame_type, body, scale.now)
        self.ends.settle()

    # -- what its machines command -------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Do what the machines command."""
        while ordered := self.dispatch.take_commands():
            for command in ordered:
                self._do(command)
        for wanted in self.seeking.take_commands():
            if isinstance(wanted, AskRoom):
                self.scale.ask_head(self, wanted)
            elif isinstance(wanted, Connect):
                self.clients[wanted.client].connect(wanted.node)
        self._set_timers()

    def _do(self, command: Any) -> None:
        kind = type(command)
        if kind is commands.SendPacket:
            worker = self.workers[command.worker]
            worker.packets.append(command)
            if len(worker.packets) == 1:
                self._run(worker)
        elif kind is commands.StartWorker:
            self.workers[command.worker] = Worker()
            self.scale.at(0.0, lambda: self._started(command.worker))
        elif kind is commands.StopWorker:
            assert not self.workers.pop(command.worker).packets
            self.scale.at(0.0, lambda: self._stopped(command.worker))
        elif kind is commands.Grant:
            body = pb.Grant(kind=command.kind, credit=command.credit).SerializeToString()
            self.say(command.client, Frame.GRANT, body)
        elif kind is commands.Returned:
            spans = [pb.Span(stream=s.stream, first=s.first, count=s.count, attempt=s.attempt, stride=s.stride)
                     for s in command.spans]  # fmt: skip
            self.say(command.client, Frame.RETURNED, pb.Returned(spans=spans).SerializeToString())
        elif kind is commands.Recall:
            packets = self.workers[command.worker].packets
            taken = [packets.pop() for _ in range(min(command.at_most, len(packets) - 1))]
            self.dispatch.on_recalled(command.worker, [p.packet for p in reversed(taken)], self.scale.now)
        else:
            raise AssertionError(f"{command} without a fault")

    def _started(self, worker: int) -> None:
        self.dispatch.on_worker_forked(worker, self.scale.now)
        self.dispatch.on_worker_started(worker, self.scale.now)
        self.settle()

    def _stopped(self, worker: int) -> None:
        self.dispatch.on_worker_died(worker, [], None, False, self.scale.now)
        self.settle()

    def _run(self, worker: Worker) -> None:
        seconds = self.scale.task_seconds * sum(len(i.calls) for i in worker.packets[0].intervals)
        self.busy += 1
        self.scale.at(seconds, lambda: self._ran(worker, seconds))

    def _ran(self, worker: Worker, seconds: float) -> None:
        packet = worker.packets.popleft()
        self.busy -= 1
        finished = pb.Finished(packet_done=True, packet=packet.packet)
        done = []
        for i in packet.intervals:
            count = len(i.calls)
            finished.done.add(stream=i.stream, first=i.first, attempt=i.attempt, stride=1, values=[RESULT] * count,
                              seconds=seconds)  # fmt: skip
            done.append((i.owner, i.stream, i.first, count, 1, i.attempt))
        self.say(packet.intervals[0].owner, Frame.FINISHED, finished.SerializeToString())
        self.dispatch.on_finished(packet.worker, packet.packet, done, seconds, True, self.scale.now)
        if worker.packets:
            self._run(worker)
        self.settle()

    def _set_timers(self) -> None:
        looks, seeks, scale = self.dispatch.due, self.seeking.due, self.scale
        if looks is not None and (self._due is None or looks < self._due):
            self._due = looks
            scale.at(max(0.0, looks - scale.now), lambda: self._look(looks))
        if seeks is not None and (self._seeks_at is None or seeks < self._seeks_at):
            self._seeks_at = seeks
            scale.at(max(0.0, seeks - scale.now), lambda: self._seek(seeks))

    def _look(self, due: float) -> None:
        if self._due == due:
            self._due = None
            self.dispatch.on_timer(self.scale.now)
            self.settle()

    def _seek(self, due: float) -> None:
        if self._seeks_at == due:
            self._seeks_at = None
            self.seeking.on_timer(self.scale.now)
            self.settle()


class ScaleClient:
    """One client with one task array; `node` is its own node."""

    def __init__(self, scale: Scale, incarnation: int, node: ScaleNode) -> None:
        from ..scheduler.owner import Owner

        self.scale = scale
        self.incarnation = incarnation
        self.node = node
        self.owner = Owner(incarnation, HOME_CREDIT, node.incarnation, joined=True)
        self.ends = Ends(scale, Role.OWNER, incarnation, self._heard)
        self.kind = self.owner.add_kind("f", process_retries=3, machine_retries=3, stride=1)
        self.array = self.owner.open_array(self.kind)
        self.told: set[int] = set()
        node.clients[incarnation] = self
        node.dispatch.on_client_joined(incarnation, incarnation, scale.now)
        node.settle()

    def submit(self, count: int) -> None:
        """Have so many more tasks."""
        self.owner.extend(self.array, count)
        self.pump()

    def connect(self, node: int) -> None:
        """Open a session with a node."""
        if self.ends.sessions.can_open(node):
            session = self.ends.sessions.open(node, self.scale.now)
            session.set_in_use(True, self.scale.now)
            session.send(Frame.HELLO, pb.Hello(incarnation=self.incarnation).SerializeToString(), self.scale.now)
            self.ends.settle()

    def _heard(self, name: Any, frame_type: int, body: bytes) -> None:
        if frame_type == Frame.WELCOME:
            welcome = pb.Welcome.FromString(body)
            self.owner.on_node_joined(name.node, welcome.initial_credit, welcome.slots)
            self.node.seeking.on_connected(self.incarnation, name.node)
            self.scale.note_session()
            self.pump()
        else:
            self.hears(name.node, frame_type, body)

    def hears(self, node: int, frame_type: int, body: bytes) -> None:
        """A node says something; 0: the own one."""
        owner = self.owner
        if frame_type == Frame.FINISHED:
            for done in pb.Finished.FromString(body).done:
                owner.on_finished(done.stream, done.first, done.attempt, 1, list(done.values), None, node)
                self.scale.finished += len(done.values)
            self.array.completions.clear()
        elif frame_type == Frame.GRANT:
            grant = pb.Grant.FromString(body)
            owner.on_grant(grant.kind, grant.credit, node)
        elif frame_type == Frame.RETURNED:
            spans = [Span(s.stream, s.first, s.count, s.attempt, s.stride) for s in pb.Returned.FromString(body).spans]
            owner.on_returned(spans, node)
        self.pump()

    def pump(self) -> None:
        """Send what may be sent, and say what may not."""
        owner = self.owner
        if owner.backlog:
            owner.plan_sends()
        for command in owner.take_commands():
            if type(command) is orders.SendItems:
                submit = pb.Submit()
                add_interval(submit, self.kind, self.array.stream, command.first, command.attempt,
                             [CALL] * command.count, {})  # fmt: skip
                self._say(command.node, Frame.SUBMIT, submit.SerializeToString())
            elif type(command) is orders.Want:
                want = pb.Want(kind=self.kind.id, waiting=command.waiting)
                self._say(command.node, Frame.WANT, want.SerializeToString())

    def _say(self, node: int, frame_type: int, body: bytes) -> None:
        if node not in self.told:
            self.told.add(node)
            kind = pb.Kind(id=self.kind.id, name="f", function=CALL, resources=NEEDS)
            self._put(node, Frame.KIND, kind.SerializeToString())
        self._put(node, frame_type, body)

    def _put(self, node: int, frame_type: int, body: bytes) -> None:
        scale = self.scale
        if not node:
            scale.count(FRAME_NBYTES + len(body))
            scale.at(scale.local_seconds, lambda: self._home_hears(frame_type, body))
            return
        session = self.ends.sessions.with_peer(node)
        assert session is not None
        session.send(frame_type, body, scale.now)
        self.ends.settle()

    def _home_hears(self, frame_type: int, body: bytes) -> None:
        self.node.hear(self.incarnation, frame_type, body)
        self.node.settle()

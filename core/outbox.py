"""What a client says to its node: the machine's commands as frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors
from .frames import SubmitBuilder, add_interval, answer_bytes, complete_call, refs_body, write_spans
from .ids import PLAIN_STREAM, ObjectId
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler import owner as machine
from .scheduler import references

if TYPE_CHECKING:
    from .client import Client


class Outbox:
    """Everything here runs under the client's lock."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._builder = SubmitBuilder()

    def send_lone(self, kind: machine.Kind, index: int, call: bytes) -> None:
        """Send one plain task on its first attempt, the commonest message of all."""
        self.introduce(kind)
        self._client.send(Frame.SUBMIT, self._builder.lone(kind, index, 1, call))

    def execute(self, commands: list[Any], deferred: list[machine.SendItems]) -> None:
        """Do what the machine commands; what needs pickling is added to `deferred`."""
        sends = []
        freed: list[tuple[ObjectId, int]] = []
        for command in commands:
            kind_of = type(command)
            if kind_of is machine.Send:
                sends.append(command)
            elif kind_of is machine.SendItems:
                self._client.encoding[command.array.kind.id] += 1
                deferred.append(command)
            elif kind_of is references.Free:
                if not self._client.values.free(command.oid):
                    freed.append(command)
            elif kind_of is machine.Settled:
                if command.entry.handed_to is not None:
                    self._client.hand_over(command.oid, command.entry)
                self._client.on_settled(command.oid, command.entry.value)
            else:
                self._execute_rare(command)
        if self._client.closed_mark is not None:
            return
        if sends:
            self._send_tasks(sends)
        if freed:
            self._client.send(Frame.FREE, refs_body(freed))

    def _execute_rare(self, command: Any) -> None:
        if self._client.closed_mark is not None:
            return
        match command:
            case machine.Want(kind, waiting):
                self.introduce(kind)
                self._client.send(Frame.WANT, pb.Want(kind=kind.id, waiting=waiting).SerializeToString())
            case machine.SendCancel(spans, force, kill_after):
                body = pb.Cancel(spans=write_spans(spans), force=force, kill=kill_after is not None,
                                 kill_after=kill_after or 0.0)  # fmt: skip
                self._client.send(Frame.CANCEL, body.SerializeToString())
            case machine.Ask(oid):
                ask = pb.Ask(ref=_ref(oid), asker=self._client.incarnation)
                self._client.send(Frame.ASK, ask.SerializeToString(), oid.owner)
            case machine.Answer(oid, value, asker):
                self._answer(oid, value, asker)
            case references.Borrow(oid):
                borrow = pb.Borrow(ref=_ref(oid), borrower=self._client.incarnation)
                self._client.send(Frame.BORROW, borrow.SerializeToString(), oid.owner)
            case references.Release(oid, version):
                release = pb.Borrow(ref=_ref(oid), borrower=self._client.incarnation)
                self._client.send(Frame.RELEASE, release.SerializeToString(), oid.owner)
                if version is not None:
                    self._client.unpin([(oid, version)])
            case references.ReleaseTo(oid, owner):
                release = pb.Borrow(ref=_ref(oid), borrower=self._client.incarnation)
                self._client.send(Frame.RELEASE, release.SerializeToString(), owner)
            case references.Forward(oid, borrower, owner, is_release):
                borrow = pb.Borrow(ref=_ref(oid), borrower=borrower)
                self._client.send(Frame.RELEASE if is_release else Frame.BORROW, borrow.SerializeToString(), owner)
            case references.Unpin(oid, version):
                self._client.unpin([(oid, version)])
            case _:
                raise errors.InternalError(f"unknown command {command!r}")

    def _answer(self, oid: ObjectId, value: Any, asker: int) -> None:
        body = answer_bytes(value)
        if body[:1] == b"\x0a":
            outcome = pb.Outcome.FromString(body)
            if outcome.value.HasField("stored"):
                self.announce(self._client.values.take_unannounced((outcome.value.stored,)))
        self._client.send(Frame.ANSWER, pb.Answer(ref=_ref(oid), value=body).SerializeToString(), asker)

    def announce(self, descriptors: list[pb.Descriptor]) -> None:
        """Tell the node of stored objects ahead of the message that needs them."""
        if descriptors:
            self._client.send(Frame.ANNOUNCE, pb.Announce(announced=descriptors).SerializeToString())

    def introduce(self, kind: machine.Kind) -> None:
        """Send a kind's description ahead of its first use. Under the lock."""
        spec = self._client.kinds.pop(kind.id, None)
        if spec is not None:
            self._client.send(Frame.KIND, spec.SerializeToString())

    def _send_tasks(self, sends: list[machine.Send]) -> None:
        for send in sends:
            self.introduce(send.kind)
        if len(sends) == 1 and len(sends[0].tasks) == 1 and type(sends[0].tasks[0].call) is bytes:
            kind, first, attempt, tasks = sends[0]
            self._client.send(Frame.SUBMIT, self._builder.lone(kind, first, attempt, tasks[0].call))
            return
        submit = pb.Submit()
        for kind, first, attempt, tasks in sends:
            calls, holds = [], {}
            for position, task in enumerate(tasks):
                call = task.call
                if type(call) is not bytes:
                    if task.inputs:
                        call = complete_call(task, [self._input_value(oid) for oid in task.inputs])
                    submit.announced.extend(self._client.values.take_unannounced(call.objects))
                    if call.objects:
                        holds[position] = call.objects
                    call = call.body
                calls.append(call)
            add_interval(submit, kind, PLAIN_STREAM, first, attempt, calls, holds)
        self._client.send(Frame.SUBMIT, submit.SerializeToString())

    def _input_value(self, oid: ObjectId) -> Any:
        entry = self._client.owner.refs.find(oid)
        return entry.value if entry is not None else None


def _ref(oid: ObjectId) -> pb.Ref:
    return pb.Ref(owner=oid.owner, seq=oid.seq)

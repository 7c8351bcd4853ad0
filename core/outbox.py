"""What a client says to its node: the machine's commands as frames."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from . import errors
from .failures import encode_error
from .frames import (
    SubmitBuilder,
    add_interval,
    answer_bytes,
    complete_call,
    refs_body,
    write_passed,
    write_ref,
    write_spans,
)
from .ids import PLAIN_STREAM, ObjectId
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler import notices
from .scheduler import owner as machine

if TYPE_CHECKING:
    from .client import Client

#: Bytes of calls after which a message goes out. Larger: fewer messages; smaller: the node begins sooner.
SUBMIT_NBYTES = 512 << 10

#: Bytes of one call at most, with the values of its inputs; a link carries a little more.
CALL_NBYTES = 48 << 20

#: A pickle of no arguments.
NO_ARGUMENTS = pickle.dumps(((), {}), pickle.HIGHEST_PROTOCOL)

#: Bytes that a stored object adds to a message, about: it is announced, held and named in the call.
DESCRIPTOR_NBYTES = 150


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
            elif kind_of is notices.Free:
                if not self._client.values.free(command.oid):
                    freed.append(command)
            elif kind_of is machine.Settled:
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
                ask = pb.Ask(ref=write_ref(oid), asker=self._client.incarnation)
                self._client.send(Frame.ASK, ask.SerializeToString(), oid.owner)
            case machine.Answer():
                self._answer(command)
            case notices.Borrow(oid):
                self._tell_owner(Frame.BORROW, oid, 1)
            case notices.Release(oid, version, times):
                self._tell_owner(Frame.RELEASE, oid, times)
                if version is not None:
                    self._client.unpin([(oid, version)])
            case notices.PassOn(oid):
                parcel = self._client.owner.hand_over(oid)
                if parcel is not None:
                    adopt = pb.Adopt()
                    self.pack(adopt, parcel)
                    self._client.send(Frame.ADOPT, adopt.SerializeToString(), parcel.receiver)
            case notices.Unpin(oid, version):
                self._client.unpin([(oid, version)])
            case _:
                raise errors.InternalError(f"unknown command {command!r}")

    def _tell_owner(self, frame_type: int, oid: ObjectId, times: int) -> None:
        borrow = pb.Borrow(ref=write_ref(oid), borrower=self._client.incarnation, count=times)
        self._client.send(frame_type, borrow.SerializeToString(), oid.owner)

    def _answer(self, answer: machine.Answer) -> None:
        body = answer_bytes(answer.value)
        self.announce(self._unannounced(body))
        message = pb.Answer(ref=write_ref(answer.oid), value=body, lent=map(write_ref, answer.lent))
        self._client.send(Frame.ANSWER, message.SerializeToString(), answer.asker)

    def pack(self, message: pb.Finished | pb.Adopt, parcel: machine.Parcel) -> None:
        """Put into a message what passes on with it; it is to be sent before anything else is."""
        write_passed(message, parcel)
        message.heard = self._client.inbox.words_heard
        for adoption in message.adopted:
            message.announced.extend(self._unannounced(adoption.value))

    def _unannounced(self, value: bytes) -> list[pb.Descriptor]:
        """Tell what the node must hear of before somebody else learns these value bytes."""
        if value[:1] != b"\x0a":
            return []
        return self._client.values.take_unannounced((pb.Outcome.FromString(value).value.stored,))

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
        submit, nbytes = pb.Submit(), 0
        for kind, first, attempt, tasks in sends:
            calls: list[bytes] = []
            holds: dict[int, tuple[pb.Descriptor, ...]] = {}
            for task in tasks:
                call, objects = self._complete(task)
                if objects:
                    submit.announced.extend(self._client.values.take_unannounced(objects))
                    holds[len(calls)] = objects
                calls.append(call)
                nbytes += len(call) + DESCRIPTOR_NBYTES * len(objects)
                if nbytes >= SUBMIT_NBYTES:
                    add_interval(submit, kind, PLAIN_STREAM, first, attempt, calls, holds)
                    self._client.send(Frame.SUBMIT, submit.SerializeToString())
                    submit, nbytes = pb.Submit(), 0
                    first += len(calls) * kind.stride
                    calls, holds = [], {}
            if calls:
                add_interval(submit, kind, PLAIN_STREAM, first, attempt, calls, holds)
        if submit.intervals:
            self._client.send(Frame.SUBMIT, submit.SerializeToString())

    def _complete(self, task: machine.Task) -> tuple[bytes, tuple[pb.Descriptor, ...]]:
        """Give a task's call with its inputs, and the stored objects which that names."""
        call = task.call
        if type(call) is bytes:
            return call, ()
        if task.inputs:
            call = complete_call(task, [self._input_value(oid) for oid in task.inputs])
        if len(call.body) <= CALL_NBYTES:
            return call.body, call.objects
        # The worker raises it in place of the call.
        error = encode_error(errors.SerializationError(
            f"a call of {task.kind.name} has {errors.describe_nbytes(len(call.body))} with its arguments; at most "
            f"{errors.describe_nbytes(CALL_NBYTES)} can travel. Put large arguments into the store.", what="argument"
        ))  # fmt: skip
        return pb.Parcel(stream=NO_ARGUMENTS, inputs=[error]).SerializeToString(), ()

    def _input_value(self, oid: ObjectId) -> Any:
        entry = self._client.owner.refs.find(oid)
        return entry.value if entry is not None else None

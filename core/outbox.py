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
from .reach import ALL_NODES, HOME
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler import notices
from .scheduler import owner as machine

if TYPE_CHECKING:
    from .client import Client
    from .items import ItemSender

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
        self._reach = client.reach
        self._told_home = client.reach.told[HOME]
        self._builder = SubmitBuilder()

    def send_lone(self, kind: machine.Kind, index: int, call: bytes) -> None:
        """Send one plain task on its first attempt to the own node, the commonest message of all."""
        if kind.id not in self._told_home:
            self.introduce(kind, HOME)
        self._client.send(Frame.SUBMIT, self._builder.lone(kind, index, 1, call))

    def execute(self, commands: list[Any], deferred: list[ItemSender]) -> None:
        """Do what the machine commands; what needs pickling is added to `deferred`."""
        sends = []
        freed: list[tuple[ObjectId, int]] = []
        for command in commands:
            kind_of = type(command)
            if kind_of is machine.Send:
                sends.append(command)
            elif kind_of is machine.SendItems:
                deferred.append(self._client.begin_items(command))
            elif kind_of is notices.Free:
                self._client.pulling.on_ended(*command)
                if not self._client.values.free(command.oid):
                    freed.append(command)
            elif kind_of is machine.Settled:
                self._client.actors.on_settled(command.oid, command.entry.value)
                self._client.on_settled(command.oid, command.entry.value)
            else:
                self._execute_rare(command)
        if self._client.closed_mark is not None:
            return
        if freed:
            self._send_freed(freed)  # first: it may be the room that a task needs
        if sends:
            self._send_tasks(sends)

    def _send_freed(self, freed: list[tuple[ObjectId, int]]) -> None:
        """Tell the own node of objects that have ended, and every node of those that others may know."""
        travelled = self._reach.travelled
        if travelled:
            far = [pair for pair in freed if pair[0] in travelled]
            if far:
                freed = [pair for pair in freed if pair[0] not in travelled]
                travelled.difference_update(oid for oid, _ in far)
                self._client.send(Frame.FREE, refs_body(far), ALL_NODES)
        if freed:
            self._client.send(Frame.FREE, refs_body(freed))

    def _execute_rare(self, command: Any) -> None:
        if self._client.closed_mark is not None:
            return
        match command:
            case machine.Want(kind, waiting, node):
                if node in self._reach.told:  # else it has gone since
                    self.introduce(kind, node)
                    self._client.send(Frame.WANT, pb.Want(kind=kind.id, waiting=waiting).SerializeToString(), node)
            case machine.SendCancel(spans, force, kill_after, node):
                body = pb.Cancel(spans=write_spans(spans), force=force, kill=kill_after is not None,
                                 kill_after=kill_after or 0.0)  # fmt: skip
                if node in self._reach.told:
                    self._client.send(Frame.CANCEL, body.SerializeToString(), node)
            case machine.Ask(oid, version):
                ask = pb.Ask(ref=write_ref(oid, version), asker=self._client.incarnation)
                self._client.send(Frame.ASK, ask.SerializeToString(), oid.owner)
            case machine.Answer():
                self._answer(command)
            case notices.Borrow(oid):
                self._tell_owner(Frame.BORROW, oid, 1)
            case notices.Release(oid, version, times):
                if self._client.owner.refs.find(oid) is None:  # else it has passed into our ownership
                    self._reach.travelled.discard(oid)
                self._tell_owner(Frame.RELEASE, oid, times)
                self._client.pulling.on_ended(oid, version)
                if version is not None:
                    self._client.unpin([(oid, version)])
            case notices.PassOn(oid):
                parcel = self._client.owner.hand_over(oid)
                if parcel is not None:
                    adopt = pb.Adopt()
                    self.pack(adopt, parcel)
                    self._client.send(Frame.ADOPT, adopt.SerializeToString(), parcel.receiver)
            case notices.AnchorEnded(binding):
                self._client.actors.on_anchor_ended(binding)
            case notices.Unpin(oid, version):
                self._client.pulling.on_ended(oid, version)
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
        stored = pb.Outcome.FromString(value).value.stored
        if stored.nbytes:
            self._reach.note_travelled([ObjectId(stored.owner, stored.seq)])
        return self._client.values.take_unannounced((stored,))

    def announce(self, descriptors: list[pb.Descriptor]) -> None:
        """Tell the node of stored objects ahead of the message that needs them."""
        if descriptors:
            self._client.send(Frame.ANNOUNCE, pb.Announce(announced=descriptors).SerializeToString())

    # -- kinds and bindings --------------------------------------------------------------------------------------------

    def introduce(self, kind: machine.Kind, node: int) -> None:
        """Send a kind's description, and its binding's, ahead of its first use at a node. Under the lock."""
        told = self._reach.told[node]
        if kind.id in told:
            return
        told.add(kind.id)
        client = self._client
        spec = client.kinds[kind.id] if self._reach.joined else client.kinds.pop(kind.id)
        if kind.lane is not None:
            spec = client.actors.describe(spec, client.kind_binding[kind.id])
        if spec.binding and not spec.binding_owner:
            self.introduce_binding(spec.binding, node)
        if node != HOME:
            self._reach.note_call(spec.function)
        client.send(Frame.KIND, spec.SerializeToString(), node)

    def introduce_binding(self, binding: int, node: int) -> None:
        """Tell a node of a binding unless it knows it. Under the lock."""
        told = self._reach.bindings.tell(binding, node)
        if told is None:
            return
        spec = self._client.binding_specs[binding]
        if node != HOME:
            self._reach.note_call(spec.initializer)
        body = pb.Binding()
        body.CopyFrom(spec)
        body.processes, body.eager = told
        self._client.send(Frame.BIND, body.SerializeToString(), node)

    def unbind(self, binding: int, *, force: bool) -> None:
        """Have all nodes that know a binding let it go; see `Reach.forget_unbound`. Under the lock."""
        self.send_unbind(binding, self._reach.bindings.close(binding, force=force), force=force)

    def send_unbind(self, binding: int, nodes: list[int], *, force: bool) -> None:
        """Tell nodes to let a binding go. Under the lock."""
        body = pb.Unbind(id=binding, force=force).SerializeToString()
        for node in nodes:
            self._client.send(Frame.UNBIND, body, node)

    def drop_kinds(self, kinds: list[int]) -> None:
        """Tell every node of those which it knows that nothing of them will come. Under the lock."""
        dropped: dict[int, list[int]] = {}
        for kind in kinds:
            for node in self._reach.forget_kind(kind):
                dropped.setdefault(node, []).append(kind)
        for node, ids in dropped.items():
            self._client.send(Frame.DROP_KINDS, pb.DropKinds(ids=ids).SerializeToString(), node)

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def submit(self, submit: pb.Submit, node: int, stored: list[pb.Descriptor]) -> None:
        """Send tasks to a node, which may need `stored`: a further one pulls them from the own node. Under the lock."""
        fresh = self._client.values.take_unannounced(tuple(stored)) if stored else []
        if node == HOME:
            submit.announced.extend(fresh)
            self._client.send(Frame.SUBMIT, submit.SerializeToString())
            return
        self.announce(fresh)
        self._reach.note_travelled(ObjectId(d.owner, d.seq) for d in stored)
        self._client.send(Frame.SUBMIT, submit.SerializeToString(), node)

    def _send_tasks(self, sends: list[machine.Send]) -> None:
        if len(sends) == 1 and len(sends[0].tasks) == 1 and type(sends[0].tasks[0].call) is bytes:
            kind, first, attempt, tasks, node = sends[0]
            self.introduce(kind, node)
            body = self._builder.lone(kind, first, attempt, tasks[0].call)
            self._client.send(Frame.SUBMIT, body, node)
            return
        by_node: dict[int, list[machine.Send]] = {}
        for send in sends:
            by_node.setdefault(send.node, []).append(send)
        for node, part in by_node.items():
            for send in part:
                self.introduce(send.kind, node)
            self._send_to(node, part)

    def _send_to(self, node: int, sends: list[machine.Send]) -> None:
        submit, nbytes = pb.Submit(), 0
        stored: list[pb.Descriptor] = []
        for kind, first, attempt, tasks, _ in sends:
            calls: list[bytes] = []
            holds: dict[int, tuple[pb.Descriptor, ...]] = {}
            for task in tasks:
                call, objects = self._complete(task)
                if objects:
                    stored += objects
                    holds[len(calls)] = objects
                calls.append(call)
                nbytes += len(call) + DESCRIPTOR_NBYTES * len(objects)
                if nbytes >= SUBMIT_NBYTES:
                    add_interval(submit, kind, PLAIN_STREAM, first, attempt, calls, holds)
                    self.submit(submit, node, stored)
                    submit, nbytes, stored = pb.Submit(), 0, []
                    first += len(calls) * kind.stride
                    calls, holds = [], {}
            if calls:
                add_interval(submit, kind, PLAIN_STREAM, first, attempt, calls, holds)
        if submit.intervals:
            self.submit(submit, node, stored)

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

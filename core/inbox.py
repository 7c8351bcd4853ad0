"""What nodes say to a client: one method a frame, each of which gives it to the machine or keeps it for who asked.

`origin` is the node that says so: 0 for the own one, through which all of it comes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .failures import as_exception
from .frames import read_adoption, read_extra, read_extras, read_lost_input, read_ref, read_spans
from .ids import PLAIN_STREAM, ObjectId, Span, item_object
from .reach import HOME
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler import owner as machine
from .scheduler.outcomes import BindingMark, LostCause, OwnerLostMark, RefusedMark

if TYPE_CHECKING:
    from .client import Client


#: Words about objects after which the node is told that they were heard. More cost it memory, fewer messages.
WORDS_UNTOLD = 256


class Inbox:
    """Everything here runs under the client's lock.

    `replies` holds the answer to the question that was asked last, by its type; `lines` what tasks have printed.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reach = client.reach
        self.replies: dict[int, Any] = {}
        self._due: Counter[int] = Counter()  # answers that have not come, by their type
        self.lines: deque[Any] = deque()
        self.dropped_kinds: deque[pb.DropKinds] = deque()
        self.words_heard = 0
        self.handlers: dict[int, Callable[[bytes, int, tuple[int, ...]], None]] = {
            Frame.FINISHED: self._on_finished, Frame.LOST: self._on_lost, Frame.RETURNED: self._on_returned,
            Frame.GRANT: self._on_grant, Frame.KIND_REFUSED: self._on_kind_refused,
            Frame.BINDING_FAILED: self._on_binding_failed, Frame.UNBOUND: self._on_unbound,
            Frame.SEGMENT: self._on_segment, Frame.STORE_FULL: self._on_store_full, Frame.RECLAIM: self._on_reclaim,
            Frame.ASK: self._on_ask, Frame.ANSWER: self._on_answer, Frame.BORROW: self._on_borrow,
            Frame.RELEASE: self._on_release, Frame.BORROWER_DIED: self._on_borrower_died, Frame.ADOPT: self._on_adopt,
            Frame.OWNER_LOST: self._on_owner_lost, Frame.LOG: self._on_log, Frame.STATUS_REPLY: self._on_status,
            Frame.GIVE_BACK: self._on_give_back, Frame.DROP_KINDS: self._on_drop_kinds,
            Frame.KIND: self._on_kind, Frame.PACKET: self._on_packet, Frame.RESUME: self._on_resume,
            Frame.PULLED: self._on_pulled, Frame.PASSED_ON: self._on_passed_on, Frame.LEAVING: self._on_leaving,
            Frame.CANCEL: self._on_cancel, Frame.NAME_REPLY: self._on_name_reply,
            Frame.WELCOME: self._on_welcome, Frame.NODE_GONE: self._on_node_gone, Frame.GANG_STATE: self._on_gang_state,
            Frame.TIMELINE_REPLY: self._on_timeline,
        }  # fmt: skip

    def _on_welcome(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self._reach.on_joined(pb.Welcome.FromString(body))

    def _on_node_gone(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        gone = pb.NodeGone.FromString(body)
        is_lost = gone.lost or gone.node not in self._reach.told
        if is_lost:  # first: what a gang had there fails for that reason, and is not tried again
            self._client.on_gang_node_gone(gone.node, is_lost=True)
        self._reach.on_gone(gone.node, is_lost=gone.lost, reason=gone.reason)
        self._client.send(Frame.NODE_GONE, body)  # what was sent before this was for the session that is over
        self._client.actors.on_node_gone(gone.node, is_lost=is_lost)
        if not is_lost:
            self._client.on_gang_node_gone(gone.node, is_lost=False)

    def _on_gang_state(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self._client.on_gang_state(pb.GangState.FromString(body))

    def _on_timeline(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self._client.timeline.on_answer(pb.Timeline.FromString(body), origin)

    def _on_finished(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        finished = pb.Finished.FromString(body)
        owner = self._client.owner
        if finished.adopted:
            self._adopt(finished.adopted)
        for done in finished.done:
            values = list(done.values)
            if not done.mixed:
                owner.on_finished(done.stream, done.first, done.attempt, done.stride, values, None, origin)
            else:
                self._finish_mixed(done, values, origin)
            if done.stream:
                array = owner.arrays.get(done.stream)
                if array is not None:
                    array.seconds += done.seconds
                self._client.on_items(done.stream)

    def _finish_mixed(self, done: pb.Done, values: list[bytes], origin: int) -> None:
        extras = read_extras(values)
        if extras and self._reach.joined:
            self._note_made_elsewhere(done, extras)
        failed = [p for p, v in enumerate(values) if v[:1] == b"\x12"]
        self._client.failures += len(failed)
        may_run_again = failed and ((done.stream == PLAIN_STREAM and self._client.retries) or (
            self._reach.joined and any(read_lost_input(values[p]) for p in failed)))  # fmt: skip
        if may_run_again:
            self._finish_failed(done, values, extras, origin)
            return
        owner = self._client.owner
        owner.on_finished(done.stream, done.first, done.attempt, done.stride, values, extras or None, origin)

    def _finish_failed(self, done: pb.Done, values: list[bytes], extras: dict[int, machine.Extra], origin: int) -> None:
        """Take in results one by one, since some tasks may run again."""
        stride = done.stride
        for position in range(0, len(values), stride):
            index = done.first + position
            part = values[position : position + stride]
            if part[0][:1] == b"\x12" and self._will_run_again(done, index, part[0], origin):
                continue
            brought = {p - position: e for p, e in extras.items() if position <= p < position + stride}
            owner = self._client.owner
            owner.on_finished(done.stream, index, done.attempt, stride, part, brought or None, origin)

    def _will_run_again(self, done: pb.Done, index: int, value: bytes, origin: int) -> bool:
        """Whether the machine takes a failure as a reason to run the task again."""
        owner = self._client.owner
        lost = read_lost_input(value) if self._reach.joined else None
        if lost is not None:
            oid, version = lost
            if done.stream == PLAIN_STREAM:
                owner.on_input_lost(index, done.attempt, oid, version, origin)
            else:
                owner.on_item_input_lost(done.stream, index, done.attempt, oid, version, origin)
            return True
        if done.stream != PLAIN_STREAM or not self._client.retries or not self._may_retry(index, value):
            return False
        return owner.on_raised(index, done.attempt, origin)

    def _note_made_elsewhere(self, done: pb.Done, extras: dict[int, machine.Extra]) -> None:
        """What lies at another node must be freed there."""
        me, home = self._client.incarnation, self._reach.home
        for position, extra in extras.items():
            if extra.stored is not None and extra.node != home:
                index = done.first + position
                oid = item_object(me, done.stream, index) if done.stream else ObjectId(me, index)
                self._reach.note_travelled((oid,))

    def _may_retry(self, index: int, value: bytes) -> bool:
        task = self._client.owner.refs.owned.get(index)
        wanted = self._client.retries.get(task.kind.id) if isinstance(task, machine.Task) else None
        if not wanted or pb.Outcome.FromString(value).error.cause != pb.Error.RAISED:
            return False
        if wanted is True:
            return True

        return isinstance(as_exception(value), wanted)

    def _on_lost(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        lost = pb.Lost.FromString(body)
        cause = LostCause(lost.cause)
        death = lost.death if lost.HasField("death") else None
        self._client.failures += 1
        for span in read_spans(lost.spans):
            mark = self._binding_mark(span, lost.outcome, death) if cause is LostCause.BINDING else None
            self._client.owner.on_lost(cause, (span,), death, mark, origin)
        for stream in {span.stream for span in lost.spans if span.stream}:
            self._client.on_items(stream)

    def _binding_mark(self, span: Span, outcome: bytes, death: Any) -> Any:
        """Say why the node did not take these: it has refused their kind, or their binding takes nothing more."""
        owner = self._client.owner
        of: Any = owner.arrays.get(span.stream) if span.stream else owner.refs.owned.get(span.first)
        kind = getattr(of, "kind", None)
        if kind is None or kind.refused is not None:
            return kind.refused if kind is not None else BindingMark("", outcome, death)
        binding, is_actor = self._client.kind_binding.get(kind.id, 0), kind.lane is not None
        known = self._client.failed_bindings.get(binding) if is_actor else None
        return known or self._client.binding_mark(binding, outcome, death, is_actor=is_actor)

    def _on_returned(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self._client.owner.on_returned(read_spans(pb.Returned.FromString(body).spans), origin)

    def _on_grant(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        grant = pb.Grant.FromString(body)
        self._client.owner.on_grant(grant.kind, grant.credit, origin)

    def _on_kind_refused(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        refused = pb.KindRefused.FromString(body)
        kind = self._client.owner.kinds.get(refused.id)
        if kind is None:
            return  # dropped before the node had looked at it
        if refused.gone:
            self._client.actors.on_gone(kind)
            return
        if origin != HOME:
            self._client.owner.on_grant(kind.id, 0, origin)  # only the own node knows that no other has what it needs
            return
        mark = RefusedMark(kind.name, refused.reason, dict(refused.asked), dict(refused.available))
        if kind.lane is not None and kind.lane.seeker is kind:  # no node can have the actor at all
            binding = self._client.kind_binding[kind.id]
            self._client.fail_binding(binding, mark._replace(name=self._client.labels.get(binding, kind.name)))
            return
        self._client.refuse(kind, mark)

    def _on_binding_failed(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        failed = pb.BindingFailed.FromString(body)
        death = failed.death if failed.HasField("death") else None
        others = self._reach.bindings.fail(failed.id, origin)
        is_actor = failed.id in self._client.lanes
        mark = self._client.binding_mark(failed.id, failed.outcome, death, is_actor=is_actor)
        self._client.fail_binding(failed.id, mark)
        self._client.outbox.send_unbind(failed.id, others, force=True)

    def _on_unbound(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        binding = pb.Unbind.FromString(body).id
        if self._reach.bindings.on_unbound(binding, origin):
            self._client.on_unbound(binding)

    def expect(self, reply: int) -> None:
        """A question is being asked; answers to earlier ones of its kind, whose asker was interrupted, come first."""
        self._due[reply] += 1
        self.replies.pop(reply, None)

    def _answered(self, reply: int, answer: Any) -> None:
        self._due[reply] -= 1
        if self._due[reply] == 0:
            self.replies[reply] = answer

    def _on_pulled(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self._client.pulling.on_pulled(pb.Pulled.FromString(body))

    def _on_segment(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        # Taken over here, not by whoever asked: that thread may have been interrupted while it waited.
        segment, values = pb.Segment.FromString(body), self._client.values
        if segment.writable:
            values.add_lease(segment.segment, fds[0] if fds else -1, segment.nbytes)
            self._client.background.start()  # somebody must hear when the node wants it back
        elif fds:
            values.reader.add(segment.segment, fds[0], segment.nbytes)
        self._answered(Frame.LEASE if segment.writable or not segment.segment else Frame.MAP, None)

    def _on_store_full(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self._answered(Frame.LEASE, pb.StoreFull.FromString(body))

    def _on_reclaim(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        for extent in pb.Reclaim.FromString(body).extents:
            self._client.values.reclaim(extent.segment, extent.offset)

    def _on_give_back(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        segments, parts = self._client.values.give_back(pb.GiveBack.FromString(body).segments)
        self._client.send(Frame.GIVE_BACK, pb.GiveBack(segments=segments, parts=parts).SerializeToString())

    def _on_drop_kinds(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self.dropped_kinds.append(pb.DropKinds.FromString(body))

    def _on_ask(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        ask = pb.Ask.FromString(body)
        if ask.end:
            self._client.on_actor_end(read_ref(ask.ref), ask.end)
            return
        self._client.owner.on_asked(read_ref(ask.ref), ask.asker, ask.ref.version)

    def _on_answer(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        answer = pb.Answer.FromString(body)
        if answer.value[:1] == b"\x12":
            self._client.failures += 1
        self._client.owner.on_answered(read_ref(answer.ref), answer.value, read_extra(answer.value))

    def _on_borrow(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        borrow = pb.Borrow.FromString(body)
        self._client.owner.refs.on_borrowed(read_ref(borrow.ref), borrow.borrower, borrow.by)
        self._count_word()

    def _on_release(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        release = pb.Borrow.FromString(body)
        self._client.owner.refs.on_released(read_ref(release.ref), release.borrower, release.count)
        self._count_word()

    def _count_word(self) -> None:
        """The node keeps what it says of objects until it knows that it was heard, lest their owner passes them on."""
        self.words_heard += 1
        if self.words_heard % WORDS_UNTOLD == 0:
            self._client.send(Frame.ADOPT, pb.Adopt(heard=self.words_heard).SerializeToString())

    def _on_borrower_died(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self._client.owner.refs.on_borrower_died(pb.Peer.FromString(body).incarnation)

    def _on_adopt(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self._adopt(pb.Adopt.FromString(body).adopted)

    def _adopt(self, adopted: Any) -> None:
        adoptions = [read_adoption(adoption) for adoption in adopted]
        self._client.failures += sum(adoption.value[:1] == b"\x12" for adoption in adoptions)
        self._reach.note_travelled(adoption.oid for adoption in adoptions)
        self._client.owner.on_adopted(adoptions)

    def _on_passed_on(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        passed = pb.PassedOn.FromString(body)
        for ref in passed.refs:
            self._client.owner.on_passed(read_ref(ref), is_refused=passed.refused)

    def _on_leaving(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self.replies[Frame.LEAVING] = True

    def _on_owner_lost(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        lost = pb.Peer.FromString(body)
        self._client.failures += 1
        if lost.HasField("ref"):
            self._client.owner.on_object_lost(read_ref(lost.ref), OwnerLostMark(lost.incarnation))
        else:
            self._client.owner.on_owner_lost(lost.incarnation)

    def _on_log(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self.lines.append(pb.Log.FromString(body))

    def _on_status(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self._answered(Frame.STATUS_REPLY, pb.StatusReply.FromString(body))

    def _on_cancel(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self._client.on_calls_cancelled(origin, pb.Cancel.FromString(body))

    def _on_name_reply(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self._answered(Frame.NAME_REPLY, pb.NameReply.FromString(body))

    def _on_kind(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self._answered(Frame.KIND, pb.Kind.FromString(body))

    def _on_packet(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self._answered(Frame.PACKET, pb.Submit.FromString(body))

    def _on_resume(self, body: bytes, origin: int, fds: tuple[int, ...]) -> None:
        self._client.turns.on_resumed()

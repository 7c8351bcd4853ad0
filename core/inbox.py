"""What a node says to a client: one method a frame, each of which gives it to the machine or keeps it for who asked."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .failures import as_exception
from .frames import read_adoption, read_extra, read_extras, read_ref, read_spans
from .ids import PLAIN_STREAM, Span
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
        self.replies: dict[int, Any] = {}
        self._due: Counter[int] = Counter()  # answers that have not come, by their type
        self.lines: deque[Any] = deque()
        self.dropped_kinds: deque[pb.DropKinds] = deque()
        self.words_heard = 0
        self.handlers: dict[int, Callable[[bytes, tuple[int, ...]], None]] = {
            Frame.FINISHED: self._on_finished, Frame.LOST: self._on_lost, Frame.RETURNED: self._on_returned,
            Frame.GRANT: self._on_grant, Frame.KIND_REFUSED: self._on_kind_refused,
            Frame.BINDING_FAILED: self._on_binding_failed, Frame.UNBOUND: self._on_unbound,
            Frame.SEGMENT: self._on_segment, Frame.STORE_FULL: self._on_store_full, Frame.RECLAIM: self._on_reclaim,
            Frame.ASK: self._on_ask, Frame.ANSWER: self._on_answer, Frame.BORROW: self._on_borrow,
            Frame.RELEASE: self._on_release, Frame.BORROWER_DIED: self._on_borrower_died, Frame.ADOPT: self._on_adopt,
            Frame.OWNER_LOST: self._on_owner_lost, Frame.LOG: self._on_log, Frame.STATUS_REPLY: self._on_status,
            Frame.GIVE_BACK: self._on_give_back, Frame.DROP_KINDS: self._on_drop_kinds,
            Frame.KIND: self._on_kind, Frame.PACKET: self._on_packet, Frame.RESUME: self._on_resume,
            Frame.PASSED_ON: self._on_passed_on, Frame.LEAVING: self._on_leaving,
        }  # fmt: skip

    def _on_finished(self, body: bytes, fds: tuple[int, ...]) -> None:
        finished = pb.Finished.FromString(body)
        owner = self._client.owner
        if finished.adopted:
            self._adopt(finished.adopted)
        for done in finished.done:
            values = list(done.values)
            if not done.mixed:
                owner.on_finished(done.stream, done.first, done.attempt, done.stride, values)
            else:
                self._finish_mixed(done, values)
            if done.stream:
                self._client.on_items(done.stream)

    def _finish_mixed(self, done: pb.Done, values: list[bytes]) -> None:
        owner = self._client.owner
        extras = read_extras(values)
        failed = [p for p, v in enumerate(values) if v[:1] == b"\x12"]
        self._client.failures += len(failed)
        if done.stream == PLAIN_STREAM and failed and self._client.retries:
            for position in range(0, len(values), done.stride):
                index = done.first + position
                task_values = values[position : position + done.stride]
                if not (task_values[0][:1] == b"\x12" and self._may_retry(index, task_values[0])
                        and owner.on_raised(index, done.attempt)):  # fmt: skip
                    part = {p - position: e for p, e in extras.items() if position <= p < position + done.stride}
                    owner.on_finished(PLAIN_STREAM, index, done.attempt, done.stride, task_values, part or None)
            return
        owner.on_finished(done.stream, done.first, done.attempt, done.stride, values, extras or None)

    def _may_retry(self, index: int, value: bytes) -> bool:
        task = self._client.owner.refs.owned.get(index)
        wanted = self._client.retries.get(task.kind.id) if isinstance(task, machine.Task) else None
        if not wanted or pb.Outcome.FromString(value).error.cause != pb.Error.RAISED:
            return False
        if wanted is True:
            return True

        return isinstance(as_exception(value), wanted)

    def _on_lost(self, body: bytes, fds: tuple[int, ...]) -> None:
        lost = pb.Lost.FromString(body)
        cause = LostCause(lost.cause)
        death = lost.death if lost.HasField("death") else None
        self._client.failures += 1
        for span in read_spans(lost.spans):
            mark = self._binding_mark(span, lost.outcome, death) if cause is LostCause.BINDING else None
            self._client.owner.on_lost(cause, (span,), death, mark)
        for stream in {span.stream for span in lost.spans if span.stream}:
            self._client.on_items(stream)

    def _binding_mark(self, span: Span, outcome: bytes, death: Any) -> Any:
        """Say why the node did not take these: it has refused their kind, or their binding takes nothing more."""
        owner = self._client.owner
        of: Any = owner.arrays.get(span.stream) if span.stream else owner.refs.owned.get(span.first)
        kind = getattr(of, "kind", None)
        return kind.refused if kind is not None and kind.refused is not None else BindingMark("", outcome, death)

    def _on_returned(self, body: bytes, fds: tuple[int, ...]) -> None:
        self._client.owner.on_returned(read_spans(pb.Returned.FromString(body).spans))

    def _on_grant(self, body: bytes, fds: tuple[int, ...]) -> None:
        grant = pb.Grant.FromString(body)
        self._client.owner.on_grant(grant.kind, grant.credit)

    def _on_kind_refused(self, body: bytes, fds: tuple[int, ...]) -> None:
        refused = pb.KindRefused.FromString(body)
        kind = self._client.owner.kinds.get(refused.id)
        if kind is None:
            return  # dropped before the node had looked at it
        self._client.refuse(kind, RefusedMark(kind.name, refused.reason, dict(refused.asked), dict(refused.available)))

    def _on_binding_failed(self, body: bytes, fds: tuple[int, ...]) -> None:
        failed = pb.BindingFailed.FromString(body)
        death = failed.death if failed.HasField("death") else None
        self._client.fail_binding(failed.id, BindingMark(self._client.labels.get(failed.id, ""), failed.outcome, death))

    def _on_unbound(self, body: bytes, fds: tuple[int, ...]) -> None:
        self._client.on_unbound(pb.Unbind.FromString(body).id)

    def expect(self, reply: int) -> None:
        """A question is being asked; answers to earlier ones of its kind, whose asker was interrupted, come first."""
        self._due[reply] += 1
        self.replies.pop(reply, None)

    def _answered(self, reply: int, answer: Any) -> None:
        self._due[reply] -= 1
        if self._due[reply] == 0:
            self.replies[reply] = answer

    def _on_segment(self, body: bytes, fds: tuple[int, ...]) -> None:
        # Taken over here, not by whoever asked: that thread may have been interrupted while it waited.
        segment, values = pb.Segment.FromString(body), self._client.values
        if segment.writable:
            values.add_lease(segment.segment, fds[0] if fds else -1, segment.nbytes)
            self._client.background.start()  # somebody must hear when the node wants it back
        elif fds:
            values.reader.add(segment.segment, fds[0], segment.nbytes)
        self._answered(Frame.LEASE if segment.writable or not segment.segment else Frame.MAP, None)

    def _on_store_full(self, body: bytes, fds: tuple[int, ...]) -> None:
        self._answered(Frame.LEASE, pb.StoreFull.FromString(body))

    def _on_reclaim(self, body: bytes, fds: tuple[int, ...]) -> None:
        for extent in pb.Reclaim.FromString(body).extents:
            self._client.values.reclaim(extent.segment, extent.offset)

    def _on_give_back(self, body: bytes, fds: tuple[int, ...]) -> None:
        given = self._client.values.give_back(pb.GiveBack.FromString(body).segments)
        self._client.send(Frame.GIVE_BACK, pb.GiveBack(segments=given).SerializeToString())

    def _on_drop_kinds(self, body: bytes, fds: tuple[int, ...]) -> None:
        self.dropped_kinds.append(pb.DropKinds.FromString(body))

    def _on_ask(self, body: bytes, fds: tuple[int, ...]) -> None:
        ask = pb.Ask.FromString(body)
        self._client.owner.on_asked(read_ref(ask.ref), ask.asker)

    def _on_answer(self, body: bytes, fds: tuple[int, ...]) -> None:
        answer = pb.Answer.FromString(body)
        if answer.value[:1] == b"\x12":
            self._client.failures += 1
        self._client.owner.on_answered(read_ref(answer.ref), answer.value, read_extra(answer.value))

    def _on_borrow(self, body: bytes, fds: tuple[int, ...]) -> None:
        borrow = pb.Borrow.FromString(body)
        self._client.owner.refs.on_borrowed(read_ref(borrow.ref), borrow.borrower, borrow.by)
        self._count_word()

    def _on_release(self, body: bytes, fds: tuple[int, ...]) -> None:
        release = pb.Borrow.FromString(body)
        self._client.owner.refs.on_released(read_ref(release.ref), release.borrower, release.count)
        self._count_word()

    def _count_word(self) -> None:
        """The node keeps what it says of objects until it knows that it was heard, lest their owner passes them on."""
        self.words_heard += 1
        if self.words_heard % WORDS_UNTOLD == 0:
            self._client.send(Frame.ADOPT, pb.Adopt(heard=self.words_heard).SerializeToString())

    def _on_borrower_died(self, body: bytes, fds: tuple[int, ...]) -> None:
        self._client.owner.refs.on_borrower_died(pb.Peer.FromString(body).incarnation)

    def _on_adopt(self, body: bytes, fds: tuple[int, ...]) -> None:
        self._adopt(pb.Adopt.FromString(body).adopted)

    def _adopt(self, adopted: Any) -> None:
        adoptions = [read_adoption(adoption) for adoption in adopted]
        self._client.failures += sum(adoption.value[:1] == b"\x12" for adoption in adoptions)
        self._client.owner.on_adopted(adoptions)

    def _on_passed_on(self, body: bytes, fds: tuple[int, ...]) -> None:
        passed = pb.PassedOn.FromString(body)
        for ref in passed.refs:
            self._client.owner.on_passed(read_ref(ref), is_refused=passed.refused)

    def _on_leaving(self, body: bytes, fds: tuple[int, ...]) -> None:
        self.replies[Frame.LEAVING] = True

    def _on_owner_lost(self, body: bytes, fds: tuple[int, ...]) -> None:
        lost = pb.Peer.FromString(body)
        self._client.failures += 1
        if lost.HasField("ref"):
            self._client.owner.on_object_lost(read_ref(lost.ref), OwnerLostMark(lost.incarnation))
        else:
            self._client.owner.on_owner_lost(lost.incarnation)

    def _on_log(self, body: bytes, fds: tuple[int, ...]) -> None:
        self.lines.append(pb.Log.FromString(body))

    def _on_status(self, body: bytes, fds: tuple[int, ...]) -> None:
        self._answered(Frame.STATUS_REPLY, pb.StatusReply.FromString(body))

    def _on_kind(self, body: bytes, fds: tuple[int, ...]) -> None:
        self._answered(Frame.KIND, pb.Kind.FromString(body))

    def _on_packet(self, body: bytes, fds: tuple[int, ...]) -> None:
        self._answered(Frame.PACKET, pb.Submit.FromString(body))

    def _on_resume(self, body: bytes, fds: tuple[int, ...]) -> None:
        self.replies[Frame.RESUME] = True

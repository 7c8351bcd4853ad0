"""A real client over a link whose other end the test plays: its own node, and through that further ones."""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from outboard import errors
from outboard.client import Client
from outboard.engine import ActorTerms
from outboard.ids import ObjectId
from outboard.native import NativeEngine
from outboard.options import TaskOptions
from outboard.reach import ALL_NODES
from outboard.refs import ObjectRef
from outboard.rpc.codec import MESSAGES, Frame
from outboard.rpc.local import BlockingLink, socketpair
from outboard.rpc.protos import outboard_pb2 as pb

pytestmark = pytest.mark.timeout(10)

ME, HOME, FAR, FARTHER, ELSE = 7, 100, 200, 300, 8
CPU = 10_000
NAMES = {number: name for name, number in vars(Frame).items() if not name.startswith("_")}
LARGE = 200 << 10


class Said(NamedTuple):
    """A frame of the client."""

    name: str
    node: int
    message: Any


class Rig:
    """The client and its node. Its background thread never runs: a test says when it reads and sends."""

    def __init__(self, *, credit: int = 2, slots: int = 2, joined: bool = True) -> None:
        ours, theirs = socketpair()
        self.node = BlockingLink(theirs)
        welcome = pb.Welcome(node=HOME, initial_credit=credit, slots=slots, joined=joined, totals={"CPU": slots * CPU})
        self.client = Client(BlockingLink(ours), ME, welcome)
        self.client.background.start = lambda: None  # type: ignore[method-assign]  # no thread
        self.engine = NativeEngine(self.client)
        self.engine._slots_elsewhere = lambda: 0  # type: ignore[method-assign]  # nobody would answer

    def says(self, frame: int, message: Any, node: int = 0) -> list[Said]:
        """A node says something; returns what the client says to that."""
        self.node.send(frame, message.SerializeToString(), node)
        self.client.turns.poll()
        return self.said()

    def joins(self, node: int, credit: int = 2, slots: int = 2, **totals: int) -> list[Said]:
        welcome = pb.Welcome(node=node, initial_credit=credit, slots=slots, totals={"CPU": slots * CPU} | totals)
        return self.says(Frame.WELCOME, welcome, node)

    def goes(self, node: int, *, lost: bool) -> list[Said]:
        """Tell of the end of a session; returns what the client says besides that it knows of it."""
        said = self.says(Frame.NODE_GONE, pb.NodeGone(node=node, lost=lost, reason="its cable was cut"))
        (known,) = [frame for frame in said if frame.name == "NODE_GONE"]
        assert (known.node, known.message.node) == (0, node)
        return [frame for frame in said if frame is not known]

    def flush(self) -> list[Said]:
        self.client.flush()
        return self.said()

    def said(self) -> list[Said]:
        """What the client has said since."""
        frames: list[Any] = []
        while self.node.receive(0):
            frames += self.node.frames()
            if self.node.closed:
                break
        return [Said(NAMES[frame], node, MESSAGES[frame].FromString(body)) for frame, body, node, _ in frames]

    def submit(self, *args: Any, function: Any = abs, binding: Any = None, **options: Any) -> ObjectRef:
        ref: ObjectRef = self.engine.submit(function, args, {}, TaskOptions(**options), binding)
        return ref

    def finish(self, submitted: Said, *values: bytes, **fields: Any) -> list[Said]:
        """The node that got these tasks answers for the first interval."""
        (interval, *_) = submitted.message.intervals
        values = values or tuple(pickle.dumps(i) for i in range(len(interval.calls)))
        done = pb.Done(stream=interval.stream, first=interval.first, attempt=interval.attempt,
                       stride=interval.stride, values=values, mixed=any(v[0] != 0x80 for v in values))  # fmt: skip
        return self.says(Frame.FINISHED, pb.Finished(done=[done], **fields), submitted.node or ME)

    def lease(self) -> None:
        """Give it room for stored objects, as the own node would."""
        fd = os.memfd_create("test")
        os.ftruncate(fd, 8 << 20)
        self.client.values.add_lease(1, fd, 8 << 20)

    def close(self) -> None:
        self.client.background.stop(for_good=True)
        self.node.close()
        self.client.close("the test is over")
        self.engine._callbacks.stop(1.0)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


@pytest.fixture
def slotless() -> Iterator[Rig]:
    made = Rig(credit=0, slots=0)
    yield made
    made.close()


@pytest.fixture
def embedded() -> Iterator[Rig]:
    made = Rig(joined=False)
    yield made
    made.close()


def words(said: list[Said]) -> list[tuple[str, int]]:
    return [(frame.name, frame.node) for frame in said]


def only(said: list[Said], name: str) -> Said:
    (found,) = [frame for frame in said if frame.name == name]
    return found


def spread(rig: Rig, count: int = 4) -> tuple[list[ObjectRef], Said, Said]:
    """Submit tasks with credit for two at the own node and two at another; returns what each got."""
    rig.joins(FAR)
    refs = [rig.submit(i) for i in range(count)]
    said = rig.flush() if count < 64 else rig.said()
    submitted = [frame for frame in said if frame.name == "SUBMIT"]
    home = [frame for frame in submitted if not frame.node]
    (far,) = [frame for frame in submitted if frame.node == FAR]
    return refs, home[-1], far


def stored(seq: int, node: int, owner: int = ME, version: int = 1) -> pb.Parcel:
    d = pb.Descriptor(owner=owner, seq=seq, version=version, segment=5, offset=64, nbytes=1 << 20, node=node)
    return pb.Parcel(stored=d)


def stored_value(seq: int, node: int, owner: int = ME, version: int = 1) -> bytes:
    return pb.Outcome(value=stored(seq, node, owner, version)).SerializeToString()


# -- tasks ------------------------------------------------------------------------------------------------------------


def test_tasks_beyond_the_own_credit_go_to_a_further_node(rig: Rig) -> None:
    rig.joins(FAR)
    refs = [rig.submit(i) for i in range(4)]
    said = rig.flush()
    assert words(said) == [("KIND", 0), ("SUBMIT", 0), ("SUBMIT", 0), ("KIND", FAR), ("SUBMIT", FAR)]
    assert said[0].message == said[3].message
    rig.finish(said[4], pickle.dumps("far"), pickle.dumps("away"))
    rig.finish(said[1], pickle.dumps("near"))
    rig.finish(said[2], pickle.dumps("by"))
    assert sorted(rig.engine.get(refs)) == ["away", "by", "far", "near"]
    assert rig.client.owner.unanswered == 0


def test_kind_is_told_once_to_each_node_until_it_begins_anew(rig: Rig) -> None:
    refs, home, far = spread(rig)
    rig.finish(home)
    rig.finish(far)
    rig.joins(FARTHER, credit=9)
    refs = [rig.submit(i) for i in range(8)]
    assert [frame.node for frame in rig.flush() if frame.name == "KIND"] == [FARTHER]
    assert rig.goes(FAR, lost=False) is not None
    assert ("KIND", FAR) in words(rig.joins(FAR, credit=20) + [x for _ in range(8) for x in again(rig, refs)])


def again(rig: Rig, refs: list[ObjectRef]) -> list[Said]:
    refs += [rig.submit(i) for i in range(4)]
    return rig.flush()


def test_what_a_closed_session_had_runs_elsewhere_as_the_same_attempt(rig: Rig) -> None:
    _refs, home, far = spread(rig)
    rig.finish(home)
    said = rig.goes(FAR, lost=False)
    moved = only(said, "SUBMIT")
    assert moved.node == 0
    assert [(i.first, i.attempt) for i in moved.message.intervals] == [
        (i.first, i.attempt) for i in far.message.intervals
    ]
    assert rig.client.reach.told.keys() == {0}


def test_what_a_lost_session_had_runs_again_elsewhere(rig: Rig) -> None:
    refs, home, far = spread(rig)
    rig.finish(home)
    moved = only(rig.goes(FAR, lost=True), "SUBMIT")
    assert (moved.node, moved.message.intervals[0].attempt) == (0, 2)
    late = rig.client.owner.counts["late result"]
    rig.finish(far)
    assert rig.client.owner.counts["late result"] > late
    rig.finish(only(rig.finish(moved), "SUBMIT"))
    assert rig.client.owner.unanswered == 1 and len(refs) == 4


def test_lost_machine_is_named_when_the_task_must_not_run_twice(rig: Rig) -> None:
    rig.joins(FAR)
    refs = [rig.submit(i, max_retries=0) for i in range(4)]
    rig.flush()
    rig.goes(FAR, lost=True)
    failed = [ref for ref in refs if rig.engine._entry(ref).value is not None]
    assert len(failed) == 2
    with pytest.raises(errors.WorkerLostError) as caught:
        rig.engine.get(failed[0])
    assert caught.value.may_have_run


def test_node_that_says_welcome_twice_has_lost_what_it_had(rig: Rig) -> None:
    _refs, home, _far = spread(rig)
    rig.finish(home)
    said = rig.joins(FAR, credit=5)
    assert {i.attempt for frame in said if frame.name == "SUBMIT" for i in frame.message.intervals} == {2}


def test_end_of_an_unknown_node_is_ignored(rig: Rig) -> None:
    assert rig.goes(FAR, lost=True) == [] == rig.goes(0, lost=True)
    assert rig.client.closed_mark is None


def test_answer_from_another_node_than_the_one_that_has_the_task_is_dropped(rig: Rig) -> None:
    _refs, _home, far = spread(rig)
    rig.finish(far._replace(node=0))
    assert rig.client.owner.unanswered == 4
    rig.finish(far)
    assert rig.client.owner.unanswered == 2


def test_losses_and_returns_name_their_node(rig: Rig) -> None:
    _refs, home, far = spread(rig)
    (interval,) = far.message.intervals
    span = pb.Span(stream=0, first=interval.first, count=2, attempt=1, stride=1)
    assert rig.says(Frame.RETURNED, pb.Returned(spans=[span])) == []
    rig.says(Frame.GRANT, pb.Grant(kind=interval.kind, credit=0), FAR)
    assert "SUBMIT" not in dict(words(rig.says(Frame.RETURNED, pb.Returned(spans=[span]), FAR)))
    said = rig.finish(home)
    assert only(said, "SUBMIT").message.intervals[0].first == interval.first


def test_cancel_goes_to_the_node_that_has_the_task(rig: Rig) -> None:
    refs, _home, far = spread(rig)
    (interval,) = far.message.intervals
    rig.engine.cancel(next(ref for ref in refs if ref.seq == interval.first), force=True)
    assert words(rig.said()) == [("CANCEL", FAR)]


def test_own_node_is_told_what_waits_and_so_are_others(rig: Rig) -> None:
    rig.joins(FAR)
    refs = [rig.submit(i) for i in range(9)]
    wants = [frame for frame in rig.flush() if frame.name == "WANT"]
    assert {(frame.node, frame.message.waiting) for frame in wants} == {(0, 5), (FAR, 5)}
    assert len(refs) == 9


def test_kind_that_only_a_further_node_refuses_runs_elsewhere(rig: Rig) -> None:
    _refs, _home, far = spread(rig)
    kind = far.message.intervals[0].kind
    rig.says(Frame.KIND_REFUSED, pb.KindRefused(id=kind), FAR)
    assert rig.client.owner.kinds[kind].refused is None
    assert rig.client.owner.kinds[kind].shares[FAR].room() <= 0
    rig.says(Frame.KIND_REFUSED, pb.KindRefused(id=kind), HOME)
    assert rig.client.owner.kinds[kind].refused is not None


def test_dropped_kind_is_told_to_every_node_that_knew_it(rig: Rig) -> None:
    refs, home, far = spread(rig)
    rig.finish(home)
    rig.finish(far)
    rig.said()
    (interval,) = far.message.intervals
    made = next(made for made in rig.engine._kinds._kept.values() if made.kind.id == interval.kind)
    for submitted in [frame for frame in rig.flush() if frame.name == "SUBMIT"]:
        rig.finish(submitted)
    while rig.client.owner.unanswered:
        rig.says(Frame.FINISHED, pb.Finished(done=[pb.Done(first=refs[0].seq, attempt=1, stride=1, values=[b"\x80"])]))
    rig.engine._kinds.retire(made)
    said = rig.flush()
    assert words(said) == [("DROP_KINDS", 0), ("DROP_KINDS", FAR)]
    assert not rig.client.kinds


# -- arrays -----------------------------------------------------------------------------------------------------------


def test_items_are_dealt_to_nodes_and_name_theirs(rig: Rig) -> None:
    rig.joins(FAR)
    array = rig.engine.open_array(abs, TaskOptions())
    array.extend(range(4))
    submitted = [frame for frame in rig.said() if frame.name == "SUBMIT"]
    assert {(frame.node, frame.message.intervals[0].first) for frame in submitted} == {(0, 0), (FAR, 2)}
    for frame in submitted:
        rig.finish(frame)
    assert array.finished == 4
    del array
    rig.flush()


class LosesNode:
    """Its node has gone when it has been pickled."""

    rig: Rig
    lost = True

    def __reduce__(self) -> Any:
        self.rig.node.send(Frame.NODE_GONE, pb.NodeGone(node=FAR, lost=self.lost).SerializeToString())
        self.rig.client.turns.poll()
        return int, (3,)


@pytest.mark.parametrize("lost", [True, False])
def test_items_that_have_not_left_for_a_lost_node_go_to_another(rig: Rig, lost: bool) -> None:
    rig.joins(FAR, credit=9)
    item = LosesNode()
    item.rig, item.lost = rig, lost
    array = rig.engine.open_array(abs, TaskOptions(max_retries=0))
    array.extend([0, item, 2])
    said = rig.flush()
    assert not [frame for frame in said if frame.name == "SUBMIT" and frame.node], words(said)
    while array.finished < 3:
        intervals = [i for frame in said if frame.name == "SUBMIT" for i in frame.message.intervals]
        assert intervals and {i.attempt for i in intervals} == {1}
        (frame,) = [frame for frame in said if frame.name == "SUBMIT"][-1:]
        said = rig.finish(frame) + rig.flush()
    assert rig.client.senders == {}
    del array, item
    gc.collect()
    rig.flush()


# -- objects ----------------------------------------------------------------------------------------------------------


def test_new_objects_are_announced_to_the_own_node_before_a_task_leaves_for_another(slotless: Rig) -> None:
    slotless.lease()
    slotless.joins(FAR)
    ref = slotless.submit(bytearray(LARGE))
    said = slotless.flush()
    assert words(said) == [("KIND", FAR), ("ANNOUNCE", 0), ("SUBMIT", FAR)]
    (interval,) = said[2].message.intervals
    assert not said[2].message.announced
    assert list(interval.holds[0].objects) == list(said[1].message.announced)
    said = slotless.finish(said[2], pickle.dumps(1))
    assert words(said) == [("FREE", ALL_NODES)]
    assert not slotless.client.reach.travelled
    assert slotless.engine.get(ref) == 1


def test_new_objects_ride_along_to_the_own_node(rig: Rig) -> None:
    rig.lease()
    rig.submit(bytearray(LARGE))
    said = rig.flush()
    assert words(said) == [("KIND", 0), ("SUBMIT", 0)]
    assert len(said[1].message.announced) == 1
    assert words(rig.finish(said[1], pickle.dumps(1))) == [("FREE", 0)]


@pytest.mark.parametrize("node", [HOME, FAR])
def test_result_is_freed_where_it_was_made(rig: Rig, node: int) -> None:
    rig.joins(FAR)
    refs = [rig.submit(i) for i in range(4)]
    submitted = {frame.node or HOME: frame for frame in rig.flush() if frame.name == "SUBMIT"}
    frame = submitted[node]
    first = frame.message.intervals[0].first
    count = len(frame.message.intervals[0].calls)
    rig.finish(frame, stored_value(first, node), *[pickle.dumps(0)] * (count - 1))
    del refs
    freed = only(rig.flush(), "FREE")
    assert freed.node == (0 if node == HOME else ALL_NODES)
    assert [(ref.seq, ref.version) for ref in freed.message.refs] == [(first, 1)]
    assert not rig.client.reach.travelled


def test_late_result_is_freed_where_it_was_made(rig: Rig) -> None:
    _refs, _home, far = spread(rig)
    first = far.message.intervals[0].first
    rig.goes(FAR, lost=True)
    said = rig.finish(far, stored_value(first, FAR), pickle.dumps(0))
    assert only(said, "FREE").node == ALL_NODES


def test_answered_object_is_freed_everywhere_once_it_was_stored(rig: Rig) -> None:
    rig.lease()
    near, far = rig.engine.put(bytes(LARGE)), rig.engine.put(bytes(LARGE))
    ask = pb.Ask(ref=pb.Ref(owner=ME, seq=far.seq), asker=ELSE)
    assert words(rig.says(Frame.ASK, ask)) == [("ANNOUNCE", 0), ("ANSWER", ELSE)]
    small = rig.engine.put(1)
    rig.says(Frame.ASK, pb.Ask(ref=pb.Ref(owner=ME, seq=small.seq), asker=ELSE))
    del near, far, small
    assert words(rig.flush()) == [("FREE", ALL_NODES)]  # nobody has heard of the near one
    assert not rig.client.reach.travelled


def test_adopted_object_is_freed_everywhere(rig: Rig) -> None:
    rig.engine.adopt_ref(ELSE, 5, ObjectRef)
    rig.flush()
    adoption = pb.Adoption(ref=pb.Ref(owner=ELSE, seq=5), value=pickle.dumps(1))
    said = rig.says(Frame.ADOPT, pb.Adopt(adopted=[adoption]))
    said += rig.flush()
    assert only(said, "FREE").node == ALL_NODES
    assert not rig.client.reach.travelled


def test_borrowed_object_that_passes_here_is_freed_everywhere(rig: Rig) -> None:
    ref = rig.engine.adopt_ref(ELSE, 5, ObjectRef)
    assert words(rig.flush()) == [("BORROW", ELSE)]
    adoption = pb.Adoption(ref=pb.Ref(owner=ELSE, seq=5), value=stored_value(5, FAR, ELSE))
    assert words(rig.says(Frame.ADOPT, pb.Adopt(adopted=[adoption]))) == [("RELEASE", ELSE)]
    del ref
    assert words(rig.flush()) == [("FREE", ALL_NODES)]
    assert not rig.client.reach.travelled


def test_borrower_that_could_not_get_a_version_is_answered_with_another(rig: Rig) -> None:
    made = rig.submit(1)
    rig.finish(only(rig.flush(), "SUBMIT"), stored_value(made.seq, FAR))
    ask = pb.Ask(ref=pb.Ref(owner=ME, seq=made.seq, version=1), asker=ELSE)
    said = rig.says(Frame.ASK, ask)
    remade = only(said, "SUBMIT")
    assert "ANSWER" not in dict(words(said))
    answer = only(rig.finish(remade, pickle.dumps("again")), "ANSWER")
    assert (answer.node, pickle.loads(answer.message.value)) == (ELSE, "again")


def test_borrowed_object_that_travelled_is_forgotten_with_its_last_reference(slotless: Rig) -> None:
    slotless.joins(FAR)
    borrowed = slotless.engine.adopt_ref(ELSE, 5, ObjectRef)
    ref = slotless.submit(borrowed)
    slotless.flush()
    answer = pb.Answer(ref=pb.Ref(owner=ELSE, seq=5), value=stored_value(5, HOME, ELSE))
    submitted = only(slotless.says(Frame.ANSWER, answer), "SUBMIT")
    assert submitted.node == FAR and slotless.client.reach.travelled == {(ELSE, 5)}
    slotless.finish(submitted, pickle.dumps(1))
    del borrowed, ref
    assert ("RELEASE", ELSE) in words(slotless.flush())
    assert not slotless.client.reach.travelled


def test_function_over_stored_objects_travels_with_its_kind(slotless: Rig) -> None:
    slotless.lease()
    slotless.joins(FAR)
    data = bytearray(LARGE)
    slotless.submit(function=data.count)
    said = slotless.flush()
    assert words(said) == [("ANNOUNCE", 0), ("KIND", FAR), ("SUBMIT", FAR)]
    assert len(slotless.client.reach.travelled) == 1


def test_embedded_client_says_nothing_to_or_of_others(embedded: Rig) -> None:
    embedded.lease()
    refs = [embedded.submit(bytearray(LARGE)), embedded.submit(2), embedded.submit(3)]
    said = embedded.flush()
    put = embedded.engine.put(bytes(LARGE))
    said += embedded.says(Frame.ASK, pb.Ask(ref=pb.Ref(owner=ME, seq=put.seq), asker=ELSE))
    for frame in [frame for frame in said if frame.name == "SUBMIT"]:
        said += embedded.finish(frame)
    del refs, put
    said += embedded.flush()
    assert {node for name, node in words(said) if name != "ANSWER"} == {0}
    assert "FREE" in dict(words(said))
    assert not embedded.client.reach.travelled and not embedded.client.kinds


# -- values that are lost ---------------------------------------------------------------------------------------------


def lost_input(seq: int, owner: int = ME, version: int = 1) -> bytes:
    lost = pb.Ref(owner=owner, seq=seq, version=version)
    return pb.Outcome(error=pb.Error(cause=pb.Error.INPUT_LOST, lost=lost)).SerializeToString()


def test_task_whose_input_is_lost_runs_again_after_that_was_made_again(rig: Rig) -> None:
    made = rig.submit(1)
    maker = only(rig.flush(), "SUBMIT")
    rig.finish(maker, stored_value(made.seq, HOME))
    used = rig.submit(made)
    user = only(rig.flush(), "SUBMIT")
    remade = only(rig.finish(user, lost_input(made.seq)), "SUBMIT")
    assert [(i.first, i.attempt) for i in remade.message.intervals] == [(made.seq, 2)]
    reused = only(rig.finish(remade, stored_value(made.seq, HOME, version=2)), "SUBMIT")
    assert reused.message.intervals[0].first == used.seq
    assert reused.message.intervals[0].holds[0].objects[0].version == 2
    rig.finish(reused, pickle.dumps("done"))
    assert rig.engine.get(used) == "done"


def test_value_that_cannot_be_had_any_more_is_made_again_under_get(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = rig.submit(1)
    rig.finish(only(rig.flush(), "SUBMIT"), stored_value(ref.seq, FAR))
    values, client = rig.client.values, rig.client
    decode, wait = values.decode, client.turns.wait

    def failing(value: bytes, **named: Any) -> Any:
        if value[0] == 0x80:
            return decode(value, **named)
        lost = pb.Outcome.FromString(value).value.stored
        raise errors.ObjectLostError("it has gone", oid=ObjectId(ME, lost.seq), version=lost.version)

    def answering(ready: Any, deadline: float | None = None) -> bool:
        if not ready():
            rig.finish(only(rig.flush(), "SUBMIT"), pickle.dumps("again"))
        return wait(ready, deadline)

    monkeypatch.setattr(values, "decode", failing)
    monkeypatch.setattr(client.turns, "wait", answering)
    assert rig.engine.get(ref) == "again"
    put = rig.engine.put(0)
    entry = rig.engine._entry(put)
    entry.value = stored_value(put.seq, FAR, version=0)
    with pytest.raises(errors.ObjectLostError):
        rig.engine.get(put)


# -- bindings ---------------------------------------------------------------------------------------------------------


def test_binding_is_told_ahead_of_its_first_kind_and_let_go_everywhere(rig: Rig) -> None:
    rig.joins(FAR, credit=2, slots=4)
    binding = rig.engine.bind(processes=5)
    said = rig.said()
    assert words(said) == [("BIND", 0)] and (said[0].message.processes, said[0].message.eager) == (2, True)
    refs = [rig.submit(i, binding=binding) for i in range(4)]
    said = rig.flush()
    assert words(said) == [("KIND", 0), ("SUBMIT", 0), ("SUBMIT", 0), ("BIND", FAR), ("KIND", FAR), ("SUBMIT", FAR)]
    assert (said[3].message.processes, said[3].message.eager, said[3].message.id) == (3, True, binding.id)
    rig.engine.unbind(binding, force=False)
    assert rig.flush() == []
    for frame in [frame for frame in said if frame.name == "SUBMIT"]:
        last = rig.finish(frame)
    assert words(last) == [("UNBIND", 0), ("UNBIND", FAR)]
    assert rig.engine.get(refs) is not None
    rig.says(Frame.UNBOUND, pb.Unbind(id=binding.id), FAR)
    assert binding.id in rig.engine._bindings
    rig.says(Frame.UNBOUND, pb.Unbind(id=binding.id))
    assert binding.id not in rig.engine._bindings
    assert not rig.client.binding_specs


def test_forced_end_reaches_every_node(rig: Rig) -> None:
    rig.joins(FAR)
    binding = rig.engine.bind(processes=4)
    refs = [rig.submit(i, binding=binding) for i in range(4)]
    rig.flush()
    rig.engine.unbind(binding, force=True)
    said = rig.flush()
    assert [frame.node for frame in said if frame.name == "UNBIND" and frame.message.force] == [0, FAR]
    rig.says(Frame.UNBOUND, pb.Unbind(id=binding.id))
    assert words(rig.goes(FAR, lost=True)) == []
    assert binding.id not in rig.engine._bindings
    with pytest.raises(errors.TaskCancelledError):
        rig.engine.get(refs[0])


def test_binding_stays_within_its_nodes(rig: Rig) -> None:
    binding = rig.engine.bind(processes=2)
    rig.joins(FAR, credit=9, slots=9)
    refs = [rig.submit(i, binding=binding) for i in range(5)]
    said = rig.flush()
    assert {frame.node for frame in said if frame.name == "SUBMIT"} == {0}
    assert len(refs) == 5


def test_failure_of_an_initialiser_anywhere_fails_the_binding_everywhere(rig: Rig) -> None:
    from outboard.failures import encode_error

    rig.joins(FAR)
    binding = rig.engine.bind(processes=4)
    refs = [rig.submit(i, binding=binding) for i in range(6)]
    rig.flush()
    failed = pb.BindingFailed(id=binding.id, outcome=encode_error(ValueError("of the initialiser")))
    said = rig.says(Frame.BINDING_FAILED, failed, FAR)
    assert words(said)[:1] == [("UNBIND", 0)] and said[0].message.force
    assert isinstance(binding.failed, ValueError)
    with pytest.raises(ValueError, match="of the initialiser"):
        rig.engine.get(refs)


def test_actor_lives_at_one_node_and_is_lost_with_it(slotless: Rig) -> None:
    anchor = slotless.engine.reserve_id()
    actor = slotless.engine.bind(processes=1, actor=ActorTerms(anchor), label="Counter")
    said = slotless.said()
    calls = [slotless.submit(i, binding=actor, num_cpus=0, max_retries=0) for i in range(3)]
    said += slotless.flush()
    assert words(said)[:3] == [("BIND", 0), ("KIND", 0), ("WANT", 0)], "its own node looks for others"
    assert not said[0].message.eager
    said = slotless.joins(FAR, credit=2)
    told = [word for word in words(said) if word[0] != "WANT"]
    assert told == [("BIND", FAR), ("KIND", FAR), ("SUBMIT", FAR)]
    slotless.joins(FARTHER, credit=9)
    assert "SUBMIT" not in dict(words(slotless.flush()))
    slotless.goes(FAR, lost=True)
    assert "SUBMIT" not in dict(words(slotless.flush()))
    for call in calls:
        with pytest.raises(errors.WorkerLostError):
            slotless.engine.get(call)
    later = slotless.submit(0, binding=actor, num_cpus=0, max_retries=0)
    with pytest.raises(errors.ActorDiedError, match="Counter has ended: its process was lost with its machine: its ca"):
        slotless.engine.get(later)


def test_resources_are_those_of_all_nodes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [pb.NodeStatus(node=n, totals={"CPU": 2 * CPU}, free={"CPU": CPU}) for n in (HOME, FAR)]
    monkeypatch.setattr(rig.client, "ask_node", lambda *args: pb.StatusReply(nodes=nodes))
    assert rig.engine.cluster_resources() == {"CPU": 4.0}
    assert rig.engine.available_resources() == {"CPU": 2.0}

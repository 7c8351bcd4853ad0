"""A random walk over the client's machine, with a model of its nodes and of the program around it.

The nodes answer for each run in any order: with a result, a loss or a return, now and then twice, and now and then from
where the run is not. Whatever they say late must change nothing. Sessions with further nodes begin and end at any time.
At the end everything is answered and let go of: no table may have anything left, and every stored object that ever came
must have been freed exactly once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from outboard.ids import PLAIN_STREAM, ObjectId, Span, item_object
from outboard.scheduler.notices import Free
from outboard.scheduler.outcomes import NodeLostMark, RefusedMark, is_failure
from outboard.scheduler.owner import (
    Array,
    Extra,
    Kind,
    LostCause,
    Owner,
    Send,
    SendCancel,
    SendItems,
    Settled,
    Task,
    Want,
)

ME = 7
VALUE, STORED, ERROR = b"\x80value", b"\x0astored", b"\x12error"

HOME, FURTHER = 99, (101, 102, 103)

Run = tuple[int, int, int, int]  # stream, index, attempt, node


class OwnerMachine(RuleBasedStateMachine):
    """`runs` is what the nodes have and have not answered for; `old` what they may still say a second time."""

    @initialize(credit=st.integers(0, 4), retries=st.integers(-1, 2), joined=st.sampled_from([True, True, True, False]))
    def begin(self, credit: int, retries: int, joined: bool) -> None:
        self.owner = Owner(ME, credit, HOME, joined=joined)
        self.kinds: list[Kind] = [self.add_kind(retries, stride) for stride in (1, 1, 2)]
        self.refs: list[int] = []  # references of the program, by seq
        self.arrays: list[Array] = []
        self.taken: Counter[tuple[int, int]] = Counter()  # of each item, how often it settled
        self.runs: dict[Run, Kind] = {}
        self.old: list[tuple[Run, Kind]] = []
        self.came: Counter[tuple[ObjectId, int]] = Counter()  # stored objects that the node holds
        self.watched: set[int] = set()
        self.is_lost = False
        self.credits: dict[tuple[Kind, int], int] = {(kind, 0): credit for kind in self.kinds}
        self.initial: dict[int, int] = {0: credit}

    def add_kind(self, retries: int, stride: int) -> Kind:
        return self.owner.add_kind("f", process_retries=retries, machine_retries=retries, stride=stride)

    # -- the driver

    def obey(self) -> None:
        """Do what the machine orders; nothing may be sent twice or beyond the credit."""
        if not self.is_lost:
            self.owner.plan_sends()
        for command in self.owner.take_commands():
            match command:
                case Send(kind, first, attempt, tasks, node):
                    assert all(task.call == b"call" for task in tasks)
                    indices = range(first, first + len(tasks) * kind.stride, kind.stride)
                    self.take_over(kind, PLAIN_STREAM, indices, attempt, node)
                case SendItems(array, first, count, attempt, node):
                    self.take_over(array.kind, array.stream, range(first, first + count), attempt, node)
                case SendCancel(spans, _, _, node):
                    for s in spans:
                        assert all((s.stream, i, s.attempt, node) in self.runs for i in range(s.first, s.end, s.stride))
                case Free(oid, version):
                    self.came[oid, version] -= 1
                    assert self.came[oid, version] >= 0 or self.is_lost, f"{oid} was freed twice"
                case Settled(oid, entry):
                    assert entry.value is not None
                    self.watched.remove(oid.seq)
                case Want(kind, waiting, node):
                    assert waiting == kind.waiting() and node in self.initial
        outstanding = Counter((kind, run[3]) for run, kind in self.runs.items())
        for kind in self.kinds:
            for node, share in kind.shares.items():
                assert share.outstanding == outstanding[kind, node] <= self.credit(kind, node)
            assert kind.places is not None or not kind.waiting() or self.is_lost or self.is_told(kind)

    def credit(self, kind: Kind, node: int) -> int:
        return self.credits.get((kind, node), self.initial[node])

    def is_told(self, kind: Kind) -> bool:
        """What waits although there is a node with room is held back by its bytes; else the own node knows of it."""
        share = kind.home
        return share.wanted > 0 or share.outstanding < share.limit

    def take_over(self, kind: Kind, stream: int, indices: range, attempt: int, node: int) -> None:
        assert node in self.initial and (kind.places is None or node in kind.places)
        for index in indices:
            assert not any(run[:2] == (stream, index) and run[2] >= attempt for run in self.runs)
            self.runs[stream, index, attempt, node] = kind

    def pick_run(self, data: Any) -> tuple[Run, Kind]:
        """Take a run to answer for, sometimes one that was answered for already."""
        if self.old and (not self.runs or data.draw(st.integers(0, 4)) == 0):
            return self.old[data.draw(st.integers(0, len(self.old) - 1))]
        if self.runs and data.draw(st.integers(0, 9)) == 0:  # somebody who does not have it answers for it
            run = data.draw(st.sampled_from(list(self.runs)))
            return (*run[:3], data.draw(st.sampled_from([n for n in (0, *FURTHER, 55) if n != run[3]]))), self.runs[run]
        run = list(self.runs)[data.draw(st.integers(0, len(self.runs) - 1))]
        kind = self.runs.pop(run)
        self.old.append((run, kind))
        return run, kind

    def span(self, run: Run, kind: Kind) -> Span:
        stream, index, attempt, _ = run
        return Span(stream, index, 1, attempt, kind.stride if stream == PLAIN_STREAM else 1)

    def a_ref(self, data: Any) -> int:
        return self.refs[data.draw(st.integers(0, len(self.refs) - 1))]

    # -- the program

    @precondition(lambda self: not self.is_lost)
    @rule(
        data=st.data(),
        count=st.integers(1, 3),
        inputs=st.integers(0, 2),
        nbytes=st.sampled_from([0, 30 << 20, 70 << 20]),
    )
    def submit(self, data: Any, count: int, inputs: int, nbytes: int) -> None:
        kind = data.draw(st.sampled_from(self.kinds))
        for _ in range(count):
            needed = tuple(ObjectId(ME, self.a_ref(data)) for _ in range(inputs if self.refs else 0))
            held = tuple(
                ObjectId(ME, self.a_ref(data)) for _ in range(data.draw(st.integers(0, 1)) if self.refs else 0)
            )
            index = self.owner.submit(kind, b"call", needed, held, nbytes)
            self.refs += range(index, index + kind.stride)

    @rule(data=st.data(), is_stored=st.booleans())
    def put(self, data: Any, is_stored: bool) -> None:
        inner = (ObjectId(ME, self.a_ref(data)),) if self.refs else ()
        seq = self.owner.new_seq()
        self.owner.put(seq, VALUE, 0 if is_stored else None, inner)
        self.came[ObjectId(ME, seq), 0] += is_stored
        self.refs.append(seq)

    @precondition(lambda self: not self.is_lost)
    @rule(data=st.data(), count=st.integers(0, 4))
    def extend(self, data: Any, count: int) -> None:
        if len(self.arrays) < 3:
            self.arrays.append(self.owner.open_array(self.kinds[0]))
        self.owner.extend(data.draw(st.sampled_from(self.arrays)), count)

    @precondition(lambda self: self.refs)
    @rule(data=st.data())
    def drop(self, data: Any) -> None:
        seq = self.refs.pop(data.draw(st.integers(0, len(self.refs) - 1)))
        self.owner.refs.drop(ObjectId(ME, seq))

    @precondition(lambda self: self.refs)
    @rule(data=st.data())
    def watch(self, data: Any) -> None:
        entry = self.owner.refs.owned[seq := self.a_ref(data)]
        if entry.value is None:
            entry.watched = True
            self.watched.add(seq)

    @precondition(lambda self: self.refs)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        self.owner.cancel(self.a_ref(data))

    @precondition(lambda self: self.arrays)
    @rule(data=st.data(), is_end=st.booleans())
    def cancel_array(self, data: Any, is_end: bool) -> None:
        array = data.draw(st.sampled_from(self.arrays))
        if is_end:
            self.take(array)
            self.arrays.remove(array)
            self.owner.dispose_array(array)
        else:
            self.owner.cancel_array(array, kill_after=None)

    @precondition(lambda self: self.arrays)
    @rule(data=st.data())
    def take_some(self, data: Any) -> None:
        self.take(data.draw(st.sampled_from(self.arrays)))

    def take(self, array: Array) -> None:
        """Take completions and let go of their values."""
        while array.completions:
            first, length, values = array.completions.popleft()
            assert length == len(values) if isinstance(values, list) else is_failure(values)
            for index in range(first, first + length):
                self.taken[array.stream, index] += 1
                assert self.taken[array.stream, index] == 1, f"item {index} settled twice"
                extra = array.extras.pop(index, None)
                if extra is not None:
                    self.owner.take_extra(array, index, extra)

    # -- the node

    @precondition(lambda self: self.runs or self.old)
    @rule(data=st.data(), value=st.sampled_from([VALUE, STORED, STORED, STORED, ERROR]))
    def finish(self, data: Any, value: bytes) -> None:
        (stream, index, attempt, node), kind = self.pick_run(data)
        stride = kind.stride if stream == PLAIN_STREAM else 1
        oid = ObjectId(ME, index) if stream == PLAIN_STREAM else item_object(ME, stream, index)
        extras = None
        if value == STORED and (oid, attempt) not in self.came:  # a run stores its result once
            position = data.draw(st.integers(0, stride - 1))
            oid = ObjectId(oid.owner, oid.seq + position)
            older = [seq for seq in self.refs if stream or seq < index]  # no value contains itself
            inner = (ObjectId(ME, data.draw(st.sampled_from(older))),) if older else ()
            extras = {position: Extra(attempt, inner, node or HOME, 9)}
            for name in inner:
                self.owner.refs.on_borrowed(name, ME)  # by the node, as it passes the result on
            self.came[oid, attempt] += 1
        if value == ERROR and stream == PLAIN_STREAM and self.owner.on_raised(index, attempt, node):
            return
        values = [STORED if extras and at in extras else VALUE for at in range(stride)]
        if value == ERROR:
            values = [ERROR] * stride
        self.owner.on_finished(stream, index, attempt, stride, values, extras, node or HOME)

    def stored(self) -> list[tuple[int, int]]:
        """Objects of the program that lie in the store, seq and version: those that tasks made, if there are some."""
        owned = self.owner.refs.owned
        found = [(seq, version) for seq in self.refs if (version := owned[seq].stored) is not None]
        return [(seq, version) for seq, version in found if version] or found

    @precondition(lambda self: self.stored())
    @rule(data=st.data(), is_late=st.integers(0, 4))
    def lose_object(self, data: Any, is_late: int) -> None:
        """A value that is stored can be had nowhere; perhaps that is said of an earlier one."""
        seq, version = data.draw(st.sampled_from(self.stored()))
        self.owner.rebuild(ObjectId(ME, seq), version - (is_late == 0))

    @precondition(lambda self: self.runs or self.old)
    @rule(data=st.data(), is_named=st.booleans())
    def lose_input(self, data: Any, is_named: bool) -> None:
        """A task could not get an input, or something that it was not even given."""
        (stream, index, attempt, node), _ = self.pick_run(data)
        task = self.owner.refs.owned.get(index)
        named = task.holds if is_named and isinstance(task, Task) and not stream else ()
        if not named and not self.refs:
            oid = ObjectId(ME, 1)
        else:
            oid = data.draw(st.sampled_from(named)) if named else ObjectId(ME, self.a_ref(data))
        entry = self.owner.refs.find(oid)
        version = entry.stored if entry is not None and entry.stored is not None else 3
        if stream:
            self.owner.on_item_input_lost(stream, index, attempt, oid, version, node)
        else:
            self.owner.on_input_lost(index, attempt, oid, version, node)
            # Sent back as not begun, it may run there with the same attempt.
            self.old = [(run, kind) for run, kind in self.old if run != (stream, index, attempt, node)]

    @precondition(lambda self: self.runs)
    @rule(is_stored=st.booleans())
    def finish_all(self, is_stored: bool) -> None:
        """Everything that runs ends well."""
        while self.runs:
            (stream, index, attempt, node), kind = self.runs.popitem()
            self.old.append(((stream, index, attempt, node), kind))
            stride = kind.stride if stream == PLAIN_STREAM else 1
            oid = ObjectId(ME, index) if stream == PLAIN_STREAM else item_object(ME, stream, index)
            extras = {}
            if is_stored and (oid, attempt) not in self.came:
                extras = {0: Extra(attempt, (), node or HOME, 9)}
                self.came[oid, attempt] += 1
            self.owner.on_finished(stream, index, attempt, stride, [STORED] + [VALUE] * (stride - 1), extras, node)

    @precondition(lambda self: len(self.runs) > 1)
    @rule(data=st.data())
    def finish_together(self, data: Any) -> None:
        """Answer for runs of consecutive items or tasks in one frame."""
        run, kind = self.pick_run(data)
        stream, first, attempt, node = run
        stride = kind.stride if stream == PLAIN_STREAM else 1
        count = 1
        while self.runs.get(following := (stream, first + count * stride, attempt, node)) is kind:
            self.old.append((following, self.runs.pop(following)))
            count += 1
        self.owner.on_finished(stream, first, attempt, stride, [VALUE] * (count * stride), None, node)

    @precondition(lambda self: self.runs or self.old)
    @rule(data=st.data(), cause=st.sampled_from(LostCause))
    def lose(self, data: Any, cause: LostCause) -> None:
        run, kind = self.pick_run(data)
        self.owner.on_lost(cause, [self.span(run, kind)], None, node=run[3])

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def give_back(self, data: Any) -> None:
        run, kind = self.pick_run(data)
        if (run, kind) in self.old:
            self.old.remove((run, kind))  # the same run may be sent again: a second answer would not be late
        self.owner.on_returned([self.span(run, kind)], run[3])

    @precondition(lambda self: any(run[0] for run in self.runs))
    @rule(data=st.data(), fails=st.booleans())
    def not_sent(self, data: Any, fails: bool) -> None:
        """The driver could not send an item after all."""
        run = data.draw(st.sampled_from([run for run in self.runs if run[0]]))
        array = self.owner.arrays[run[0]]
        del self.runs[run]
        if fails:
            self.owner.on_item_failed(array, run[1], NodeLostMark("does not pickle"), run[3])
        else:
            self.owner.on_unsent(array, run[1], 1, run[2], run[3])

    @precondition(lambda self: self.refs and any(run[0] for run in self.runs))
    @rule(data=st.data())
    def item_bytes(self, data: Any) -> None:
        stream, index, _, node = data.draw(st.sampled_from([run for run in self.runs if run[0]]))
        array = self.owner.arrays[stream]
        if index not in array.loads:
            self.owner.on_item_bytes(array, index, 1 << 20, (ObjectId(ME, self.a_ref(data)),), node)

    @rule(data=st.data(), credit=st.integers(0, 6))
    def grant(self, data: Any, credit: int) -> None:
        kind, node = data.draw(st.sampled_from(self.kinds)), data.draw(st.sampled_from(list(self.initial)))
        if Counter((of, run[3]) for run, of in self.runs.items())[kind, node] <= credit:
            self.credits[kind, node] = credit
            self.owner.on_grant(kind.id, credit, node)

    @precondition(lambda self: not self.is_lost)
    @rule(node=st.sampled_from(FURTHER), credit=st.integers(0, 5))
    def join(self, node: int, credit: int) -> None:
        if node not in self.initial:
            self.initial[node] = credit
            self.owner.on_node_joined(node, credit, 1)

    @precondition(lambda self: len(self.initial) > 1)
    @rule(data=st.data(), is_lost=st.booleans())
    def end_session(self, data: Any, is_lost: bool) -> None:
        node = data.draw(st.sampled_from([node for node in self.initial if node]))
        del self.initial[node]
        self.credits = {key: credit for key, credit in self.credits.items() if key[1] != node}
        gone = {run: self.runs.pop(run) for run in list(self.runs) if run[3] == node}
        if is_lost:
            self.owner.on_session_lost(node, "silent")
            self.old += gone.items()
        else:
            self.owner.on_session_closed(node)

    @rule(data=st.data(), places=st.none() | st.frozensets(st.sampled_from((0, HOME, *FURTHER))))
    def confine(self, data: Any, places: frozenset[int] | None) -> None:
        self.owner.confine(data.draw(st.sampled_from(self.kinds)), places)

    @rule(chance=st.integers(0, 9))
    def refuse(self, chance: int) -> None:
        if not chance:
            kind = self.kinds[1]
            self.owner.on_refused(kind.id, RefusedMark("f", "", {}, {}))
            self.kinds[1] = self.add_kind(1, 1)

    @precondition(lambda self: not self.is_lost)
    @rule(chance=st.integers(0, 19))
    def lose_node(self, chance: int) -> None:
        if not chance:
            self.is_lost = True
            self.owner.on_link_lost(NodeLostMark("gone"))
            assert not self.owner.unanswered
            self.old += self.runs.items()
            self.runs.clear()
            self.initial = {0: self.initial[0]}

    # -- always, and at the end

    @invariant()
    def is_sound(self) -> None:
        if hasattr(self, "owner"):
            self.obey()
            self.owner.check()

    def teardown(self) -> None:
        if not hasattr(self, "owner"):
            return
        for kind in self.kinds:
            self.owner.confine(kind, None)
            self.credits[kind, 0] = 9
            self.owner.on_grant(kind.id, 9)
        self.is_sound()
        while self.runs:
            for (stream, index, attempt, node), kind in list(self.runs.items()):
                del self.runs[stream, index, attempt, node]
                stride = kind.stride if stream == PLAIN_STREAM else 1
                self.owner.on_finished(stream, index, attempt, stride, [VALUE] * stride, None, node)
            self.is_sound()
        owner = self.owner
        assert not owner.unanswered and not owner.backlog and not self.watched
        for array in self.arrays:
            assert array.finished == array.count
            self.take(array)
            assert all(self.taken[array.stream, index] for index in range(array.count))
            owner.dispose_array(array)
        for seq in self.refs:
            owner.refs.drop(ObjectId(ME, seq))
        self.is_sound()
        assert not owner.refs.owned and not owner.arrays and not owner.refs.foreign and not owner._books.owed
        assert not any(kind.outstanding or kind.nbytes or kind.wanted for kind in owner.kinds.values())
        assert not owner.refs.located and not owner._books.rerun
        assert not owner._books.lineage.records and not owner._books.lineage.makers
        assert self.is_lost or not +self.came, f"never freed: {+self.came}"


TestOwner = OwnerMachine.TestCase
TestOwner.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestOwner.pytestmark = [pytest.mark.timeout(120)]

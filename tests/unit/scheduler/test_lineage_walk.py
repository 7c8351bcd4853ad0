"""Random programs over nodes that are lost with what they store: what can be made again is, and nothing is left over.

A model of the nodes knows which version of which object lies where. A task whose input lies nowhere says so; a program
that looks at a value which lies nowhere has it rebuilt. The seed is the test's parameter.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from outboard.ids import PLAIN_STREAM, ObjectId, Span
from outboard.scheduler.notices import Free
from outboard.scheduler.outcomes import CancelledMark, LostMark, ObjectLostMark, is_failure
from outboard.scheduler.owner import Extra, LostCause, Owner, Send, SendCancel, Task

pytestmark = pytest.mark.timeout(60)

ME, HOME = 7, 90
STORED, SMALL = b"\x0astored", b"\x80small"

Run = tuple[Task, int, int]  # the task, its attempt and node


class Walk:
    """One program. `there` says where each version of each stored object lies that was not freed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.owner = Owner(ME, 4, HOME, joined=True)
        retries = (1, 3, -1, -1)
        self.kinds = [self.owner.add_kind("f", process_retries=1, machine_retries=n, stride=1 + n % 2) for n in retries]
        self.once = self.owner.add_kind("once", process_retries=0, machine_retries=0, stride=1)
        self.refs: list[int] = []
        self.there: dict[tuple[ObjectId, int], int] = {}
        self.runs: list[tuple[Run, list[tuple[ObjectId, int]]]] = []  # with the versions that each was given
        self.last_node = 100
        self.counts: Counter[str] = Counter()

    def step(self) -> None:
        act = self.rng.choices(
            (self.submit, self.put, self.answer, self.drop, self.look, self.join, self.lose_node, self.cancel),
            (8, 1, 12, 5, 3, 2, 2, 0.3),
        )[0]
        act()
        self.obey()

    def obey(self) -> None:
        """Do as the machine orders, and look at all invariants."""
        self.owner.plan_sends()
        for command in self.owner.take_commands():
            match command:
                case Send(_, _, attempt, tasks, node):
                    self.runs += [((task, attempt, node), self.given(task)) for task in tasks]
                case Free(oid, version):
                    self.there.pop((oid, version), None)
                    self.counts["freed"] += 1
                case SendCancel(spans, _, _, node):
                    self.cancelled(spans, node)
        self.owner.check()

    def given(self, task: Task) -> list[tuple[ObjectId, int]]:
        """Everything stored that a task is given as it is sent; all its inputs have values then."""
        found = []
        for oid in task.inputs:
            entry = self.owner.refs.find(oid)
            assert entry is not None and not is_failure(entry.value), f"{task} is sent without {oid}"
            if entry.stored is not None:
                found.append((oid, entry.stored))
        return found

    def cancelled(self, spans: list[Span], node: int) -> None:
        for run, _ in list(self.runs):
            if any(run == (run[0], s.attempt, node) and run[0].index == s.first for s in spans):
                self.runs = [other for other in self.runs if other[0] != run]
                self.owner.on_lost(LostCause.CANCELLED, spans, None, node=node)

    def submit(self) -> None:
        rng = self.rng
        inputs = tuple(ObjectId(ME, rng.choice(self.refs)) for _ in range(rng.randrange(3) if self.refs else 0))
        kind = rng.choice([*self.kinds, *self.kinds, self.once])
        index = self.owner.submit(kind, b"call", inputs)
        self.refs += range(index, index + kind.stride)

    def put(self) -> None:
        seq = self.owner.new_seq()
        self.owner.put(seq, STORED, 0, node=HOME, nbytes=9)
        self.there[ObjectId(ME, seq), 0] = 0
        self.refs.append(seq)

    def answer(self) -> None:
        """A node says what became of a run: it brings results if all its inputs could be had."""
        if not self.runs:
            return
        (task, attempt, node), given = self.runs.pop(self.rng.randrange(len(self.runs)))
        stride = task.kind.stride
        missing = [(oid, version) for oid, version in given if (oid, version) not in self.there]
        span = Span(PLAIN_STREAM, task.index, 1, attempt, stride)
        if missing:
            self.counts["input lost"] += 1
            self.owner.on_input_lost(task.index, attempt, *missing[0], node)
        elif self.rng.random() < 0.05:
            self.owner.on_returned([span], node)
        elif self.rng.random() < 0.05:
            self.owner.on_lost(LostCause.PROCESS, [span], None, node=node)
        else:
            extras = {at: Extra(attempt, (), node or HOME, 9) for at in range(stride) if self.rng.random() < 0.8}
            for at in extras:
                self.there[ObjectId(ME, task.index + at), attempt] = node
            values = [STORED if at in extras else SMALL for at in range(stride)]
            self.owner.on_finished(PLAIN_STREAM, task.index, attempt, stride, values, extras or None, node)

    def drop(self) -> None:
        if self.refs:
            self.owner.refs.drop(ObjectId(ME, self.refs.pop(self.rng.randrange(len(self.refs)))))

    def cancel(self) -> None:
        if self.refs:
            self.owner.cancel(self.rng.choice(self.refs))

    def look(self) -> None:
        if self.refs:
            self.get(self.rng.choice(self.refs))

    def get(self, seq: int) -> bool:
        """Look at a value; False: it is not there, and is being made."""
        entry = self.owner.refs.owned[seq]
        oid = ObjectId(ME, seq)
        version = entry.stored
        is_stored = entry.value is not None and not is_failure(entry.value) and version is not None
        if is_stored and (oid, version) not in self.there:
            self.owner.rebuild(oid, version)
        return entry.value is not None

    def join(self) -> None:
        if len(self.owner.nodes) < 3:
            self.last_node += 1
            self.owner.on_node_joined(self.last_node, 4, 2)

    def lose_node(self) -> None:
        if not self.owner.nodes:
            return
        node = self.rng.choice(list(self.owner.nodes))
        self.there = {what: where for what, where in self.there.items() if where != node}
        self.runs = [run for run in self.runs if run[0][2] != node]
        self.owner.on_session_lost(node)

    def end(self) -> None:
        """No more faults: everything can be had in the end, or has failed for a reason that a program can be told."""
        for _ in range(10_000):
            self.obey()
            if self.runs:
                self.answer()
            elif all([self.get(seq) for seq in self.refs]) and not self.owner.backlog and not self.owner.commands:
                break
        owner = self.owner
        assert not owner.unanswered
        for seq in self.refs:
            entry = owner.refs.owned[seq]
            if is_failure(entry.value):
                self.counts[type(entry.value).__name__] += 1
                assert isinstance(entry.value, (LostMark, ObjectLostMark, CancelledMark))
            else:
                assert entry.stored is None or (ObjectId(ME, seq), entry.stored) in self.there
        for seq in self.refs:
            owner.refs.drop(ObjectId(ME, seq))
        self.obey()
        books: Any = owner._books
        assert not owner.refs.owned and not owner.refs.located and not books.rerun and not books.owed
        assert not books.lineage.records and not books.lineage.makers and not books.lineage.nbytes
        assert not any(kind.outstanding or kind.nbytes or kind.is_needed() for kind in [*self.kinds, self.once])
        assert not self.there, f"never freed: {self.there}"


@pytest.mark.parametrize("seed", range(60))
def test_what_can_be_made_again_is(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(200):
        walk.step()
    walk.end()

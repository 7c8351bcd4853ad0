"""What simulated clients do: use everything, in any order, then let go of all of it and stay."""

from __future__ import annotations

from random import Random
from typing import Any

from ..errors import OutboardError
from ..ids import ObjectId
from ..rpc.protos import outboard_pb2 as pb
from .calls import PLAIN_FUNCTION, Full, TaskFailed
from .process import Process, Program, Want
from .tasks import CHAIN_LEVELS, CPU, Spec, expected_token, make_chain, make_follower, make_spec


class ClientProgram:
    """A user's program: `run` is its main thread."""

    def __init__(self, process: Process, rng: Random) -> None:
        self.process = process
        self.rng = rng
        self.world = process.world
        self.kinds: list[Any] = []
        self.arrays: list[Any] = []
        self.buffers: list[tuple[ObjectId, Any]] = []
        self.bindings: list[int] = []
        self.bindings_made = 0

    def run(self) -> Program:
        """Do a number of things, then wait for everything, let everything go and stay."""
        rng, process = self.rng, self.process
        self._make_kinds()
        actions = [self._submit] * 6 + [self._extend] * 3 + [self._fetch] * 2 + [self._drop] * 2 + [self._put]
        actions += [self._take, self._cancel, self._cancel_array, self._dispose, self._timeout]
        actions += [self._chain, self._chain, self._define]
        if self.world.has_bindings:
            actions += [self._bind, self._unbind]
        if self.world.has_stores:
            actions += [self._buffer] * 2
        if self.world.pause_seconds:
            actions += [self._pause]
        for number in range(rng.randint(3, 9)):
            part = f"{process.name} action {number}"
            self.rng = self.world.rng_of(part)
            if self.world.keeps(part):
                yield from self.rng.choice(actions)()
            if rng.random() < 0.4:
                yield Want("time", 0.003 * rng.random())
        yield from process.wait(lambda: process.client.owner.unanswered == 0)
        yield from self._inherit()
        yield from self._let_go()

    def _inherit(self) -> Program:
        """What tasks have returned passes to this process in the end, unless something breaks."""
        foreign = self.process.client.owner.refs.foreign
        while not self.world.is_faulty and not all(entry.adopted for entry in foreign.values()):
            yield Want("time", 0.01)

    def _make_kinds(self) -> None:
        rng, process = self.rng, self.process
        demands: list[dict[str, int]] = [{"CPU": CPU}, {"CPU": CPU // 2}, {}, {"CPU": 2 * CPU}]
        demands.append({"CPU": CPU, "disk": CPU})
        self.kinds.append(process.calls.add_kind(demands[0], retries=3))
        for _ in range(rng.randint(1, 2)):
            retries = rng.choice((0, 3, -1))
            kind = process.calls.add_kind(rng.choice(demands), retries=retries, returns=rng.choice((1, 1, 2)),
                                    machine_retries=rng.choice((3, 3, 0)),
                                    retry_exceptions=retries >= 0 and rng.random() < 0.3)  # fmt: skip
            self.kinds.append(kind)
        if rng.random() < 0.05:
            self.kinds.append(process.calls.add_kind({"CPU": 99 * CPU}, retries=3))
        for kind in self.kinds:
            if not self.world.can_run(process, process.client.kinds[kind.id].resources):
                process.ledger.spoilt.add(kind.id)

    def _define(self) -> Program:
        """Make a function anew, at times one over a stored array; the kind of an older one ends with its tasks."""
        rng, process = self.rng, self.process
        function = PLAIN_FUNCTION
        if rng.random() < 0.4 and self.world.has_stores:
            try:
                yield from process.calls.make_room(1)
            except Full:
                return
            oid = ObjectId(process.incarnation, process.client.take_seq())
            function = process.values.encode_arguments((0, ()), (), (process.values.store(oid, 0, (0, 0, ()), 1),))
        older = [kind for kind in self.kinds[1:] if not process.client.kind_binding[kind.id]]
        if older:
            self._retire(rng.choice(older))
        self.kinds.append(process.calls.add_kind({"CPU": CPU}, retries=3, function=function))
        process.client.flush()

    def _retire(self, kind: Any) -> None:
        self.kinds.remove(kind)
        self.process.calls.retire_kind(kind)

    # -- actions -------------------------------------------------------------------------------------------------------

    def _submit(self) -> Program:
        rng, process = self.rng, self.process
        kind = rng.choice(self.kinds)
        for _ in range(rng.choice((1, 1, 2, 4))):
            spec = make_spec(self.world, rng)
            inputs = tuple(rng.sample(process.refs, min(len(process.refs), 2))) if rng.random() < 0.3 else ()
            refs = tuple(rng.sample(process.refs, 1)) if process.refs and rng.random() < 0.3 else ()
            buffers = (self._use_buffer(),) if self.buffers and rng.random() < 0.5 else ()
            process.calls.submit(
                kind, tuple(spec), self._token(kind, spec, inputs), inputs=inputs, refs=refs, buffers=buffers
            )
        yield from ()

    def _chain(self) -> Program:
        """Follow the references that tasks return to tasks which may still run, at times together with another task."""
        rng, calls = self.rng, self.process.calls
        spec = make_chain(self.world, rng, rng.randint(1, CHAIN_LEVELS))
        kind = rng.choice([kind for kind in self.kinds if kind.stride == 1])
        oid = calls.submit(kind, tuple(spec), expected_token(spec))[0]
        if rng.random() < 0.4:
            follower = make_follower(self.world)  # while it waits it holds nothing that the others need
            calls.submit(self.kinds[0], tuple(follower), expected_token(follower), refs=(oid,))
        if rng.random() < 0.3:
            return
        try:
            yield from calls.follow(oid)
        except TaskFailed:
            pass

    def _token(self, kind: Any, spec: Spec, inputs: tuple[ObjectId, ...] = ()) -> int | None:
        given = [self.world.expected.get(oid) for oid in inputs]
        if None in given:
            return None
        is_repeated = kind.id in self.process.client.retries and kind.process_retries != 0
        return expected_token(spec, tuple(t for t in given if t is not None), is_repeated=is_repeated)

    def _use_buffer(self) -> Any:
        oid, descriptor = self.rng.choice(self.buffers)
        assert self.process.client.hold(oid)
        return descriptor

    def _put(self) -> Program:
        refs = tuple(self.rng.sample(self.process.refs, 1)) if self.process.refs and self.rng.random() < 0.3 else ()
        self.world.last_spec += 1
        try:
            pages = self.rng.choice((0, 1, 3)) if self.world.has_stores else 0
            yield from self.process.calls.put(self.world.last_spec, refs, pages)
        except Full:
            yield from self._drop()

    def _pause(self) -> Program:
        """Do nothing for a while, at times so long that sessions close."""
        yield Want("time", self.world.pause_seconds * self.rng.random() ** 3)

    def _buffer(self) -> Program:
        """Store an array that calls will be given again and again."""
        process = self.process
        try:
            yield from process.calls.make_room(1)
        except Full:
            return
        oid = ObjectId(process.incarnation, process.client.take_seq())
        descriptor = process.values.store(oid, 0, (0, 0, ()), 1)
        process.client.register((descriptor,))
        self.buffers.append((oid, descriptor))

    def _fetch(self) -> Program:
        if self.process.refs:
            try:
                yield from self.process.calls.fetch(self.rng.choice(self.process.refs))
            except TaskFailed:
                pass

    def _timeout(self) -> Program:
        if self.process.refs:
            try:
                yield from self.process.calls.fetch(self.rng.choice(self.process.refs), 0.002 * self.rng.random())
            except TaskFailed:
                pass

    def _drop(self) -> Program:
        process = self.process
        process.calls.look_again()
        for _ in range(min(len(process.refs), 5)):
            process.calls.drop(self.rng.choice(process.refs))
        if process.views:
            process.values.reader.end_view(process.views.pop())
        if self.buffers:
            process.client.owner.refs.drop(self.buffers.pop(0)[0])
            process.client.flush()
        yield from ()

    def _cancel(self) -> Program:
        process, rng = self.process, self.rng
        mine = [oid for oid in process.refs if oid.owner == process.incarnation]
        if mine:
            self._cancel_one(rng.choice(mine).seq, rng.random() < 0.3, rng.choice((None, 0.005)))
        yield from ()

    def _cancel_one(self, seq: int, force: bool, kill_after: float | None) -> None:
        process = self.process
        task = process.client.owner.refs.owned.get(seq)
        if task is not None and task.value is not None:
            self.world.mark("cancel of finished")
        self.world.is_faulty = self.world.is_faulty or force or kill_after is not None
        process.ledger.cancelled.update((seq, seq - 1))
        process.client.owner.cancel(seq, force=force, kill_after=0.0 if force else kill_after)
        process.client.flush()

    def _extend(self) -> Program:
        rng, process = self.rng, self.process
        owner = process.client.owner
        if not self.arrays or rng.random() < 0.4:
            kind = rng.choice([kind for kind in self.kinds if kind.stride == 1 and kind.lane is None])
            array = owner.open_array(kind)
            process.client.array_items[array.stream] = []
            process.ledger.add_array(array)
            self.arrays.append(array)
        array = rng.choice(self.arrays)
        specs = [make_spec(self.world, rng, depth=1) for _ in range(rng.choice((1, 3, 8, 30)))]
        refs = tuple(rng.sample(process.refs, 1)) if process.refs and rng.random() < 0.2 else ()
        process.client.array_items[array.stream] += [((tuple(spec), refs), refs) for spec in specs]
        for oid in refs * len(specs):
            owner.refs.hold(oid)  # the item itself refers to it, until it is taken
        process.ledger.add_items(array, [expected_token(spec) for spec in specs])
        owner.extend(array, len(specs))
        process.client.flush()
        yield from ()

    def _take(self) -> Program:
        """Take what an array has finished, as `NativeArray.take`."""
        process = self.process
        process.ledger.check()
        for array in self.arrays:
            taken = process.ledger.taken[array.stream]
            for index, value in taken:
                self._forget_item(array, index)
                extra = array.extras.pop(index, None)
                if isinstance(value, bytes) and value[:1] != b"\x12":
                    yield from self._open_item(value)
                if extra is not None:
                    process.client.owner.take_extra(array, index, extra)
            taken.clear()
        process.client.flush()
        yield from ()

    def _open_item(self, value: bytes) -> Program:
        """Look at an item's result; one whose machine was lost stays so in this world."""
        calls = self.process.calls
        try:
            yield from calls.bring(value)
            calls.open_value(value, pinned=False)
        except OutboardError:
            assert self.world.is_faulty, "an item's result is gone without a fault"

    def _forget_item(self, array: Any, index: int) -> None:
        items = self.process.client.array_items[array.stream]
        item, items[index] = items[index], None
        if item is not None:
            self.process.client.dropped.extend(item[1])

    def _cancel_array(self) -> Program:
        if self.arrays:
            array = self.rng.choice(self.arrays)
            kill_after = self.rng.choice((None, 0.005))
            self.world.is_faulty = self.world.is_faulty or kill_after is not None
            self.process.ledger.cancelled_arrays.add(array.stream)
            self.process.client.owner.cancel_array(array, kill_after=kill_after)
            self.process.client.flush()
        yield from ()

    def _dispose(self) -> Program:
        if self.arrays and self.rng.random() < 0.5:
            self._dispose_of(self.rng.choice(self.arrays))
        yield from ()

    def _dispose_of(self, array: Any) -> None:
        process = self.process
        self.arrays.remove(array)
        process.ledger.check()
        process.ledger.forget_array(array)
        process.client.owner.dispose_array(array)
        for index in range(array.count):
            self._forget_item(array, index)
        process.client.array_items.pop(array.stream)
        process.client.flush()

    def _bind(self) -> Program:
        if self.bindings_made >= 2:
            return
        rng, process = self.rng, self.process
        self.bindings_made += 1
        binding = self.bindings_made
        initializer = rng.choice((b"", b"", b"\x80runs", b"\x80runs", b"\x80fails", b"\x80dies"))
        process.background.start()
        max_tasks = rng.choice((0, 0, 1, 3))  # an actor has one worker for life
        ordered = not max_tasks and rng.random() < 0.4
        spec = pb.Binding(id=binding, initializer=initializer, max_tasks=max_tasks, ordered=ordered,
                          max_restarts=rng.choice((0, 0, 1, -1)) if ordered else 0)  # fmt: skip
        process.world.bind(process, spec, 1 if ordered else rng.choice((1, 2)))
        kind = process.calls.add_kind({}, retries=rng.choice((0, 3)), binding=binding)
        self.kinds.append(kind)
        self.bindings.append(binding)
        if initializer in (b"\x80fails", b"\x80dies"):
            process.ledger.spoilt.add(kind.id)
        yield from ()

    def _unbind(self) -> Program:
        if self.bindings:
            binding = self.bindings.pop()
            self._unbind_one(binding, force=self.rng.random() < 0.5)
        yield from ()

    def _unbind_one(self, binding: int, *, force: bool) -> None:
        """As `NativeEngine.unbind`."""
        process = self.process
        client = process.client
        self.world.is_faulty = self.world.is_faulty or force  # with a worker goes what its tasks have left there
        for kind in [kind for kind in self.kinds if client.kind_binding[kind.id] == binding]:
            process.ledger.spoilt.add(kind.id)
            self._retire(kind)
        process.world.unbind(process, binding, force=force)

    def _let_go(self) -> Program:
        """Let go of everything, as a program at its end that stays."""
        process = self.process
        yield from self._take()
        for array in list(self.arrays):
            self._dispose_of(array)
        for oid, _ in self.buffers:
            process.client.owner.refs.drop(oid)
        for binding in self.bindings:
            self._unbind_one(binding, force=False)
        for kind in list(self.kinds):
            self._retire(kind)
        process.calls.drop_all()
        process.client.flush()
        unbound = process.unbound
        yield from process.wait(lambda: len(unbound) == self.bindings_made)

"""What a process has submitted, kept a second time and independently of the machine: each settles once, and rightly."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

from ..failures import as_exception
from ..frames import answer_bytes
from ..ids import ObjectId
from ..rpc.protos import outboard_pb2 as pb
from ..scheduler.owner import is_failure

if TYPE_CHECKING:
    from .process import Process
    from .world import TaskWorld


def mix(*parts: int) -> int:
    """A number in which every part and their order count."""
    token = 1469598103
    for part in parts:
        token = (token * 1000003 ^ part) & 0xFFFFFFFFFFFF
    return token


def is_right(world: TaskWorld, expected: int | None, token: int) -> bool:
    """Whether a value is what was expected of its task; None: it raises, unless faults let it run again."""
    return world.is_faulty if expected is None else token == expected


def read_value(world: TaskWorld, body: bytes) -> tuple[int, int] | None:
    """(token, attempt) of value bytes, without opening them; None when the extent they name is not there any more."""
    if body[0] != 0x80:
        parcel = pb.Outcome.FromString(body).value
        if parcel.HasField("stored"):
            memory = world.memory_of(parcel.stored)
            cell = memory.read(parcel.stored) if memory is not None else None
            if cell is None:
                return None
            body = cell.stream
        else:
            body = parcel.stream
    token, attempt, _ = pickle.loads(body)
    return token, attempt


class Pending(NamedTuple):
    """One plain task that has not settled; its entry is the machine's record."""

    first: int
    entry: Any
    inputs: tuple[ObjectId, ...]


class Ledger:
    """Checked after every event that touched its process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._tasks: list[Pending] = []
        self.arrays: dict[int, Any] = {}
        self.items: dict[int, set[int]] = {}  # of each array, those that have not settled
        self.taken: dict[int, list[tuple[int, Any]]] = {}  # of each array, (index, value) for the program to look at
        self.tokens: dict[int, list[int | None]] = {}  # of each array
        self.spoilt: set[int] = set()  # kinds of which tasks may fail: their binding went, or they were refused
        self.cancelled: set[int] = set()  # plain tasks that were cancelled
        self.cancelled_arrays: set[int] = set()

    def add_task(self, kind: Any, index: int, inputs: tuple[ObjectId, ...]) -> None:
        """A plain task was submitted."""
        self._tasks.append(Pending(index, self._process.client.owner.refs.owned[index], inputs))

    def check(self) -> None:
        """Look at what has settled since the last time, and count the rest."""
        unsettled = []
        for pending in self._tasks:
            if pending.entry.value is None:
                unsettled.append(pending)
            else:
                self._check_settled(pending)
        self._tasks = unsettled
        for array in self.arrays.values():
            while array.completions:
                self._check_completion(array, *array.completions.popleft())
        owner = self._process.client.owner
        waiting = len(unsettled) + sum(map(len, self.items.values())) + self._count_rebuilt()
        assert owner.unanswered == waiting, f"{self._process}: {owner.unanswered} unanswered, {waiting} in the ledger"

    def _count_rebuilt(self) -> int:
        """Tasks that have settled and run again, for what they gave was lost."""
        if not self._process.world.is_faulty:
            return 0
        unsettled = {id(pending.entry) for pending in self._tasks}
        owned = self._process.client.owner.refs.owned.values()
        return sum(entry.value is None and hasattr(entry, "kind") and id(entry) not in unsettled for entry in owned)

    def add_array(self, array: Any) -> None:
        """An array was opened."""
        self.arrays[array.stream] = array
        self.items[array.stream], self.tokens[array.stream], self.taken[array.stream] = set(), [], []

    def add_items(self, array: Any, tokens: list[int | None]) -> None:
        """An array was extended."""
        known = self.tokens[array.stream]
        self.items[array.stream].update(range(len(known), len(known) + len(tokens)))
        known += tokens

    def forget_array(self, array: Any) -> None:
        """An array was disposed of."""
        for table in (self.arrays, self.items, self.tokens, self.taken):
            table.pop(array.stream)

    def _check_settled(self, pending: Pending) -> None:
        value = pending.entry.value
        oid = ObjectId(self._process.incarnation, pending.first)
        world = self._process.world
        if is_failure(value):
            world.failed.update(ObjectId(oid.owner, pending.first + i) for i in range(pending.entry.kind.stride))
            self.check_failure(oid, value, pending)
            return
        found = read_value(world, value)
        if found is None:  # whoever it was handed to has died, or the machine on which it lies
            if world.may_be_gone(value):
                return
            assert world.is_faulty and pending.entry.handed_to is not None, f"the result of {pending.entry} is gone"
            return
        token, attempt = found
        assert is_right(world, world.expected[oid], token), f"{pending.entry}: {token} instead of {world.expected[oid]}"
        assert attempt == pending.entry.attempt, f"{pending.entry} took the result of attempt {attempt}"

    def check_failure(self, oid: ObjectId, value: Any, pending: Pending | None = None) -> None:
        """A failure needs a reason: without faults, cancels or errors of the program there is none."""
        world = self._process.world
        assert b"was released before" not in answer_bytes(value), f"{self._process} borrows {oid}, and it was released"
        if world.is_faulty or world.expected.get(oid) is None or (pending is None and oid in world.failed):
            return
        if pending is not None and (pending.first in self.cancelled or pending.entry.kind.id in self.spoilt):
            return
        if pending is None and oid.owner == self._process.incarnation:
            return  # it was looked at when it settled
        if pending is not None and any(i in world.failed or i.owner != oid.owner for i in pending.inputs):
            return
        raise AssertionError(f"{oid} of {self._process} failed without a reason: {as_exception(value)!r}")

    def _check_completion(self, array: Any, first: int, count: int, values: Any) -> None:
        """Items of an array settled: each once."""
        world = self._process.world
        open_items = self.items[array.stream]
        for index in range(first, first + count):
            assert index in open_items, f"item {index} of {array} settled twice"
            open_items.remove(index)
            value = values[index - first] if isinstance(values, list) else values
            self.taken[array.stream].append((index, value))
            expected = self.tokens[array.stream][index]
            if is_failure(value):
                may_fail = array.kind.id in self.spoilt or array.stream in self.cancelled_arrays
                why = as_exception(value)
                assert world.is_faulty or may_fail or expected is None, f"item {index} of {array} failed: {why!r}"
                continue
            found = read_value(world, value)
            if found is None and world.may_be_gone(value):
                continue
            assert found is not None, f"the stored result of item {index} of {array} is not there"
            assert is_right(world, expected, found[0]), f"item {index} of {array}: {found[0]} instead of {expected}"
            attempt = array.attempts.get(index, 1)
            assert found[1] == attempt, f"item {index} of {array} took the result of attempt {found[1]}, not {attempt}"

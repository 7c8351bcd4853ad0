"""A client's machine whose every event is followed by a look at all invariants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from outboard.ids import PLAIN_STREAM, ObjectId, Span
from outboard.scheduler.owner import Array, Extra, Kind, LostCause, Owner, Send, SendItems

ME = 7
VALUE = b"\x80value"


class Program:
    """Calls go to the owner; `kind` has three retries of either sort."""

    def __init__(self) -> None:
        self.owner = Owner(ME, initial_credit=64)
        self.refs = self.owner.refs
        self.kind = self.add_kind()

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.owner, name)
        if not callable(member):
            return member

        def call(*args: object, **named: object) -> Any:
            result = member(*args, **named)
            self.owner.check()
            return result

        return call

    def add_kind(self, retries: int = 3, machine_retries: int = 3, stride: int = 1, credit: int = 64) -> Kind:
        kind = self.owner.add_kind("f", process_retries=retries, machine_retries=machine_retries, stride=stride)
        self.owner.on_grant(kind.id, credit)
        return kind

    def commands(self) -> list[Any]:
        """Plan, and take everything that is ordered."""
        self.plan_sends()
        commands: list[Any] = self.take_commands()
        return commands

    def submit(self, *inputs: int, kind: Kind | None = None, **options: Any) -> int:
        """Submit a task that needs these objects of ours."""
        index = self.owner.submit(kind or self.kind, b"call", tuple(map(self.name, inputs)), **options)
        self.check()
        return index

    def sent(self, *inputs: int, **options: Any) -> int:
        """Submit a task and let it be sent."""
        index = self.submit(*inputs, **options)
        assert sends(self.commands())[-1][0] == index
        return index

    def finish(self, index: int, value: bytes = VALUE, *, attempt: int = 1, **extras: Any) -> None:
        found = {0: extras["extra"]} if extras else None
        self.count_us(found)
        self.on_finished(PLAIN_STREAM, index, attempt, 1, [value], found)

    def finish_items(self, array: Array, first: int, values: list[bytes], *, attempt: int = 1, **extras: Any) -> None:
        self.count_us(extras.get("extras"))
        self.on_finished(array.stream, first, attempt, 1, values, extras.get("extras"))

    def count_us(self, extras: dict[int, Extra] | None) -> None:
        """As the node before it passes results on: we get references to objects of our own."""
        for extra in extras.values() if extras else ():
            for oid in extra.contained:
                if oid.owner == ME:
                    self.refs.on_borrowed(oid, ME)

    def lose(self, index: int, cause: LostCause = LostCause.PROCESS, *, attempt: int = 1, **options: Any) -> None:
        stride = options.pop("stride", 1)
        self.on_lost(cause, [Span(PLAIN_STREAM, index, 1, attempt, stride)], "death", **options)

    def give_back(self, first: int, count: int = 1, attempt: int = 1) -> None:
        self.on_returned([Span(PLAIN_STREAM, first, count, attempt)])

    def array(self, count: int, kind: Kind | None = None) -> Array:
        """Open an array of so many items."""
        array: Array = self.open_array(kind or self.kind)
        self.extend(array, count)
        return array

    def drop(self, *seqs: int) -> None:
        for seq in seqs:
            self.refs.drop(self.name(seq))
            self.owner.check()

    def value(self, seq: int) -> Any:
        return self.refs.owned[seq].value

    def put(self, **options: Any) -> int:
        seq = self.owner.new_seq()
        self.owner.put(seq, VALUE, options.get("stored"), options.get("contained", ()))
        self.check()
        return seq

    @staticmethod
    def name(seq: int) -> ObjectId:
        return ObjectId(ME, seq)


def sends(commands: list[Any]) -> list[tuple[int, int, int]]:
    """What was sent: (first, count, attempt) each."""
    found = []
    for command in commands:
        if isinstance(command, Send):
            found.append((command.first, len(command.tasks), command.attempt))
        elif isinstance(command, SendItems):
            found.append((command.first, command.count, command.attempt))
    return found


@pytest.fixture
def program() -> Iterator[Program]:
    """A machine that must be sound at the end too."""
    program = Program()
    yield program
    program.check()

"""A node's machine for tests: one client, one kind, and what is read off its commands."""

from __future__ import annotations

from typing import Any

from outboard.ids import RESOURCE_UNIT as UNIT
from outboard.ids import Span
from outboard.scheduler.commands import Command, KindSpec, Lost, LostCause, SendPacket, StartWorker
from outboard.scheduler.dispatch import Dispatch
from outboard.scheduler.intervals import Interval

ROOT = 7
ONE = {"CPU": UNIT}


class Node:
    """A dispatch with one client and one kind; each call checks all invariants and returns the commands."""

    def __init__(self, cpus: int = 2, **others: int) -> None:
        self.dispatch = Dispatch({"CPU": cpus * UNIT, **others})
        self.dispatch.on_client_joined(ROOT, ROOT, 0.0)
        self.dispatch.on_kind(ROOT, KindSpec(1, 0, ONE))
        self.next_index = 1

    def __getattr__(self, event: str) -> Any:
        def call(*args: object, **named: object) -> list[Command]:
            getattr(self.dispatch, event)(*args, **named)
            self.dispatch.check()
            return self.dispatch.take_commands()

        return call

    def submit(self, count: int = 1, kind: int = 1, client: int = ROOT) -> list[Command]:
        first, self.next_index = self.next_index, self.next_index + count
        return self.on_submitted(client, Interval(client, 0, first, 0, 1, kind, [b"call"] * count), 0.0)

    def finish(self, packet: SendPacket, seconds: float = 0.1) -> list[Command]:
        """Report the whole packet; ``seconds`` is a task's."""
        done = [(i.owner, i.stream, i.first, len(i.calls), i.stride, i.attempt) for i in packet.intervals]
        return self.on_finished(packet.worker, packet.packet, done, seconds * size(packet), True, 0.0)

    def start(self, commands: list[Command]) -> list[Command]:
        """Let all workers that ``commands`` start report for work."""
        answers: list[Command] = []
        for command in commands:
            if isinstance(command, StartWorker):
                answers += self.start(self.on_worker_forked(command.worker, 0.0))
                answers += self.on_worker_started(command.worker, 0.0)
        return answers

    def measured(self, seconds: float) -> Node:
        """Start all workers that fit and let them run a task of so many seconds each."""
        slots = self.dispatch.snapshot().free["CPU"] // UNIT
        sent = packets(self.start(self.submit(slots)))
        assert len(sent) == slots
        for packet in sent:
            self.finish(packet, seconds)
        return self


def packets(commands: list[Command]) -> list[SendPacket]:
    return [c for c in commands if isinstance(c, SendPacket)]


def only(commands: list[Command], kind: type) -> Any:
    found = [c for c in commands if isinstance(c, kind)]
    assert len(found) == 1, commands
    return found[0]


def size(packet: SendPacket) -> int:
    return sum(len(i.calls) for i in packet.intervals)


def indices(packet: SendPacket) -> list[int]:
    return [i.first + n * i.stride for i in packet.intervals for n in range(len(i.calls))]


def lost(commands: list[Command]) -> list[tuple[LostCause, list[int]]]:
    return [(c.cause, [i for s in c.spans for i in tasks(s)]) for c in commands if isinstance(c, Lost)]


def tasks(span: Span) -> range:
    return range(span.first, span.end, span.stride)

"""The node's machine: what its books cost a task, with workers that finish at once."""

from __future__ import annotations

from itertools import count

from outboard.ids import PLAIN_STREAM, RESOURCE_UNIT
from outboard.scheduler.commands import KindSpec, SendPacket, StartWorker
from outboard.scheduler.dispatch import Dispatch
from outboard.scheduler.intervals import Interval

from .timing import show

CALL = b"\x80\x05N."
CLIENT = 1
KIND = 1
MANY = 1_000

#: Seconds that each task is said to have run: short enough to travel in large packets.
TASK_SECONDS = 1e-6


class Node:
    """A machine with two CPUs, one client and one kind, and a clock of its own."""

    def __init__(self) -> None:
        self.machine = Dispatch({"CPU": 2 * RESOURCE_UNIT}, initial_credit=MANY)
        self.indices = count(1, MANY)
        self.now = 0.0
        self.machine.on_client_joined(CLIENT, CLIENT, self.now)
        self.machine.on_kind(CLIENT, KindSpec(KIND, resources={"CPU": RESOURCE_UNIT}))

    def round_trip(self, tasks: int) -> None:
        """Submit one interval and report each packet as done, until nothing is left to send."""
        interval = Interval(CLIENT, PLAIN_STREAM, next(self.indices), 0, 1, KIND, [CALL] * tasks)
        self.machine.on_submitted(CLIENT, interval, self.now)
        while commands := self.machine.take_commands():
            self.now += 1e-5
            for command in commands:
                if isinstance(command, SendPacket):
                    self.finish(command)
                elif isinstance(command, StartWorker):
                    self.machine.on_worker_started(command.worker, self.now)

    def finish(self, packet: SendPacket) -> None:
        """Report a whole packet."""
        done = [(part.owner, part.stream, part.first, len(part.calls), part.stride, 0) for part in packet.intervals]
        seconds = TASK_SECONDS * sum(len(part.calls) for part in packet.intervals)
        self.machine.on_finished(packet.worker, packet.packet, done, seconds, True, self.now)


def main() -> None:
    """Print the table."""
    node = Node()
    show("one task: submit, deal, finish", lambda: node.round_trip(1))
    show(f"{MANY} tasks in one interval, a task", lambda: node.round_trip(MANY), MANY)


if __name__ == "__main__":
    main()

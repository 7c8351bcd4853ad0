"""The client's machine: what its books cost a task."""

from __future__ import annotations

from outboard.ids import PLAIN_STREAM
from outboard.scheduler.owner import Kind, Owner

from .timing import show

CALL = VALUE = b"\x80\x05N."
MANY = 1_000


def make() -> tuple[Owner, Kind]:
    """Return a machine with one kind and credit for all."""
    owner = Owner(1, initial_credit=MANY)
    return owner, owner.add_kind("noop", process_retries=3, machine_retries=3, stride=1)


def round_trip(owner: Owner, kind: Kind, count: int) -> None:
    """Submit, send and settle so many plain tasks; their entries stay, as while the program holds references."""
    indices = [owner.submit(kind, CALL) for _ in range(count)]
    owner.plan_sends()
    owner.take_commands()
    owner.on_finished(PLAIN_STREAM, indices[0], 1, 1, [VALUE] * count)
    owner.take_commands()


def main() -> None:
    """Print the table."""
    owner, kind = make()
    show("one task: submit, send, settle", lambda: round_trip(owner, kind, 1))
    show(f"{MANY} tasks at once, a task", lambda: round_trip(owner, kind, MANY), MANY)


if __name__ == "__main__":
    main()

"""How many tasks of a kind its owner may have outstanding at this node.

Enough that no worker waits for the owner's answer, few enough that long tasks stay where every node can have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .commands import Command, Grant, Returned
from .pace import RANGE_SECONDS

if TYPE_CHECKING:
    from .queues import Kind

#: Seconds of work a slot that an owner may have on its way: a client in pure Python answers only every 5 ms, and
#: with 4 ms of work ahead a worker was busy 37 % of the time, with 16 ms 99 %.
ANSWER_SECONDS = 0.020
#: Most tasks of a kind that may be outstanding. Larger feeds more slots with tiny tasks, smaller leaves less to give
#: back.
MOST_CREDIT = 1000
#: Credit shrinks only when it is more than so many times too deep: it does not flap with every measurement.
SHRINK_FACTOR = 2
#: Measurements before credit shrinks: a first call may just have imported its modules.
SHRINK_SAMPLES = 2


def depth(mean: float, slots: int) -> int:
    """The credit for tasks of this mean run time of which so many run at once: long ones get one spare a slot."""
    if mean >= RANGE_SECONDS:
        return min(2 * slots, MOST_CREDIT)
    ahead = int((ANSWER_SECONDS + RANGE_SECONDS) / mean)
    return min(slots * (1 + ahead), MOST_CREDIT)


def review(kind: Kind, commands: list[Command]) -> None:
    """Grant more while the owner wants it, doubling; give the surplus back when the tasks have become longer.

    Nested clients get all at once: what a running task waits for is never kept out. Unmeasured kinds keep what they
    have, and nothing is given back of ordered ones.
    """
    mean = kind.pace.mean
    credit = kind.credit
    if kind.client.worker is not None:
        if kind.wanted and credit < MOST_CREDIT:
            _grant(kind, MOST_CREDIT, commands)
        return
    if not mean or (not kind.wanted and credit * mean <= ANSWER_SECONDS):
        # Nothing is known, or so little work that it is never too much.
        return
    target = depth(mean, kind.shape.capacity)
    if kind.wanted and credit < target:
        _grant(kind, min(target, max(1, 2 * credit)), commands)
    elif credit > SHRINK_FACTOR * target and kind.pace.samples >= SHRINK_SAMPLES:
        _grant(kind, target, commands)
        surplus = min(kind.queued, kind.outstanding - target)
        if surplus > 0 and not kind.shape.binding.spec.ordered:
            commands.append(Returned(kind.client.id, kind.take_last(surplus)))


def _grant(kind: Kind, credit: int, commands: list[Command]) -> None:
    # What the grant lets through is no longer waiting; the owner's next word on it is absolute again.
    kind.wanted = max(0, kind.wanted - max(0, credit - kind.credit))
    kind.credit = credit
    commands.append(Grant(kind.client.id, kind.id, credit))

"""How many tasks of a kind its owner may have outstanding at this node.

Enough that no worker waits for the owner's answer, few enough that long tasks stay where every node can have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .commands import Command, Grant, Returned
from .pace import RANGE_SECONDS
from .tables import WorkerState

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
#: Run time from which other nodes should have what one shared with them does not run at once. The law's four answers.
LONG_SECONDS = 4 * ANSWER_SECONDS
#: Run time from which none is kept ready at a node that shares: a worker that waits one answer for its next task loses
#: less than a part in a hundred, and a task behind a long one while another node is idle may lose all of its time.
VERY_LONG_SECONDS = 1.0
#: Seconds between two looks at what waits. Larger leaves unmeasured long tasks at one node for longer, smaller costs
#: some 10 µs each time.
LOOK_SECONDS = 0.020
#: Looks come so many times less often at most, where many kinds wait: once more for each `LOOK_KINDS` of them. Larger
#: costs less, smaller sends long tasks on to other nodes sooner.
RAREST_LOOKS, LOOK_KINDS = 5, 16
#: Looks further apart than this say nothing of the time between: nothing may have waited. Larger bears a busier loop.
STALE_SECONDS = 10 * LOOK_SECONDS


def look_pause(kinds: int) -> float:
    """Seconds until the next look where so many kinds wait."""
    return LOOK_SECONDS * min(RAREST_LOOKS, 1 + kinds // LOOK_KINDS)


def depth(mean: float, slots: int, *, is_shared: bool = False) -> int:
    """The credit for tasks of this mean run time of which so many run at once.

    Long ones get one spare a slot; where other nodes could have them (``is_shared``) one in all, very long ones none.
    """
    if is_shared and mean >= VERY_LONG_SECONDS:
        return min(max(1, slots), MOST_CREDIT)
    if is_shared and mean >= LONG_SECONDS:
        return min(slots + 1, MOST_CREDIT)
    if mean >= RANGE_SECONDS:
        return min(2 * slots, MOST_CREDIT)
    ahead = int((ANSWER_SECONDS + RANGE_SECONDS) / mean)
    return min(slots * (1 + ahead), MOST_CREDIT)


def review(kind: Kind, commands: list[Command]) -> None:
    """Grant more while the owner wants it, doubling; give the surplus back when the tasks have become longer.

    Nested clients get all at once where there is only this node: what a running task waits for is never kept out.
    For the same reason there is one more than tasks that wait. Unmeasured kinds else keep what they have, and nothing
    is given back of ordered ones.
    """
    mean = kind.pace.mean
    credit = kind.credit
    if kind.client.worker is not None and not kind.shape.is_shared:
        if kind.wanted and credit < MOST_CREDIT:
            _grant(kind, MOST_CREDIT, commands)
        return
    if kind.wanted and 0 < credit <= (waiting := _waiting_tasks(kind)):
        _grant(kind, min(waiting + 1, MOST_CREDIT), commands)
        return
    if not mean or (not kind.wanted and credit * mean <= ANSWER_SECONDS):
        # Nothing is known, or so little work that it is never too much.
        return
    target = depth(mean, kind.shape.capacity, is_shared=kind.shape.is_shared)
    if kind.wanted and credit < target:
        _grant(kind, min(target, max(1, 2 * credit)), commands)
    elif credit > SHRINK_FACTOR * target and kind.pace.samples >= SHRINK_SAMPLES:
        _grant(kind, target, commands)
        if not kind.shape.binding.spec.ordered:
            _give_back(kind, target, commands)


def watch(kind: Kind, now: float, commands: list[Command]) -> bool:
    """Look at a kind with queued tasks that other nodes could have; returns whether it needs no further look.

    While nothing of it finishes, its run time is at least as long as that has lasted: its credit and its queue are cut
    to what such tasks get. A node whose workers are still starting proves nothing. Measured times count half, so that
    what is about as long as one of the limits does not go to and fro; for the same reason the last task of a kind that
    others keep out is given back twice as late each time.
    """
    shape = kind.shape
    binding = shape.binding
    if binding.spec.ordered or binding.is_closing:
        return True
    pace = kind.pace
    is_starting = shape.coming and kind.queued == kind.outstanding
    if pace.samples != kind.seen_samples or is_starting or now - kind.looked_at > STALE_SECONDS:
        if pace.samples != kind.seen_samples:
            kind.patience = 0.0
        kind.seen_samples = pace.samples
        kind.silent_since = now
    kind.looked_at = now
    waited = now - kind.silent_since
    seconds = max(waited, pace.mean / 2 if pace.samples >= SHRINK_SAMPLES else 0.0)
    if seconds >= RANGE_SECONDS:
        target = depth(seconds, shape.capacity, is_shared=True)
        is_kept_out = waited >= LONG_SECONDS and kind.is_kept_out
        target = 1 if is_kept_out else max(target, 1 + _waiting_tasks(kind))
        if kind.credit > target:
            _grant(kind, target, commands)
        if is_kept_out and waited >= max(VERY_LONG_SECONDS, kind.patience):
            _give_back(kind, 0, commands)  # its owner may know a better place for the last one, too
            kind.silent_since = now
            kind.patience = 2 * waited
        else:
            _give_back(kind, kind.credit, commands)
    least = depth(VERY_LONG_SECONDS, shape.capacity, is_shared=True)
    return kind.credit <= least and kind.outstanding <= least and kind.queued < kind.outstanding


def _waiting_tasks(kind: Kind) -> int:
    """Tasks of the kind that are blocked: they may wait for one that their owner has yet to send."""
    shape = kind.shape
    if shape.demand.cpu and not shape.root.lent_cpu:
        return 0
    running = (w.range.packets[0] for w in shape.leased.values() if w.state == WorkerState.BLOCKED)
    return sum(packet.kind is kind for packet in running)


def _give_back(kind: Kind, target: int, commands: list[Command]) -> None:
    surplus = min(kind.queued, kind.outstanding - target)
    if surplus > 0:
        commands.append(Returned(kind.client.id, kind.take_last(surplus)))


def _grant(kind: Kind, credit: int, commands: list[Command]) -> None:
    # What the grant lets through is no longer waiting; the owner's next word on it is absolute again.
    kind.wanted = max(0, kind.wanted - max(0, credit - kind.credit))
    kind.credit = credit
    commands.append(Grant(kind.client.id, kind.id, credit))

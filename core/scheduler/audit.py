"""The invariants of the client's machine; for tests and the simulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..ids import ObjectId
from .arrays import Array
from .books import Books
from .entries import Entry
from .kinds import Kind
from .shares import OWN_NODE, Share
from .states import TaskState
from .tasks import UNSETTLED, Task


def check(books: Books) -> None:
    """Raise AssertionError naming the first invariant that does not hold."""
    tasks = [entry for entry in books.refs.owned.values() if isinstance(entry, Task)]
    books.refs.check()
    for array in books.arrays.values():
        array.check()
    for task in tasks:
        _check_task(books, task)
    for kind in books.kinds.values():
        _check_kind(books, kind, tasks)
    _check_holds(books, tasks)
    books.lineage.check()
    unsettled_ones = {task.index for task in tasks if task.state in UNSETTLED}
    assert books.rerun <= unsettled_ones, (books.rerun, unsettled_ones)
    unsettled = sum(task.state in UNSETTLED for task in tasks)
    items = sum(array.count - array.finished for array in books.arrays.values())
    assert books.unanswered == unsettled + items, (books.unanswered, unsettled, items)


def _check_task(books: Books, task: Task) -> None:
    # One with several results that runs again for another one may have kept the first.
    has_kept = task.index in books.rerun and task.kind.stride > 1
    assert has_kept or (task.state in UNSETTLED) == (task.value is None), task
    if task.state in UNSETTLED:
        assert task.index not in books.owed, task
    elif task.index not in books.owed:
        assert not task.holds and task.call is None, f"{task} holds on"
    if task.state is TaskState.WAITING:
        missing = Counter(oid for oid in task.inputs if _has_no_value(books, oid))
        waits = {oid: _entry(books, oid).wait_list().dependents.count(task) for oid in missing}
        assert task.missing and sum(waits.values()) == task.missing, (task, missing)
        if not books.has_lost:  # else an input may be lost while it waits for others; it is looked at again
            assert waits == missing, (task, missing, waits)
    if task.state is TaskState.READY:
        assert task.kind.ready.count(task) == 1, f"{task} is not queued once"


def _entry(books: Books, oid: ObjectId) -> Entry:
    entry = books.refs.find(oid)
    assert entry is not None, oid
    return entry


def _has_no_value(books: Books, oid: ObjectId) -> bool:
    entry = books.refs.find(oid)
    return entry is not None and entry.value is None


def _check_kind(books: Books, kind: Kind, tasks: list[Task]) -> None:
    sent = [task for task in tasks if task.kind is kind and task.state is TaskState.SENT]
    sent += [task for task in books.owed.values() if task.kind is kind]
    arrays = [array for array in books.arrays.values() if array.kind is kind]
    assert kind.shares.keys() - {OWN_NODE} <= books.nodes.keys(), f"{kind} has shares at nodes that have gone"
    assert (kind.stirred.keys() | kind.told.keys()) <= set(kind.shares.values()) - {kind.home}, kind
    for share in kind.shares.values():
        if share.node != OWN_NODE and share not in kind.stirred:
            assert share.room() <= 0 and (share.wanted or not share.is_allowed), f"{share} is overlooked"
        assert share.node == OWN_NODE or not share.wanted or share in kind.told, f"{share} will not hear of the end"
        _check_share(share, [task for task in sent if task.share is share], arrays)
    assert all(task.share in kind.shares.values() for task in sent), f"{kind} has tasks where it has no share"
    assert kind.records == sum(record.kind is kind for record in books.lineage.records.values()), kind
    assert kind.opened == len(arrays), (kind, kind.opened, arrays)
    waiting = sum(task.kind is kind and task.state is TaskState.WAITING for task in tasks)
    assert kind.unready == waiting, (kind, kind.unready, waiting)
    assert kind in books.backlog or not kind.waiting(), f"{kind} is not in the backlog"
    assert kind.refused is None or not kind.waiting(), f"{kind} was refused"
    for array in arrays:
        assert array in kind.arrays or not array.unsent(), f"{array} is not queued"


def _check_share(share: Share, sent: list[Task], arrays: list[Array]) -> None:
    items = [index for array in arrays for index in _items_at(array, share.node)]
    loads = [array.loads[i] for array in arrays for i in _items_at(array, share.node) if i in array.loads]
    assert share.outstanding == len(sent) + len(items), (share, sent, items)
    nbytes = sum(task.nbytes for task in sent) + sum(load[0] for load in loads)
    assert share.nbytes == nbytes, (share, share.nbytes, nbytes)
    assert share.limit == (share.credit if share.is_allowed else 0), share


def _items_at(array: Array, node: int) -> list[int]:
    """Every item that a node has not answered for."""
    attempts = ((index, array.attempt_of(index)) for index in range(array.count))
    return [index for index, attempt in attempts if array.is_sent(index, attempt, node)]


def _check_holds(books: Books, tasks: list[Task]) -> None:
    """Each object counts at least the references that this machine itself has to it."""
    for oid, times in Counter(_holds(books, tasks)).items():
        entry = books.refs.find(oid)
        assert entry is None or entry.count >= times, (oid, entry.count, times)
        assert entry is not None or oid.owner == books.incarnation, f"borrowed object {oid} is gone while in use"


def _holds(books: Books, tasks: list[Task]) -> Iterator[ObjectId]:
    for task in [task for task in tasks if task.index not in books.owed] + list(books.owed.values()):
        yield from task.holds
    for array in books.arrays.values():
        for _, held in array.loads.values():
            yield from held
    for entry in [*books.refs.owned.values(), *books.refs.foreign.values()]:
        yield from entry.contained

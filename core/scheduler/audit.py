"""The invariants of the client's machine; for tests and the simulator."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from ..ids import ObjectId
from .arrays import Array
from .books import Books
from .entries import Entry
from .kinds import Kind
from .shares import OWN_NODE
from .states import TaskState
from .tasks import UNSETTLED, Task


def check(books: Books) -> None:
    """Raise AssertionError naming the first invariant that does not hold."""
    tasks = [entry for entry in books.refs.owned.values() if isinstance(entry, Task)]
    books.refs.check()
    for array in books.arrays.values():
        array.check()
    unsettled = [task for task in tasks if task.state in UNSETTLED]
    for task in tasks:
        _check_task(books, task)
    _check_kinds(books, unsettled)
    _check_holds(books, tasks)
    books.lineage.check()
    assert not books.rerun or books.rerun <= {task.index for task in unsettled}, (books.rerun, unsettled)
    items = sum([array.count - array.finished for array in books.arrays.values()])
    assert books.unanswered == len(unsettled) + items, (books.unanswered, len(unsettled), items)


def _check_task(books: Books, task: Task) -> None:
    # One with several results that runs again for another one may have kept the first.
    is_unsettled = task.state in UNSETTLED
    if is_unsettled != (task.value is None):
        assert task.index in books.rerun and task.kind.stride > 1, task
    if is_unsettled:
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
        lane = task.kind.lane
        queued = task.kind.ready.count(task) if lane is None else lane.calls.get(task.index) is task
        assert queued == 1, f"{task} is not queued once"


def _entry(books: Books, oid: ObjectId) -> Entry:
    entry = books.refs.find(oid)
    assert entry is not None, oid
    return entry


def _has_no_value(books: Books, oid: ObjectId) -> bool:
    entry = books.refs.find(oid)
    return entry is not None and entry.value is None


def _check_kinds(books: Books, unsettled: list[Task]) -> None:
    sent: defaultdict[Kind, list[Task]] = defaultdict(list)
    arrays: defaultdict[Kind, list[Array]] = defaultdict(list)
    waiting: defaultdict[Kind, int] = defaultdict(int)
    records: defaultdict[Kind, int] = defaultdict(int)
    for task in unsettled:
        if task.state is TaskState.SENT:
            sent[task.kind].append(task)
        elif task.state is TaskState.WAITING:
            waiting[task.kind] += 1
    for task in books.owed.values():
        sent[task.kind].append(task)
    for array in books.arrays.values():
        arrays[array.kind].append(array)
    for record in books.lineage.records.values():
        records[record.kind] += 1
    for kind in books.kinds.values():
        assert kind.records == records[kind], kind
        assert kind.unready == waiting[kind], (kind, kind.unready, waiting[kind])
        _check_kind(books, kind, arrays[kind])
        if kind.lane is None:
            _check_shares(books, kind, sent[kind], arrays[kind])
    for lane in {kind.lane for kind in books.kinds.values() if kind.lane is not None}:
        lane.check()
        calls = [task for kind, tasks in sent.items() if kind.lane is lane for task in tasks]
        assert lane.share.outstanding == len(calls), (lane, calls)
        assert lane.share.nbytes == sum([task.nbytes for task in calls]), (lane, calls)


def _check_kind(books: Books, kind: Kind, arrays: list[Array]) -> None:
    assert kind.opened == len(arrays), (kind, kind.opened, arrays)
    if kind.lane is not None:
        assert not kind.lane.calls or kind.lane in books.backlog, f"{kind.lane} is not in the backlog"
    elif kind.waiting():
        assert kind in books.backlog, f"{kind} is not in the backlog"
        assert kind.refused is None, f"{kind} was refused"
    for array in arrays:
        assert array in kind.arrays or not array.unsent(), f"{array} is not queued"


def _check_shares(books: Books, kind: Kind, sent: list[Task], arrays: list[Array]) -> None:
    shares = kind.shares
    outstanding, nbytes = dict.fromkeys(shares, 0), dict.fromkeys(shares, 0)
    for task in sent:
        share = task.share
        assert share is not None and shares.get(share.node) is share, f"{kind} has tasks where it has no share"
        outstanding[share.node] += 1
        nbytes[share.node] += task.nbytes
    for array in arrays:
        for node, items, carried in _items_by_node(array):
            if node in shares:
                outstanding[node] += items
                nbytes[node] += carried
    for node, share in shares.items():
        assert share.outstanding == outstanding[node], (share, sent, outstanding[node])
        assert share.nbytes == nbytes[node], (share, share.nbytes, nbytes[node])
        assert share.limit == (share.credit if share.is_allowed else 0), share
        if node == OWN_NODE:
            continue
        assert node in books.nodes, f"{kind} has shares at nodes that have gone"
        assert share in kind.told or not share.wanted, f"{share} will not hear of the end"
        if share not in kind.stirred:
            assert share.room() <= 0 and (share.wanted or not share.is_allowed), f"{share} is overlooked"
    for share in (*kind.stirred, *kind.told):
        assert share is not kind.home and shares.get(share.node) is share, kind


def _items_by_node(array: Array) -> Iterator[tuple[int, int, int]]:
    """What a node has not answered for, (node, items, bytes): what the array counts in all is right."""
    if array.places is None:
        yield OWN_NODE, array.outstanding(), sum([nbytes for nbytes, _ in array.loads.values()])
        return
    for node, runs in array.places.items():
        carried = sum([nbytes for index, (nbytes, _) in array.loads.items() if runs.covers(index, index + 1)])
        yield node, sum([end - first for first, end in runs]), carried


def _check_holds(books: Books, tasks: list[Task]) -> None:
    """Each object counts at least the references that this machine itself has to it."""
    for oid, times in Counter(_holds(books, tasks)).items():
        entry = books.refs.find(oid)
        assert entry is None or entry.count >= times, (oid, entry.count, times)
        assert entry is not None or oid.owner == books.incarnation, f"borrowed object {oid} is gone while in use"


def _holds(books: Books, tasks: list[Task]) -> list[ObjectId]:
    held: list[ObjectId] = []
    for task in tasks:
        if task.holds and task.index not in books.owed:
            held += task.holds
    for task in books.owed.values():
        held += task.holds
    for array in books.arrays.values():
        for _, objects in array.loads.values():
            held += objects
    for entry in books.refs.owned.values():
        held += entry.contained
    for foreign in books.refs.foreign.values():
        held += foreign.contained
    return held

"""Where the simulated node differs from the real one: what was found here and is still to be mended there."""

from __future__ import annotations

from typing import Any

from ..scheduler.tables import WorkerState


def mend(node: Any) -> None:
    """Replace what is wrong."""
    node.store.review_waiting = lambda: review_waiting(node.store)


def review_waiting(store: Any) -> None:
    """Serve those who wait for room, or tell them that none will come; who is looked at counts as waiting too."""
    for writer, needed in list(store.waiting):
        if writer not in store.node.peers or store._grant(writer, needed):
            store.waiting.remove((writer, needed))
        elif needed > store.extents.budget_nbytes or not may_free(store.node):
            store.waiting.remove((writer, needed))
            store._refuse(writer, needed)


def may_free(node: Any) -> bool:
    """Whether a task can still end and free some room: one that runs and is neither blocked nor waits for room."""
    waiting = {node.peers[w].worker for w, _ in node.store.waiting if w in node.peers}
    tables = node.dispatch._tables
    queued = any(shape.queued for root in tables.rotation.ready for shape in root.ready)
    for worker in tables.workers.values():
        if worker.shape is None or worker.state in (WorkerState.BLOCKED, WorkerState.KILLED):
            continue
        if worker.number not in waiting or queued:
            return True  # those that wait for room give back their CPUs, and what is queued comes next
    return False

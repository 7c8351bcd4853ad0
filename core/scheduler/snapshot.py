"""What a node does at one moment, for people."""

from __future__ import annotations

from typing import NamedTuple

from .tables import Tables


class WorkerView(NamedTuple):
    """One worker as ``snapshot`` shows it."""

    worker: int
    state: str
    client: int
    binding: int
    tasks: int


class Snapshot(NamedTuple):
    """What a node does just now: tasks that run (one a worker at most), tasks that wait, free amounts, workers."""

    running: int
    queued: int
    free: dict[str, int]
    workers: list[WorkerView]


def take_snapshot(tables: Tables) -> Snapshot:
    """Read the tables."""
    workers = tables.workers.values()
    return Snapshot(
        running=sum(1 for w in workers if w.range.tasks),
        queued=sum(shape.queued for root in tables.rotation.ready for shape in root.ready),
        free=tables.resources.free(),
        workers=[
            WorkerView(w.number, w.state.name, w.binding.client.id, w.binding.spec.id, w.range.tasks) for w in workers
        ],
    )

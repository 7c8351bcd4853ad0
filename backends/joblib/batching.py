"""How many tasks joblib shall hand over at a time, and how many travel as one item: a pure machine.

Batches save joblib's own bookkeeping, some 12 µs each. Whatever the batch, the engine deals its items to workers one by
one and takes back what has not begun, so a batch need not last as long as elsewhere. Tiny tasks travel several to an
item; a worker that finds one of them slow returns what it has not begun (see `Task`). Sizes follow from the run time
that workers measured, so a long way to them makes nothing grow.
"""

from __future__ import annotations

#: Seconds that a batch should last on one worker. Longer saves little, and lets progress and errors come in lumps.
BATCH_SECONDS = 0.02

#: Tasks of a batch at most: joblib draws a batch for each worker at once from the program's input.
BATCH_TASKS = 2000

#: Seconds that an item should last: as long as packets of single tasks. Longer saves little.
ITEM_SECONDS = 0.001

#: Tasks of an item at most.
ITEM_TASKS = 200

#: Times that a batch may grow at once: the first tasks tell little of those that follow.
GROWTH = 16


class BatchSizer:
    """Sizes batches and items by the run time of the tasks that have ended last."""

    def __init__(self) -> None:
        self.size = 1
        self.item_size = 1
        self._finished = 0
        self._seconds = 0.0

    def on_finished(self, finished: int, seconds: float, most: int = BATCH_TASKS) -> int:
        """Hear how many tasks have finished so far, and their run time in all; returns the new size of batches.

        `most` is how large they may be, at least 1.
        """
        count, duration = finished - self._finished, seconds - self._seconds
        if count > 0:
            self._finished, self._seconds = finished, seconds
            self.size = min(_fitting(BATCH_SECONDS, count, duration, BATCH_TASKS), self.size * GROWTH)
            self.item_size = _fitting(ITEM_SECONDS, count, duration, ITEM_TASKS)
        self.size = max(1, min(self.size, most))
        return self.size


def _fitting(seconds: float, count: int, duration: float, most: int) -> int:
    """How many tasks fit into a time when so many lasted so long; at least 1."""
    return max(1, min(most, int(seconds * count / duration))) if duration > 0 else most

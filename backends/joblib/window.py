"""How far a generator's tasks may run ahead of its consumer: a pure machine.

joblib starts a further batch for each one that it is told has finished. So batches that have finished are held back
while the consumer has enough to take, except the one that it needs next.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar

#: Bytes of results that may wait for the consumer, about. Smaller than a store, larger than what hides a pause of it.
WINDOW_NBYTES = 8 << 20

#: Results that may wait however small they are: more hide no pause, and their objects need memory too.
WINDOW_RESULTS = 1000


class Numbered(Protocol):
    """What the window needs of a batch: its place in the order of submission, and how many results it has."""

    number: int

    def __len__(self) -> int: ...


BatchT = TypeVar("BatchT", bound=Numbered)


class Window(Generic[BatchT]):
    """Decides which finished batches joblib may hear of.

    Args:
        ordered: results are consumed in the order of submission, else in that of delivery.
        least: results that may always wait, at least the tasks that run at a time.
    """

    def __init__(self, *, ordered: bool, least: int) -> None:
        self._ordered = ordered
        self._least = least
        self._held: dict[int, BatchT] = {}
        self._order: deque[int] = deque()  # numbers of what is held, as it finished
        self._left: dict[int, int] = {}  # results of each delivered batch that wait for the consumer
        self._waiting = 0  # the sum of them
        self._needed = 0  # ordered: the first batch that is not consumed
        self.room = WINDOW_RESULTS

    def resize(self, nbytes: float) -> None:
        """Take `nbytes` for the size of one result from now on."""
        self.room = max(self._least, min(WINDOW_RESULTS, int(WINDOW_NBYTES / max(nbytes, 1.0))))

    def on_finished(self, batch: BatchT) -> list[BatchT]:
        """Hear of a batch that has results; returns what to deliver now."""
        self._held[batch.number] = batch
        self._order.append(batch.number)
        return self._release()

    def on_consumed(self, number: int, count: int = 1) -> list[BatchT]:
        """Hear that the consumer took so many results of a batch; returns what to deliver now."""
        self._waiting -= count
        self._left[number] -= count
        if self._left[number] == 0:
            del self._left[number]
            if self._ordered:
                self._needed = number + 1
        return self._release()

    def empty(self) -> list[BatchT]:
        """Return what is held back: the consumer takes no more."""
        held = list(self._held.values())
        self._held.clear()
        return held

    def _release(self) -> list[BatchT]:
        released = []
        if self._ordered and self._needed in self._held:
            released.append(self._deliver(self._needed))
        while self._order:
            number = self._order[0]
            if number not in self._held:
                self._order.popleft()  # went as the needed one
            elif self._waiting == 0 or self._waiting + len(self._held[number]) <= self.room:
                released.append(self._deliver(number))
            else:
                break
        return released

    def _deliver(self, number: int) -> BatchT:
        batch = self._held.pop(number)
        self._left[number] = len(batch)
        self._waiting += len(batch)
        return batch

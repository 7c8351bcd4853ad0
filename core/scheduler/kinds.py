"""Kinds at their owner: what many tasks share, how many of them may be sent, and which may run again."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from .outcomes import LostCause

if TYPE_CHECKING:
    from .arrays import Array
    from .tasks import Task

#: Bytes of arguments (inline and stored) that may be outstanding per kind. Smaller recycles warm pages more, larger
#: keeps more workers of large tasks busy. The protocol's 8 MB are for inline bytes; stored ones cost the link nothing.
OUTSTANDING_NBYTES = 64 << 20

#: Bytes of a plain call from which on they are counted; what is smaller is bounded well enough by its number.
COUNTED_NBYTES = 4096

#: Tasks per kind that may be outstanding whatever their bytes, so that one huge argument cannot stop the flow.
OUTSTANDING_MIN = 4

#: When so many runs of a function in a row ended with their worker, it is not tried again.
POISON_DEATHS = 10


class Kind:
    """Function, resources, binding and retry rules that many tasks share; credits are counted here.

    Limits of retries below zero mean no limit.
    """

    __slots__ = ("arrays", "credit", "deaths", "dropped", "id", "machine_retries", "name", "nbytes", "opened",
                 "outstanding", "process_retries", "ready", "refused", "stride", "unready", "wanted",
                 "writable")  # fmt: skip

    def __init__(self, id: int, name: str, *, process_retries: int, machine_retries: int, stride: int, credit: int):
        self.id = id
        self.name = name
        self.process_retries = process_retries
        self.machine_retries = machine_retries
        self.stride = stride
        self.credit = credit
        self.outstanding = 0
        self.nbytes = 0  # of what is outstanding
        self.wanted = 0  # tasks that the node knows to wait beyond the credit; reckoned on both sides alike
        self.deaths = 0  # runs in a row that ended with their worker
        self.writable = False  # results, too, are copies that may be written to
        self.refused: Any = None  # mark of why none of them will run
        self.dropped = False  # nothing of it was left, and both sides have forgotten it
        self.opened = 0  # arrays that are not disposed of and answered for
        self.unready = 0  # plain tasks that wait for inputs
        self.ready: deque[Task] = deque()
        self.arrays: deque[Array] = deque()

    def __repr__(self) -> str:
        return f"<Kind {self.id} {self.name} {self.outstanding}/{self.credit} outstanding, {self.waiting()} waiting>"

    def room(self) -> int:
        """How many more tasks may be sent now."""
        room = self.credit - self.outstanding
        if self.nbytes >= OUTSTANDING_NBYTES:
            return min(room, OUTSTANDING_MIN - self.outstanding)
        return room

    def waiting(self) -> int:
        """Tasks that could be sent if credit allowed."""
        return len(self.ready) + sum(array.unsent() for array in self.arrays)

    def is_needed(self) -> bool:
        """Whether any task of it is left that has run or will, or an array to which some may be added."""
        return bool(self.outstanding or self.opened or self.unready or self.ready or self.wanted)

    def is_poisoned(self) -> bool:
        """Whether its runs do nothing but end their workers."""
        return self.deaths >= POISON_DEATHS

    def may_retry(self, cause: LostCause, process_losses: int, machine_losses: int) -> bool:
        """Whether a task lost by `cause` may run again; both figures count this loss."""
        if cause is LostCause.PROCESS:
            return not self.is_poisoned() and (self.process_retries < 0 or process_losses <= self.process_retries)
        if cause is LostCause.MACHINE:
            return self.machine_retries < 0 or machine_losses <= self.machine_retries
        return False

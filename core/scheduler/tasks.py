"""Plain tasks at their owner."""

from __future__ import annotations

from typing import Any

from ..ids import ObjectId
from .entries import Entry
from .kinds import Kind, Losses
from .shares import Share
from .states import TaskEvent, TaskState, next_state

READY = TaskState.READY

#: States in which a task may still get a value.
UNSETTLED = (TaskState.WAITING, TaskState.READY, TaskState.SENT)


class Task(Entry):
    """One plain task, and the entry of its first result; the program has one reference to it."""

    __slots__ = ("attempt", "call", "holds", "index", "inputs", "kind", "losses", "missing", "nbytes", "share",
                 "state")  # fmt: skip

    def __init__(self, index: int, kind: Kind, call: Any) -> None:
        # The slots of Entry are filled here: a second call would cost a tenth of the whole submission.
        self.value = None
        self.count = 1
        self.stored = None
        self.borrowers = None
        self.handed_to = None
        self.contained = ()
        self.waiters = None
        self.index = index
        self.kind = kind
        self.call = call  # None once the node has answered for it, or nothing was sent and nothing will be
        self.inputs: tuple[ObjectId, ...] = ()  # objects whose values it needs
        self.holds: tuple[ObjectId, ...] = ()  # inputs and all others that must live as long as `call`
        self.attempt = 1
        self.losses: Losses | None = None
        self.missing = 0  # inputs without a value
        self.nbytes = 0
        self.share: Share | None = None  # of the node to which it was sent last
        self.state = READY

    def move(self, event: TaskEvent) -> None:
        """Change state as the table says."""
        self.state = next_state(self.state, event, self)

    def is_at(self, node: int) -> bool:
        """Whether it was sent to this node last."""
        return self.share is not None and self.share.node == node

    def __repr__(self) -> str:
        return f"<Task {self.index} {self.kind.name} {self.state.value} attempt {self.attempt}>"

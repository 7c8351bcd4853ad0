"""What the parts of the client's machine share: its tables, its commands and its counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .arrays import Array
from .kinds import Kind
from .references import References
from .tasks import Task


class Books:
    """Written by every part.

    Collections and their invariants:
    - `refs.owned`: entries of all live objects, plain tasks included until they settle and nobody refers to them.
    - `owed`: cancelled tasks by index for which the node has not answered yet. They keep what they hold and count as
      outstanding, whether or not anybody still refers to their results.
    - `arrays`: task arrays by stream, until they are disposed of and the node has answered for all of their items.
    - `backlog`: every kind with something that could be sent, oldest first.
    - `Kind.ready`: plain tasks in READY, in order of submission (cancelled ones are skipped when met).
    - `Kind.arrays`: arrays with items that were never sent or must be sent again.
    - `Kind.outstanding`: tasks sent and not yet answered for by the node (by a result, a loss or a return); never above
      the credit by a new send.
    """

    __slots__ = ("arrays", "backlog", "commands", "counts", "incarnation", "kinds", "owed", "refs", "unanswered")

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.commands: list[Any] = []
        self.refs = References(incarnation, self.commands)
        self.kinds: dict[int, Kind] = {}
        self.arrays: dict[int, Array] = {}
        self.owed: dict[int, Task] = {}
        self.backlog: dict[Kind, None] = {}
        self.counts: Counter[str] = Counter()  # what came too late, by what it was
        self.unanswered = 0  # plain tasks and items submitted and not settled

"""What the parts of the client's machine share: its tables, its commands and its counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..ids import ObjectId
from .arrays import Array
from .entries import Place
from .kinds import Kind
from .lanes import Lane
from .lineage import Lineage
from .references import References
from .shares import OWN_NODE, Terms
from .tasks import Task


class Books:
    """Written by every part.

    Collections and their invariants:
    - `refs.owned`: entries of all live objects, plain tasks included until they settle and nobody refers to them.
    - `owed`: cancelled tasks by index for which the node has not answered yet. They keep what they hold and count as
      outstanding, whether or not anybody still refers to their results.
    - `arrays`: task arrays by stream, until they are disposed of and the node has answered for all of their items.
    - `backlog`: every kind with something that could be sent, and every lane with calls, oldest first.
    - `Kind.ready`: plain tasks in READY, in order of submission (cancelled ones are skipped when met).
    - `Kind.arrays`: arrays with items that were never sent or must be sent again.
    - `nodes`: further nodes to which tasks may be sent; each kind that used one has a share there.
    - `lineage`: how stored results were made.
    - `rerun`: plain tasks, by index, that run once more because something that they stored was lost. Each counts as a
      reference to its own entry.
    - `Share.outstanding`: tasks sent there and not yet answered for (by a result, a loss or a return); never above the
      credit by a new send.
    """

    __slots__ = ("arrays", "backlog", "commands", "counts", "has_lost", "home", "incarnation", "is_joined", "kinds",
                 "lineage", "nodes", "owed", "refs", "rerun", "unanswered")  # fmt: skip

    def __init__(self, incarnation: int, home: int, *, is_joined: bool) -> None:
        self.incarnation = incarnation
        self.home = home  # incarnation of the own node
        self.is_joined = is_joined  # it belongs to a cluster, so that further nodes may come
        self.commands: list[Any] = []
        self.refs = References(incarnation, self.commands)
        self.lineage = Lineage(self.refs)
        self.refs.on_ended = self.lineage.on_ended
        self.rerun: set[int] = set()
        self.has_lost = False  # some object was lost: tasks in READY may miss an input again
        self.kinds: dict[int, Kind] = {}
        self.arrays: dict[int, Array] = {}
        self.nodes: dict[int, Terms] = {}
        self.owed: dict[int, Task] = {}
        self.backlog: dict[Kind | Lane, None] = {}
        self.counts: Counter[str] = Counter()  # what came too late, by what it was
        self.unanswered = 0  # plain tasks and items submitted and not settled

    def name_node(self, node: int) -> int:
        """The own node is 0 in here, whether it was named so or by its incarnation."""
        return OWN_NODE if node == self.home else node

    def locate(self, oid: ObjectId, node: int, nbytes: int) -> None:
        """Note where a stored value lies; in a cluster tasks that need it are best sent there."""
        if self.is_joined:
            self.refs.located[oid] = Place(self.name_node(node), nbytes)

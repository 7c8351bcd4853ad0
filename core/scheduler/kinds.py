"""Kinds at their owner: what many tasks share, how many of them may be sent, and which may run again."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .outcomes import LostCause
from .shares import OWN_NODE, Share, Terms

if TYPE_CHECKING:
    from .arrays import Array
    from .lanes import Lane
    from .tasks import Task

#: Bytes of a plain call from which on they are counted; what is smaller is bounded well enough by its number.
COUNTED_NBYTES = 4096

#: When so many runs of a function in a row ended with their worker, it is not tried again.
POISON_DEATHS = 10

#: A task under which so many nodes were lost is not tried again, for it may be what ends them.
POISON_NODES = 2


class Losses(NamedTuple):
    """How often runs of one task were lost: with their process, through no fault of theirs, with their node."""

    process: int = 0
    machine: int = 0
    nodes: int = 0  # counted in `machine` too

    def counting(self, cause: LostCause, *, with_node: bool = False) -> Losses:
        """These, and one more."""
        if cause is LostCause.PROCESS:
            return self._replace(process=self.process + 1)
        if cause is LostCause.MACHINE:
            return self._replace(machine=self.machine + 1, nodes=self.nodes + with_node)
        return self


NO_LOSSES = Losses()


class Kind:
    """Function, resources, binding and retry rules that many tasks share; credits are counted in its shares.

    Limits of retries below zero mean no limit. `home` is the own node's share, `shares` has all by node. Kinds of an
    actor's calls have a `lane`, whose share is their only one, and where their tasks wait.
    """

    __slots__ = ("arrays", "deaths", "dropped", "home", "id", "is_seeking", "lane", "machine_retries", "name", "opened",
                 "places", "process_retries", "ready", "records", "refused", "shares", "stirred", "stride", "told",
                 "unready", "writable")  # fmt: skip

    def __init__(self, id: int, name: str, *, process_retries: int, machine_retries: int, stride: int, credit: int,
                 lane: Lane | None = None) -> None:  # fmt: skip
        self.id = id
        self.name = name
        self.process_retries = process_retries
        self.machine_retries = machine_retries
        self.stride = stride
        self.stirred: dict[Share, None] = {}  # see Share
        self.told: dict[Share, None] = {}  # those at further nodes that know of waiting tasks
        self.lane = lane
        self.home = Share(OWN_NODE, credit, self.stirred, is_allowed=lane is None)
        self.shares: dict[int, Share] = {OWN_NODE: self.home} if lane is None else lane.shares
        self.places: frozenset[int] | None = None  # nodes where it may run; None: anywhere
        self.is_seeking = True  # further nodes would be of use, should such come
        self.deaths = 0  # runs in a row that ended with their worker
        self.writable = False  # results, too, are copies that may be written to
        self.refused: Any = None  # mark of why none of them will run
        self.dropped = False  # nothing of it was left, and both sides have forgotten it
        self.opened = 0  # arrays that are not disposed of and answered for
        self.unready = 0  # plain tasks that wait for inputs
        self.records = 0  # tasks that may have to run again, since what they stored is in use
        self.ready: deque[Task] = deque()
        self.arrays: deque[Array] = deque()

    def __repr__(self) -> str:
        return f"<Kind {self.id} {self.name} {self.outstanding}/{self.credit} outstanding, {self.waiting()} waiting>"

    @property
    def credit(self) -> int:
        """Tasks that may be outstanding, at all nodes together."""
        return sum(share.limit for share in self.shares.values())

    @property
    def outstanding(self) -> int:
        """Tasks sent and not answered for, at all nodes together."""
        return sum(share.outstanding for share in self.shares.values())

    @property
    def nbytes(self) -> int:
        """Bytes that what is outstanding carries."""
        return sum(share.nbytes for share in self.shares.values())

    @property
    def wanted(self) -> int:
        """The largest figure of tasks that wait which a node was told."""
        return max(share.wanted for share in self.shares.values())

    def meet(self, nodes: Mapping[int, Terms]) -> None:
        """Have a share at each of these nodes, which are all there are or one of them."""
        for node, terms in nodes.items():
            if node not in self.shares:
                allowed = self.may_use(node)
                self.shares[node] = Share(node, terms.initial_credit, self.stirred, is_allowed=allowed)

    def forget(self, node: int) -> None:
        """A node has gone, and has answered for all it had."""
        if self.lane is not None:
            if node in self.shares:
                self.lane.place(None, is_seeking=False)
            return
        share = self.shares.pop(node, None)
        if share is not None:
            self.stirred.pop(share, None)
            self.told.pop(share, None)

    def may_use(self, node: int) -> bool:
        """Whether its tasks may be sent to a node."""
        return self.places is None or node in self.places

    def confine(self, places: frozenset[int] | None, *, is_seeking: bool) -> None:
        """Say where its tasks may be sent from now on."""
        self.places = places
        self.is_seeking = is_seeking
        if self.lane is not None:
            self.lane.place(next(iter(places or ()), None), is_seeking=is_seeking)
            return
        for share in self.shares.values():
            share.allow(self.may_use(share.node))

    def forget_all(self) -> None:
        """No node has anything, or will ever be sent anything."""
        self.ready.clear()
        self.arrays.clear()
        if self.lane is not None:
            self.lane.clear()
            self.lane.place(None, is_seeking=False)
            return
        self.shares = {OWN_NODE: self.home}
        self.stirred.clear()
        self.told.clear()
        self.home.outstanding = self.home.nbytes = self.home.wanted = 0

    def waiting(self) -> int:
        """Tasks that could be sent if credit allowed; of a lane all that wait in it."""
        if self.lane is not None:
            return len(self.lane.calls)
        return len(self.ready) + sum(array.unsent() for array in self.arrays)

    def is_needed(self) -> bool:
        """Whether any task of it is left that has run or will, or an array to which some may be added."""
        if self.opened or self.unready or self.ready or self.records:
            return True
        if self.lane is not None and (self.lane.calls or self.lane.seeker is self):
            return True
        return any(share.outstanding or share.wanted for share in self.shares.values())

    def is_poisoned(self) -> bool:
        """Whether its runs do nothing but end their workers."""
        return self.deaths >= POISON_DEATHS

    def may_retry(self, cause: LostCause, losses: Losses) -> bool:
        """Whether a task lost by `cause` may run again; `losses` count this one."""
        if cause is LostCause.PROCESS:
            return not self.is_poisoned() and (self.process_retries < 0 or losses.process <= self.process_retries)
        if cause is LostCause.MACHINE:
            return self.machine_retries < 0 or (losses.machine <= self.machine_retries and losses.nodes < POISON_NODES)
        return False

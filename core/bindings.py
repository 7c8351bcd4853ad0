"""Which binding is told to which node, with how many processes, and who has let it go; nothing but bookkeeping.

A binding's processes are *dealt* in shares: the own node first, the others in the order in which they joined, each at
most its slots. A share is only a promise until the first kind of the binding is told to that node: then the binding is
told ahead of it (`tell`). What a node that has gone had not been told, or had, is dealt again to others; only an
ordered binding (an actor) that was told to one ends with it, since its state did, unless it may be started again.

An ordered binding is placed when it is opened: at a node that has left what its calls ask for when all other ordered
ones hold theirs, or else at one that could have it at all.

The own node is told of every binding sooner or later, also when it has no share: it looks for nodes that have room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple


class Told(NamedTuple):
    """What to say of a binding to a node that does not know it yet."""

    processes: int
    eager: bool


class Left(NamedTuple):
    """What became of bindings when a node had gone: ids."""

    moved: list[int]  # their tasks may go to other nodes now
    ended: list[int]  # all who knew them have answered UNBIND, or gone
    bereft: list[int]  # ordered ones, whose state is lost


class _Node(NamedTuple):
    slots: int
    totals: Mapping[str, int]

    def fits(self, demand: Mapping[str, int]) -> bool:
        return self.slots > 0 and all(self.totals.get(name, 0) >= amount for name, amount in demand.items() if amount)


class _Binding:
    """`shares`: processes by node. `told`: nodes that know it. `asked`: those of them that were sent UNBIND."""

    __slots__ = ("asked", "demand", "is_closing", "nodes", "ordered", "processes", "restarts", "shares", "told")

    def __init__(self, processes: int, ordered: bool, demand: Mapping[str, int], restarts: int,
                 nodes: frozenset[int] | None) -> None:  # fmt: skip
        self.nodes = nodes  # the only ones that may have it; None: any
        self.processes = processes
        self.ordered = ordered
        self.demand = demand  # of an ordered one's calls
        self.restarts = restarts  # how often it may be started at another node, below zero: any number of times
        self.shares: dict[int, int] = {}
        self.told: dict[int, None] = {}
        self.asked: set[int] = set()
        self.is_closing = False

    def is_unlimited(self) -> bool:
        return not self.processes and not self.ordered and self.nodes is None

    def has_ended(self) -> bool:
        return self.is_closing and not self.told


class Bindings:
    """The bindings of one client. `slots` and `totals` are the own node's.

    `is_alone`: no other node will ever come, so that everything is told to the own one at once.
    """

    def __init__(self, home: int, slots: int, totals: Mapping[str, int], *, is_alone: bool) -> None:
        self._home = home
        self._is_alone = is_alone
        self._nodes = {home: _Node(slots, totals)}
        self._bindings: dict[int, _Binding] = {}

    def __repr__(self) -> str:
        return f"<Bindings {len(self._bindings)} over {len(self._nodes)} nodes>"

    def open(self, binding: int, processes: int, *, ordered: bool, elsewhere: int = 0,
             demand: Mapping[str, int] = {}, restarts: int = 0,
             nodes: frozenset[int] | None = None) -> bool:  # fmt: skip
        """Take a new binding into the books; True: tell the own node now.

        `elsewhere`: slots of all other nodes, whether there is a session with them or not. What is beyond the slots of
        all the own node takes, more than it has itself if need be. `demand` and `restarts` are an ordered one's. One
        that is confined to `nodes` is nowhere until there is a session with one of them.
        """
        opened = self._bindings[binding] = _Binding(processes, ordered, demand, restarts, nodes)
        if self._is_alone:
            opened.shares[self._home] = processes
        elif ordered or nodes is not None:
            self._deal(opened)
        else:
            own = self._nodes[self._home].slots
            known = sum(node.slots for node in self._nodes.values()) - own
            if own and processes:
                opened.shares[self._home] = max(min(processes, own), processes - max(elsewhere, known))
            self._deal(opened)
        return self._home in opened.shares or not (ordered or nodes is not None)

    def places(self, binding: int) -> frozenset[int] | None:
        """Say where its tasks may go, None for anywhere."""
        known = self._bindings.get(binding)
        return None if known is None or known.is_unlimited() else frozenset(known.shares)

    def is_seeking(self, binding: int) -> bool:
        """Whether further nodes would be of use to it."""
        known = self._bindings.get(binding)
        if known is None or known.is_unlimited():
            return True
        if known.nodes is not None:
            return False
        return not known.shares if known.ordered else sum(known.shares.values()) < known.processes

    def tell(self, binding: int, node: int) -> Told | None:
        """Return what a node must hear of a binding ahead of its next word about it; None when it knows it."""
        known = self._bindings.get(binding)
        if known is None or node in known.told:
            return None
        known.told[node] = None
        share = known.shares.get(node)
        has_share = share is not None or (known.is_unlimited() and self._nodes[node].slots > 0)
        # The worker of an ordered binding gets the GPUs of the first kind, unless it is there before that.
        is_eager = has_share and not known.demand.get("GPU") and (known.nodes is None or known.processes > 0)
        return Told(known.processes if share is None else share, is_eager)

    def fail(self, binding: int, node: int) -> list[int]:
        """It failed at a node: return the others where it must end at once."""
        known = self._bindings.get(binding)
        if known is None:
            return []
        others = [other for other in known.told if other != node and other not in known.asked]
        known.asked.update(others)
        return others

    def close(self, binding: int, *, force: bool) -> list[int]:
        """Nothing of it will be sent any more: return whom to send UNBIND; see `has_ended`."""
        known = self._bindings.get(binding)
        if known is None:
            return []
        nodes = [node for node in known.told if force or node not in known.asked]
        known.is_closing = True
        known.asked.update(nodes)
        return nodes

    def on_node_joined(self, node: int, slots: int, totals: Mapping[str, int]) -> list[int]:
        """A further node takes tasks; returns the bindings that have a share there."""
        self._nodes[node] = _Node(slots, totals)
        for known in self._bindings.values():
            self._deal(known)
        return [binding for binding, known in self._bindings.items() if node in known.shares]

    def on_node_gone(self, node: int) -> Left:
        """A further node takes nothing more, and knows nothing any more."""
        self._nodes.pop(node, None)
        left = Left([], [], [])
        for binding, known in list(self._bindings.items()):
            had_share = known.shares.pop(node, None) is not None
            was_told = node in known.told
            known.told.pop(node, None)
            known.asked.discard(node)
            if known.has_ended():
                del self._bindings[binding]
                left.ended.append(binding)
            elif known.ordered and had_share and was_told and not known.restarts:
                known.shares[node] = 0  # never dealt again
                left.bereft.append(binding)
            elif known.ordered and had_share and was_told and not known.is_closing:
                known.restarts -= 1
                self._deal(known)
                left.moved.append(binding)
            elif had_share:
                self._deal(known)
                left.moved.append(binding)
        return left

    def on_unbound(self, binding: int, node: int) -> bool:
        """A node has let a binding go; True when it was the last one of a binding that is being closed.

        Of one that is not in the books, too: nobody else can have known it.
        """
        known = self._bindings.get(binding)
        if known is None:
            return True
        known.told.pop(node, None)
        known.asked.discard(node)
        return self.has_ended(binding)

    def has_ended(self, binding: int) -> bool:
        """Say, once, that a binding that was closed is known to nobody any more."""
        known = self._bindings.get(binding)
        if known is None or not known.has_ended():
            return False
        del self._bindings[binding]
        return True

    def _deal(self, known: _Binding) -> None:
        """Give nodes without a share what is left of its processes."""
        if known.ordered:
            if not known.shares:
                place = self._place(known)
                if place is not None:
                    known.shares[place] = known.processes
            return
        left = known.processes - sum(known.shares.values())
        for node, has in self._nodes.items():
            if known.nodes is not None and node not in known.nodes:
                continue
            is_only_one = known.nodes is not None and len(known.nodes) == 1
            taken = left if is_only_one else min(left, has.slots)
            if (taken > 0 or not known.processes) and node not in known.shares:
                known.shares[node] = taken
                left -= taken

    def _place(self, known: _Binding) -> int | None:
        """The node for an ordered binding, the first that fits; None where none does."""
        if known.nodes is not None:
            return next((node for node in self._nodes if node in known.nodes), None)
        fitting = [node for node, has in self._nodes.items() if has.fits(known.demand)]
        free = (node for node in fitting if self._nodes[node].fits(self._demanded(node, known.demand)))
        return next(free, next(iter(fitting), None))

    def _demanded(self, node: int, demand: Mapping[str, int]) -> dict[str, int]:
        """What a node needs for a demand beside those of the ordered bindings that it has."""
        needed = Counter(demand)
        if demand:
            for other in self._bindings.values():
                if other.ordered and node in other.shares and not other.is_closing:
                    needed.update(other.demand)
        return needed

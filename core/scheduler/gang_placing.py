"""Where the bundles of a gang go: a strategy and what nodes have, to one node a bundle.

Bundles that are to be on nodes of their own are matched with them. Else it is a search that tries the likeliest node
first, largest bundles first: exact as long as it takes no more than ``STEPS`` steps. A gang for which it gives up is
not known to be impossible, and waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from ..ids import RESOURCE_UNIT
from .resources import Demand, Resources

#: Bundles put somewhere in one search. Larger finds tighter fits, and keeps the head busy for longer: some 5 µs each.
STEPS = 10_000


class Strategy(Enum):
    """PACK and SPREAD are wishes, the strict ones conditions."""

    PACK = "PACK"
    SPREAD = "SPREAD"
    STRICT_PACK = "STRICT_PACK"
    STRICT_SPREAD = "STRICT_SPREAD"


class Placement(NamedTuple):
    """The node of each bundle, or none; ``is_sure`` says that there is no other answer."""

    nodes: tuple[int, ...]
    is_sure: bool


class _Site:
    """A node while bundles are put there."""

    __slots__ = ("bundles", "node", "resources")

    def __init__(self, node: int, resources: Resources) -> None:
        self.node = node
        self.resources = resources
        self.bundles = 0

    def free(self) -> tuple[int, int]:
        return self.resources.free_cpu, sum(self.resources.gpu_free)

    def likeness(self) -> tuple[object, ...]:
        """Two sites without bundles that are alike in this serve a bundle equally well."""
        resources = self.resources
        return resources.free_cpu, tuple(resources.gpu_free), tuple(sorted(resources.free_others.items()))


def resources_of(totals: Mapping[str, int], free: Mapping[str, int]) -> Resources:
    """A node as its words describe it; GPUs are taken to be free by whole devices as far as that is possible."""
    resources = Resources(totals)
    resources.free_cpu = free.get("CPU", 0)
    resources.free_others = {name: free.get(name, 0) for name in resources.free_others}
    left = free.get("GPU", 0)
    for device in range(len(resources.gpu_free)):
        resources.gpu_free[device] = min(left, RESOURCE_UNIT)
        left -= resources.gpu_free[device]
    return resources


def place(bundles: Sequence[Demand], nodes: Mapping[int, Resources], strategy: Strategy) -> Placement:
    """Find a node for every bundle within what is free; the resources are as they were when this returns."""
    if _is_too_much(bundles, nodes):
        return Placement((), True)
    if strategy is Strategy.STRICT_SPREAD:
        return Placement(_match(bundles, nodes), True)
    search = _Search(bundles, nodes, strategy)
    if strategy is Strategy.STRICT_PACK:
        return search.run(most_sites=1)
    if strategy is Strategy.PACK:
        for most_sites in range(1, min(len(bundles), len(nodes))):
            found = search.run(most_sites)
            if found.nodes or not found.is_sure:
                break
        else:
            return search.run(len(nodes))
        return found if found.nodes else _Search(bundles, nodes, strategy).run(len(nodes))
    return search.run(len(nodes))


class _Search:
    """One search; its steps count over all its runs."""

    __slots__ = ("_bundles", "_order", "_sites", "_steps", "_strategy")

    def __init__(self, bundles: Sequence[Demand], nodes: Mapping[int, Resources], strategy: Strategy) -> None:
        self._bundles = bundles
        self._order = sorted(range(len(bundles)), key=lambda i: _size(bundles[i]), reverse=True)
        self._sites = [_Site(node, resources) for node, resources in nodes.items()]
        self._strategy = strategy
        self._steps = STEPS

    def run(self, most_sites: int) -> Placement:
        """Search with at most so many nodes."""
        chosen: dict[int, int] = {}
        found = self._put(0, most_sites, chosen)
        nodes = tuple(chosen[i] for i in range(len(self._bundles))) if found else ()
        return Placement(nodes, found or self._steps > 0)

    def _put(self, depth: int, most_sites: int, chosen: dict[int, int]) -> bool:
        if depth == len(self._order):
            return True
        index = self._order[depth]
        demand = self._bundles[index]
        for site in self._candidates(most_sites):
            resources = site.resources
            gpu_ids = _fit(resources, demand)
            if gpu_ids is None:
                continue
            self._steps -= 1
            if self._steps <= 0:
                return False
            resources.take(demand, gpu_ids)
            site.bundles += 1
            chosen[index] = site.node
            found = self._put(depth + 1, most_sites, chosen)
            site.bundles -= 1
            resources.give(demand, gpu_ids)
            if found:
                return True
        return False

    def _candidates(self, most_sites: int) -> Iterator[_Site]:
        used = [site for site in self._sites if site.bundles]
        fresh = [site for site in self._sites if not site.bundles] if len(used) < most_sites else []
        fresh = list({site.likeness(): site for site in reversed(fresh)}.values())
        fresh.sort(key=_Site.free, reverse=True)
        if self._strategy is Strategy.SPREAD:
            yield from fresh
            yield from sorted(used, key=lambda site: site.bundles)
        else:
            yield from used
            yield from fresh


def _fit(resources: Resources, demand: Demand) -> tuple[int, ...] | None:
    """The devices for a bundle where it fits; none where it needs none, None where it does not fit."""
    if any(name not in resources.free_others for name, _ in demand.others) or not resources.fits(demand):
        return None
    return resources.pick_gpus(demand) if demand.gpu else ()


def _match(bundles: Sequence[Demand], nodes: Mapping[int, Resources]) -> tuple[int, ...]:
    """Give each bundle a node of its own, moving others where that helps; nothing when there are not enough."""
    fitting = [[node for node, resources in nodes.items() if _fit(resources, d) is not None] for d in bundles]
    taken: dict[int, int] = {}

    def give(index: int, seen: set[int]) -> bool:
        for node in fitting[index]:
            if node not in seen:
                seen.add(node)
                if node not in taken or give(taken[node], seen):
                    taken[node] = index
                    return True
        return False

    if not all(give(index, set()) for index in range(len(bundles))):
        return ()
    chosen = {index: node for node, index in taken.items()}
    return tuple(chosen[index] for index in range(len(bundles)))


def _is_too_much(bundles: Sequence[Demand], nodes: Mapping[int, Resources]) -> bool:
    """Whether the nodes together have less than is needed, or one bundle fits nowhere."""
    needed: Counter[str] = Counter()
    free: Counter[str] = Counter()
    for demand in bundles:
        needed.update({"CPU": demand.cpu, "GPU": demand.gpu, **dict(demand.others)})
    for resources in nodes.values():
        free.update(resources.free())
    short = any(amount > free[name] for name, amount in needed.items())
    return short or not all(any(_fit(r, d) is not None for r in nodes.values()) for d in set(bundles))


def _size(demand: Demand) -> tuple[int, int, int]:
    return demand.gpu, demand.cpu, sum(amount for _, amount in demand.others)

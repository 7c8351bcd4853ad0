"""Gangs: bundles of resources, set aside together on one or several nodes, or not at all.

Who needs several processes at once (ranks of a training, a server beside its clients) asks for their resources first
and then starts them in their bundles, so that none of them waits for what another one holds. How bundles are set aside
is in `scheduler.gangs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from . import engine as engines
from .engine import Engine
from .ids import RESOURCE_UNIT
from .options import TaskOptions

#: Where bundles go: on few nodes, on many, on one or not at all, each on a node of its own or not at all.
STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


class Gang:
    """Bundles that are set aside; ``options(gang=…, bundle=…)`` has tasks and actors run in them. Made by `gang`.

    It belongs to the process that asked, and ends with `release`, with its ``with`` block, or with that process. What
    runs in it ends with it. Handles of one gang are equal, and may be passed to tasks.

    Attributes:
        bundles: what each has, by name of the resource. strategy: one of `STRATEGIES`.
        number: names it in the cluster. places: the node of each bundle, by number. owner: who asked for it.
    """

    __slots__ = ("_engine", "bundles", "number", "owner", "places", "strategy")

    def __init__(
        self, number: int, bundles: tuple[dict[str, float], ...], strategy: str, places: tuple[int, ...], owner: int,
        engine: Engine | None = None,
    ) -> None:  # fmt: skip
        self._engine = engine  # that has asked for it, in the process that did
        self.number = number
        self.bundles = bundles
        self.strategy = strategy
        self.places = places
        self.owner = owner

    @property
    def nodes(self) -> list[str]:
        """The node of each bundle, as `outboard.nodes` names it."""
        return [f"{place:016x}" for place in self.places]

    def __len__(self) -> int:
        return len(self.bundles)

    def __repr__(self) -> str:
        return f"<Gang {self.number:016x} {self.strategy} of {len(self)} on {len(set(self.places))} nodes>"

    def __eq__(self, other: object) -> bool:
        return self.number == other.number if isinstance(other, Gang) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.number)

    def __reduce__(self) -> tuple[Any, ...]:
        return Gang, (self.number, self.bundles, self.strategy, self.places, self.owner)

    def __enter__(self) -> Gang:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.release()

    def release(self) -> None:
        """Give the bundles back and end what runs in them; it fails with `GangBrokenError`. Repeatable.

        Nothing is left to do when the cluster has gone.

        Raises:
            ValueError: another process asked for it: only that one can release it.
        """
        if self._engine is None:
            raise ValueError(f"{self!r} was asked for by another process: only that one can release it")
        self._engine.gangs.release(self)

    def fitting(self, demand: Mapping[str, int], bundle: int | None = None) -> list[int]:
        """Give the bundles that a demand, in 1/`RESOURCE_UNIT`, fits into: of all, or of the one that is named."""
        candidates = range(len(self)) if bundle is None else [bundle]
        return [i for i in candidates if _fits(demand, self.bundles[i])]

    def check(self, demand: Mapping[str, int], bundle: int | None) -> None:
        """Raise ValueError or TypeError where nothing of such a demand could ever run in that bundle, or in any."""
        if bundle is not None:
            if isinstance(bundle, bool) or not isinstance(bundle, int):
                raise TypeError(f"bundle must be the index of one, not {bundle!r}")
            if not 0 <= bundle < len(self):
                raise ValueError(f"bundle must lie between 0 and {len(self) - 1}, not {bundle}")
        if not self.fitting(demand, bundle):
            asked = {name: amount / RESOURCE_UNIT for name, amount in demand.items()}
            if bundle is not None:
                raise ValueError(f"a demand of {asked} does not fit into bundle {bundle}: {self.bundles[bundle]}")
            raise ValueError(f"a demand of {asked} fits into no bundle of {list(self.bundles)}")


def gang(bundles: Iterable[Mapping[str, float]], strategy: str = "PACK", *, timeout: float | None = None) -> Gang:
    """Set bundles of resources aside, all of them or none, and return when that is done.

    Requests are served in the order in which they came. While others hold what is needed this waits, and says so on
    stderr after a while; what tasks hold is gathered as they end.

    Args:
        bundles: amounts by name of the resource, as ``{"CPU": 2, "GPU": 1}``; at most 250 bundles.
        strategy: ``"PACK"`` puts them on as few nodes as it can, ``"SPREAD"`` on as many; ``"STRICT_PACK"`` means one
            node and ``"STRICT_SPREAD"`` one for each, or not at all.
        timeout: seconds to wait, None for any number.
    Raises:
        TaskUnschedulableError: the nodes that there are could never have it.
        GetTimeoutError: not within so many seconds. HeadUnreachableError: the cluster's head has not answered.
        ValueError, TypeError: no bundles, amounts that are no amounts, an unknown strategy.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, not {strategy!r}")
    if isinstance(bundles, Mapping) or not isinstance(bundles, Iterable):
        raise TypeError(f"bundles must be a list of amounts by resource, not {bundles!r}")
    amounts = [_checked(place, bundle) for place, bundle in enumerate(bundles)]
    if not amounts:
        raise ValueError("a gang needs at least one bundle")
    return engines.current().gangs.ask(tuple(amounts), strategy, timeout)


def _checked(place: int, bundle: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(bundle, Mapping):
        raise TypeError(f"bundle {place} must be amounts by resource, as {{'CPU': 1}}, not {bundle!r}")
    rest = {name: amount for name, amount in bundle.items() if name not in ("CPU", "GPU")}
    try:
        options = TaskOptions().merged(num_cpus=bundle.get("CPU", 0), num_gpus=bundle.get("GPU", 0), resources=rest)
    except (TypeError, ValueError) as error:
        raise type(error)(f"bundle {place}: {error}") from None
    if not options.demand():
        raise ValueError(f"bundle {place} asks for nothing")
    return {name: amount / RESOURCE_UNIT for name, amount in options.demand().items()}


def _fits(demand: Mapping[str, int], bundle: Mapping[str, float]) -> bool:
    return all(amount <= round(bundle.get(name, 0) * RESOURCE_UNIT) for name, amount in demand.items())


__all__ = ["STRATEGIES", "Gang", "gang"]

"""A node's part in gangs: what is set aside for their bundles, confirmed, and given back.

What the head asks for first is *gathered*: what is free is taken at once, and what becomes free meanwhile goes here
before any task has it. After two seconds without all of it the node refuses and gives everything back. A complete
portion waits ten seconds to be confirmed. From then on each bundle is a *pool* in which tasks are admitted as they
are at the node itself; its devices are devices of the node. Events are idempotent by (gang, attempt).

The driver calls ``on_freed`` whenever a task has given something back, before it admits others, and ``on_timer`` no
later than ``due``. A pool that has ended passes on to the node what its last tasks give back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .resources import Demand, Resources

#: How long a node gathers what a gang needs, in seconds. Larger lets gangs start among longer tasks, and keeps more
#: of the node idle meanwhile.
GATHER_SECONDS = 2.0

#: How long a complete portion waits to be confirmed: longer than a link takes to come back.
CONFIRM_SECONDS = 10.0


class Prepared(NamedTuple):
    """All bundles that this node was asked for are set aside."""

    gang: int
    attempt: int


class Declined(NamedTuple):
    """Nothing is set aside for this attempt, or no longer."""

    gang: int
    attempt: int


class Confirmed(NamedTuple):
    """The bundles can be used."""

    gang: int
    attempt: int


BundleCommand = Prepared | Declined | Confirmed


class Pool(Resources):
    """The amounts of one bundle; ``index`` is its place in its gang."""

    __slots__ = ("_parent", "demand", "gang", "gpu_ids", "index", "is_over")

    def __init__(self, parent: Resources, gang: int, index: int, demand: Demand) -> None:
        super().__init__({"CPU": demand.cpu, **dict(demand.others)})
        self._parent = parent
        self.gang = gang
        self.index = index
        self.demand = demand
        self.gpu_ids: tuple[int, ...] = ()
        self.is_over = False
        self.free_cpu = 0
        self.free_others = dict.fromkeys(self.free_others, 0)
        self.gpu_free = [0] * len(parent.gpu_free)
        self.totals |= {"GPU": demand.gpu} if demand.gpu else {}

    def gather(self) -> bool:
        """Take what is free at the node and missing here; return whether all is there.

        What blocked tasks have lent stays for them: they could never go on, and perhaps the gang is theirs.
        """
        parent, demand = self._parent, self.demand
        cpu = max(0, min(parent.free_cpu - parent.lent_cpu, demand.cpu - self.free_cpu))
        others = (
            (name, min(parent.free_others[name], amount - self.free_others[name])) for name, amount in demand.others
        )
        part = Demand(cpu, 0, tuple((name, amount) for name, amount in others if amount > 0))
        parent.take(part, ())
        super().give(part, ())
        if demand.gpu and not self.gpu_ids:
            self._gather_devices()
        return self.is_complete

    @property
    def is_complete(self) -> bool:
        """Whether all amounts are here; only asked before tasks take some."""
        others = all(self.free_others[name] == amount for name, amount in self.demand.others)
        return others and self.free_cpu == self.demand.cpu and len(self.gpu_ids) == self.demand.devices

    def capacity(self, demand: Demand) -> int:
        """How many such tasks the whole bundle runs at once; 0 when it can never run one."""
        own = self.demand
        if demand.gpu and (demand.devices > own.devices or demand.per_device > own.per_device):
            return 0
        if demand.devices * demand.per_device != demand.gpu:
            return 0
        fits = [self.totals.get(name, 0) // amount for name, amount in demand.others]
        fits += [own.cpu // demand.cpu] if demand.cpu else []
        fits += [own.devices // demand.devices * (own.per_device // demand.per_device)] if demand.gpu else []
        return min(fits, default=self.room(Demand(0, 0, ())))

    def take(self, demand: Demand, gpu_ids: tuple[int, ...]) -> None:
        """Take one demand."""
        assert not self.is_over, "a task was admitted to a bundle that is over"
        super().take(demand, gpu_ids)

    def give(self, demand: Demand, gpu_ids: tuple[int, ...], *, with_cpu: bool = True) -> None:
        """Give one demand back, to the node when the bundle is over."""
        if self.is_over:
            self._parent.give(demand, gpu_ids, with_cpu=with_cpu)
        else:
            super().give(demand, gpu_ids, with_cpu=with_cpu)

    def end(self) -> None:
        """Give back what is free; what tasks still have follows when they end."""
        self.is_over = True
        self._parent.give(Demand(self.free_cpu, 0, tuple(self.free_others.items())), ())
        for device, amount in enumerate(self.gpu_free):
            self._parent.gpu_free[device] += amount
        self.free_cpu = 0
        self.free_others = dict.fromkeys(self.free_others, 0)
        self.gpu_free = [0] * len(self.gpu_free)

    def _gather_devices(self) -> None:
        picked = self._parent.pick_gpus(self.demand)
        if picked is None:
            return
        self.gpu_ids = picked
        devices = Demand(0, self.demand.gpu, ())
        self._parent.take(devices, picked)
        super().give(devices, picked)


class Portion:
    """The bundles of one gang at this node; ``deadline`` is None once they are confirmed."""

    __slots__ = ("attempt", "deadline", "is_complete", "pools")

    def __init__(self, attempt: int, pools: dict[int, Pool], deadline: float | None) -> None:
        self.attempt = attempt
        self.pools = pools
        self.deadline = deadline
        self.is_complete = False

    @property
    def is_confirmed(self) -> bool:
        """Whether tasks may run in it."""
        return self.deadline is None


class Bundles:
    """Part of the node's machine. Portions are in the order in which they came; those first gather first."""

    __slots__ = ("_commands", "_ended", "_portions", "_resources", "is_gathering", "is_pending")

    def __init__(self, resources: Resources, commands: list[BundleCommand]) -> None:
        self._resources = resources
        self._commands = commands
        self._portions: dict[int, Portion] = {}
        self._ended: list[int] = []
        self.is_pending = False  # some portion is not confirmed yet
        self.is_gathering = False  # some portion is not complete yet: nothing is to delay what ends

    @property
    def due(self) -> float | None:
        """When ``on_timer`` is to be called next."""
        return min((p.deadline for p in self._portions.values() if p.deadline is not None), default=None)

    def prepare(self, gang: int, attempt: int, bundles: Mapping[int, Demand], now: float) -> None:
        """Set bundles aside; a repeated request is answered again, an earlier attempt than the last one declined."""
        portion = self._portions.get(gang)
        if portion is not None and attempt < portion.attempt:
            self._commands.append(Declined(gang, attempt))
        elif portion is not None and attempt == portion.attempt:
            if portion.is_complete:
                self._commands.append(Prepared(gang, attempt))
        else:
            self.release(gang, attempt)
            if not all(self._resources.capacity(demand) for demand in bundles.values()):
                self._commands.append(Declined(gang, attempt))
                return
            pools = {index: Pool(self._resources, gang, index, demand) for index, demand in bundles.items()}
            self._portions[gang] = Portion(attempt, pools, now + GATHER_SECONDS)
            self._note_pending()
            self.on_freed(now)

    def confirm(self, gang: int, attempt: int) -> None:
        """Let tasks run in the bundles, or say that they are not set aside any more."""
        portion = self._portions.get(gang)
        if portion is None or portion.attempt != attempt or not portion.is_complete:
            self._commands.append(Declined(gang, attempt))
        else:
            portion.deadline = None
            self._note_pending()
            self._commands.append(Confirmed(gang, attempt))

    def release(self, gang: int, attempt: int) -> None:
        """Give back what any attempt up to this one has here; `take_ended` names it if tasks may be in it."""
        portion = self._portions.get(gang)
        if portion is None or portion.attempt > attempt:
            return
        del self._portions[gang]
        self._note_pending()
        for pool in portion.pools.values():
            pool.end()
        if portion.is_confirmed:
            self._ended.append(gang)

    def on_freed(self, now: float) -> None:
        """Gather from what is free, the oldest portion first."""
        for gang, portion in self._portions.items():
            if portion.is_complete:
                continue
            if all([pool.gather() for pool in portion.pools.values()]):
                portion.is_complete = True
                portion.deadline = now + CONFIRM_SECONDS
                self._commands.append(Prepared(gang, portion.attempt))
        self._note_pending()

    def _note_pending(self) -> None:
        self.is_pending = any(not portion.is_confirmed for portion in self._portions.values())
        self.is_gathering = any(not portion.is_complete for portion in self._portions.values())

    def on_timer(self, now: float) -> None:
        """Decline what could not be gathered in time, and let lapse what nobody confirmed."""
        over = [(g, p) for g, p in self._portions.items() if p.deadline is not None and p.deadline <= now]
        for gang, portion in over:
            self.release(gang, portion.attempt)
            self._commands.append(Declined(gang, portion.attempt))
        if over:
            self.on_freed(now)

    def take_ended(self) -> list[int]:
        """The gangs that are over here since the last call: what runs in their bundles is to end."""
        ended, self._ended = self._ended, []
        return ended

    def held(self) -> dict[int, Portion]:
        """What is set aside, by gang: what a node says when it registers."""
        return {gang: portion for gang, portion in self._portions.items() if portion.is_complete}

    def has(self, gang: int) -> bool:
        """Whether bundles of a gang are here for tasks to use."""
        portion = self._portions.get(gang)
        return portion is not None and portion.is_confirmed

    def all_pools(self) -> list[Pool]:
        """Everything that is set aside, complete or not."""
        return [pool for portion in self._portions.values() for pool in portion.pools.values()]

    def pools(self, gang: int, index: int, demand: Demand) -> list[Pool]:
        """The bundles of a gang here that could ever run such a task; ``index`` -1 stands for any."""
        portion = self._portions.get(gang)
        if portion is None or not portion.is_confirmed:
            return []
        return [p for p in portion.pools.values() if index in (-1, p.index) and p.capacity(demand)]

    def check(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        assert self.is_pending == (self.due is not None), "portions that are not confirmed"
        assert self.is_gathering == any(not p.is_complete for p in self._portions.values()), "not complete"
        for gang, portion in self._portions.items():
            assert portion.pools, f"gang {gang:x} has no bundles here"
            assert portion.is_complete or not portion.is_confirmed, f"gang {gang:x} is confirmed in part"
            assert not any(pool.is_over for pool in portion.pools.values()), f"gang {gang:x} has bundles that are over"

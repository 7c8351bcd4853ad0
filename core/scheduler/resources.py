"""Amounts of resources: exact integers of 1/10000, GPUs by device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..ids import RESOURCE_UNIT

#: Tasks that ask for no CPU run on at most this many workers per slot and binding (where the binding names no limit).
#: Larger overlaps more waiting, smaller keeps the number of processes down.
CPULESS_PER_SLOT = 4


class Demand(NamedTuple):
    """What one task needs: ``gpu`` is a fraction of one device or a whole number of devices."""

    cpu: int
    gpu: int
    others: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, resources: Mapping[str, int]) -> Demand:
        """The demand that a mapping of names to amounts stands for; zero amounts are dropped."""
        others = tuple(sorted((n, a) for n, a in resources.items() if a and n not in ("CPU", "GPU")))
        return cls(resources.get("CPU", 0), resources.get("GPU", 0), others)

    @property
    def devices(self) -> int:
        """GPU devices that a worker for this demand sees."""
        return -(-self.gpu // RESOURCE_UNIT)

    @property
    def per_device(self) -> int:
        """What is taken of each of these devices."""
        return min(self.gpu, RESOURCE_UNIT)


class Resources:
    """Totals of one node and what is free of them. Taking more than is free is a bug and not checked on the hot path.

    ``free_cpu`` and ``free_others`` may be read; ``gpu_free`` has one amount a device. ``lent_cpu`` is what blocked
    tasks have given back and will want again; it is free meanwhile, for tasks that end.
    """

    __slots__ = ("totals", "slots", "free_cpu", "free_others", "gpu_free", "lent_cpu")

    def __init__(self, totals: Mapping[str, int], gpus: int = 0) -> None:
        self.totals = dict(totals)
        self.free_cpu = self.totals.get("CPU", 0)
        self.free_others = {name: amount for name, amount in totals.items() if name not in ("CPU", "GPU")}
        self.gpu_free = [RESOURCE_UNIT] * (gpus or self.totals.get("GPU", 0) // RESOURCE_UNIT)
        if self.gpu_free:
            self.totals["GPU"] = len(self.gpu_free) * RESOURCE_UNIT
        self.slots = max(1, self.free_cpu // RESOURCE_UNIT)
        self.lent_cpu = 0

    def capacity(self, demand: Demand) -> int:
        """How many such tasks the whole node runs at once; 0 when it can never run one."""
        fits = [self.totals.get(name, 0) // amount for name, amount in demand.others]
        if demand.cpu:
            fits.append(self.totals.get("CPU", 0) // demand.cpu)
        if demand.gpu:
            whole = demand.devices * demand.per_device == demand.gpu
            per_device = RESOURCE_UNIT // demand.per_device
            fits.append(len(self.gpu_free) // demand.devices * per_device if whole else 0)
        if not demand.cpu:
            fits.append(CPULESS_PER_SLOT * self.slots)
        return min(fits)

    def fits(self, demand: Demand) -> bool:
        """Whether everything but the GPUs is free now (``pick_gpus`` answers for those)."""
        if demand.cpu > self.free_cpu:
            return False
        return not demand.others or all(amount <= self.free_others[name] for name, amount in demand.others)

    def room(self, demand: Demand) -> int:
        """How many such tasks fit into what is free now, not looking at GPUs."""
        fits = [self.free_others[name] // amount for name, amount in demand.others]
        fits.append(self.free_cpu // demand.cpu if demand.cpu else CPULESS_PER_SLOT * self.slots)
        return min(fits)

    def pick_gpus(self, demand: Demand) -> tuple[int, ...] | None:
        """Devices on which the demand fits now, fullest first so that whole ones stay free; None when it does not."""
        fitting = sorted((free, i) for i, free in enumerate(self.gpu_free) if free >= demand.per_device)
        if len(fitting) < demand.devices:
            return None
        return tuple(sorted(i for _, i in fitting[: demand.devices]))

    def gpus_fit(self, gpu_ids: tuple[int, ...], demand: Demand) -> bool:
        """Whether a worker with these devices is right for the demand and they are free enough."""
        return len(gpu_ids) == demand.devices and all(self.gpu_free[i] >= demand.per_device for i in gpu_ids)

    def take(self, demand: Demand, gpu_ids: tuple[int, ...]) -> None:
        """Take one demand."""
        self.free_cpu -= demand.cpu
        if demand.others or gpu_ids:
            self._move(demand, gpu_ids, -1)

    def lend(self, cpu: int) -> None:
        """A task that has taken CPUs waits, and gives them back for as long."""
        self.free_cpu += cpu
        self.lent_cpu += cpu

    def end_loan(self, cpu: int, *, takes: bool) -> None:
        """It has waited, and takes them again if they are free; or it has ended without."""
        self.lent_cpu -= cpu
        if takes:
            self.free_cpu -= cpu

    def give(self, demand: Demand, gpu_ids: tuple[int, ...], *, with_cpu: bool = True) -> None:
        """Give one demand back; without its CPUs when a blocked task has given those back already."""
        if with_cpu:
            self.free_cpu += demand.cpu
        if demand.others or gpu_ids:
            self._move(demand, gpu_ids, 1)

    def free(self) -> dict[str, int]:
        """What is free, by name."""
        free = {"CPU": self.free_cpu, **self.free_others}
        if self.gpu_free:
            free["GPU"] = sum(self.gpu_free)
        return free

    def _move(self, demand: Demand, gpu_ids: tuple[int, ...], sign: int) -> None:
        for name, amount in demand.others:
            self.free_others[name] += sign * amount
        for i in gpu_ids:
            self.gpu_free[i] += sign * demand.per_device

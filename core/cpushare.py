"""How many CPUs each of several processes may ask for, so that all of them can run at once."""

from __future__ import annotations

from collections.abc import Sequence

from .engine import Engine
from .ids import RESOURCE_UNIT


def cpu_share(engine: Engine, processes: int) -> float:
    """Give the CPUs that a task of each process asks for: 1, or less where the cluster has fewer than processes."""
    cpus = engine.cluster_resources().get("CPU", 0)
    if not cpus or processes <= cpus:
        return 1.0
    units = [int(node["resources"].get("CPU", 0) * RESOURCE_UNIT) for node in engine.nodes()]
    return fitting_share(units, processes) / RESOURCE_UNIT


def fitting_share(nodes: Sequence[int], processes: int) -> int:
    """Give the largest share, at least 1, of which the nodes together hold as many as there are processes.

    A share lies on one node, so less than the sum may be of use: of nodes with 1 and 3 CPUs, 6 processes get 0.6 each.
    """
    share = max(1, sum(nodes) // processes)
    while share > 1 and sum(units // share for units in nodes) < processes:
        share = max(units // (units // share + 1) for units in nodes)
    return max(1, share)

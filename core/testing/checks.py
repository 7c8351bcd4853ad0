"""What must hold after every event, and when everything has come to rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .worker import WorkerProcess

if TYPE_CHECKING:
    from .world import World


def check_world(world: World) -> None:
    """Check the machines that the last event touched, and what they say of each other."""
    if world.node_touched:
        world.node_touched = False
        world.node.dispatch.check()
        world.node.store.extents.check()
        for process in world.processes.values():
            if process.alive:
                world.credits.check(process.incarnation)
    for process in world.touched.values():
        if process.alive:
            process.client.owner.check()
            process.values._allocator.check()
            process.ledger.check()
            world.credits.check(process.incarnation)
    world.touched.clear()


def check_quiet(world: World) -> None:
    """Nothing is left in any table."""
    tables = world.node.dispatch._tables
    for process in world.processes.values():
        if not process.alive:
            continue
        owner = process.client.owner
        assert not process.stopped and (process.main is None or process.name.startswith("worker")), f"{process} waits"
        assert not owner.refs.owned, f"{process} still owns {owner.refs.owned}"
        assert not owner.refs.foreign, f"{process} still borrows {owner.refs.foreign}"
        assert not owner.refs.heirs and not owner.refs.leaving, f"{process} has not passed on {owner.refs.heirs}"
        assert not process.client.retired, f"{process} keeps {process.client.retired}"
        if isinstance(process, WorkerProcess):
            check_kinds(world, process)
        assert not owner.arrays and not owner.backlog and not owner.unanswered, process
        assert not any(kind.outstanding or kind.nbytes or kind.wanted for kind in owner.kinds.values()), process
        assert not process.values.allocated_nbytes, f"{process} cannot reuse {process.values.allocated_nbytes} bytes"
        assert not process.views or process.name.startswith("worker"), process
    for client in tables.clients.values():
        for kind in client.kinds.values():
            assert not kind.outstanding and not kind.wanted, f"the node still has {kind.outstanding} tasks"
    assert all(not worker.range.packets for worker in tables.workers.values())
    assert tables.resources.free_cpu == tables.resources.totals["CPU"]
    extents = world.node.store.extents
    assert not extents._entries and not extents._pins, f"the store still holds {extents._entries}"
    assert not world.node.adopted, f"the node still routes {world.node.adopted}"
    assert not world.node.store.waiting


def check_kinds(world: World, worker: WorkerProcess) -> None:
    """A worker keeps only kinds of which tasks may come."""
    for owner, kind in worker.kinds:
        process = world.processes[owner]
        assert not process.alive or kind in process.client.owner.kinds, f"{worker} keeps a kind that was dropped"

"""What must hold after every event, and when everything has come to rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .worker import WorkerProcess

if TYPE_CHECKING:
    from .machine import Machine
    from .world import TaskWorld


def check_world(world: TaskWorld) -> None:
    """Check the machines that the last event touched, and what they say of each other."""
    owners = {process.incarnation: process for process in world.touched.values() if process.alive}
    for process in owners.values():
        process.client.owner.check()
        process.values._allocator.check()
        process.ledger.check()
    for machine in world.machines:
        if machine.is_touched and machine.alive:
            machine.is_touched = False
            machine.check()
            clients = machine.node.dispatch._tables.clients
            for process in world.processes.values():
                if process.alive and (process.machine is machine or process.incarnation in clients):
                    owners[process.incarnation] = process
    for owner in owners:
        world.credits.check(owner)
    world.touched.clear()


def check_quiet(world: TaskWorld) -> None:
    """Nothing is left in any table."""
    for machine in world.machines:
        if machine.alive:
            check_quiet_node(machine)
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


def check_quiet_node(machine: Machine) -> None:
    """Nothing is left at a node."""
    node = machine.node
    tables = node.dispatch._tables
    for client in tables.clients.values():
        for kind in client.kinds.values():
            assert not kind.outstanding and not kind.wanted, f"{node.name} still has {kind.outstanding} tasks"
    assert all(not worker.range.packets for worker in tables.workers.values())
    assert tables.resources.free_cpu == tables.resources.totals["CPU"]
    extents = node.store.extents
    assert not extents._entries and not extents._pins, f"the store of {node.name} still holds {extents._entries}"
    assert not node.exchange.adopted, f"{node.name} still routes {node.exchange.adopted}"
    assert not node.store.waiting


def check_kinds(world: TaskWorld, worker: WorkerProcess) -> None:
    """A worker keeps only kinds of which tasks may come."""
    for owner, kind in worker.kinds:
        process = world.processes[owner]
        assert not process.alive or kind in process.client.owner.kinds, f"{worker} keeps a kind that was dropped"

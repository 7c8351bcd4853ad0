"""What a Pool knows of its workers and of the room for them."""

from __future__ import annotations

from outboard.engine import Binding, Engine


class PoolWorker:
    """A worker as `Pool._pool` lists it: of the standard `Process`, what programs read there."""

    __slots__ = ("exitcode", "pid")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.exitcode: int | None = None

    @property
    def name(self) -> str:
        """Name for people."""
        return f"OutboardPoolWorker-{self.pid}"

    def is_alive(self) -> bool:
        """Tell that the worker was alive when it was listed."""
        return self.exitcode is None

    def __repr__(self) -> str:
        return f"<PoolWorker pid={self.pid}>"


def list_workers(engine: Engine, binding: Binding) -> list[PoolWorker]:
    """List the living workers of a binding on all nodes."""
    return [
        PoolWorker(worker["pid"])
        for node in engine.nodes()
        for worker in node.get("workers", ())
        if worker["binding"] == binding.id and worker.get("owner", binding.owner) == binding.owner
    ]

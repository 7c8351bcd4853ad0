"""Where code runs: in which program, node, process, task and actor."""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from . import actorhost
from . import engine as engines
from .ids import ObjectId

if TYPE_CHECKING:
    from .gangs import Gang

#: The call that this thread or coroutine runs, in actors that run several at a time.
running_call: ContextVar[ObjectId | None] = ContextVar("outboard_running_call", default=None)


class RuntimeContext:
    """What `get_runtime_context` returns; ids are hexadecimal, and None where there is nothing to be named.

    It says what holds where and when it is asked: in a thread of a task too, while the task runs.
    """

    @property
    def job_id(self) -> str:
        """The program, the same in all its tasks."""
        return f"{engines.current().root:016x}"

    @property
    def node_id(self) -> str:
        """The node of this process, as `outboard.nodes` names it; of a program the one that it is connected to."""
        return engines.current().node_id

    @property
    def worker_id(self) -> str | None:
        """This process, if it is a worker."""
        engine = engines.current()
        return engine.worker_id if engine.is_worker else None

    @property
    def task_id(self) -> str | None:
        """The task or call that runs: the id of its first result."""
        running = running_call.get() or engines.current().running_task()
        return running.hex() if running is not None else None

    @property
    def actor_id(self) -> str | None:
        """The actor that this process is."""
        host = actorhost.current()
        return host.identity.anchor.hex() if host is not None and host.identity.anchor.owner else None

    @property
    def actor_name(self) -> str:
        """Its name, empty for one without."""
        host = actorhost.current()
        return host.identity.name if host is not None else ""

    @property
    def gang(self) -> Gang | None:
        """The gang in whose bundles this runs; in the program itself there is none."""
        return engines.current().gangs.inherited

    @property
    def namespace(self) -> str:
        """Where names of actors belong that are given without a namespace."""
        return engines.current().namespace

    @property
    def incarnation(self) -> int:
        """How many processes the actor has had at its node, this one included; 0 where there is no actor."""
        return engines.current().actor_starts if actorhost.current() is not None else 0

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether another process of the actor came before this one at its node."""
        return self.incarnation > 1

    def get_job_id(self) -> str:
        """See `job_id`."""
        return self.job_id

    def get_node_id(self) -> str:
        """See `node_id`."""
        return self.node_id

    def get_worker_id(self) -> str | None:
        """See `worker_id`."""
        return self.worker_id

    def get_task_id(self) -> str | None:
        """See `task_id`."""
        return self.task_id

    def get_actor_id(self) -> str | None:
        """See `actor_id`."""
        return self.actor_id

    def get_actor_name(self) -> str:
        """See `actor_name`."""
        return self.actor_name

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """The GPUs that this process may use, by their numbers on the node."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return {"GPU": [number for number in visible.split(",") if number]}

    def get(self) -> dict[str, Any]:
        """Give all of it but the GPUs as one mapping."""
        names = ("job_id", "node_id", "worker_id", "task_id", "actor_id", "actor_name", "namespace", "incarnation")
        return {name: getattr(self, name) for name in names}


def get_runtime_context() -> RuntimeContext:
    """Say where this code runs; starts an engine if there is none."""
    engines.current()
    return RuntimeContext()

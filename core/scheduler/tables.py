"""Everything the node's machine knows: clients, bindings, workers, resources, and the commands not yet taken."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from enum import IntEnum

from .bundles import BundleCommand, Bundles
from .claims import Range
from .commands import BindingSpec, Command, InvalidTransition, TaskKey
from .fairness import WHOLE, Root, Rotation
from .queues import Kind, Shape
from .resources import CPULESS_PER_SLOT, Demand, Resources


class WorkerState(IntEnum):
    """What a worker does, and which collection besides ``Tables.workers`` and ``Binding.workers`` holds it."""

    STARTING = 0  #: forked, not initialised; in ``Shape.leased`` when it is meant for queued tasks
    IDLE = 1  #: nothing outstanding; in ``Binding.idle``
    BUSY = 2  #: has packets; in ``Shape.leased``
    BLOCKED = 3  #: its task waits and has given back its CPUs; in ``Shape.leased``
    RESUMING = 4  #: its task asks for its CPUs again; in ``Shape.leased`` and ``Tables.resuming``
    STOPPING = 5  #: ends by itself; nothing outstanding
    KILLED = 6  #: its end has been ordered; in ``Shape.leased`` while it has packets


class Client:
    """A process that submits: a root, or a worker whose task does.

    ``worker`` is None for those of other nodes as well; ``credit`` is what its kinds start with.
    """

    __slots__ = ("id", "root_client", "root", "worker", "credit", "depth", "kinds", "last_kind", "bindings",
                 "last_binding", "is_gone")  # fmt: skip

    def __init__(
        self, client_id: int, root_client: Client | None, root: Root, worker: Worker | None, credit: int
    ) -> None:
        self.id = client_id
        self.root_client = root_client or self
        self.root = root
        self.worker = worker
        self.credit = credit
        self.depth = 0 if worker is None else 1
        self.kinds: dict[int, Kind] = {}
        self.last_kind = -1
        self.bindings: dict[int, Binding] = {}
        self.last_binding = 0
        self.is_gone = False

    @property
    def is_awaited(self) -> bool:
        """Whether it is the client of a task, or of an initialiser, that waits."""
        worker = self.worker
        return worker is not None and (worker.state == WorkerState.BLOCKED or worker.is_held_up)


class Binding:
    """What workers are bound to.

    ``idle`` holds started workers without lease, ``spare`` starting ones; ``live`` counts workers that have not been
    told to end; ``started_at`` is when the last one was started. ``restarts`` counts processes that followed one that
    died, ``reruns`` how often calls run again for it, ``ended_by`` is the worker whose death was the end; all of
    ordered ones.
    """

    __slots__ = (
        "client", "spec", "workers", "idle", "spare", "shapes", "live", "cpuless_leases", "failure", "start_deaths",
        "started_at", "is_closing", "is_forced", "is_gone", "ended_by", "restarts", "reruns",
    )  # fmt: skip

    def __init__(self, client: Client, spec: BindingSpec) -> None:
        self.client = client
        self.spec = spec
        self.workers: dict[int, Worker] = {}
        self.idle: dict[int, Worker] = {}
        self.spare: dict[int, Worker] = {}
        self.shapes: dict[Demand, Shape] = {}
        self.live = 0
        self.cpuless_leases = 0
        self.failure: bytes | None = None
        self.start_deaths = 0
        self.started_at = float("-inf")
        self.is_closing = False
        self.is_forced = False
        self.is_gone = False
        self.ended_by: int | None = None
        self.restarts = 0
        self.reruns: Counter[TaskKey] = Counter()

    @property
    def may_restart(self) -> bool:
        """Whether another process may follow the one that kept its object."""
        limit = self.spec.max_restarts
        return self.spec.ordered and not self.is_refusing and (limit < 0 or self.restarts < limit)

    @property
    def is_refusing(self) -> bool:
        """Whether its tasks are lost rather than queued."""
        return self.is_gone or self.is_forced or self.failure is not None

    def has_room(self) -> bool:
        """Whether one more worker may start. An ordered one waits until the last process is gone."""
        spec = self.spec
        if spec.ordered:
            return not self.workers
        return not spec.processes or self.live < spec.processes

    def cpuless_limit(self, slots: int) -> int:
        """How many workers may run tasks that ask for no CPU."""
        return self.spec.processes or CPULESS_PER_SLOT * slots


class Worker:
    """A process that runs tasks.

    ``shape`` is its lease; ``holds_cpu`` is False while the lease's CPUs are given back. ``given`` counts tasks
    against ``max_tasks``. ``is_recalling``: a Recall is not answered yet; ``recall_again``: another must follow it;
    ``is_barred``: the last one brought nothing and nothing has changed since. ``is_forked``: its process is there;
    ``is_held_up``: its initialiser waits for tasks; ``has_served``: it has reported. ``pool`` is what its lease was
    taken from.
    """

    __slots__ = (
        "number", "binding", "gpu_ids", "state", "shape", "pool", "holds_cpu", "is_nested", "range", "given", "clients",
        "has_served", "is_forked", "is_held_up", "is_recalling", "recall_again", "is_barred", "kill_delay",
    )  # fmt: skip

    def __init__(self, number: int, binding: Binding, gpu_ids: tuple[int, ...]) -> None:
        self.number = number
        self.binding = binding
        self.gpu_ids = gpu_ids
        self.state = WorkerState.STARTING
        self.shape: Shape | None = None
        self.pool: Resources | None = None
        self.holds_cpu = False
        self.is_nested = False
        self.range = Range(is_concurrent=binding.spec.max_concurrency > 0)
        self.given = 0
        self.has_served = False
        self.is_forked = False
        self.is_held_up = False
        self.clients: list[Client] = []
        self.is_recalling = False
        self.recall_again = False
        self.is_barred = False
        self.kill_delay: float | None = None

    def __repr__(self) -> str:
        return f"<Worker {self.number} {self.state.name} {self.range.tasks} tasks in {len(self.range.packets)} packets>"

    @property
    def keeps_actors(self) -> bool:
        """Whether its tasks have made actors, which would end with it."""
        return any(binding.spec.ordered for client in self.clients for binding in client.bindings.values())

    @property
    def tasks_left(self) -> int:
        """How many more tasks it may be given in its life."""
        limit = self.binding.spec.max_tasks
        return limit - self.given if limit else 1 << 30


class Tables:
    """The whole state of the machine.

    ``stacked`` holds the workers with more than one packet outstanding; ``held_for`` is the shape for which all others
    are held back, ``now`` the time of the last event that told it. ``forking`` counts workers without a process so
    far; at ``start_due`` it is time for one that would have been of use. ``shapes_beside`` counts shapes that may have
    room while the node has no CPU free: they need none, or have bundles. ``joined``: there are other nodes for what
    this one cannot run; ``is_draining``: only they take what comes, but for what `takes_from` says; ``is_over``: with
    no exception. After the look at ``looked_at``, at ``watched`` kinds, nothing that waited needed another one until a
    task arrives after the one with number ``calm_order``, or is put back.
    """

    __slots__ = (
        "resources", "bundles", "bundle_commands", "initial_credit", "joined", "clients", "workers", "rotation",
        "resuming", "stacked", "shapes_beside", "commands", "counts", "last_worker", "last_packet", "last_order", "now",
        "held_for", "forking", "start_due", "is_draining", "is_over", "looked_at", "watched", "calm_order",
    )  # fmt: skip

    def __init__(self, totals: Mapping[str, int], gpus: int, initial_credit: int, joined: bool) -> None:
        self.resources = Resources(totals, gpus)
        self.bundle_commands: list[BundleCommand] = []
        self.bundles = Bundles(self.resources, self.bundle_commands)
        self.initial_credit = initial_credit
        self.joined = joined
        self.clients: dict[int, Client] = {}
        self.workers: dict[int, Worker] = {}
        self.rotation = Rotation()
        self.resuming: deque[Worker] = deque()
        self.stacked: dict[int, Worker] = {}
        self.shapes_beside = 0
        self.commands: list[Command] = []
        self.counts: Counter[str] = Counter()
        self.last_worker = 0
        self.last_packet = 0
        self.last_order = 0
        self.now = 0.0
        self.held_for: Shape | None = None
        self.forking = 0
        self.start_due: float | None = None
        self.is_draining = False
        self.is_over = False
        self.looked_at = 0.0
        self.watched = 0
        self.calm_order = -1

    def takes_from(self, client: Client) -> bool:
        """Whether this node begins what a client submits; while it drains, what its own tasks do: they may wait."""
        return not self.is_draining or (client.worker is not None and not self.is_over)

    def is_home_of(self, binding: Binding) -> bool:
        """Whether a binding's tasks can run at this node or nowhere: what is ordered stays where its one worker is.

        Those of a gang are at the nodes that have its bundles.
        """
        spec = binding.spec
        if spec.gang:
            return True
        if not spec.ordered or binding.workers:
            return spec.ordered
        has_place = spec.eager or any(shape.capacity for shape in binding.shapes.values())
        return has_place and self.takes_from(binding.client)

    def find_worker(self, number: int, event: str) -> Worker | None:
        """The worker, or None when it is dead: the event is then late and counted.

        Raises InvalidTransition when there never was such a worker.
        """
        worker = self.workers.get(number)
        if worker is None:
            if not 0 < number <= self.last_worker:
                raise InvalidTransition(f"{event}: there is no worker {number}")
            self.counts[f"late_{event}"] += 1
        return worker

    def find_client(self, client_id: int, event: str) -> Client | None:
        """The client, or None when it has left: the event is then late and counted."""
        client = self.clients.get(client_id)
        if client is None:
            self.counts[f"late_{event}"] += 1
        return client

    def find_kind(self, client: Client, kind_id: int, event: str) -> Kind | None:
        """The kind, or None when it went with its binding: the event is then late and counted.

        Raises InvalidTransition when the client never named such a kind.
        """
        kind = client.kinds.get(kind_id)
        if kind is None:
            if kind_id > client.last_kind:
                raise InvalidTransition(f"{event}: client {client.id:x} has no kind {kind_id}")
            self.counts[f"late_{event}"] += 1
        return kind

    def add_shape(self, binding: Binding, demand: Demand) -> Shape:
        """Enter a new shape; its capacity is 0 when its tasks can never run here.

        The one worker of an ordered binding keeps the devices it was started with, so shapes for others cannot either.
        A node of a cluster that has no CPU runs nothing at all.
        """
        spec = binding.spec
        if spec.gang:
            pools: tuple[Resources, ...] = tuple(self.bundles.pools(spec.gang, spec.bundle, demand))
            capacity = sum(pool.capacity(demand) for pool in pools)
            part = 0  # nobody else could have it
        else:
            pools = (self.resources,)
            capacity = self.resources.capacity(demand)
            part = WHOLE // max(1, capacity)
        if self.joined and not self.resources.totals.get("CPU"):
            capacity = 0
        if spec.ordered:
            devices = {s.demand.devices for s in binding.shapes.values() if s.capacity}
            if not devices:
                devices = {0} if spec.eager else {demand.devices}
            capacity = min(capacity, 1) if demand.devices in devices else 0
        elif spec.processes:
            capacity = min(capacity, spec.processes)
        is_shared = self.joined and not spec.ordered and spec.bundle < 0
        shape = binding.shapes[demand] = Shape(binding, demand, pools, capacity, part, is_shared=is_shared)
        if not demand.cpu or spec.gang:
            self.shapes_beside += 1
        return shape

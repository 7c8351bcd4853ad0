"""What the node's machine takes and what it orders: descriptions, commands, and its one error.

Commands are plain tuples. The driver does them in order; nothing in the machine waits for their outcome except where
a command says that the driver answers with an event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..ids import Span
from .bundles import BundleCommand
from .intervals import Interval
from .outcomes import LostCause as LostCause

#: The running item as the board names it: (owner, stream, index).
TaskKey = tuple[int, int, int]


class InvalidTransition(Exception):
    """An event that cannot happen in the machine's present state; the state is as it was before."""


class BindingSpec(NamedTuple):
    """What workers are tied to for life; ``processes`` and ``max_tasks`` 0 mean no limit.

    Of an ordered one: ``max_restarts`` processes may follow one that died, -1 for any number; ``max_concurrency`` calls
    may run at a time, 0 for one after the other in their order. Its tasks run in a ``bundle`` of a ``gang`` (-1: in any
    that is here), unless that is 0.
    """

    id: int
    processes: int = 0
    has_initializer: bool = False
    max_tasks: int = 0
    ordered: bool = False
    eager: bool = False
    label: str = ""
    max_restarts: int = 0
    max_concurrency: int = 0
    gang: int = 0
    bundle: int = -1


class KindSpec(NamedTuple):
    """What tasks of one kind need; resources are integers of 1/10000.

    ``binding_owner`` is the client whose binding it is when that is another one, else 0. ``process_retries``: how often
    a call of an ordered binding runs again at this node after its process died under it, -1 for any number.
    """

    id: int
    binding: int = 0
    resources: Mapping[str, int] = {}
    num_returns: int = 1
    name: str = ""
    binding_owner: int = 0
    process_retries: int = 0


class StartWorker(NamedTuple):
    """Fork a worker; the driver answers with ``on_worker_forked`` and ``on_worker_started``, in any order, or with
    ``on_worker_init_failed`` or ``on_worker_died``.
    """

    worker: int
    client: int
    binding: int
    gpu_ids: tuple[int, ...]
    restarts: int = 0  #: of an actor: processes that came before this one


class StopWorker(NamedTuple):
    """Close the worker's claim socket: it ends by itself; the driver answers with ``on_worker_died``."""

    worker: int


class KillWorker(NamedTuple):
    """End the worker's process group now; the driver answers with ``on_worker_died``."""

    worker: int


class SendPacket(NamedTuple):
    """Write one packet on the worker's claim socket; all its intervals are of one kind."""

    worker: int
    packet: int
    intervals: list[Interval]


class Recall(NamedTuple):
    """Read back at most so many packets, oldest first; the driver answers with ``on_recalled``, empty or not."""

    worker: int
    at_most: int


class Grant(NamedTuple):
    """Tell the client its credit for a kind: so many tasks may be outstanding at a time."""

    client: int
    kind: int
    credit: int


class Lost(NamedTuple):
    """Tell the owner that these tasks will not finish here.

    Of a dead worker's tasks the one that was running comes first, in a command of its own.
    """

    client: int
    cause: LostCause
    spans: list[Span]
    worker: int | None = None
    outcome: bytes = b""
    is_restarting: bool = False  #: the worker was an actor, and another one follows
    is_at_start: bool = False  #: the worker is the last of several that came to nothing


class Returned(NamedTuple):
    """Give tasks back to their owner, not begun."""

    client: int
    spans: list[Span]


class BindingGone(NamedTuple):
    """Tell a client that the actor which tasks of a kind are for is not here."""

    client: int
    kind: int


class KindRefused(NamedTuple):
    """Tell the client that this node can never run tasks of a kind; both amounts are whole demands and totals."""

    client: int
    kind: int
    asked: dict[str, int]
    available: dict[str, int]


class BindingFailed(NamedTuple):
    """Tell the client, once, that no worker of a binding starts; ``outcome`` is empty when ``worker`` just died."""

    client: int
    binding: int
    outcome: bytes
    worker: int


class Unbound(NamedTuple):
    """Tell the client that the last worker of a dropped binding is gone."""

    client: int
    binding: int


class SignalCancel(NamedTuple):
    """Interrupt the worker if the board names one of these tasks of ``owner`` as running."""

    worker: int
    owner: int
    spans: list[Span]


class KillLater(NamedTuple):
    """After ``delay`` seconds call ``on_kill_due`` with what the board then names as running."""

    worker: int
    delay: float


class Resume(NamedTuple):
    """Tell a blocked worker that it has its CPUs again."""

    worker: int


Command = (
    StartWorker | StopWorker | KillWorker | SendPacket | Recall | Grant | Lost | Returned
    | KindRefused | BindingGone | BindingFailed | Unbound | SignalCancel | KillLater | Resume
    | BundleCommand
)  # fmt: skip

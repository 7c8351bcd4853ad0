"""Bindings of the native engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .engine import Binding
from .failures import as_exception
from .options import TaskOptions
from .scheduler.outcomes import BindingMark
from .values import Encoded

if TYPE_CHECKING:
    from .client import Client

#: Retries of a Pool's call after the loss of its machine; plain tasks, also of a gang, follow `max_retries`.
MACHINE_RETRIES = 3


class NativeBinding(Binding):
    """A binding whose failure the client knows."""

    __slots__ = ("client", "initializer", "is_actor", "is_forced", "mark")
    client: Client

    def __init__(self, id: int, processes: int, label: str = "", owner: int = 0) -> None:
        super().__init__(id, processes, label, owner)
        self.initializer = Encoded(b"")
        self.is_actor = False
        self.is_forced = False  # its workers were told to end at once
        self.mark: Any = None  # how it failed, when it had and has gone

    @property
    def failed(self) -> BaseException | None:
        """The error of the initializer, once it has raised."""
        mark = self.mark or self.client.failed_bindings.get(self.id)
        is_known = isinstance(mark, BindingMark) and (mark.outcome or mark.death)
        return as_exception(mark) if is_known else None

    @failed.setter
    def failed(self, value: BaseException | None) -> None:
        """Only the client says so."""


def machine_retries(options: TaskOptions, binding: Binding | None) -> int:
    """How often a call runs again whose machine was lost: an actor's never does, its state is gone."""
    if isinstance(binding, NativeBinding) and not binding.is_actor:
        is_of_tasks = not binding.processes and binding.id in binding.client.ganged
        return options.max_retries if is_of_tasks else MACHINE_RETRIES
    return options.max_retries

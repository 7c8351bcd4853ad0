"""Records of objects: what one process knows of each object that it owns or borrows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..ids import ObjectId

if TYPE_CHECKING:
    from .tasks import Task


class Extra(NamedTuple):
    """What a value has beside its bytes: version of its extent (None: inline), references inside it."""

    stored: int | None
    contained: tuple[ObjectId, ...]


class Waiters:
    """Who must hear of a value that is not there yet. Most objects have none, so this is a record of its own."""

    __slots__ = ("askers", "dependents", "watched")

    def __init__(self) -> None:
        self.dependents: list[Task] = []  # tasks in WAITING, once for each time they name the object
        self.askers: list[int] = []  # borrowers
        self.watched = False  # settling it must be reported


class Entry:
    """One object. `value` is None while it is being made; then value bytes, or a mark of how its task ended."""

    __slots__ = ("borrowers", "contained", "count", "handed_to", "stored", "value", "waiters")

    def __init__(self, value: Any = None, count: int = 0, stored: int | None = None) -> None:
        self.value = value
        self.count = count
        self.stored = stored  # version of the extent that holds it, None while it has none
        self.borrowers: set[int] | None = None
        self.handed_to: int | None = None  # the process that owns it now, when it was passed on
        self.contained: tuple[ObjectId, ...] = ()  # references inside the value, held as long as this entry
        self.waiters: Waiters | None = None

    @property
    def watched(self) -> bool:
        """Whether settling it must be reported."""
        return self.waiters is not None and self.waiters.watched

    @watched.setter
    def watched(self, wanted: bool) -> None:
        self.wait_list().watched = wanted

    def wait_list(self) -> Waiters:
        """Return who waits for the value, to be added to."""
        if self.waiters is None:
            self.waiters = Waiters()
        return self.waiters

    def is_used(self) -> bool:
        """Whether somebody refers to it, or its value is still to come. Who took it over counts its borrowers."""
        return self.count > 0 or self.value is None or (bool(self.borrowers) and self.handed_to is None)


class Foreign(Entry):
    """An object of another owner. `adopted`: its ownership passed here; else it is borrowed."""

    __slots__ = ("adopted", "asked", "pending", "pinned")

    def __init__(self) -> None:
        super().__init__()
        self.adopted = False
        self.asked = False
        self.pending = False  # adopted, but its task still runs where it was started
        self.pinned = False  # the node pinned its extent for this process when it passed the answer on

    def is_used(self) -> bool:
        """Whether somebody refers to it, or its owner will still say how it came out."""
        return self.count > 0 or self.pending or (bool(self.borrowers) and self.handed_to is None)


def is_adopted(entry: Entry) -> bool:
    """Whether the object of another process belongs to this one now."""
    return isinstance(entry, Foreign) and entry.adopted

"""Records of objects: what one process knows of each object that it owns or borrows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..ids import ObjectId

if TYPE_CHECKING:
    from .tasks import Task


class Extra(NamedTuple):
    """What a value has beside its bytes: version of its extent (None: inline), references inside it.

    `node` and `nbytes` say where the extent lies and how large it is.
    """

    stored: int | None
    contained: tuple[ObjectId, ...]
    node: int = 0
    nbytes: int = 0


class Place(NamedTuple):
    """Where a stored value lies, the own node being 0, and its bytes."""

    node: int
    nbytes: int


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
        self.borrowers: dict[int, int] | None = None  # how often each is counted, never 0; see `references`
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

    def is_ours(self) -> bool:
        """Whether this process owns it, and so counts who borrows it."""
        return self.handed_to is None

    def is_used(self) -> bool:
        """Whether somebody refers to it, or its value is still to come."""
        return self.count > 0 or self.value is None or bool(self.borrowers)

    def take_over(self) -> int:
        """It is ours again; returns how often this process was counted as a borrower."""
        self.handed_to = None
        return 1


class Anchor(Entry):
    """What handles of an actor refer to: its value says where the actor is, None: nobody knows yet, or any more.

    It stays with its maker, who keeps the actor, and ends with the last handle whether or not it has a value. `binding`
    is the actor's.
    """

    __slots__ = ("binding",)

    def __init__(self, binding: int) -> None:
        super().__init__(None, 1)
        self.binding = binding

    def is_used(self) -> bool:
        """Whether some handle is left."""
        return self.count > 0 or bool(self.borrowers)


class Foreign(Entry):
    """An object of another owner. `adopted`: its ownership passed here; else it is borrowed."""

    __slots__ = ("adopted", "asked", "granted", "pinned")

    def __init__(self) -> None:
        super().__init__()
        self.adopted = False
        self.asked = False
        self.granted = 0  # how often its owner counts this process, while it is borrowed
        self.pinned = False  # the node pinned its extent for this process when it passed the answer on

    def is_ours(self) -> bool:
        """Whether this process owns it, and so counts who borrows it."""
        return self.adopted and self.handed_to is None

    def is_used(self) -> bool:
        """Whether somebody refers to it."""
        return self.count > 0 or bool(self.borrowers)

    def take_over(self) -> int:
        """It is ours from now on; returns how often this process was counted as a borrower."""
        registered = 1 if self.handed_to is not None else self.granted
        self.adopted, self.handed_to, self.granted = True, None, 0
        return registered

"""References to objects: what users hold in place of values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from .ids import ObjectId

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .engine import Completion


class Hold(Protocol):
    """What a reference needs of its engine."""

    dropped: deque[tuple[int, int]]
    """(owner, seq) of references that ended; the engine drains it. Appending is all that a finaliser may do."""

    def add_done_callback(self, ref: ObjectRef, callback: Callable[[Completion], None]) -> None:
        """Call back once when the object is there."""

    def nudge(self) -> None:
        """Look at `dropped` soon, though the program does nothing; a finaliser may call it."""


class ObjectRef:
    """Names one object that exists or will; the object lives at least as long as a reference to it.

    Cheap to hash, compare and pickle. May be passed to tasks: at the top level of the arguments it is replaced by its
    value, within containers it stays a reference. Thread-safe.
    """

    __slots__ = ("__weakref__", "_hold", "owner", "seq")

    def __init__(self, owner: int, seq: int, hold: Hold) -> None:
        self.owner = owner
        self.seq = seq
        self._hold = hold

    def __del__(self) -> None:
        # May run in any thread, under any lock and at interpreter exit: one append, nothing else.
        self._hold.dropped.append((self.owner, self.seq))

    @property
    def hold(self) -> Hold:
        """The engine that made the reference."""
        return self._hold

    def hex(self) -> str:
        """Give the id as 32 hexadecimal digits."""
        return ObjectId(self.owner, self.seq).hex()

    def task_id(self) -> str:
        """Give the id of the task that makes this object, as far as a reference knows it: that of its result."""
        return self.hex()

    def future(self) -> Future[Any]:
        """Return a `concurrent.futures.Future` of the value; cancelling it does not cancel the task."""
        from concurrent.futures import Future

        future: Future[Any] = Future()

        def settle(completion: Completion, _keep: ObjectRef = self) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if completion.ok:
                future.set_result(completion.value)
            else:
                future.set_exception(completion.value)

        self._hold.add_done_callback(self, settle)
        return future

    def __await__(self) -> Generator[Any, None, Any]:
        from asyncio import wrap_future

        return wrap_future(self.future()).__await__()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectRef):
            return NotImplemented
        return self.seq == other.seq and self.owner == other.owner

    def __hash__(self) -> int:
        return hash((self.owner, self.seq))

    def __repr__(self) -> str:
        return f"ObjectRef({self.hex()})"

    def __bool__(self) -> bool:
        raise TypeError("an ObjectRef is neither true nor false: call outboard.get(ref) and test the value")

    def __iter__(self) -> NoReturn:
        raise TypeError("an ObjectRef is not its value: call outboard.get(ref) and iterate over that")

    def __reduce__(self) -> tuple[Any, ...]:
        from .store.serialize import note_reference

        note_reference(ObjectId(self.owner, self.seq))
        return _rebuild, (self.owner, self.seq)


class AnchorRef(ObjectRef):
    """What a handle of an actor has of it. Its end is told at once: it may be the actor's."""

    __slots__ = ()

    def __del__(self) -> None:
        super().__del__()
        self._hold.nudge()

    def __reduce__(self) -> tuple[Any, ...]:
        super().__reduce__()
        return _rebuild_anchor, (self.owner, self.seq)


class OuterRef(ObjectRef):
    """What a handle of another program's actor has of it: a name that nobody counts."""

    __slots__ = ()

    def __del__(self) -> None:
        """Tell nobody."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_outer, (self.owner, self.seq)


def check_refs(call: str, refs: Any) -> None:
    """Raise TypeError, with what came and where, unless all of several are references."""
    for position, ref in enumerate(refs):
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"{call} takes references (ObjectRef); item {position} is {describe_value(ref)}")


def describe_value(value: Any) -> str:
    """Name a value that is not what was expected, by type and in short: ``int 5``."""
    import reprlib

    return f"{type(value).__name__} {reprlib.repr(value)}"


def _rebuild(owner: int, seq: int) -> ObjectRef:
    from .engine import current

    return current().adopt_ref(owner, seq, ObjectRef)


def _rebuild_outer(owner: int, seq: int) -> OuterRef:
    from .engine import current

    return OuterRef(owner, seq, current())


def _rebuild_anchor(owner: int, seq: int) -> AnchorRef:
    from .engine import current

    return current().adopt_ref(owner, seq, AnchorRef)

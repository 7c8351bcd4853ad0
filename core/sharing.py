"""Large arguments that the items of one task array share: stored once, found again by what they are.

Elsewhere a stored buffer is found by its address and confirmed by its bytes, and lives while something uses it. Here
the program has said that arguments do not change while the array lives (`share_arguments`), so identity is enough: same
address, same size, and the object that owns the memory has lived all the time. A reference to each stored buffer is
kept until that object ends, the array does, or others need the room.

Threads: `find`, `keep` and what gives up are called under the lock of the client's values. A weak reference calls back
in any thread and under any lock, so that does nothing but take the one hold and append to deques.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from .ids import ObjectId
from .rpc.protos import outboard_pb2 as pb

#: Part of the store's room that buffers may take which are kept for one array alone. More finds more of them again;
#: less leaves more to results and to other programs. Half: what does not fit is stored again, as without sharing.
KEPT_SHARE = 0.5


class Place(NamedTuple):
    """Where a buffer lies in this process, and whether it may be written to there."""

    address: int
    nbytes: int
    readonly: bool


class _Kept(weakref.ref[Any]):
    """Weak reference to the owner of a stored buffer's memory. `hold`: the object, until somebody drops it."""

    __slots__ = ("descriptor", "hold", "place")
    descriptor: pb.Descriptor
    hold: list[tuple[int, int]]
    place: Place


class SharedArguments:
    """The buffers of one array. `dropped` takes the references given up, `limit` is how many bytes are kept."""

    def __init__(self, dropped: deque[tuple[int, int]], limit: float) -> None:
        self._dropped = dropped
        self._limit = limit
        self._kept: dict[Place, _Kept] = {}  # the one used last at the end
        self._nbytes = 0
        self._lapsed: deque[_Kept] = deque()  # those whose owners ended
        self._is_over = False

    def __repr__(self) -> str:
        return f"<SharedArguments {len(self._kept)} buffers nbytes={self._nbytes}>"

    def find(self, place: Place, owner: Any) -> pb.Descriptor | None:
        """Return where a buffer is stored already, if it still is."""
        self._forget_lapsed()
        kept = self._kept.get(place)
        if kept is None or kept() is not owner:
            return None
        self._kept[place] = self._kept.pop(place)
        return kept.descriptor

    def keep(self, place: Place, owner: Any, descriptor: pb.Descriptor, hold: Callable[[ObjectId], bool]) -> None:
        """Keep a stored buffer; others make room for it."""
        self._forget_lapsed()
        if self._is_over or owner is None or place.nbytes > self._limit:
            return
        self._let_go(place)
        while self._nbytes + place.nbytes > self._limit:
            self._let_go(next(iter(self._kept)))
        oid = ObjectId(descriptor.owner, descriptor.seq)
        if hold(oid):
            kept = _Kept(owner, self._owner_ended)
            kept.descriptor, kept.hold, kept.place = descriptor, [oid], place
            self._kept[place] = kept
            self._nbytes += place.nbytes

    def give_up(self) -> bool:
        """Let go of everything, since somebody needs the room; False when there was nothing."""
        places = list(self._kept)
        for place in places:
            self._let_go(place)
        return bool(places)

    def end(self) -> bool:
        """Let go of everything and keep nothing more; False when there was nothing."""
        self._is_over = True
        return self.give_up()

    def _owner_ended(self, kept: weakref.ref[Any]) -> None:
        assert isinstance(kept, _Kept)
        self._drop(kept)
        self._lapsed.append(kept)

    def _drop(self, kept: _Kept) -> None:
        try:
            self._dropped.append(kept.hold.pop())
        except IndexError:
            pass  # whoever came first dropped it

    def _let_go(self, place: Place) -> None:
        kept = self._kept.pop(place, None)
        if kept is not None:
            self._nbytes -= place.nbytes
            self._drop(kept)

    def _forget_lapsed(self) -> None:
        while self._lapsed:
            kept = self._lapsed.popleft()
            if self._kept.get(kept.place) is kept:
                self._let_go(kept.place)


def memory_owner(buffer: memoryview) -> Any:
    """Return the innermost object behind a buffer that can be weakly referenced: while it lives, the memory is its.

    None when there is none.
    """
    numpy = sys.modules.get("numpy")
    found: Any = None
    inner: Any = buffer.obj
    while inner is not None:
        if type(inner).__weakrefoffset__:
            found = inner
        if isinstance(inner, memoryview):
            inner = inner.obj
        else:
            inner = inner.base if numpy is not None and isinstance(inner, numpy.ndarray) else None
    return found

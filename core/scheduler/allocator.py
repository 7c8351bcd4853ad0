"""Where a writing process puts its extents: free space of its leased segments.

Per segment everything from the *high-water mark* on was never used; below it lie live extents and *warm* free blocks,
whose pages exist. Copying to warm pages is several times faster than to new ones, so they go first: best fit, and of
equal ones the last freed (its lines may still be cached).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple


class Extent(NamedTuple):
    """Allocated space; ``fresh`` when any page of it was never used before."""

    segment: int
    offset: int
    nbytes: int
    fresh: bool


class _Space:
    """One segment: live extents and warm free blocks by begin, the latter by end too. Blocks never touch.

    ``gone`` are blocks below the high-water mark that were parted with.
    """

    __slots__ = ("ends", "free", "gone", "high", "live", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.high = 0
        self.live: dict[int, int] = {}
        self.free: dict[int, tuple[int, int]] = {}  # begin -> (nbytes, negative stamp)
        self.ends: dict[int, int] = {}  # end -> begin
        self.gone: dict[int, int] = {}  # begin -> nbytes

    @property
    def tail(self) -> int:
        """Begin of the space that reaches to the segment's end."""
        return self.ends.get(self.high, self.high)


class Allocator:
    """Allocates whole pages. Not thread-safe; allocate and free take a few microseconds."""

    def __init__(self, page: int = 4096) -> None:
        self.page = page
        self.used_nbytes = 0
        self.capacity_nbytes = 0
        self._spaces: dict[int, _Space] = {}
        self._by_size: list[tuple[int, int, int, int]] = []  # nbytes, negative stamp, segment, begin
        self._stamp = 0

    def __repr__(self) -> str:
        return f"<Allocator segments={len(self._spaces)} used={self.used_nbytes} of {self.capacity_nbytes}>"

    def add_segment(self, segment: int, nbytes: int) -> None:
        """Add a leased segment of new pages; a rest smaller than a page is not used."""
        if segment in self._spaces:
            raise ValueError(f"segment {segment} is there already")
        space = _Space(nbytes - nbytes % self.page)
        self._spaces[segment] = space
        self.capacity_nbytes += space.nbytes

    def remove_segment(self, segment: int) -> None:
        """Forget a segment without live extents."""
        space = self._spaces[segment]
        if space.live:
            raise ValueError(f"segment {segment} has {len(space.live)} live extents")
        for begin in list(space.free):
            self._take_free(segment, begin)
        self.capacity_nbytes -= space.nbytes - sum(space.gone.values())
        del self._spaces[segment]

    def trim(self, segment: int) -> list[tuple[int, int]]:
        """Part with all free room of a segment and return (offset, nbytes) of each piece; what lies there stays.

        Nothing of one that is not there, or in which nothing lies: that can be parted with as a whole.
        """
        space = self._spaces.get(segment)
        if space is None or not space.live:
            return []
        tail = space.tail
        if tail < space.high:
            self._take_free(segment, tail)
        parts = [(begin, self._take_free(segment, begin)) for begin in list(space.free)]
        space.gone.update(parts)
        if tail < space.nbytes:
            parts.append((tail, space.nbytes - tail))
        space.high = space.nbytes = tail
        self.capacity_nbytes -= sum(nbytes for _, nbytes in parts)
        return parts

    def allocate(self, nbytes: int) -> Extent | None:
        """Return space for ``nbytes``, rounded up to pages, or None when no segment has it in one piece."""
        nbytes = max(self.page, (nbytes + self.page - 1) // self.page * self.page)
        position = bisect_left(self._by_size, (nbytes,))
        if position < len(self._by_size):
            size, _, segment, begin = self._by_size[position]
            self._take_free(segment, begin)
            if size > nbytes:
                self._add_free(segment, begin + nbytes, size - nbytes)
            return self._use(segment, begin, nbytes, fresh=False)
        for segment, space in self._spaces.items():
            begin = space.tail
            if begin + nbytes <= space.nbytes:
                if begin < space.high:
                    self._take_free(segment, begin)
                space.high = begin + nbytes
                return self._use(segment, begin, nbytes, fresh=True)
        return None

    def free(self, segment: int, offset: int) -> None:
        """Take back an extent; its pages are warm from now on. Raises ``KeyError`` when none begins there."""
        space = self._spaces[segment]
        nbytes = space.live.pop(offset)
        self.used_nbytes -= nbytes
        begin, end = offset, offset + nbytes
        if begin in space.ends:
            begin = space.ends[begin]
            self._take_free(segment, begin)
        if end in space.free:
            end += self._take_free(segment, end)
        self._add_free(segment, begin, end - begin)

    def idle_segments(self, *, used_before: bool = False) -> list[int]:
        """Segments without a live extent, in the order they were added; all, or those that have held one."""
        return [s for s, space in self._spaces.items() if not space.live and (space.high or not used_before)]

    def _use(self, segment: int, begin: int, nbytes: int, *, fresh: bool) -> Extent:
        self._spaces[segment].live[begin] = nbytes
        self.used_nbytes += nbytes
        return Extent(segment, begin, nbytes, fresh)

    def _add_free(self, segment: int, begin: int, nbytes: int) -> None:
        self._stamp += 1
        space = self._spaces[segment]
        space.free[begin] = nbytes, -self._stamp
        space.ends[begin + nbytes] = begin
        insort(self._by_size, (nbytes, -self._stamp, segment, begin))

    def _take_free(self, segment: int, begin: int) -> int:
        space = self._spaces[segment]
        nbytes, stamp = space.free.pop(begin)
        del space.ends[begin + nbytes]
        del self._by_size[bisect_left(self._by_size, (nbytes, stamp, segment, begin))]
        return nbytes

    def check(self) -> None:
        """Raise ``AssertionError`` when an invariant does not hold; for tests."""
        listed = [(n, s, seg, at) for seg, space in self._spaces.items() for at, (n, s) in space.free.items()]
        assert sorted(listed) == self._by_size, "the index by size differs from the free blocks"
        used = capacity = 0
        for segment, space in self._spaces.items():
            free = [(at, nbytes) for at, (nbytes, _) in space.free.items()]
            begun = 0
            for at, nbytes in sorted([*space.live.items(), *free, *space.gone.items()]):
                assert at == begun, f"gap or overlap in segment {segment}"
                begun += nbytes
            assert begun == space.high <= space.nbytes, f"high-water mark of {segment} is wrong"
            assert {at + nbytes: at for at, nbytes in free} == space.ends
            assert space.ends.keys().isdisjoint(space.free), f"free blocks touch in segment {segment}"
            used += sum(space.live.values())
            capacity += space.nbytes - sum(space.gone.values())
        assert (self.used_nbytes, self.capacity_nbytes) == (used, capacity), f"{used} bytes of {capacity}"

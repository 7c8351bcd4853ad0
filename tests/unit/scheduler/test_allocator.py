from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from outboard.scheduler.allocator import Allocator, Extent

PAGE = 4096


def test_sizes_are_rounded_to_pages_and_new_pages_are_fresh() -> None:
    allocator = Allocator()
    allocator.add_segment(1, 10 * PAGE + 5)
    assert allocator.allocate(1) == Extent(1, 0, PAGE, True)
    assert allocator.allocate(PAGE + 1) == Extent(1, PAGE, 2 * PAGE, True)
    assert (allocator.used_nbytes, allocator.capacity_nbytes) == (3 * PAGE, 10 * PAGE)


def test_warm_space_goes_before_fresh_and_the_last_freed_first() -> None:
    allocator = Allocator()
    allocator.add_segment(1, 20 * PAGE)
    extents = [allocator.allocate(PAGE) for _ in range(6)]
    for index in (0, 4, 2):
        allocator.free(1, extents[index].offset)  # type: ignore[union-attr]  # there is room for all
    assert [allocator.allocate(PAGE) for _ in range(4)] == [
        Extent(1, 2 * PAGE, PAGE, False),
        Extent(1, 4 * PAGE, PAGE, False),
        Extent(1, 0, PAGE, False),
        Extent(1, 6 * PAGE, PAGE, True),
    ]


def test_the_best_fit_is_split() -> None:
    allocator = Allocator()
    allocator.add_segment(1, 20 * PAGE)
    for size in (5, 1, 3, 1):
        allocator.allocate(size * PAGE)
    allocator.free(1, 0)
    allocator.free(1, 6 * PAGE)
    assert allocator.allocate(2 * PAGE) == Extent(1, 6 * PAGE, 2 * PAGE, False)
    assert allocator.allocate(PAGE) == Extent(1, 8 * PAGE, PAGE, False)
    assert allocator.allocate(5 * PAGE) == Extent(1, 0, 5 * PAGE, False)


def test_neighbours_grow_together() -> None:
    allocator = Allocator()
    allocator.add_segment(1, 4 * PAGE)
    for _ in range(4):
        allocator.allocate(PAGE)
    for index in (0, 2, 1, 3):
        allocator.free(1, index * PAGE)
        allocator.check()
    assert allocator.allocate(4 * PAGE) == Extent(1, 0, 4 * PAGE, False)


def test_extent_that_straddles_the_high_water_mark_is_fresh() -> None:
    allocator = Allocator()
    allocator.add_segment(1, 4 * PAGE)
    allocator.allocate(2 * PAGE)
    allocator.free(1, 0)
    assert allocator.allocate(3 * PAGE) == Extent(1, 0, 3 * PAGE, True)
    assert allocator.allocate(2 * PAGE) is None


def test_idle_segments_can_be_removed() -> None:
    allocator = Allocator()
    allocator.add_segment(1, 2 * PAGE)
    allocator.add_segment(2, 2 * PAGE)
    allocator.allocate(2 * PAGE)
    allocator.allocate(PAGE)
    assert allocator.idle_segments() == []
    allocator.free(2, 0)
    assert allocator.idle_segments() == [2]
    with pytest.raises(ValueError, match="1 live"):
        allocator.remove_segment(1)
    allocator.remove_segment(2)
    allocator.check()
    assert allocator.allocate(PAGE) is None
    assert repr(allocator) == f"<Allocator segments=1 used={2 * PAGE} of {2 * PAGE}>"


def test_trimmed_segment_keeps_what_lies_in_it_and_no_other_room() -> None:
    allocator = Allocator()
    allocator.add_segment(1, 10 * PAGE)
    for size in (1, 2, 1, 3):
        allocator.allocate(size * PAGE)
    allocator.free(1, PAGE)
    allocator.free(1, 4 * PAGE)
    assert allocator.trim(1) == [(PAGE, 2 * PAGE), (4 * PAGE, 6 * PAGE)]
    allocator.check()
    assert (allocator.used_nbytes, allocator.capacity_nbytes) == (2 * PAGE, 2 * PAGE)
    assert allocator.allocate(PAGE) is None and allocator.trim(1) == []
    allocator.free(1, 0)
    assert allocator.allocate(PAGE) == Extent(1, 0, PAGE, False)
    allocator.free(1, 0)
    allocator.free(1, 3 * PAGE)
    assert allocator.idle_segments() == [1] and allocator.trim(1) == [] == allocator.trim(2)
    allocator.remove_segment(1)
    assert allocator.capacity_nbytes == 0


def test_wrong_calls_are_refused() -> None:
    allocator = Allocator()
    allocator.add_segment(1, PAGE)
    with pytest.raises(ValueError, match="already"):
        allocator.add_segment(1, PAGE)
    with pytest.raises(KeyError):
        allocator.free(1, 0)


class AllocatorWalk(RuleBasedStateMachine):
    extents = Bundle("extents")

    def __init__(self) -> None:
        super().__init__()
        self.allocator = Allocator(page=4)
        self.pages: dict[tuple[int, int], bool] = {}  # every page that was ever used: in use now
        self.gone: set[tuple[int, int]] = set()
        self.segments = 0

    @rule(pages=st.integers(1, 12))
    def add_segment(self, pages: int) -> None:
        self.segments += 1
        self.allocator.add_segment(self.segments, pages * 4 + 1)

    @rule(target=extents, nbytes=st.integers(0, 30))
    def allocate(self, nbytes: int) -> object:
        extent = self.allocator.allocate(nbytes)
        if extent is None:
            return multiple()
        pages = [(extent.segment, extent.offset // 4 + step) for step in range(extent.nbytes // 4)]
        assert extent.nbytes >= nbytes
        assert not any(self.pages.get(page) for page in pages), "overlap"
        assert self.gone.isdisjoint(pages), "what was parted with"
        assert extent.fresh == any(page not in self.pages for page in pages)
        self.pages.update(dict.fromkeys(pages, True))
        return extent

    @rule(extent=consumes(extents))
    def free(self, extent: Extent) -> None:
        self.allocator.free(extent.segment, extent.offset)
        for step in range(extent.nbytes // 4):
            self.pages[extent.segment, extent.offset // 4 + step] = False

    @rule(segment=st.integers(1, 4))
    def trim(self, segment: int) -> None:
        for offset, nbytes in self.allocator.trim(segment):
            pages = {(segment, (offset + at) // 4) for at in range(0, nbytes, 4)}
            assert self.gone.isdisjoint(pages) and not any(self.pages.get(page) for page in pages)
            self.gone |= pages

    @invariant()
    def conserves(self) -> None:
        self.allocator.check()
        assert self.allocator.used_nbytes == 4 * sum(self.pages.values())
        busy = {segment for (segment, _), used in self.pages.items() if used}
        assert set(self.allocator.idle_segments()) == set(range(1, self.segments + 1)) - busy


AllocatorWalk.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAllocatorWalk = AllocatorWalk.TestCase

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outboard.store.extent import EXTENT_PAGE, encode_header, extent_nbytes, parse_header, plan_layout

SIZES = st.lists(st.integers(0, 10**7), max_size=8)


@given(st.integers(0, 10**7), SIZES, st.lists(st.booleans(), min_size=8, max_size=8))
def test_header_says_what_was_planned(stream_nbytes: int, sizes: list[int], flags: list[bool]) -> None:
    stream_offset, offsets, nbytes = plan_layout(stream_nbytes, sizes)
    assert nbytes == extent_nbytes(stream_nbytes, sizes) and nbytes % EXTENT_PAGE == 0
    table = list(zip(offsets, sizes, flags, strict=False))
    encoded = encode_header(2**64 - 1, 5, 7, stream_nbytes, table)
    places = [(0, len(encoded)), (stream_offset, stream_nbytes), *zip(offsets, sizes, strict=True)]
    for (offset, size), (following, _) in zip(places, [*places[1:], (nbytes, 0)], strict=True):
        assert offset % 64 == 0 and offset + size <= following
    header = parse_header(memoryview(encoded.ljust(nbytes, b"\0")))
    assert header == (2**64 - 1, 5, 7, (stream_offset, stream_nbytes), table)


def test_other_bytes_are_no_extent() -> None:
    with pytest.raises(ValueError, match="no extent begins"):
        parse_header(memoryview(bytes(4096)))
    with pytest.raises(ValueError, match="cannot hold"):
        parse_header(memoryview(b"OUTB"))


def test_header_that_points_outside_is_refused() -> None:
    encoded = encode_header(1, 2, 3, 10_000, []).ljust(4096, b"\0")
    with pytest.raises(ValueError, match="ends after"):
        parse_header(memoryview(encoded))

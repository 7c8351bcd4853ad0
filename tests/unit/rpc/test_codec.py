"""Frames: split, joined, bounded, with their descriptors."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outboard.rpc import codec
from outboard.rpc.codec import (
    HEADER,
    MAX_BODY,
    MAX_FRAME,
    MAX_MESSAGE,
    START,
    Frame,
    FrameDecoder,
    ProtocolError,
    decode,
    encode_frame,
    encode_parts,
)
from outboard.rpc.protos import outboard_pb2 as pb

NAMES = {name: value for name, value in vars(Frame).items() if not name.startswith("_")}


def decode_all(*chunks: bytes) -> list[codec.FrameTuple]:
    decoder = FrameDecoder()
    for chunk in chunks:
        decoder.feed(chunk)
    return decoder.frames()


def test_frame_types_are_those_of_the_proto_file() -> None:
    known = {name: value for name, value in pb.FrameType.items() if value}
    assert known == NAMES


def test_each_frame_type_has_a_message_or_is_empty() -> None:
    assert set(codec.MESSAGES) == set(NAMES.values())
    assert codec.MESSAGES[Frame.STATUS] is pb.StatusRequest
    assert codec.MESSAGES[Frame.INIT_FAILED] is pb.InitFailed
    assert codec.MESSAGES[Frame.LEAVING] is None


def test_unknown_attribute_of_the_module_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'MESSAGE'"):
        codec.MESSAGE  # noqa: B018


def test_one_chunk_that_is_one_frame_is_decoded_without_state() -> None:
    frames, state = decode(START, encode_frame(Frame.SUBMIT, b"body", 2**64 - 1))
    assert frames == [(Frame.SUBMIT, b"body", 2**64 - 1, ())]
    assert state is START


@given(
    messages=st.lists(st.tuples(st.integers(1, 42), st.binary(max_size=300), st.integers(0, 2**64 - 1)), max_size=12),
    cuts=st.lists(st.integers(0, 4000), max_size=20),
)
def test_frames_come_out_as_they_went_in_however_the_bytes_are_cut(
    messages: list[tuple[int, bytes, int]], cuts: list[int]
) -> None:
    stream = b"".join(encode_frame(*message) for message in messages)
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    chunks = [stream[start:end] for start, end in itertools.pairwise(edges)]
    assert decode_all(*chunks) == [(*message, ()) for message in messages]


@pytest.mark.parametrize("nbytes", [MAX_BODY, MAX_BODY + 1, 3 * MAX_BODY, 3 * MAX_BODY + 7])
def test_long_message_travels_in_parts_of_at_most_max_frame(nbytes: int) -> None:
    body = bytes(range(256)) * (nbytes // 256) + b"x" * (nbytes % 256)
    parts = encode_parts(Frame.ANSWER, body, 9)
    assert len(parts) == -(-nbytes // MAX_BODY)
    assert max(map(len, parts)) <= MAX_FRAME
    assert b"".join(parts) == encode_frame(Frame.ANSWER, body, 9)
    assert decode_all(*parts) == [(Frame.ANSWER, body, 9, ())]


def test_other_lanes_pass_between_the_parts_of_a_message() -> None:
    first, *rest = encode_parts(Frame.ANSWER, b"x" * (MAX_BODY + 1))
    control = encode_frame(Frame.WANT, b"now")
    assert [frame[0] for frame in decode_all(first, control, *rest)] == [Frame.WANT, Frame.ANSWER]


def test_part_of_another_message_in_the_same_lane_is_refused() -> None:
    first, _ = encode_parts(Frame.ANSWER, b"x" * (MAX_BODY + 1))
    with pytest.raises(ProtocolError, match="interrupts a message of type 29"):
        decode_all(first, encode_frame(Frame.SUBMIT, b""))


def test_frame_over_the_bound_is_refused_before_its_body_arrives() -> None:
    decoder = FrameDecoder()
    with pytest.raises(ProtocolError, match="announces"):
        decoder.feed(HEADER.pack(MAX_BODY + 1, Frame.SUBMIT, 1, 0, 0))
    decoder.feed(encode_frame(Frame.WANT, b""))
    assert decoder.frames() == [(Frame.WANT, b"", 0, ())]


def test_message_over_the_bound_is_refused_on_both_sides() -> None:
    with pytest.raises(ProtocolError, match="carries at most"):
        encode_frame(Frame.ANSWER, bytes(MAX_MESSAGE + 1))
    decoder = FrameDecoder()
    part = HEADER.pack(MAX_BODY, Frame.ANSWER, 1 | codec.MORE, 0, 0) + bytes(MAX_BODY)
    with pytest.raises(ProtocolError, match="more than"):
        for _ in range(MAX_MESSAGE // MAX_BODY + 1):
            decoder.feed(part)


def test_descriptors_go_to_the_frames_that_announce_them() -> None:
    plain = encode_frame(Frame.SUBMIT, b"")
    two, one = encode_frame(Frame.SEGMENT, b"a", fds=2), encode_frame(Frame.SEGMENT, b"b", fds=1)
    decoder = FrameDecoder()
    decoder.feed(plain + two[:5], (7, 8))
    assert decoder.unclaimed == (7, 8)
    decoder.feed(two[5:] + plain + one, (9,))
    assert [frame[3] for frame in decoder.frames()] == [(), (7, 8), (), (9,)]
    assert decoder.unclaimed == ()


def test_descriptors_of_an_unfinished_message_are_unclaimed_until_it_is_whole() -> None:
    first, second = encode_parts(Frame.SEGMENT, b"x" * (MAX_BODY + 1), fds=1)
    decoder = FrameDecoder()
    decoder.feed(first, (5,))
    assert decoder.unclaimed == (5,)
    decoder.feed(second)
    assert decoder.frames()[0][3] == (5,)


def test_missing_descriptors_are_an_error() -> None:
    with pytest.raises(ProtocolError, match="lacks 1 descriptors"):
        decode_all(encode_frame(Frame.SEGMENT, b"", fds=1))


def test_what_speaks_of_tasks_is_not_overtaken() -> None:
    ordered = (Frame.SUBMIT, Frame.FINISHED, Frame.LOST, Frame.RETURNED, Frame.CANCEL, Frame.FREE, Frame.UNBOUND)
    assert {codec.LANES[frame_type] for frame_type in ordered} == {codec.LANE_TASKS}
    assert codec.LANES[Frame.GRANT] == codec.LANE_CONTROL
    assert codec.LANES[Frame.LOG] == codec.LANE_BULK

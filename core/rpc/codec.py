"""Frames: how messages lie in the bytes of a local link.

A frame is a fixed header and a body of at most ``MAX_BODY`` bytes. A longer message travels as several frames of the
same type, destination and lane; bit 7 of the lane says that more of it follows. Parts of one message are contiguous
within their lane, so a decoder needs one unfinished message a lane and no ids.

``decode`` is a pure function from (state, bytes) to (frames, state): a caller that may be interrupted at any point
commits both results together or neither. Descriptors arrive beside the bytes, in order, and never later than the
first byte of their frame; the header's count says how many of them belong to it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.message import Message

    MESSAGES: dict[int, type[Message] | None]

#: Body length u32, frame type u8, lane u8 (bit 7: more parts follow), descriptors u16, destination u64.
HEADER = struct.Struct("<IBBHQ")
HEADER_NBYTES = HEADER.size

#: Bytes of a frame with its header. Larger: fewer parts, but control frames wait longer behind one.
MAX_FRAME = 256 * 1024
MAX_BODY = MAX_FRAME - HEADER_NBYTES

#: Bytes of a message in all its parts; what is larger belongs in the object store. Bounds a decoder's memory.
MAX_MESSAGE = 64 * 1024 * 1024

#: Descriptors the kernel passes with one message (SCM_MAX_FD).
MAX_DESCRIPTORS = 253

MORE = 0x80

LANE_CONTROL = 0
LANE_TASKS = 1
LANE_BULK = 2

#: A decoded frame: type, body, destination, descriptors (the receiver owns and closes them).
FrameTuple = tuple[int, bytes, int, tuple[int, ...]]


class ProtocolError(Exception):
    """The peer, or the caller of an encoder, breaks the rules of frames; the link cannot go on."""


class Frame:
    """Frame types: the values of ``FrameType`` in the proto file as plain integers, so links need no protobuf."""

    HELLO = 1
    WELCOME = 2
    REFUSAL = 3
    BIND = 4
    UNBIND = 5
    UNBOUND = 6
    BINDING_FAILED = 7
    KIND = 8
    GET_KIND = 9
    KIND_REFUSED = 10
    WANT = 11
    GRANT = 12
    SUBMIT = 13
    FINISHED = 14
    LOST = 15
    RETURNED = 16
    CANCEL = 17
    BLOCKED = 18
    UNBLOCK = 19
    RESUME = 20
    LEASE = 21
    MAP = 22
    SEGMENT = 23
    ANNOUNCE = 24
    FREE = 25
    UNPIN = 26
    RECLAIM = 27
    ASK = 28
    ANSWER = 29
    BORROW = 30
    RELEASE = 31
    BORROWER_DIED = 32
    ADOPT = 33
    OWNER_LOST = 34
    LOG = 35
    STATUS = 36
    STATUS_REPLY = 37
    INIT_FAILED = 39
    FORKED = 40
    STORE_FULL = 41
    STARTED = 42
    GET_PACKET = 43
    PACKET = 44
    GIVE_BACK = 45
    DROP_KINDS = 46
    PASSED_ON = 47
    LEAVING = 48
    SESSION = 49
    NO_PATH = 50
    CONNECT = 51
    NODE_GONE = 52
    ENDED = 53
    PULL = 54
    PULLED = 55
    FETCH = 56
    PIECE = 57
    EVACUATE = 58
    EVACUATED = 59
    MET = 60
    MOVED = 61
    REACH = 62
    NAME = 63
    NAME_REPLY = 64
    TIMELINE = 65
    TIMELINE_REPLY = 66
    GANG = 67
    GANG_STATE = 68


#: Frames that may overtake tasks and results. Whatever speaks of a task, a binding or an object stays in the tasks'
#: lane: a LOST or FREE that overtook a FINISHED would contradict it, as would a WELCOME that overtook the NODE_GONE of
#: an earlier session.
_CONTROL = (
    Frame.REFUSAL,
    Frame.WANT,
    Frame.GRANT,
    Frame.STATUS,
    Frame.STATUS_REPLY,
    Frame.BLOCKED,
    Frame.RESUME,
)
_LANE_OF = dict.fromkeys(_CONTROL, LANE_CONTROL) | {Frame.LOG: LANE_BULK, Frame.PIECE: LANE_BULK}

#: Lane of each frame type, indexed by type.
LANES = bytes(_LANE_OF.get(frame_type, LANE_TASKS) for frame_type in range(256))

#: Unfinished message of a lane: type, destination, descriptors, bytes so far, bodies.
_Unfinished = tuple[int, int, tuple[int, ...], int, tuple[bytes, ...]]

#: Bytes of an incomplete frame, descriptors no frame has claimed yet, unfinished messages by lane.
DecoderState = tuple[bytes, tuple[int, ...], dict[int, _Unfinished]]

START: DecoderState = (b"", (), {})

_pack = HEADER.pack
_unpack_from = HEADER.unpack_from


def encode_frame(frame_type: int, body: bytes, destination: int = 0, lane: int | None = None, fds: int = 0) -> bytes:
    """Encode one message; one over ``MAX_BODY`` bytes becomes several frames, one after the other.

    Args:
        lane: default is the lane of the type.
        fds: how many descriptors will be sent with the first byte.
    Raises:
        ProtocolError: the body exceeds ``MAX_MESSAGE`` bytes.
    """
    nbytes = len(body)
    if nbytes <= MAX_BODY:
        return _pack(nbytes, frame_type, LANES[frame_type] if lane is None else lane, fds, destination) + body
    return b"".join(encode_parts(frame_type, body, destination, lane, fds))


def encode_parts(
    frame_type: int, body: bytes, destination: int = 0, lane: int | None = None, fds: int = 0
) -> list[bytes]:
    """Encode one message as a list of frames, so that a sender can serve other lanes between them."""
    nbytes = len(body)
    if nbytes > MAX_MESSAGE:
        raise ProtocolError(f"message of type {frame_type} has {nbytes} bytes; a link carries at most {MAX_MESSAGE}")
    if lane is None:
        lane = LANES[frame_type]
    frames = []
    for start in range(0, nbytes or 1, MAX_BODY):
        part = body[start : start + MAX_BODY]
        more = MORE if start + MAX_BODY < nbytes else 0
        frames.append(_pack(len(part), frame_type, lane | more, fds if start == 0 else 0, destination) + part)
    return frames


def decode(state: DecoderState, chunk: bytes, fds: tuple[int, ...] = ()) -> tuple[list[FrameTuple], DecoderState]:
    """Decode what ``chunk`` completes; pure: on an error, and until the caller keeps the new state, nothing happened.

    Raises:
        ProtocolError: a length over the bounds, parts that do not belong together, or missing descriptors.
    """
    body_nbytes = len(chunk) - HEADER_NBYTES
    if state is START and body_nbytes >= 0 and not fds:
        # The usual case, one chunk that is one whole frame, costs one slice.
        nbytes, frame_type, lane, descriptors, destination = _unpack_from(chunk)
        if nbytes == body_nbytes <= MAX_BODY and lane < MORE and not descriptors:
            return [(frame_type, chunk[HEADER_NBYTES:], destination, ())], START
    return _decode_any(state, chunk, fds)


def _decode_any(state: DecoderState, chunk: bytes, fds: tuple[int, ...]) -> tuple[list[FrameTuple], DecoderState]:
    rest, held, unfinished = state
    data = rest + chunk if rest else chunk
    held += fds
    frames: list[FrameTuple] = []
    offset, size = 0, len(data)
    while size - offset >= HEADER_NBYTES:
        nbytes, frame_type, lane, descriptors, destination = _unpack_from(data, offset)
        if nbytes > MAX_BODY:
            raise ProtocolError(f"frame of type {frame_type} announces {nbytes} bytes; at most {MAX_BODY} are allowed")
        start = offset + HEADER_NBYTES
        if size - start < nbytes:
            break
        offset = start + nbytes
        taken: tuple[int, ...] = ()
        if descriptors:
            if len(held) < descriptors:
                raise ProtocolError(f"frame of type {frame_type} lacks {descriptors - len(held)} descriptors")
            taken, held = held[:descriptors], held[descriptors:]
        frame = (frame_type, data[start:offset], destination, taken)
        if lane >= MORE or (unfinished and lane in unfinished):
            unfinished = _join(unfinished, lane, frame, frames)
        else:
            frames.append(frame)
    if offset == size and not held and not unfinished:
        return frames, START
    return frames, (data[offset:], held, unfinished)


def _join(
    unfinished: dict[int, _Unfinished], lane: int, part: FrameTuple, frames: list[FrameTuple]
) -> dict[int, _Unfinished]:
    """Add a part to its lane's message, appending the message to ``frames`` when it is whole; return the rest."""
    frame_type, body, destination, fds = part
    others = dict(unfinished)
    first: _Unfinished = (frame_type, destination, (), 0, ())
    known_type, known_destination, known_fds, nbytes, bodies = others.pop(lane & ~MORE, first)
    fds = known_fds + fds
    if (known_type, known_destination) != (frame_type, destination):
        raise ProtocolError(f"frame of type {frame_type} interrupts a message of type {known_type} in its lane")
    nbytes += len(body)
    if nbytes > MAX_MESSAGE:
        raise ProtocolError(f"message of type {frame_type} has more than {MAX_MESSAGE} bytes")
    bodies += (body,)
    if lane >= MORE:
        others[lane & ~MORE] = (frame_type, destination, fds, nbytes, bodies)
    else:
        frames.append((frame_type, b"".join(bodies), destination, fds))
    return others


class FrameDecoder:
    """Frames out of a stream of chunks, for callers that nothing interrupts. Not thread-safe."""

    __slots__ = ("_ready", "_state")

    def __init__(self) -> None:
        self._state = START
        self._ready: list[FrameTuple] = []

    def feed(self, chunk: bytes, fds: tuple[int, ...] = ()) -> None:
        """Take the next bytes and the descriptors that came with them; a ProtocolError changes nothing."""
        frames, self._state = decode(self._state, chunk, fds)
        self._ready += frames

    def frames(self) -> list[FrameTuple]:
        """Hand over the frames completed since the last call, in order."""
        ready = self._ready
        self._ready = []
        return ready

    @property
    def unclaimed(self) -> tuple[int, ...]:
        """Descriptors that were fed and have not been handed out; whoever drops the decoder closes them."""
        held = self._state[1]
        for unfinished in self._state[2].values():
            held += unfinished[2]
        return held


def __getattr__(name: str) -> Any:
    """Build ``MESSAGES``, frame type to protobuf class (None: empty body, or raw), when it is first asked for."""
    if name != "MESSAGES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .protos import outboard_pb2 as pb

    borrowed = {
        Frame.BIND: pb.Binding,
        Frame.PACKET: pb.Submit,
        Frame.UNBOUND: pb.Unbind,
        Frame.FREE: pb.Refs,
        Frame.UNPIN: pb.Refs,
    }
    borrowed |= {
        Frame.RELEASE: pb.Borrow,
        Frame.BORROWER_DIED: pb.Peer,
        Frame.OWNER_LOST: pb.Peer,
        Frame.ENDED: pb.Peer,
        Frame.MET: pb.Peer,
        Frame.REACH: pb.Connect,
        Frame.NAME: pb.NameRequest,
        Frame.EVACUATE: pb.Announce,
        Frame.EVACUATED: pb.Refs,
        Frame.STATUS: pb.StatusRequest,
        Frame.TIMELINE_REPLY: pb.Timeline,
    }
    empty = (Frame.BLOCKED, Frame.UNBLOCK, Frame.RESUME, Frame.FORKED, Frame.STARTED,
             Frame.LEAVING, Frame.SESSION)  # fmt: skip
    messages: dict[int, Any] = dict.fromkeys(empty)
    for frame_name, value in vars(Frame).items():
        if not frame_name.startswith("_") and value not in messages:
            messages[value] = borrowed.get(value) or getattr(pb, frame_name.title().replace("_", ""))
    globals()["MESSAGES"] = messages
    return messages

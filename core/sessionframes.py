"""Frames of sessions as they travel between nodes, and the messages of a tree within them.

A SESSION frame is addressed to a node, so that relays forward it without a look inside, and names in its first bytes
the node that sent it: relays check that. A message of a session is stamped with the process or node that says it and
the one that it is for.
"""

from __future__ import annotations

import struct

from .rpc.codec import ProtocolError
from .scheduler.session_words import Header, SessionName

#: Origin node, owner, node, number, word, dial, seq, expects, type of the message.
_HEADER = struct.Struct("<QQQQBIQQB")

#: Source and destination of a message.
STAMP = struct.Struct("<QQ")

_ORIGIN = struct.Struct("<Q")

#: Destination of what is for every node of a tree.
ALL = (1 << 64) - 1


def encode_session(origin: int, header: Header, frame_type: int, body: bytes) -> bytes:
    """Lay out the body of a SESSION frame."""
    (owner, node, number), word, dial, seq, expects = header
    fixed = _HEADER.pack(origin, owner, node, number, word, dial, seq, expects, frame_type)
    return fixed + body


def decode_session(data: bytes) -> tuple[int, Header, int, bytes]:
    """Read the body of a SESSION frame: origin, header, type of the message, message.

    Raises:
        ProtocolError: it is too short.
    """
    if len(data) < _HEADER.size:
        raise ProtocolError(f"a session's frame of {len(data)} bytes")
    origin, owner, node, number, word, dial, seq, expects, frame_type = _HEADER.unpack_from(data)
    header = Header(SessionName(owner, node, number), word, dial, seq, expects)
    return origin, header, frame_type, data[_HEADER.size :]


def origin_of(data: bytes) -> int:
    """Tell which node a SESSION frame says it comes from; 0 when it is too short to say."""
    return int(_ORIGIN.unpack_from(data)[0]) if len(data) >= _HEADER.size else 0


def name_of(data: bytes) -> SessionName:
    """Tell which session a SESSION frame belongs to."""
    return SessionName(*_HEADER.unpack_from(data)[1:4])

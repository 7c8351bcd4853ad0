"""The bytes in which a head keeps its state between two starts: JSON, so that people can read it."""

from __future__ import annotations

import json

from .scheduler.kept import MEMBERS, KeptState

#: Longest kept state that is read: every member with the longest names takes about 8 kB of escaped characters.
KEPT_NBYTES = MEMBERS * 8192


def to_bytes(state: KeptState) -> bytes:
    """Encode a state; `from_bytes` gives it back."""
    return json.dumps(state.to_fields(), separators=(",", ":")).encode() + b"\n"


def from_bytes(data: bytes) -> KeptState:
    """Decode and check a state.

    Raises:
        ValueError: the bytes are damaged, too long, or not a kept state. Nothing but plain values is ever built.
    """
    if len(data) > KEPT_NBYTES:
        raise ValueError(f"the kept state has {len(data)} bytes; at most {KEPT_NBYTES} are read")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the kept state is damaged: {error}") from None
    return KeptState.from_fields(fields)

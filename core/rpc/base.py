"""The port: what the loops of ring 3 need of a link, whatever carries it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Link(Protocol):
    """One end of an ordered, reliable stream of frames between two processes."""

    def send(self, frame_type: int, body: bytes, destination: int = 0, fds: Sequence[int] = ()) -> None:
        """Take one message for sending; it may stay queued until ``flush``.

        The caller keeps its descriptors and may close them at once. Raises ProtocolError for a message over the
        bounds of ``codec``.
        """

    def flush(self) -> None:
        """Send what is queued, as far as the kind of link allows."""

    def close(self) -> None:
        """Close this end; what is still queued is dropped. A second call does nothing."""

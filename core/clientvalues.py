"""The values of a client: those whose references its machine counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .ids import ObjectId
from .interrupts import shield
from .rpc.protos import outboard_pb2 as pb
from .values import Values

if TYPE_CHECKING:
    from .client import Client

#: The part of the store (one over this) that results of backends may fill as views of what lies there. Larger copies
#: less, smaller leaves more room to what runs.
VIEW_SHARE = 4


class ClientValues(Values):
    """Values whose references the client's machine counts."""

    def __init__(self, client: Client, node: int) -> None:
        super().__init__(client.incarnation, node, lease=client.lease, fetch=client.fetch_segment,
                         pull=client.pulling.pull, take_seq=client.take_seq, hold=client.hold)  # fmt: skip
        self._client = client
        self._space = client.lock  # one lock, since either is taken under the other

    def _store(self, oid: ObjectId, version: int, stream: bytes, buffers: list[Any]) -> pb.Descriptor:
        with shield:  # an extent that nobody knows would be lost
            try:
                return super()._store(oid, version, stream, buffers)
            except (OSError, ValueError, KeyError):
                self._client.check_open()  # another thread has closed the segments meanwhile
                raise

    def _open(self, d: pb.Descriptor, *, writable: bool, pinned: bool, deadline: float | None) -> Any:
        with shield:
            try:
                return super()._open(d, writable=writable, pinned=pinned, deadline=deadline)
            except (OSError, ValueError, KeyError):
                self._client.check_open()
                raise

    def is_alone(self) -> bool:
        """Whether all processes that may be given a value run on this machine."""
        return not self._client.reach.joined

    def own(self, descriptor: pb.Descriptor) -> None:
        """Make a new stored object known to the machine, with one reference. Under the lock."""
        with shield:
            self._client.register((descriptor,))

    def release_hold(self, oid: ObjectId) -> None:
        """Drop the reference that `hold` counted."""
        self._client.dropped.append(oid)

    def give_back_pulled(self, d: pb.Descriptor) -> None:
        """Give back the pin of a copy that was pulled and will not be opened."""
        with self._client.lock:
            self._client.unpin_pulled([(ObjectId(d.owner, d.seq), d.version)])

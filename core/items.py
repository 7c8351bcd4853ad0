"""Pickling and sending the items of task arrays, outside of the client's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors
from .frames import add_interval
from .ids import ObjectId
from .interrupts import shield
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler import owner as machine
from .scheduler.outcomes import EncodeFailedMark
from .values import Batch, Encoded

if TYPE_CHECKING:
    from .client import Client


class ItemSender:
    """Pickles and sends the items of one `SendItems`, in frames of bounded size."""

    #: Bytes of calls gathered before a frame goes out, so that workers start while the rest is being pickled.
    FRAME_NBYTES = 64 << 10

    def __init__(self, client: Client, command: machine.SendItems, batch: Batch) -> None:
        self.client = client
        self.array = command.array
        self.batch = batch
        self.start, self.end = command.first, command.first + command.count  # what is neither sent nor handed back
        self.attempt = command.attempt
        self.calls: list[bytes] = []  # of the items from `start` on
        self.encoded: dict[int, Encoded] = {}

    def run(self) -> None:
        """Send items until all are sent, the window of bytes is full or nobody wants them.

        Within a shield, which is open while user code pickles.
        """
        items = self.client.array_items.get(self.array.stream)
        while self.start < self.end and not self.array.cancelled:
            try:
                shield.open(self._encode, items)
            except (Exception, SystemExit) as error:  # SystemExit: of the item's own pickling
                self._flush()
                self._fail(error)
                self.start += 1
            except BaseException:
                self._flush()
                raise
            self._flush()
            if self._is_window_full():
                return

    def hand_back(self) -> None:
        """Give what was not sent back to the machine. Under the lock."""
        if self.start < self.end:
            self.client.owner.on_unsent(self.array, self.start, self.end - self.start, self.attempt)

    def _encode(self, items: Any) -> None:
        """Pickle one frame's worth; it may be left at any point, `calls` says how far it came."""
        encode, calls, nbytes = self.client.values.encode_call, self.calls, 0
        batch = self.batch
        for index in range(self.start, self.end):
            encoded = encode(items[index], batch=batch)
            if encoded.objects or encoded.refs:
                self.encoded[index] = encoded
                calls.append(encoded.body)
                return
            calls.append(encoded.body)
            nbytes += len(encoded.body)
            if nbytes >= self.FRAME_NBYTES:
                return

    def _is_window_full(self) -> bool:
        kind = self.array.kind
        return kind.nbytes >= machine.OUTSTANDING_NBYTES and kind.outstanding >= machine.OUTSTANDING_MIN

    def _fail(self, error: BaseException) -> None:
        index = self.start
        wrapped = errors.SerializationError(f"item {index} cannot be pickled: {error}", what="argument", reason=error)
        wrapped.__cause__ = error
        client = self.client
        with client.lock:
            client.owner.on_item_failed(self.array, index, EncodeFailedMark(wrapped))
            client.failures += 1
            client.on_items(self.array.stream)

    def _flush(self) -> None:
        calls, start = self.calls, self.start
        if not calls:
            return
        self.calls = []
        self.start = end = start + len(calls)
        client = self.client
        submit = pb.Submit()
        holds: dict[int, tuple[pb.Descriptor, ...]] = {}
        with client.lock:
            if client.closed_mark is not None:
                return
            for index, encoded in self.encoded.items():
                if index >= end:  # interrupted before it counted
                    continue
                stored = tuple(ObjectId(d.owner, d.seq) for d in encoded.objects)
                client.register(encoded.objects)
                client.owner.on_item_bytes(self.array, index, encoded.nbytes, stored + encoded.refs)
                for oid in stored:
                    client.owner.refs.drop(oid)
                submit.announced.extend(client.values.take_unannounced(encoded.objects))
                if encoded.objects:
                    holds[index - start] = encoded.objects
            self.encoded = {}
            client.outbox.introduce(self.array.kind)
            add_interval(submit, self.array.kind, self.array.stream, start, self.attempt, calls, holds)
            client.send(Frame.SUBMIT, submit.SerializeToString())

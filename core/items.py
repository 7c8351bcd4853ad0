"""Pickling and sending the items of task arrays, outside of the client's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .failures import encode_failure
from .frames import add_interval
from .ids import ObjectId
from .interrupts import shield
from .rpc.protos import outboard_pb2 as pb
from .scheduler import owner as machine
from .values import Batch, Encoded

if TYPE_CHECKING:
    from .client import Client


class ItemSender:
    """Pickles and sends the items of one `SendItems`, in frames of bounded size.

    It may be told to hand back at any time, by another thread too: then what it has pickled is dropped.
    """

    #: Bytes of calls gathered before a frame goes out, so that workers start while the rest is being pickled.
    FRAME_NBYTES = 64 << 10

    def __init__(self, client: Client, command: machine.SendItems) -> None:
        self.client = client
        self.array = command.array
        self.node = command.node
        self.start, self.end = command.first, command.first + command.count  # what is neither sent nor handed back
        self.attempt = command.attempt
        self.calls: list[bytes] = []  # of the items from `start` on
        self.encoded: dict[int, Encoded] = {}

    def run(self, batch: Batch) -> None:
        """Send items until all are sent, the window of bytes is full or nobody wants them.

        Within a shield, which is open while user code pickles.
        """
        items = self.client.array_items.get(self.array.stream)
        while self.start < self.end and not self.array.cancelled:
            try:
                shield.open(self._encode, items, batch)
            except (Exception, SystemExit) as error:  # SystemExit: of the item's own pickling
                self._flush()
                self._fail(error)
            except BaseException:
                self._flush()
                raise
            self._flush()
            if self._is_window_full():
                return

    def hand_back(self) -> None:
        """Give what was not sent back to the machine, and send nothing more. Under the lock."""
        start, end = self.start, self.end
        self.end = start
        if start < end:
            self.client.owner.on_unsent(self.array, start, end - start, self.attempt, self.node)

    def _encode(self, items: Any, batch: Batch) -> None:
        """Pickle one frame's worth; it may be left at any point, `calls` says how far it came."""
        encode, calls, nbytes = self.client.values.encode_call, self.calls, 0
        shared = self.client.shared.get(self.array.stream)
        for index in range(self.start, self.end):
            encoded = encode(items[index], batch=batch, shared=shared, are_arguments=True)
            if encoded.objects or encoded.refs:
                self.encoded[index] = encoded
                calls.append(encoded.body)
                return
            calls.append(encoded.body)
            nbytes += len(encoded.body)
            if nbytes >= self.FRAME_NBYTES:
                return

    def _is_window_full(self) -> bool:
        share = self.array.kind.shares.get(self.node)
        return share is not None and share.is_window_full()

    def _fail(self, error: Exception | SystemExit) -> None:
        client = self.client
        with client.lock:
            index = self.start
            if index >= self.end:
                return  # handed back meanwhile
            mark = encode_failure(f"item {index}", "argument", error)
            client.owner.on_item_failed(self.array, index, mark, self.node)
            self.start += 1
            client.failures += 1
            client.on_items(self.array.stream)

    def _flush(self) -> None:
        if not self.calls:
            return
        client = self.client
        with client.lock:
            calls, self.calls = self.calls, []
            encoded, self.encoded = self.encoded, {}
            if client.closed_mark is not None:
                self.end = self.start
                return
            if self.start >= self.end:  # handed back meanwhile
                for item in encoded.values():
                    self._let_go(item)
                return
            start = self.start
            self.start = end = start + len(calls)
            submit = pb.Submit()
            holds: dict[int, tuple[pb.Descriptor, ...]] = {}
            stored: list[pb.Descriptor] = []
            for index, item in encoded.items():
                if index >= end:  # interrupted before it counted
                    continue
                held = tuple(ObjectId(d.owner, d.seq) for d in item.objects) + item.refs
                client.register(item.objects)
                client.owner.on_item_bytes(self.array, index, item.nbytes, held, self.node)
                self._let_go(item)
                if item.objects:
                    stored += item.objects
                    holds[index - start] = item.objects
            client.outbox.introduce(self.array.kind, self.node)
            add_interval(submit, self.array.kind, self.array.stream, start, self.attempt, calls, holds)
            client.outbox.submit(submit, self.node, stored)

    def _let_go(self, encoded: Encoded) -> None:
        """Drop the references to stored objects that the encoding took; what uses them has its own."""
        self.client.register(encoded.objects)
        for d in encoded.objects:
            self.client.owner.refs.drop((d.owner, d.seq))

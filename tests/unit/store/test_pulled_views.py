"""Views of objects that lie at another node: each pin that came with a copy goes back exactly once."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from outboard.errors import ObjectLostError
from outboard.ids import ObjectId
from outboard.rpc.protos import outboard_pb2 as pb
from outboard.store import memory
from outboard.store.extent import extent_nbytes
from outboard.store.segments import SegmentWriter
from outboard.values import Ended, Values

HERE, THERE, ME, OWNER = 1, 2, 10, 11
OID = ObjectId(OWNER, 1)
DATA = bytes(range(256)) * 1024


class Store:
    """A node with a copy in segment 5; counts what it gave and got back."""

    def __init__(self) -> None:
        nbytes = extent_nbytes(0, [len(DATA)])
        self.fd = memory.create_segment(nbytes)
        self.copy = pb.Descriptor(owner=OWNER, seq=1, version=2, segment=5, nbytes=nbytes, node=HERE)
        writer = SegmentWriter(5, os.dup(self.fd), nbytes)
        writer.write(0, OID, 2, b"", [DATA], fresh=True)
        writer.close()
        self.pulled: list[pb.Descriptor] = []
        self.returned: list[pb.Descriptor] = []
        self.held: list[ObjectId] = []
        self.is_lost = self.has_segment_gone = False
        self.values = PulledValues(self)

    def pull(self, d: pb.Descriptor, deadline: float | None) -> pb.Descriptor:
        if self.is_lost:
            raise ObjectLostError("no copy", oid=OID, version=d.version)
        self.pulled.append(d)
        return self.copy

    def fetch(self, segment: int) -> None:
        if self.has_segment_gone:
            raise ObjectLostError("gone")
        self.values.reader.add(segment, os.dup(self.fd), self.copy.nbytes)

    def hold(self, oid: ObjectId) -> bool:
        self.held.append(oid)
        return True


class PulledValues(Values):
    def __init__(self, store: Store) -> None:
        super().__init__(ME, HERE, lease=lambda nbytes: None, fetch=store.fetch, pull=store.pull,
                         take_seq=lambda: 1, hold=store.hold)  # fmt: skip
        self._store_of = store

    def give_back_pulled(self, d: pb.Descriptor) -> None:
        self._store_of.returned.append(d)


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.values.close()
    os.close(store.fd)


def parcel(node: int) -> pb.Parcel:
    stored = pb.Descriptor(owner=OWNER, seq=1, version=2, segment=77, nbytes=extent_nbytes(0, [len(DATA)]), node=node)
    buffers: list[Any] = []
    stream = pickle.dumps(pickle.PickleBuffer(DATA), 5, buffer_callback=buffers.append)
    return pb.Parcel(stream=stream, buffers=[pb.Buffer(stored=stored, readonly=True)])


@pytest.mark.parametrize("pinned", [True, False])
def test_each_pull_is_given_back_when_the_last_view_ends(store: Store, pinned: bool) -> None:
    values = store.values
    one = values.open_parcel(parcel(THERE), writable=False, pinned=pinned)
    two = values.open_parcel(parcel(THERE), writable=False, pinned=pinned)
    assert bytes(one) == DATA and len(store.pulled) == 2
    assert not store.held, "a pin keeps it, no reference is needed"
    assert [d.node for d in values.live()] == [HERE]
    del one
    assert values.collect() == []
    del two
    assert values.collect() == [Ended(OID, 2, opens=0, pins=0, pulled=2)]
    assert values.collect() == [] and not store.returned and not values.live()


def test_object_of_this_node_is_not_pulled(store: Store) -> None:
    own = parcel(HERE)
    own.buffers[0].stored.segment = 5
    view = store.values.open_parcel(own, writable=False, pinned=True)
    assert bytes(view) == DATA and not store.pulled
    del view
    assert store.values.collect() == [Ended(OID, 2, opens=0, pins=1, pulled=0)]


def test_copy_that_cannot_be_opened_is_given_back(store: Store) -> None:
    store.has_segment_gone = True
    with pytest.raises(ObjectLostError, match="gone"):
        store.values.open_parcel(parcel(THERE), writable=False, pinned=True)
    assert store.returned == [store.copy] and not store.values.live()


def test_copy_of_another_version_is_given_back(store: Store) -> None:
    store.copy.version = 3
    with pytest.raises(ValueError, match="found"):
        store.values.open_parcel(parcel(THERE), writable=False, pinned=True)
    assert len(store.returned) == 1 and not store.values.live()


def test_lost_object_is_named(store: Store) -> None:
    store.is_lost = True
    with pytest.raises(ObjectLostError) as caught:
        store.values.open_parcel(parcel(THERE), writable=False, pinned=True)
    assert (caught.value.oid, caught.value.version) == (OID, 2)
    assert not store.returned

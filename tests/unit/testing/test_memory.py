from __future__ import annotations

from collections.abc import Iterator

import pytest

from outboard.ids import ObjectId
from outboard.rpc.protos import outboard_pb2 as pb
from outboard.testing.memory import PAGE, Cell, Reader
from outboard.testing.world import World

OID = ObjectId(1, 1)


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1)
    yield world
    world.close()


def test_extent_under_a_live_view_may_not_be_written_over(world: World) -> None:
    memory, reader = world.machines[0].memory, Reader(world.machines[0].memory)
    memory.write(1, 0, Cell(OID, 0, 2 * PAGE, b"old"))
    reader.open(1, 1, 0, 1, 0, 2 * PAGE, writable=False)
    with pytest.raises(AssertionError, match="live views"):
        memory.write(1, PAGE, Cell(ObjectId(1, 2), 0, PAGE, b"new"))
    with pytest.raises(AssertionError, match="live views"):
        memory.release(1, 0)
    reader.end_view(reader.opened.pop())
    memory.write(1, PAGE, Cell(ObjectId(1, 2), 0, PAGE, b"new"))
    assert memory.read(pb.Descriptor(owner=1, seq=1, segment=1)) is None


def test_reader_reports_an_extent_once_its_last_view_has_ended(world: World) -> None:
    reader = Reader(world.machines[0].memory)
    world.machines[0].memory.write(1, 0, Cell(OID, 0, PAGE, b"x"))
    for _ in range(2):
        reader.open(1, 1, 0, 1, 0, PAGE, writable=False)
    reader.end_view((1, 0))
    assert not reader.collect()
    reader.end_view((1, 0))
    assert reader.collect() == [(1, 0), (1, 0)] and not reader.ended


def test_views_of_a_dead_process_count_no_more(world: World) -> None:
    reader = Reader(world.machines[0].memory)
    world.machines[0].memory.write(1, 0, Cell(OID, 0, PAGE, b"x"))
    reader.open(1, 1, 0, 1, 0, PAGE, writable=False)
    reader.forget()
    world.machines[0].memory.release(1, 0)

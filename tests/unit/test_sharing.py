"""Large arguments of one array: known by identity, let go with whatever ends first."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from outboard.ids import ObjectId
from outboard.rpc.protos import outboard_pb2 as pb
from outboard.sharing import Place, SharedArguments, memory_owner


class Owner:
    """What a buffer's memory belongs to."""


class Rig:
    """Shared arguments with room for two buffers of ten bytes, and the references that they hold."""

    def __init__(self) -> None:
        self.dropped: deque[tuple[int, int]] = deque()
        self.shared = SharedArguments(self.dropped, 20)
        self.held: list[int] = []
        self.gone: set[int] = set()

    def hold(self, oid: ObjectId) -> bool:
        if oid.seq in self.gone:
            return False
        self.held.append(oid.seq)
        return True

    def keep(self, seq: int, owner: Any, address: int | None = None) -> None:
        place = Place(seq if address is None else address, 10, False)
        self.shared.keep(place, owner, pb.Descriptor(owner=1, seq=seq), self.hold)

    def find(self, address: int, owner: Any) -> int | None:
        found = self.shared.find(Place(address, 10, False), owner)
        return None if found is None else found.seq

    def given_up(self) -> list[int]:
        return sorted(seq for _, seq in self.dropped)


@pytest.fixture
def rig() -> Rig:
    """Make one."""
    return Rig()


def test_buffer_is_found_while_its_owner_lives(rig: Rig) -> None:
    owner = Owner()
    rig.keep(1, owner)
    assert rig.find(1, owner) == 1
    assert rig.find(2, owner) is None
    assert rig.held == [1] and not rig.dropped
    del owner
    assert rig.given_up() == [1]


def test_another_owner_at_the_same_address_is_another_buffer(rig: Rig) -> None:
    first, second = Owner(), Owner()
    rig.keep(1, first, address=5)
    assert rig.find(5, second) is None
    rig.keep(2, second, address=5)
    assert rig.given_up() == [1]
    del first
    assert rig.find(5, second) == 2
    assert rig.given_up() == [1]


def test_an_owner_that_ended_leaves_room_and_no_entry(rig: Rig) -> None:
    for seq in range(100):
        rig.keep(seq, Owner())
    last = Owner()
    rig.keep(100, last)
    assert rig.given_up() == list(range(100))
    assert repr(rig.shared) == "<SharedArguments 1 buffers nbytes=10>"


def test_the_one_used_longest_ago_makes_room(rig: Rig) -> None:
    owners = [Owner() for _ in range(3)]
    rig.keep(0, owners[0])
    rig.keep(1, owners[1])
    rig.find(0, owners[0])
    rig.keep(2, owners[2])
    assert rig.given_up() == [1]


def test_each_reference_is_dropped_once(rig: Rig) -> None:
    owners = [Owner(), Owner()]
    rig.keep(0, owners[0])
    rig.keep(1, owners[1])
    owners.pop()
    assert rig.shared.give_up()
    assert not rig.shared.give_up()
    owners.clear()
    assert rig.given_up() == [0, 1]


def test_nothing_is_kept_after_the_end_or_of_what_is_gone(rig: Rig) -> None:
    owner = Owner()
    rig.gone.add(1)
    rig.keep(1, owner)
    rig.keep(2, None)
    rig.shared.end()
    rig.keep(3, owner)
    assert not rig.held and not rig.dropped


def test_what_exceeds_the_limit_alone_is_not_kept(rig: Rig) -> None:
    owner, small = Owner(), Owner()
    rig.keep(1, small)
    rig.shared.keep(Place(9, 21, False), owner, pb.Descriptor(owner=1, seq=2), rig.hold)
    assert rig.held == [1] and not rig.dropped


def test_owner_of_memory_is_the_base_that_can_be_referenced() -> None:
    base = np.zeros(100)
    assert memory_owner(memoryview(base[10:20])) is base
    assert memory_owner(memoryview(np.asarray(memoryview(base)))) is base
    over_bytes = np.frombuffer(b"12345678")
    assert memory_owner(memoryview(over_bytes)) is over_bytes
    assert memory_owner(memoryview(bytearray(3))) is None

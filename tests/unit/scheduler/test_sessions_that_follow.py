"""What a node and an owner still know of each other when one session has ended and another follows."""

from __future__ import annotations

from typing import Any

from outboard.ids import ObjectId
from outboard.scheduler.extents import Extents
from outboard.scheduler.orders import Send
from outboard.scheduler.owner import Owner

ROOT, WORKER, NODE = 7, 8, 99
HOME, ONE, OTHER = 10, 20, 30
STORED = b"\x0a"


def test_a_client_that_comes_again_can_store() -> None:
    extents = Extents(1 << 30)
    extents.on_process_died(ROOT)
    extents.on_process_met(ROOT)
    result = extents.on_lease(WORKER, 1 << 20)
    replica = extents.on_lease(NODE, 1 << 20)
    assert result is not None and replica is not None
    extents.on_announced(ROOT, 5, 1, result, 0, 4096, WORKER)
    extents.on_announced(ROOT, 6, 0, replica, 0, 4096, NODE, root=ROOT)
    assert extents.find(ObjectId(ROOT, 5), 1) and extents.find(ObjectId(ROOT, 6), 0)
    extents.check()


def test_objects_that_passed_to_a_client_count_as_its_own() -> None:
    extents = Extents(1 << 30)
    segment = extents.on_lease(WORKER, 1 << 20)
    assert segment is not None
    extents.on_announced(WORKER, 1, 0, segment, 0, 4096, WORKER)
    extents.on_handed_over(ObjectId(WORKER, 1), 0, ROOT)
    extents.on_process_died(WORKER)
    assert extents.has_of({ROOT}) and not extents.has_of({WORKER})


def put(owner: Owner, node: int) -> ObjectId:
    """An object that nobody can make again, at a node."""
    seq = owner.new_seq()
    owner.put(seq, STORED, 0, node=node, nbytes=4096)
    return ObjectId(owner.incarnation, seq)


def sent(owner: Owner, held: ObjectId, node: int) -> int:
    """A task that needs the object, sent to a node."""
    kind = owner.add_kind("use", process_retries=3, machine_retries=3, stride=1)
    owner.confine(kind, [node])
    index = owner.submit(kind, b"call", held=(held,))
    owner.plan_sends()
    commands: list[Any] = owner.take_commands()
    assert [command.node for command in commands if isinstance(command, Send)] == [node]
    return index


def make_owner() -> Owner:
    owner = Owner(ROOT, 64, HOME, joined=True)
    owner.on_node_joined(ONE, 64, 2)
    owner.on_node_joined(OTHER, 64, 2)
    return owner


def value(owner: Owner, oid: ObjectId) -> Any:
    return owner.refs.owned[oid.seq].value


def test_a_node_that_cannot_reach_another_living_one_destroys_nothing() -> None:
    owner = make_owner()
    oid = put(owner, ONE)
    index = sent(owner, oid, OTHER)
    owner.on_input_lost(index, 1, oid, 0, OTHER)
    assert value(owner, oid) == STORED


def test_the_word_of_a_run_that_is_not_known_destroys_nothing() -> None:
    owner = make_owner()
    oid = put(owner, ONE)
    owner.on_item_input_lost(5, 0, 1, oid, 0, OTHER)
    owner.on_input_lost(77, 1, oid, 0, OTHER)
    assert value(owner, oid) == STORED


def test_what_lay_at_a_node_whose_session_was_lost_is_missed_at_the_first_word() -> None:
    owner = make_owner()
    oid = put(owner, ONE)
    owner.on_session_lost(ONE)
    owner.on_node_joined(ONE, 64, 2)
    index = sent(owner, oid, OTHER)
    owner.on_input_lost(index, 1, oid, 0, OTHER)
    assert value(owner, oid) != STORED

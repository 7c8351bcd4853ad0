"""What a process asks its node to bring in: whose the answers and their pins are, and how many are kept."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from outboard.errors import GetTimeoutError, ObjectLostError, StoreFullError
from outboard.ids import ObjectId
from outboard.pulling import AHEAD_SHARE, Ahead, Pulling
from outboard.rpc.codec import Frame
from outboard.rpc.protos import outboard_pb2 as pb

ME, HERE, THERE = 1, 10, 20

#: The store of the node, which allows three objects to be asked for ahead.
MIB = 1 << 20
STORE_NBYTES = 3 * MIB * AHEAD_SHARE


class Node:
    """A client and its node: `asked` are the questions, `given_back` the pins that came back, by number of object.

    `answers`: what the node says while somebody waits, one at a time.
    """

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.given_back: list[int] = []
        self.made_again: list[int] = []
        self.answers: deque[pb.Pulled] = deque()
        self.lock = threading.RLock()
        self.dropped: deque[Any] = deque()
        self.welcome = SimpleNamespace(store_nbytes=STORE_NBYTES)
        self.reach = SimpleNamespace(joined=True)
        self.owner = SimpleNamespace(rebuild=lambda oid, version: self.made_again.append(oid.seq))
        self.turns = SimpleNamespace(wait=self.wait)
        self.values = SimpleNamespace(
            node=HERE,
            reader=SimpleNamespace(ended=False),
            give_back_pulled=lambda d: self.given_back.append(d.seq),
        )
        self.pulling = Pulling(self)  # type: ignore[arg-type]

    def check_open(self) -> None:
        """It is open."""

    def send(self, frame_type: int, body: bytes) -> None:
        assert frame_type == Frame.PULL
        self.asked.append(pb.Pull.FromString(body).object.seq)

    def wait(self, ready: Callable[[], bool], deadline: float | None) -> bool:
        while not ready() and self.answers:
            self.pulling.on_pulled(self.answers.popleft())
        assert ready() or deadline is not None, "this would wait for ever"
        return ready()


@pytest.fixture
def node() -> Node:
    return Node()


def far(seq: int, nbytes: int = MIB) -> pb.Descriptor:
    return pb.Descriptor(owner=ME, seq=seq, version=1, nbytes=nbytes, node=THERE)


def answer(seq: int, cause: Any = pb.Pulled.NONE) -> pb.Pulled:
    return pb.Pulled(object=pb.Descriptor(owner=ME, seq=seq, version=1, node=HERE), cause=cause, reason="because")


def value(seq: int) -> bytes:
    return pb.Outcome(value=pb.Parcel(stored=far(seq))).SerializeToString()


def test_answer_after_the_deadline_is_there_for_the_next_who_asks(node: Node) -> None:
    with pytest.raises(GetTimeoutError):
        node.pulling.pull(far(1), 0.0)
    node.pulling.on_pulled(answer(1))
    assert node.given_back == []
    assert node.pulling.pull(far(1), 0.0).node == HERE
    assert (node.asked, node.given_back, len(node.pulling)) == ([1], [], 0)


def test_what_nobody_took_is_given_back_when_the_object_ends(node: Node) -> None:
    for seq in (1, 2):
        with pytest.raises(GetTimeoutError):
            node.pulling.pull(far(seq), 0.0)
    node.pulling.on_pulled(answer(1))
    for seq in (1, 2):
        node.pulling.on_ended(ObjectId(ME, seq), 1)
    assert node.given_back == [1]
    node.pulling.on_pulled(answer(2))
    assert node.given_back == [1, 2] and len(node.pulling) == 0


def test_object_that_is_wanted_again_is_not_asked_for_twice(node: Node) -> None:
    with pytest.raises(GetTimeoutError):
        node.pulling.pull(far(1), 0.0)
    node.pulling.give_up(far(1))
    node.answers.append(answer(1))
    assert node.pulling.pull(far(1)).seq == 1
    assert (node.asked, node.given_back) == ([1], [])


def test_a_wait_that_is_interrupted_gives_the_answer_back(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(ready: Callable[[], bool], deadline: float | None) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(node.turns, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        node.pulling.pull(far(1))
    node.pulling.on_pulled(answer(1))
    assert node.given_back == [1]


def test_the_oldest_that_nobody_waits_for_make_way(node: Node) -> None:
    for seq in range(1, 6):
        with pytest.raises(GetTimeoutError):
            node.pulling.pull(far(seq), 0.0)
        node.pulling.on_pulled(answer(seq))
    assert node.given_back == [1, 2]
    with pytest.raises(GetTimeoutError):
        node.pulling.pull(far(6, 10 * MIB), 0.0)
    node.pulling.on_pulled(answer(6))
    assert node.given_back == [1, 2, 3, 4, 5], "one is kept however large it is"


def test_values_are_asked_for_ahead_as_far_as_the_limit_goes(node: Node) -> None:
    ahead = Ahead(node, [value(seq) for seq in range(5)] + [b"\x80", None])  # type: ignore[arg-type]
    for seq in range(5):
        ahead.go_on(seq)
        assert node.asked == list(range(min(5, seq + 3)))
        node.answers.append(answer(seq))
        node.pulling.pull(far(seq))
    assert node.asked == list(range(5)) and len(node.pulling) == 0


def test_lost_values_are_made_again_before_their_turn(node: Node) -> None:
    ahead = Ahead(node, [value(seq) for seq in range(3)])  # type: ignore[arg-type]
    ahead.go_on(0)
    for seq in range(3):
        node.answers.append(answer(seq, pb.Pulled.LOST))
    with pytest.raises(ObjectLostError, match="because"):
        node.pulling.pull(far(2))
    assert node.made_again == [0, 1]


def test_what_was_asked_ahead_makes_room_for_what_is_needed(node: Node) -> None:
    ahead = Ahead(node, [value(seq) for seq in range(3)])  # type: ignore[arg-type]
    ahead.go_on(0)
    node.answers += [answer(1), answer(0, pb.Pulled.FULL), answer(2), answer(0)]
    assert node.pulling.pull(far(0)).seq == 0
    assert sorted(node.given_back) == [1, 2] and node.asked == [0, 1, 2, 0]


def test_no_room_is_said_when_nothing_can_be_given_back(node: Node) -> None:
    node.answers.append(answer(1, pb.Pulled.FULL))
    with pytest.raises(StoreFullError, match="because"):
        node.pulling.pull(far(1))
    assert len(node.pulling) == 0

"""One suite for every link with call backs: in memory, and local on the node's loop and on asyncio's."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from outboard.pollloop import PollLoop
from outboard.rpc.base import Link
from outboard.rpc.codec import HEADER, MAX_BODY, Frame, FrameTuple, ProtocolError, encode_parts
from outboard.rpc.local import LoopLink, socketpair
from outboard.rpc.memory import memory_pair


class End:
    """What one end's call backs were told."""

    def __init__(self) -> None:
        self.frames: list[FrameTuple] = []
        self.ends: list[Exception | None] = []
        self.link: Any = None
        self.echoes = False

    def on_frames(self, link: Link, frames: list[FrameTuple]) -> None:
        self.frames += frames
        if self.echoes:
            for frame_type, body, destination, _ in frames:
                link.send(frame_type, body, destination)
            link.flush()

    def on_closed(self, _: Link, error: Exception | None) -> None:
        self.ends.append(error)


class MemoryWorld:
    def __init__(self) -> None:
        self.here, self.there = End(), End()
        first, second = self.here, self.there
        first.link, second.link = memory_pair((first.on_frames, first.on_closed), (second.on_frames, second.on_closed))

    def run_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            delivered = self.here.link.deliver() + self.there.link.deliver()
            assert delivered or condition(), "nothing moves any more"

    def inject(self, data: bytes) -> None:
        self.there.link._arrived.append((data, ()))

    def close(self) -> None:
        self.here.link.close()
        self.there.link.close()


class LocalWorld:
    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.here, self.there = End(), End()
        self.socks = socketpair()
        for end, sock in zip((self.here, self.there), self.socks, strict=True):
            end.link = LoopLink(sock, loop, end.on_frames, end.on_closed)

    def run_until(self, condition: Callable[[], object]) -> None:
        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0)

        self.loop.run_until_complete(asyncio.wait_for(wait(), 20))

    def inject(self, data: bytes) -> None:
        self.socks[0].send(data)

    def close(self) -> None:
        self.here.link.close()
        self.there.link.close()
        self.loop.close()


class PollWorld(LocalWorld):
    def __init__(self) -> None:
        self.poll_loop = PollLoop()
        super().__init__(self.poll_loop)

    def run_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20

        def look() -> None:
            if condition():
                self.poll_loop.stop()
            else:
                assert time.monotonic() < deadline
                self.poll_loop.call_soon(look)

        self.poll_loop.call_soon(look)
        self.poll_loop.run_forever()


MAKERS: dict[str, Callable[[], MemoryWorld | LocalWorld]] = {
    "memory": MemoryWorld,
    "asyncio": lambda: LocalWorld(asyncio.new_event_loop()),
    "poll": PollWorld,
}


@pytest.fixture(params=list(MAKERS))
def world(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = MAKERS[request.param]()
    yield made
    made.close()


def test_nothing_moves_before_flush(world: Any) -> None:
    world.here.link.send(Frame.SUBMIT, b"one", 3)
    assert world.here.link.queued_nbytes == HEADER.size + 3
    world.here.link.send(Frame.SUBMIT, b"two")
    world.here.link.flush()
    assert world.here.link.queued_nbytes == 0
    world.run_until(lambda: len(world.there.frames) == 2)
    assert world.there.frames == [(Frame.SUBMIT, b"one", 3, ()), (Frame.SUBMIT, b"two", 0, ())]


def test_frames_can_be_answered_from_within_the_call_back(world: Any) -> None:
    world.there.echoes = True
    for number in range(100):
        world.here.link.send(Frame.ASK, b"x" * number, number)
    world.here.link.flush()
    world.run_until(lambda: len(world.here.frames) == 100)
    assert [frame[2] for frame in world.here.frames] == list(range(100))


def test_many_large_messages_arrive_whole_and_in_order(world: Any) -> None:
    bodies = [os.urandom(100) * size for size in (1, 30_000, 1, 60_000)]
    for body in bodies:
        world.here.link.send(Frame.ANSWER, body)
    world.here.link.flush()
    world.run_until(lambda: len(world.there.frames) == len(bodies))
    assert [frame[1] for frame in world.there.frames] == bodies
    assert world.here.link.queued_nbytes == 0


def test_descriptors_arrive_with_their_frames(world: Any) -> None:
    with open(os.devnull) as file:
        fd = file.fileno()
        for count in (0, 2, 0, 1):
            world.here.link.send(Frame.SEGMENT, bytes([count]), 0, [fd] * count)
        world.here.link.flush()
        world.run_until(lambda: len(world.there.frames) == 4)
        assert [len(frame[3]) for frame in world.there.frames] == [0, 2, 0, 1]
        received = {number for frame in world.there.frames for number in frame[3]}
        assert all(os.path.sameopenfile(number, fd) for number in received)
        for number in received - {fd}:
            os.close(number)


def test_end_is_told_once_after_the_last_frames(world: Any) -> None:
    world.here.link.send(Frame.FINISHED, b"last")
    world.here.link.flush()
    world.here.link.close()
    world.here.link.close()
    world.run_until(lambda: world.there.ends)
    assert [frame[1] for frame in world.there.frames] == [b"last"]
    assert world.there.ends == [None]
    assert world.here.ends == []
    assert world.there.link.closed


def test_closed_link_drops_what_is_sent(world: Any) -> None:
    world.here.link.close()
    world.here.link.send(Frame.SUBMIT, b"x")
    world.here.link.flush()
    assert world.here.link.queued_nbytes == 0
    world.run_until(lambda: world.there.ends)
    assert world.there.frames == []


def test_breach_of_the_rules_closes_the_link_with_its_error(world: Any) -> None:
    world.here.link.send(Frame.SUBMIT, b"good")
    world.here.link.flush()
    world.run_until(lambda: world.there.frames)
    world.inject(HEADER.pack(MAX_BODY + 1, Frame.SUBMIT, 1, 0, 0))
    world.run_until(lambda: world.there.ends)
    assert isinstance(world.there.ends[0], ProtocolError)
    assert len(world.there.frames) == 1


@pytest.fixture(params=["asyncio", "poll"])
def local(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = MAKERS[request.param]()
    yield made
    made.close()


def test_control_overtakes_what_the_kernel_has_not_taken(local: Any) -> None:
    for _ in range(60):
        local.here.link.send(Frame.LOG, bytes(100_000))
    local.here.link.flush()
    assert local.here.link.queued_nbytes > 0
    local.here.link.send(Frame.GRANT, b"")
    local.run_until(lambda: len(local.there.frames) == 61)
    assert [frame[0] for frame in local.there.frames].index(Frame.GRANT) < 60


def test_peer_that_is_gone_is_read_to_the_end_before_it_is_told(local: Any) -> None:
    local.there.link.close()
    sock = socket.socket(fileno=os.dup(local.here.link.fileno()))
    local.here.link.send(Frame.SUBMIT, b"nobody reads this")
    local.here.link.flush()
    local.run_until(lambda: local.here.ends)
    assert len(local.here.ends) == 1
    assert local.here.link.queued_nbytes == 0
    sock.close()


def test_drain_takes_in_a_message_of_many_parts(local: Any) -> None:
    # More than one readiness event reads, so that some rounds complete no message.
    sock = local.socks[1]
    frames = b"".join(encode_parts(Frame.ANSWER, bytes(3_000_000)))
    local.loop.remove_reader(sock.fileno())
    for end in local.socks:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < 6_000_000:
        pytest.skip("the kernel does not hold that much in one socket")
    assert sock.send(frames) == len(frames)
    local.here.link.drain()
    assert [len(frame[1]) for frame in local.here.frames] == [3_000_000]
    local.here.link.drain()
    assert local.here.ends == []


def test_last_words_of_a_peer_survive_a_failed_write(local: Any) -> None:
    local.there.link.send(Frame.FINISHED, b"last words")
    local.there.link.flush()
    local.there.link.close()
    local.here.link.send(Frame.SUBMIT, b"nobody reads this")
    local.here.link.flush()
    local.run_until(lambda: local.here.ends)
    assert [frame[1] for frame in local.here.frames] == [b"last words"]
    assert isinstance(local.here.ends[0], BrokenPipeError)

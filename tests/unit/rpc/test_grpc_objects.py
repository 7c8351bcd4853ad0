"""Pulling objects: the right bytes in the right place, or an error that leaves what is there."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from outboard.aioloop import AioLoop
from outboard.errors import ObjectLostError, TransportError
from outboard.ids import ObjectId
from outboard.rpc.codec import ProtocolError
from outboard.rpc.grpc_library import grpc
from outboard.rpc.grpc_objects import PIECE_NBYTES, PREFIX, Pull, Source
from tests.unit.rpc.grpc_world import OBJECT, World

BYTES = random.Random(3).randbytes(3 * PIECE_NBYTES + 17)


def empty_pull(nbytes: int = len(BYTES), version: int = 0, object_id: ObjectId = OBJECT) -> Pull:
    return Pull(object_id, version, memoryview(bytearray(nbytes)))


@pytest.mark.parametrize("nbytes", [0, 1, PIECE_NBYTES, PIECE_NBYTES + 1, len(BYTES)])
def test_object_arrives_whole(aio: AioLoop, nbytes: int) -> None:
    async def scenario() -> None:
        world = World()
        world.objects[OBJECT] = BYTES[:nbytes]
        async with world.serving():
            source, pull = Source(world.address, world.security), empty_pull(nbytes)
            await source.fetch(pull)
            assert pull.into == BYTES[:nbytes]
            assert pull.offset == nbytes
            await source.close()

    aio.run(scenario())


def test_pull_goes_on_where_another_source_failed(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        pull = empty_pull()

        async def give(_: bytes, context: Any) -> None:
            await context.write(PREFIX.pack(0, 0) + BYTES[:PIECE_NBYTES])
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

        async with world.serving(other(give)):
            source = Source(world.address, world.security)
            with pytest.raises(TransportError, match="gone"):
                await source.fetch(pull)
            await source.close()
        assert pull.offset == PIECE_NBYTES
        world.objects[OBJECT] = bytes(PIECE_NBYTES) + BYTES[PIECE_NBYTES:]  # the first piece is not asked for again
        async with world.serving():
            source = Source(world.address, world.security)
            await source.fetch(pull)
            await source.close()
        assert pull.into == BYTES

    aio.run(scenario())


def other(give: Any) -> Any:
    """Serve pulls otherwise than our own service does."""
    methods = {"Pull": grpc.unary_stream_rpc_method_handler(give)}
    return grpc.method_handlers_generic_handler("outboard.cluster.v1.Objects", methods)


@pytest.mark.parametrize(
    "wanted", [empty_pull(object_id=ObjectId(7, 99)), empty_pull(version=4)], ids=["unknown", "other version"]
)
def test_source_without_a_copy_says_so(aio: AioLoop, wanted: Pull) -> None:
    async def scenario() -> None:
        world = World()
        world.objects[OBJECT] = BYTES
        async with world.serving():
            source = Source(world.address, world.security)
            with pytest.raises(ObjectLostError, match="no copy here"):
                await source.fetch(wanted)
            await source.close()

    aio.run(scenario())


@pytest.mark.parametrize("wanted", [empty_pull(len(BYTES) - 1), empty_pull(len(BYTES) + 1)], ids=["longer", "shorter"])
def test_object_of_another_size_is_an_error(aio: AioLoop, wanted: Pull) -> None:
    async def scenario() -> None:
        world = World()
        world.objects[OBJECT] = BYTES
        async with world.serving():
            source = Source(world.address, world.security)
            with pytest.raises(TransportError):
                await source.fetch(wanted)
            await source.close()

    aio.run(scenario())


def test_offset_beyond_the_object_is_refused(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        world.objects[OBJECT] = b"short"
        pull = empty_pull()
        pull.offset = 6
        async with world.serving():
            source = Source(world.address, world.security)
            with pytest.raises(TransportError, match="beyond"):
                await source.fetch(pull)
            await source.close()

    aio.run(scenario())


def test_source_that_stalls_is_given_up(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()

        async def give(_: bytes, context: Any) -> None:
            await context.write(PREFIX.pack(0, 0) + b"x")
            await asyncio.get_running_loop().create_future()

        async with world.serving(other(give)):
            source = Source(world.address, world.security)
            with pytest.raises(TransportError, match="sent nothing"):
                await source.fetch(empty_pull(), patience=0.2)
            await source.close()

    aio.run(scenario())


def test_slow_source_is_given_its_time(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()

        async def give(_: bytes, context: Any) -> None:
            for offset in range(4):
                await asyncio.sleep(0.2)
                await context.write(PREFIX.pack(offset, 0) + b"x")

        async with world.serving(other(give)):
            source, pull = Source(world.address, world.security), empty_pull(4)
            await source.fetch(pull, patience=0.6)
            assert pull.into == b"xxxx"
            await source.close()

    aio.run(scenario())


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        (PREFIX.pack(1, 5) + b"x", "bytes 1 to 2 came"),
        (PREFIX.pack(0, 6) + b"x", "version 6"),
        (PREFIX.pack(0, 5) + b"four!", "bytes 0 to 5 came"),
        (PREFIX.pack(0, 5), "a piece of 16 bytes"),
        (b"", "a piece of 0 bytes"),
    ],
)
def test_piece_that_is_not_the_next_one_changes_nothing(piece: bytes, text: str) -> None:
    pull = empty_pull(4, version=5)
    with pytest.raises(ProtocolError, match=text):
        pull.take(piece)
    assert (pull.offset, bytes(pull.into)) == (0, bytes(4))


def test_wrong_pieces_end_the_pull(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()

        async def give(_: bytes, context: Any) -> None:
            await context.write(PREFIX.pack(0, 1) + b"x")

        async with world.serving(other(give)):
            source = Source(world.address, world.security)
            with pytest.raises(TransportError, match="wrong bytes"):
                await source.fetch(empty_pull())
            await source.close()

    aio.run(scenario())

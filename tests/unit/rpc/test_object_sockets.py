"""Objects on a socket of their own: to whom they are given, what stops them, and when they go over gRPC after all."""

from __future__ import annotations

import asyncio
import random
import socket
from functools import partial
from typing import Any

import pytest

from outboard.aioloop import AioLoop
from outboard.errors import TransportError
from outboard.rpc import object_sockets
from outboard.rpc.codec import ProtocolError
from outboard.rpc.grpc_credentials import Security, Tls, make_token
from outboard.rpc.grpc_objects import Pull, Source
from outboard.rpc.object_sockets import CHUNK_NBYTES, MIN_NBYTES, NotDialledError, Offer, Taking
from tests.unit.rpc.grpc_world import OBJECT, World
from tests.unit.rpc.test_grpc_credentials import files, tls_of

__all__ = ["files"]

HOST = "127.0.0.1"
BYTES = random.Random(5).randbytes(MIN_NBYTES + 3 * CHUNK_NBYTES + 17)
PLAIN = Security(make_token())

#: Seconds for what is sure to come.
SOON = 10.0


def over(tls: Tls | None) -> Security:
    return Security(PLAIN.token, tls)


async def move(giver: Security, taker: Security) -> tuple[bytearray, Exception | None, Exception | None]:
    """Move the bytes; return what came and how both sides ended."""
    into = bytearray(len(BYTES))
    offer = Offer(giver, HOST, memoryview(BYTES))
    given = offer.start()
    taken = Taking(taker, HOST, offer.where, memoryview(into), 0, SOON).start()
    async with asyncio.timeout(3 * SOON):
        return into, await given, await taken


def test_bytes_move_in_plain_text(aio: AioLoop) -> None:
    into, *problems = aio.run(move(PLAIN, PLAIN))
    assert into == BYTES and problems == [None, None]


@pytest.mark.parametrize("mutual", [True, False], ids=["both show certificates", "the giver shows one"])
def test_bytes_move_over_tls(aio: AioLoop, files: dict[str, Any], mutual: bool) -> None:
    server = tls_of(files, "node", mutual=mutual)
    into, *problems = aio.run(move(over(server), over(tls_of(files, "node" if mutual else None))))
    assert into == BYTES and problems == [None, None]


@pytest.mark.parametrize(
    ("server", "client"),
    [
        ({"pair": "stranger"}, {"pair": "node"}),
        ({"pair": "elsewhere"}, {"pair": "node"}),
        ({"pair": "expired"}, {"pair": "node"}),
        ({"pair": "node"}, {}),
        ({"pair": "node"}, {"pair": "stranger"}),
        ({"pair": "node"}, {"pair": "node", "ca": "other ca"}),
        ({"pair": "node"}, None),
    ],
)
def test_certificates_that_do_not_hold_move_nothing(
    aio: AioLoop, files: dict[str, Any], server: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_sockets, "DIAL_SECONDS", 0.5)
    taker = over(None if client is None else tls_of(files, **client))
    into, given, taken = aio.run(move(over(tls_of(files, **server)), taker))
    assert given is not None and isinstance(taken, NotDialledError)
    assert not any(into)


def test_strangers_get_nothing_and_do_not_keep_the_taker_out(aio: AioLoop) -> None:
    async def scenario() -> None:
        offer = Offer(PLAIN, HOST, memoryview(BYTES))
        given = offer.start()
        wrong = offer.where[:-1] + bytes([offer.where[-1] ^ 1])
        into = bytearray(len(BYTES))
        stranger = Taking(PLAIN, HOST, wrong, memoryview(into), 0, SOON).start()
        assert isinstance(await stranger, NotDialledError) and not any(into)
        friend = Taking(PLAIN, HOST, offer.where, memoryview(into), 0, SOON).start()
        assert (await friend, await given) == (None, None) and into == BYTES

    aio.run(scenario())


def test_giver_that_stops_gives_no_more(aio: AioLoop) -> None:
    async def scenario() -> None:
        offer = Offer(PLAIN, HOST, memoryview(BYTES))
        given = offer.start()
        offer.stop()
        assert isinstance(await given, Exception)
        late = Taking(PLAIN, HOST, offer.where, memoryview(bytearray(len(BYTES))), 0, SOON).start()
        assert isinstance(await late, NotDialledError)

    aio.run(scenario())


def test_taker_that_stops_ends_at_once(aio: AioLoop) -> None:
    async def scenario() -> None:
        with socket.create_server((HOST, 0)) as silent:
            where = object_sockets._WHERE.pack(silent.getsockname()[1], bytes(16))
            taking = Taking(PLAIN, HOST, where, memoryview(bytearray(9)), 0, 100 * SOON)
            taken = taking.start()
            silent.setblocking(False)
            with (await asyncio.get_running_loop().sock_accept(silent))[0]:
                taking.stop()
                async with asyncio.timeout(SOON):
                    assert type(await taken) is TransportError

    aio.run(scenario())


def test_silent_giver_is_given_up(aio: AioLoop) -> None:
    async def scenario() -> None:
        with socket.create_server((HOST, 0)) as silent:
            where = object_sockets._WHERE.pack(silent.getsockname()[1], bytes(16))
            taken = Taking(PLAIN, HOST, where, memoryview(bytearray(9)), 0, 0.2).start()
            with pytest.raises(TransportError, match=r"sent nothing for 0\.2 s"):
                raise await taken or AssertionError

    aio.run(scenario())


def test_words_that_name_no_port_are_refused() -> None:
    with pytest.raises(ProtocolError, match="3 bytes"):
        Taking(PLAIN, HOST, b"abc", memoryview(bytearray(9)), 0, SOON)


@pytest.mark.parametrize("is_reachable", [True, False], ids=["dialled", "not to be dialled"])
def test_large_objects_take_the_socket_where_it_can_be_dialled(aio: AioLoop, is_reachable: bool) -> None:
    async def scenario() -> None:
        world = World()
        world.objects[OBJECT] = BYTES
        offers = []

        def make_offer(data: memoryview) -> Offer:
            offers.append(offer := Offer(world.security, HOST, data))
            if not is_reachable:
                offer._listener.close()
            return offer

        world.make_offer = make_offer
        async with world.serving():
            source = Source(world.address, world.security)
            for offset in (0, 100, len(BYTES) - 5):
                pull = Pull(OBJECT, 0, memoryview(bytearray(len(BYTES))))
                pull.offset = offset
                await source.fetch(pull)
                assert pull.into[offset:] == BYTES[offset:] and pull.offset == len(BYTES)
            await source.close()
        # A few bytes are not worth a socket; what could not be dialled once is not tried again.
        assert len(offers) == (2 if is_reachable else 1)

    aio.run(scenario())


def test_pull_that_is_given_up_stops_both_sides(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        world.objects[OBJECT] = BYTES
        world.make_offer = partial(Offer, world.security, HOST)
        async with world.serving():
            source, pull = Source(world.address, world.security), Pull(OBJECT, 0, memoryview(bytearray(len(BYTES))))
            task = asyncio.create_task(source.fetch(pull))
            async with asyncio.timeout(SOON):
                while pull.writing is None:
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                await pull.writing
            assert task.cancelled() or pull.offset == len(BYTES)
            await source.close()

    aio.run(scenario())

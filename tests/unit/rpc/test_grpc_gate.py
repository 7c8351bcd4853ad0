"""The gate: every RPC of every service asks for the token, whatever comes instead of it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from outboard.aioloop import AioLoop
from outboard.errors import AuthenticationError, TransportError
from outboard.rpc.grpc_credentials import Security, make_token
from outboard.rpc.grpc_head import ask_status, attend
from outboard.rpc.grpc_hello import make_hello
from outboard.rpc.grpc_library import grpc
from outboard.rpc.protos import cluster_pb2 as pb
from tests.unit.rpc.grpc_world import OBJECT, PATHS, Inbox, World, raw_call, until

UNKNOWN = ["/outboard.cluster.v1.Links/Nothing", "/no.such.Service/Call", "/grpc.reflection.v1.ServerReflection/Info"]

KEY = "authorization"

#: What is sent instead of the right metadata, made from the right token.
WRONG: dict[str, Callable[[str], tuple[tuple[str, Any], ...]]] = {
    "none": lambda _: (),
    "empty": lambda _: ((KEY, ""),),
    "scheme only": lambda _: ((KEY, "Bearer "),),
    "no scheme": lambda token: ((KEY, token),),
    "other scheme": lambda token: ((KEY, f"Basic {token}"),),
    "scheme in lower case": lambda token: ((KEY, f"bearer {token}"),),
    "another token": lambda _: ((KEY, f"Bearer {make_token().reveal()}"),),
    "prefix": lambda token: ((KEY, f"Bearer {token[:-1]}"),),
    "suffix": lambda token: ((KEY, f"Bearer {token[1:]}"),),
    "longer": lambda token: ((KEY, f"Bearer {token}A"),),
    "other case": lambda token: ((KEY, f"Bearer {token.swapcase()}"),),
    "two spaces": lambda token: ((KEY, f"Bearer  {token}"),),
    "two, the first one right": lambda token: ((KEY, f"Bearer {token}"), (KEY, "Bearer x")),
    "two, the last one right": lambda token: ((KEY, "Bearer x"), (KEY, f"Bearer {token}")),
    "both in one": lambda token: ((KEY, f"Bearer x, Bearer {token}"),),
    "in another key": lambda token: (("token", f"Bearer {token}"),),
    "in a binary key": lambda token: ((f"{KEY}-bin", f"Bearer {token}".encode()),),
    "repr of the token": lambda _: ((KEY, "Bearer Token(secret)"),),
    "very long": lambda token: ((KEY, f"Bearer {token * 20}"),),
}


def test_walk_knows_the_services() -> None:
    assert "/grpc.health.v1.Health/Check" in PATHS
    assert len(PATHS) == sum(len(it.methods) for it in pb.DESCRIPTOR.services_by_name.values()) >= 7


@pytest.mark.parametrize("kind", WRONG)
def test_no_call_passes_without_the_token(aio: AioLoop, kind: str) -> None:
    async def scenario() -> None:
        world = World()
        metadata = WRONG[kind](world.security.token.reveal())
        async with world.serving() as server:
            for number, rpc in enumerate([*PATHS, *UNKNOWN], 1):
                code, details = await raw_call(world.address, rpc, metadata, b"")
                assert code == grpc.StatusCode.UNAUTHENTICATED, (rpc, details)
                assert server.refused == number
            # One that sends nothing is refused as well, and not waited for.
            code, _ = await raw_call(world.address, PATHS[0], metadata, None)
            assert code == grpc.StatusCode.UNAUTHENTICATED
        assert world.calls == []

    aio.run(scenario())


def test_every_call_passes_with_the_token(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        async with world.serving() as server:
            for rpc in PATHS:
                code, _ = await raw_call(world.address, rpc, world.security.metadata, b"")
                assert code not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED), rpc
            for rpc in UNKNOWN:
                code, _ = await raw_call(world.address, rpc, world.security.metadata, b"")
                assert code == grpc.StatusCode.UNIMPLEMENTED, rpc
            assert server.refused == 0
        assert set(world.calls) == {"object", "status", "stop"}  # the others ask for a first word

    aio.run(scenario())


@pytest.mark.parametrize("extra", [b"\xff", "é".encode(), b"\x00", b"\n"])
def test_bytes_outside_visible_ascii_do_not_pass(aio: AioLoop, extra: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The library does not send such values, so they are sent by hand."""

    async def scenario() -> None:
        world = World()
        token = world.security.token.reveal().encode()
        async with world.serving():
            for rpc in PATHS:
                for value in (b"Bearer " + token + extra, b"Bearer " + extra, extra):
                    await by_hand(world.address, rpc, value)
                    assert world.calls == []
            # By hand, the right one passes: what is above fails for its bytes only.
            status = next(rpc for rpc in PATHS if rpc.endswith("/Status"))
            await by_hand(world.address, status, b"Bearer " + token)
            assert world.calls == ["status"]
        assert world.security.token.reveal() not in caplog.text

    aio.run(scenario())


async def by_hand(address: str, rpc: str, value: bytes) -> None:
    """Make one call with empty request over a bare socket, and read until the server has ended it."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", rpc.encode()), (b":authority", b"test"),
              (b"te", b"trailers"), (b"content-type", b"application/grpc"), (KEY.encode(), value)]  # fmt: skip
    block = b"".join(b"\x00" + prefixed(name) + prefixed(text) for name, text in fields)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
    writer.write(frame(1, 4, 1, block) + frame(0, 1, 1, bytes(5)))
    async with asyncio.timeout(10):
        while True:
            try:
                head = await reader.readexactly(9)
                await reader.readexactly(int.from_bytes(head[:3]))
            except (asyncio.IncompleteReadError, ConnectionResetError):
                break
            kind, flags = head[3], head[4]
            if kind in (3, 7) or (kind in (0, 1) and flags & 1):  # reset, gone away, or the end of the stream
                break
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def prefixed(text: bytes) -> bytes:
    """Write a string of HPACK without Huffman code (RFC 7541, 5.2)."""
    if len(text) < 127:
        return bytes([len(text)]) + text
    rest = len(text) - 127
    return bytes([127, rest & 0x7F | 0x80, rest >> 7]) + text


def test_our_own_diallers_say_what_is_wrong_and_not_the_token(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        async with world.serving():
            world.security = Security(make_token())
            registration = pb.Registration(incarnation=1)
            calls = [
                lambda: world.dial(Inbox()),
                lambda: attend(world.address, world.security, registration),
                lambda: ask_status(world.address, world.security, 5.0),
            ]
            for call in calls:
                with pytest.raises(AuthenticationError, match="asks for its token") as caught:
                    await call()
                assert world.security.token.reveal() not in f"{caught.value!s}{caught.value!r}"
                assert isinstance(caught.value, TransportError)
        assert world.calls == []

    aio.run(scenario())


def test_refusal_is_never_taken_for_a_fault_of_the_link(aio: AioLoop) -> None:
    """It may arrive while the dialler is about to write, which the library would report as an internal error."""

    async def scenario() -> None:
        world = World()
        async with world.serving():
            world.security = Security(make_token())
            for _ in range(100):
                with pytest.raises(AuthenticationError):
                    await world.dial(Inbox())

    aio.run(scenario())


@pytest.mark.parametrize(("name", "status"), [("", 1), ("outboard.cluster.v1.Links", 1), ("nothing", None)])
def test_health_answers_common_probes(aio: AioLoop, name: str, status: int | None) -> None:
    async def scenario() -> None:
        world = World()
        async with world.serving(), grpc.aio.insecure_channel(world.address) as channel:
            ask = channel.unary_unary("/grpc.health.v1.Health/Check")
            asked = ask(pb.HealthRequest(service=name).SerializeToString(), metadata=world.security.metadata)
            if status is None:
                assert await asked.code() == grpc.StatusCode.NOT_FOUND
            else:
                assert await asked == bytes([8, status])

    aio.run(scenario())


def test_health_watchers_are_told_of_changes(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        async with world.serving() as server, grpc.aio.insecure_channel(world.address) as channel:
            watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
            calls = [watch(pb.HealthRequest(service="x").SerializeToString(), metadata=world.security.metadata)
                     for _ in range(2)]  # fmt: skip
            call = calls[0]
            for other in calls:
                assert await other.read() == bytes([8, pb.HealthReply.SERVICE_UNKNOWN])
            calls[1].cancel()
            server.health.set("x", True)
            assert await call.read() == bytes([8, pb.HealthReply.SERVING])
            server.health.set("y", True)
            server.health.set("x", False)
            assert await call.read() == bytes([8, pb.HealthReply.NOT_SERVING])
            server.health.stop()
            assert await call.read() is grpc.aio.EOF

    aio.run(scenario())


def test_messages_are_bounded_at_the_door(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        async with world.serving():
            many = pb.Registration(incarnation=1, protocol=1, totals={str(number): 1 for number in range(5000)})
            long = pb.Registration(incarnation=1, protocol=1, host="x" * 1025)
            record = pb.Registration(incarnation=1, protocol=1, names=[pb.NameClaim(record=bytes(65537))])
            for registration, text in ((many, "5000 entries"), (long, "1025 bytes"), (record, "65537 bytes")):
                with pytest.raises(TransportError, match=text):
                    await attend(world.address, world.security, registration)
            requests = {"Head/Status": bytes(2000), "Objects/Pull": b"\x00" * 300, "Head/Stop": b"\xff\xff"}
            for rpc, request in requests.items():
                code, _ = await raw_call(world.address, f"/outboard.cluster.v1.{rpc}", world.security.metadata, request)
                assert code == grpc.StatusCode.INVALID_ARGUMENT, rpc
        assert world.calls == []

    aio.run(scenario())


def test_dead_links_do_not_hold_the_server(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        world.objects[OBJECT] = bytes(64 << 20)
        async with world.serving():
            channel = grpc.aio.insecure_channel(world.address)
            request = pb.PullRequest(owner=OBJECT.owner, seq=OBJECT.seq).SerializeToString()
            call = channel.unary_stream("/outboard.cluster.v1.Objects/Pull")(request, metadata=world.security.metadata)
            await call.read()
            link = await world.dial(Inbox())
            link.send(1, make_hello(1).SerializeToString())
            link.flush()
            await until(lambda: world.inbox.frames)
        await channel.close()
        link.close()

    aio.run(scenario())

"""Links between nodes: frames both ways, lanes, the two ends of a link, and peers that do not fit."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from outboard.aioloop import AioLoop
from outboard.errors import AuthenticationError, NodeLostError, TransportError, VersionMismatchError
from outboard.rpc import grpc_links
from outboard.rpc.codec import HEADER, LANE_TASKS, MAX_BODY, Frame, ProtocolError, encode_frame
from outboard.rpc.grpc_credentials import TOKEN_VARIABLE, Security
from outboard.rpc.grpc_hello import make_hello
from outboard.rpc.grpc_library import grpc
from outboard.rpc.grpc_links import PeerLink, dial
from outboard.rpc.grpc_server import Server
from outboard.rpc.grpc_streams import admit
from tests.unit.rpc.grpc_world import CLIENT, SERVER, Inbox, World, raw_call, until

CONNECT = "/outboard.cluster.v1.Links/Connect"

#: Serves links until it is killed; prints its port.
PROGRAM = """
import asyncio
from outboard.aioloop import AioLoop
from outboard.rpc.grpc_credentials import Security, read_token
from outboard.rpc.grpc_hello import make_hello
from outboard.rpc.grpc_links import LinksService
from outboard.rpc.grpc_server import Server
from outboard.rpc.grpc_streams import admit

async def serve():
    server = Server(Security(read_token()), [LinksService(make_hello(1), lambda link: None).handler])
    print(await server.start("127.0.0.1:0"), flush=True)
    await asyncio.get_running_loop().create_future()

AioLoop().run(serve())
"""


def test_frames_of_all_sizes_go_both_ways_in_order(aio: AioLoop) -> None:
    async def scenario() -> None:
        world, here = World(), Inbox()
        async with world.serving():
            link = await world.dial(here)
            assert (link.hello.incarnation, world.links[0].hello.incarnation) == (SERVER, CLIENT)
            bodies = [b"", b"one", bytes(MAX_BODY), bytes(3 * MAX_BODY + 1), b"last"]
            for end in (link, world.links[0]):
                for number, body in enumerate(bodies):
                    end.send(Frame.SUBMIT, body, number)
                end.flush()
            await until(lambda: len(here.frames) == len(world.inbox.frames) == len(bodies))
            wanted = [(Frame.SUBMIT, body, number, ()) for number, body in enumerate(bodies)]
            assert here.frames == world.inbox.frames == wanted
            assert link.queued_nbytes == world.links[0].queued_nbytes == 0
            link.close()
        assert here.ends == []

    aio.run(scenario())


def test_what_waits_goes_out_by_lanes(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        async with world.serving():
            link = await world.dial(Inbox())
            for frame_type in (Frame.LOG, Frame.SUBMIT, Frame.WANT, Frame.SUBMIT):
                link.send(frame_type, b"")
            assert link.queued_nbytes == 4 * HEADER.size
            link.flush()
            await until(lambda: len(world.inbox.frames) == 4)
            assert [frame[0] for frame in world.inbox.frames] == [Frame.WANT, Frame.SUBMIT, Frame.SUBMIT, Frame.LOG]
            link.close()

    aio.run(scenario())


def test_control_frame_overtakes_what_has_not_gone_out(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        async with world.serving():
            link = await world.dial(Inbox())
            for _ in range(64):
                link.send(Frame.SUBMIT, bytes(MAX_BODY))
            link.flush()
            await until(lambda: world.inbox.frames)
            link.send(Frame.WANT, b"")
            link.flush()
            await until(lambda: len(world.inbox.frames) == 65)
            assert [frame[0] for frame in world.inbox.frames].index(Frame.WANT) < 64
            link.close()

    aio.run(scenario())


@pytest.mark.parametrize("closer", ["dialler", "listener"])
def test_other_end_is_told_once_that_a_link_was_closed(aio: AioLoop, closer: str) -> None:
    async def scenario() -> None:
        world, here = World(), Inbox()
        async with world.serving():
            link = await world.dial(here)
            first, other = (link, world.inbox) if closer == "dialler" else (world.links[0], here)
            first.close()
            first.close()
            first.send(Frame.SUBMIT, b"too late")
            first.flush()
            await until(lambda: other.ends)
            link.close()
        assert other.ends == [None]
        assert (here.ends, world.inbox.ends) in (([], [None]), ([None], []))

    aio.run(scenario())


@pytest.mark.parametrize("closer", ["dialler", "listener"])
def test_finish_lets_the_other_end_read_everything(aio: AioLoop, closer: str) -> None:
    async def scenario() -> None:
        world, here = World(), Inbox()
        async with world.serving():
            link = await world.dial(here)
            first, other = (link, world.inbox) if closer == "dialler" else (world.links[0], here)
            for _ in range(40):
                first.send(Frame.SUBMIT, bytes(MAX_BODY))
            async with asyncio.timeout(10):  # it ends when all was read, not when its patience does
                await first.finish(timeout=60)
            await until(lambda: other.ends)
            assert (len(other.frames), other.ends) == (40, [None])

    aio.run(scenario())


def test_link_closed_within_a_call_back_hears_no_more(aio: AioLoop) -> None:
    async def scenario() -> None:
        world, here = World(), Inbox()
        async with world.serving():
            link = await world.dial(here)
            world.links[0].on_frames = lambda it, frames: it.close()
            link.send(Frame.SUBMIT, b"")
            link.flush()
            await until(lambda: here.ends)
            assert (here.ends, world.inbox.ends) == ([None], [])

    aio.run(scenario())


def test_exception_of_a_call_back_is_shown_and_the_link_goes_on(
    aio: AioLoop, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        world, here = World(), Inbox()
        async with world.serving():
            link = await world.dial(here)
            world.links[0].on_frames = lambda *_: 1 // 0
            link.send(Frame.SUBMIT, b"")
            link.flush()
            await until(lambda: "ZeroDivisionError" in capsys.readouterr().err)
            world.links[0].on_frames = world.inbox.on_frames
            link.send(Frame.SUBMIT, b"")
            link.flush()
            await until(lambda: world.inbox.frames)
            link.close()

    aio.run(scenario())


def test_descriptors_are_refused(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        async with world.serving():
            link = await world.dial(Inbox())
            with pytest.raises(ProtocolError, match="another machine"):
                link.send(Frame.SEGMENT, b"", fds=[0])
            link.close()

    aio.run(scenario())


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"protocol": 9999}, VersionMismatchError, "protocol 9999"),
        ({"python": "2.7"}, VersionMismatchError, "on Python 2.7"),
        ({"cluster": "other"}, AuthenticationError, "'other'"),
        ({"wanted": 0xBAD}, NodeLostError, "0000000000000bad"),
        ({"incarnation": 0}, TransportError, "without an incarnation"),
        ({"release": "x" * 2000}, TransportError, "2000 bytes; at most 1024"),
        ({"release": "x" * 9000}, TransportError, "first message of a link is one hello"),
    ],
)
def test_dialler_that_does_not_fit_is_refused(aio: AioLoop, changes: Any, error: type[Exception], text: str) -> None:
    async def scenario() -> None:
        world = World()
        async with world.serving():
            with pytest.raises(error, match=text):
                await world.dial(Inbox(), **changes)
            assert world.calls == []

    aio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (encode_frame(Frame.HELLO, make_hello(0xFE, "test").SerializeToString()), NodeLostError),
        (encode_frame(Frame.HELLO, make_hello(SERVER, "other").SerializeToString()), AuthenticationError),
        (encode_frame(Frame.SUBMIT, b""), VersionMismatchError),
        (b"not a frame", VersionMismatchError),
        (b"", TransportError),
    ],
)
def test_listener_that_does_not_fit_is_refused(aio: AioLoop, answer: bytes, error: type[Exception]) -> None:
    async def scenario() -> None:
        world = World()

        async def connect(_: Any, context: Any) -> None:
            await admit(context)
            await context.read()
            if answer:
                await context.write(answer)

        async with world.serving(impostor(connect)):
            with pytest.raises(error):
                await world.dial(Inbox(), wanted=SERVER)

    aio.run(scenario())


def impostor(connect: Any) -> Any:
    methods = {"Connect": grpc.stream_stream_rpc_method_handler(connect)}
    return grpc.method_handlers_generic_handler("outboard.cluster.v1.Links", methods)


def test_node_that_refuses_a_link_says_why(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        world.refusal = NodeLostError("this incarnation was struck off")
        async with world.serving():
            with pytest.raises(NodeLostError, match="struck off"):
                await world.dial(Inbox())

    aio.run(scenario())


def test_fault_of_the_listener_is_shown_there_and_not_told(aio: AioLoop, capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        world = World()
        world.refusal = RuntimeError("private matter")
        async with world.serving():
            with pytest.raises(TransportError, match="INTERNAL") as caught:
                await world.dial(Inbox())
        assert "private" not in str(caught.value)

    aio.run(scenario())
    assert "private matter" in capsys.readouterr().err


@pytest.mark.parametrize(
    "message",
    [
        HEADER.pack(MAX_BODY + 1, Frame.SUBMIT, LANE_TASKS, 0, 0),
        HEADER.pack(0, Frame.SEGMENT, LANE_TASKS, 1, 0),
        encode_frame(Frame.SUBMIT, b"half a frame")[:-1],
        b"".join(HEADER.pack(0, Frame.SUBMIT, 0x80 | lane, 0, 0) for lane in range(4)),
    ],
    ids=["too long", "descriptors", "half a frame", "too many lanes"],
)
def test_peer_that_breaks_the_rules_of_frames_is_cut_off(aio: AioLoop, message: bytes) -> None:
    async def scenario() -> None:
        world, here = World(), Inbox()
        async with world.serving():
            link = await world.dial(here)
            link.send_raw(message)
            link.flush()
            await until(lambda: here.ends and world.inbox.ends)
            assert isinstance(world.inbox.ends[0], ProtocolError)
            assert "INVALID_ARGUMENT" in str(here.ends[0])
            assert world.inbox.frames == []

    aio.run(scenario())


def test_message_over_the_limit_ends_the_link_and_is_not_delivered(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        async with world.serving():
            hello = encode_frame(Frame.HELLO, make_hello(CLIENT, "test").SerializeToString())
            frames = encode_frame(Frame.SUBMIT, bytes(MAX_BODY)) * 5
            unlimited = (("grpc.max_send_message_length", -1),)
            metadata = world.security.metadata
            async with grpc.aio.insecure_channel(world.address, unlimited) as channel:
                call = channel.stream_stream(CONNECT)(metadata=metadata)
                await call.write(hello)
                await call.read()
                await call.write(frames)
                assert await call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            await until(lambda: world.inbox.ends)
            assert world.inbox.frames == []

    aio.run(scenario())


def test_metadata_over_the_limit_do_not_reach_the_service(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        async with world.serving():
            unlimited = (("grpc.max_metadata_size", 1 << 20), ("grpc.absolute_max_metadata_size", 1 << 20))
            metadata = (*world.security.metadata, ("filler", "x" * 100_000))
            code, _ = await raw_call(world.address, CONNECT, metadata, options=unlimited)
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert world.calls == []

    aio.run(scenario())


def test_peer_that_does_not_read_takes_bounded_memory(aio: AioLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 32 << 20
    monkeypatch.setattr(grpc_links, "MAX_QUEUED_NBYTES", limit)

    async def scenario() -> None:
        world, here = World(), Inbox()
        over = asyncio.get_running_loop().create_future()

        async def connect(_: Any, context: Any) -> None:
            await admit(context)
            await context.read()
            await context.write(encode_frame(Frame.HELLO, make_hello(SERVER, "test").SerializeToString()))
            await over

        async with world.serving(impostor(connect)):
            link = await world.dial(here)
            sent = 0
            while not link.closed:
                link.send(Frame.SUBMIT, bytes(MAX_BODY))
                link.flush()
                sent += MAX_BODY
                await asyncio.sleep(0.0005)
            assert isinstance(here.ends[0], TransportError)
            assert "does not read" in str(here.ends[0])
            # What was taken off the queue lies in the library and in the sockets.
            assert sent - limit < 16 << 20
            assert link.queued_nbytes == 0
            over.set_result(None)

    aio.run(scenario())


def test_killed_server_ends_its_links_with_an_error(aio: AioLoop) -> None:
    world = World()
    environ = {**os.environ, TOKEN_VARIABLE: world.security.token.reveal()}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        address = f"127.0.0.1:{int(process.stdout.readline())}"

        async def scenario() -> None:
            here = Inbox()
            link = await dial(address, world.security, make_hello(CLIENT), here.on_frames, here.on_closed)
            for _ in range(100):
                link.send(Frame.SUBMIT, bytes(MAX_BODY))
            link.flush()
            os.kill(process.pid, signal.SIGKILL)
            await until(lambda: here.ends)
            assert isinstance(here.ends[0], TransportError)
            assert link.closed
            with pytest.raises(TransportError, match=address):
                await dial(address, world.security, make_hello(CLIENT), here.on_frames, here.on_closed)
            assert len(here.ends) == 1

        aio.run(scenario())


def test_dial_of_one_who_never_answers_times_out(aio: AioLoop) -> None:
    world = World()

    async def scenario(address: str) -> None:
        with pytest.raises(TransportError, match="did not answer"):
            await dial(address, world.security, make_hello(CLIENT), refuse, refuse, timeout=0.2)

    def refuse(*_: object) -> None:
        raise AssertionError("no link was made")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        aio.run(scenario(f"127.0.0.1:{listener.getsockname()[1]}"))


def test_stopped_server_ends_its_links(aio: AioLoop) -> None:
    async def scenario() -> None:
        world, here = World(), Inbox()
        async with world.serving():
            await world.dial(here)
        await until(lambda: here.ends and world.inbox.ends)
        assert len(here.ends) == len(world.inbox.ends) == 1

    aio.run(scenario())


def test_second_server_cannot_share_a_port(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        async with world.serving():
            second = Server(Security(world.security.token), [])
            with pytest.raises(TransportError, match="taken"):
                await second.start(world.address)
            await second.stop(0)

    aio.run(scenario())


def test_link_that_nobody_dialled_is_closed_without_words(aio: AioLoop) -> None:
    async def scenario() -> None:
        here = Inbox()
        link = PeerLink(None, "nowhere", make_hello(1), here.on_frames, here.on_closed)
        link.flush()
        await link.finish(0)
        link.close()
        assert (link.closed, here.ends) == (True, [])

    aio.run(scenario())

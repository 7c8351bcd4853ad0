"""A node's stream to the head, and the questions anybody may ask."""

from __future__ import annotations

import pytest

from outboard.aioloop import AioLoop
from outboard.errors import NodeLostError, TransportError, VersionMismatchError
from outboard.rpc import grpc_head
from outboard.rpc.grpc_head import ask_status, ask_stop, attend
from outboard.rpc.protos import cluster_pb2 as pb
from outboard.version import PROTOCOL
from tests.unit.rpc.grpc_world import World, until

REGISTRATION = pb.Registration(protocol=PROTOCOL, incarnation=9, cluster="test", totals={"CPU": 20_000})


def test_reports_and_notes_arrive_in_order(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        notes: list[pb.Note] = []
        async with world.serving():
            link = await attend(world.address, world.security, REGISTRATION)
            link.on_message = lambda _, note: notes.append(note)
            assert (link.first.epoch, link.first.cluster) == (3, "test")
            assert world.nodes[0].first == REGISTRATION
            sent = [pb.Report(beat=pb.Beat(free={"CPU": number})) for number in range(50)]
            for report in sent:
                link.send(report)
            link.flush()
            world.nodes[0].send(pb.Note(drain=pb.Drain(reason="maintenance")))
            world.nodes[0].send(pb.Note(struck=pb.Struck(reason="silent")))
            world.nodes[0].flush()
            await until(lambda: len(world.reports) == 50 and len(notes) == 2)
            assert world.reports == sent
            assert [note.WhichOneof("body") for note in notes] == ["drain", "struck"]
            await link.finish()

    aio.run(scenario())


def test_last_words_of_a_node_are_read(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        ends: list[Exception | None] = []
        async with world.serving():
            link = await attend(world.address, world.security, REGISTRATION)
            world.nodes[0].on_closed = lambda _, error: ends.append(error)
            link.send(pb.Report(drained=pb.Drained()))
            await link.finish()
            await until(lambda: ends)
            assert (len(world.reports), ends) == (1, [None])

    aio.run(scenario())


def test_node_hears_that_the_head_ended(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        ends: list[Exception | None] = []
        async with world.serving():
            link = await attend(world.address, world.security, REGISTRATION)
            link.on_closed = lambda _, error: ends.append(error)
        await until(lambda: ends)
        assert link.closed
        link.send(pb.Report(beat=pb.Beat()))
        link.flush()
        link.close()

    aio.run(scenario())


def test_head_may_refuse_a_node(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        async with world.serving():
            with pytest.raises(VersionMismatchError, match="protocol 77"):
                await attend(world.address, world.security, pb.Registration(protocol=77, incarnation=9))
            with pytest.raises(TransportError, match="with an incarnation"):
                await attend(world.address, world.security, pb.Registration(protocol=PROTOCOL))
            assert world.calls == []
            world.refusal = NodeLostError("struck off after 5 s of silence")
            with pytest.raises(NodeLostError, match="struck off"):
                await attend(world.address, world.security, REGISTRATION)

    aio.run(scenario())


def test_report_over_its_bounds_ends_the_stream(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        ends: list[Exception | None] = []
        async with world.serving():
            link = await attend(world.address, world.security, REGISTRATION)
            link.on_closed = lambda _, error: ends.append(error)
            link.send(pb.Report(name=pb.NameQuestion(name="x" * 5000)))
            link.flush()
            await until(lambda: ends)
            assert "5000 bytes" in str(ends[0])
            assert world.reports == []

    aio.run(scenario())


def test_peer_that_does_not_read_is_given_up(aio: AioLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_head, "MAX_QUEUED", 10)

    async def scenario() -> None:
        world = World()
        ends: list[Exception | None] = []
        async with world.serving():
            link = await attend(world.address, world.security, REGISTRATION)
            link.on_closed = lambda _, error: ends.append(error)
            for _ in range(12):
                link.send(pb.Report(beat=pb.Beat()))
            await until(lambda: ends)
            assert len(ends) == 1
            assert "does not read" in str(ends[0])

    aio.run(scenario())


def test_status_and_stop(aio: AioLoop) -> None:
    async def scenario() -> None:
        world = World()
        async with world.serving():
            assert (await ask_status(world.address, world.security, 5.0)).cluster == "test"
            assert (await ask_stop(world.address, world.security, pb.StopRequest(force=True), 5.0)).left == 2
            assert world.calls == ["status", "stop force"]
        with pytest.raises(TransportError, match=world.address):
            await ask_status(world.address, world.security, 5.0)

    aio.run(scenario())

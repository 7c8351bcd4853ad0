"""Objects of other nodes: brought in once, over gRPC or frames, pinned as told, within the budget, or refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from outboard.aioloop import AioLoop
from outboard.ids import ObjectId
from outboard.nodestore import NodeStore
from outboard.rpc import grpc_objects
from outboard.rpc.codec import Frame
from outboard.rpc.grpc_credentials import Security, make_token
from outboard.rpc.grpc_objects import PIECE_NBYTES
from outboard.rpc.grpc_server import Server
from outboard.rpc.object_sockets import Offer
from outboard.rpc.protos import outboard_pb2 as pb
from outboard.scheduler import pulls
from outboard.scheduler.takers import MOST_TAKERS
from outboard.store.extent import extent_nbytes
from outboard.store.segments import SegmentReader, SegmentWriter
from tests.unit.rpc.grpc_world import until

ROOT, ONE, TWO, WRITER = 0x100, 0x101, 0x102, 0x103
MIB = 1 << 20


class FakePeer:
    worker = None

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.root = ROOT
        self.hello = pb.Hello()


class FakeDispatch:
    workers: tuple[Any, ...] = ()

    def snapshot(self) -> FakeDispatch:
        return self


class FakePeering:
    """Reaches the nodes of one test; `addresses` of those that can be dialled."""

    def __init__(self, net: Net, node: FakeNode) -> None:
        self.net = net
        self.node = node
        self.security = net.security
        self.fetches = 0

    def address_of(self, node: int) -> str:
        return self.net.addresses.get(node, "")

    def is_struck(self, node: int) -> bool:
        return False

    def send(self, node: int, frame_type: int, body: bytes) -> bool:
        there = self.net.nodes.get(node)
        if there is None or node in self.net.cut:
            return False
        self.fetches += frame_type == Frame.FETCH
        replicas = there.store.replicas
        receive = replicas.on_fetch if frame_type == Frame.FETCH else replicas.on_piece
        self.node.loop.call_soon(receive, body)
        return True


class FakeNode:
    """What a store needs of its node. `said` keeps the frames to processes."""

    def __init__(self, net: Net, incarnation: int, budget_nbytes: int) -> None:
        self.loop = net.loop
        self.incarnation = incarnation
        self.peers = {process: FakePeer(process) for process in (ROOT, ONE, TWO, WRITER)}
        self.exchange = SimpleNamespace(adopted={})
        self.tree = None
        self.dispatch = FakeDispatch()
        self.said: list[tuple[int, int, bytes]] = []
        self.store = NodeStore(self, budget_nbytes)  # type: ignore[arg-type]
        self.peering = FakePeering(net, self)

    def now(self) -> float:
        return self.loop.time()

    def send(self, incarnation: int, frame_type: int, body: bytes, origin: int = 0, fds: Any = ()) -> bool:
        if incarnation not in self.peers:
            return False
        self.said.append((incarnation, frame_type, body))
        return True

    def settle(self) -> None:
        self.store.execute(self.store.extents.take_commands())
        self.store.review_waiting()

    def flush_soon(self) -> None:
        self.loop.call_soon(self.settle)

    # -- what processes do ---

    def make(self, data: bytes, seq: int = 1, version: int = 0, writer: int = WRITER) -> pb.Descriptor:
        """Store an object of ROOT."""
        nbytes = extent_nbytes(0, [len(data)])
        made = self.store._make_segment(writer, nbytes, may_evict=False)
        assert made is not None
        segment, fd, _ = made
        SegmentWriter(segment, fd, nbytes).write(0, ObjectId(ROOT, seq), version, b"", [data], fresh=True)
        self.store.extents.on_announced(ROOT, seq, version, segment, 0, nbytes, writer)
        return pb.Descriptor(owner=ROOT, seq=seq, version=version, segment=segment, nbytes=nbytes,
                             node=self.incarnation)  # fmt: skip

    def pull(self, d: pb.Descriptor, process: int = ONE) -> None:
        self.store.on_pull(self.peers[process], pb.Pull(object=d).SerializeToString(), 0, ())  # type: ignore[arg-type]
        self.settle()

    def give_back(self, d: pb.Descriptor, process: int = ONE) -> None:
        body = pb.Refs(refs=[pb.Ref(owner=d.owner, seq=d.seq, version=d.version)]).SerializeToString()
        self.store.on_pulled(self.peers[process], body, 0, ())  # type: ignore[arg-type]
        self.settle()

    def free(self, d: pb.Descriptor) -> None:
        body = pb.Refs(refs=[pb.Ref(owner=d.owner, seq=d.seq, version=d.version)]).SerializeToString()
        self.store.on_free(self.peers[ROOT], body, 0, ())  # type: ignore[arg-type]
        self.settle()

    def die(self, process: int) -> None:
        del self.peers[process]
        self.store.process_died(process)
        self.settle()

    def answers(self, process: int = ONE) -> list[pb.Pulled]:
        return [pb.Pulled.FromString(b) for who, kind, b in self.said if (who, kind) == (process, Frame.PULLED)]

    async def answer(self, process: int = ONE, count: int = 1) -> pb.Pulled:
        await until(lambda: len(self.answers(process)) >= count)
        return self.answers(process)[count - 1]

    def bytes_of(self, d: pb.Descriptor) -> bytes:
        """Read as a process of this node does."""
        fd, nbytes = self.store._segments[d.segment]
        reader = SegmentReader()
        reader.add(d.segment, os.dup(fd), nbytes)
        _, buffers = reader.open(d.owner, d.seq, d.version, d.segment, d.offset, d.nbytes)
        data = bytes(buffers[0])
        reader.forget()
        return data


class Net:
    """Some nodes; `cut` cannot be reached by frames."""

    def __init__(self, loop: AioLoop) -> None:
        self.loop = loop
        self.security = Security(make_token())
        self.nodes: dict[int, FakeNode] = {}
        self.addresses: dict[int, str] = {}
        self.servers: dict[int, Server] = {}
        self.cut: set[int] = set()

    def add(self, budget_nbytes: int = 64 * MIB) -> FakeNode:
        incarnation = 0xA0 + len(self.nodes)
        node = self.nodes[incarnation] = FakeNode(self, incarnation, budget_nbytes)
        node.store.replicas.start()
        return node

    async def serve(self, node: FakeNode) -> None:
        """Let a node be dialled."""
        objects = node.store.replicas.service(self.security, "127.0.0.1")
        server = self.servers[node.incarnation] = Server(self.security, [objects.handler])
        self.addresses[node.incarnation] = f"127.0.0.1:{await server.start('127.0.0.1:0')}"

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.store.replicas.close()
        for server in self.servers.values():
            await server.stop(0)
        for node in self.nodes.values():
            node.store.extents.check()
            for fd, _ in node.store._segments.values():
                os.close(fd)


@contextlib.asynccontextmanager
async def net_of(loop: AioLoop) -> AsyncIterator[Net]:
    net = Net(loop)
    try:
        yield net
    finally:
        await net.close()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulls, "PAUSES", (0.0, 0.0, 0.0))


def data_of(nbytes: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(nbytes)


@pytest.mark.parametrize("nbytes", [100, 3 * PIECE_NBYTES + 5, 20 * MIB])
@pytest.mark.parametrize("is_dialled", [True, False], ids=["grpc", "frames"])
def test_object_is_here_once_for_all_who_wait(aio: AioLoop, is_dialled: bool, nbytes: int) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            there, here = net.add(), net.add()
            if is_dialled:
                await net.serve(there)
            data = data_of(nbytes)
            d = there.make(data)
            here.pull(d, ONE)
            here.pull(d, TWO)
            one, two = await here.answer(ONE), await here.answer(TWO)
            assert one == two and one.object.node == here.incarnation and one.cause == pb.Pulled.NONE
            assert here.bytes_of(one.object) == data
            here.pull(d, ONE)
            assert len(here.answers(ONE)) == 2, "it is here: no waiting"
            assert (here.peering.fetches > 0) != is_dialled
            extents = here.store.extents
            here.free(d)
            for process in (ONE, TWO):
                here.give_back(d, process)
            assert extents.holders(), "ONE has it open twice"
            here.give_back(d, ONE)
            assert not extents.holders() and not here.store.replicas.space.used_nbytes
            here.give_back(d, ONE)
            assert there.store.extents.holders() == [(ROOT, d.nbytes)]

    aio.run(scenario())


def test_room_is_not_used_again_while_a_thread_may_write_there(aio: AioLoop) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            there, here = net.add(), net.add()
            await net.serve(there)
            d = there.make(data_of(20 * MIB))
            here.pull(d)
            replicas = here.store.replicas
            await until(lambda: replicas._arriving)
            (pull,) = replicas._arriving.values()
            pull.writing = aio.asyncio.create_future()
            here.free(d)
            assert (await here.answer()).cause == pb.Pulled.LOST
            assert replicas.space.used_nbytes
            pull.writing.set_result(None)
            await until(lambda: not replicas.space.used_nbytes)

    aio.run(scenario())


def test_words_about_pins_of_other_nodes_pass_a_copy_by(aio: AioLoop) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            there, here = net.add(), net.add()
            d = there.make(data_of(MIB))
            here.pull(d)
            await here.answer()
            extents, oid = here.store.extents, ObjectId(ROOT, 1)
            assert not extents.pin(oid, 0, ONE)
            body = pb.Refs(refs=[pb.Ref(owner=ROOT, seq=1)]).SerializeToString()
            here.store.on_unpin(here.peers[ONE], body, 0, ())  # type: ignore[arg-type]
            here.free(d)
            assert extents.holders(), "the view is still open"
            extents.inherit(oid, 0, -1)
            here.give_back(d)
            assert extents.holders(), "a forked child still has the view"
            here.store.process_died(-1)
            assert not extents.holders()

    aio.run(scenario())


def lost(reason: str) -> Callable[[pb.Pulled], bool]:
    return lambda pulled: pulled.cause == pb.Pulled.LOST and reason in pulled.reason


@pytest.mark.parametrize("is_dialled", [True, False], ids=["grpc", "frames"])
@pytest.mark.parametrize("what", ["unknown", "other version", "another object there", "other size"])
def test_only_what_was_asked_for_is_given(aio: AioLoop, is_dialled: bool, what: str) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            there, here = net.add(), net.add()
            if is_dialled:
                await net.serve(there)
            d = there.make(data_of(MIB), version=3)
            if what == "unknown":
                d.seq = 9
            elif what == "other version":
                d.version = 2
            elif what == "other size":
                d.nbytes += 4096
            else:  # its bytes say that it is another one than the source takes it for
                there.store.extents.on_announced(ROOT, 8, 3, d.segment, 4096, d.nbytes - 4096, WRITER)
                d.seq, d.nbytes = 8, d.nbytes - 4096
            here.store.replicas.patience = 0.2
            here.pull(d)
            assert (await here.answer()).cause == pb.Pulled.LOST
            assert not here.store.replicas.space.used_nbytes and not here.store.extents.holders()

    aio.run(scenario())


def test_nothing_is_pulled_without_peers_or_of_its_own_or_freed(aio: AioLoop) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            there, here = net.add(), net.add()
            d = there.make(data_of(MIB))
            own = pb.Descriptor(owner=ROOT, seq=5, nbytes=4096, node=here.incarnation)
            here.pull(own)
            here.free(d)
            here.pull(d)
            here.peering = None  # type: ignore[assignment]
            here.pull(pb.Descriptor(owner=ROOT, seq=6, nbytes=4096, node=there.incarnation))
            assert [answer.cause for answer in here.answers()] == [pb.Pulled.LOST] * 3

    aio.run(scenario())


def test_source_that_ends_in_the_middle_is_replaced_by_another(aio: AioLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            first, second, here = net.add(), net.add(), net.add()
            data = data_of(4 * MIB)
            d = first.make(data)
            second.make(data)
            give = first.store.replicas.giving
            send_on = give._send

            def send(taker: Any, offset: int, data: bytes) -> bool:
                if offset < MIB:
                    return send_on(taker, offset, data)
                nodes = grpc_objects.encode_nodes((second.incarnation,))
                return send_on(taker, grpc_objects.ELSEWHERE, nodes)

            monkeypatch.setattr(give, "_send", send)
            here.pull(d)
            pulled = await here.answer()
            assert here.bytes_of(pulled.object) == data
            assert second.peering.fetches == first.peering.fetches == 0 and here.peering.fetches > 1

    aio.run(scenario())


@pytest.mark.parametrize("how", ["link gone", "silent", "node gone", "server gone", "server gone, by socket"])
def test_death_of_the_only_source_is_told(aio: AioLoop, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            there, here = net.add(), net.add()
            d = there.make(data_of(30 * MIB))
            if how.startswith("server gone"):
                await net.serve(there)
            if how == "server gone":
                monkeypatch.setattr(grpc_objects, "MIN_NBYTES", d.nbytes + 1)
            else:  # whoever dials gets nothing, and waits
                monkeypatch.setattr(Offer, "run", lambda offer: offer._await_taker(None).recv(1))
            here.store.replicas.patience = 0.2
            here.pull(d)
            replicas = here.store.replicas
            await until(lambda: any(pull.offset or pull.writing for pull in replicas._arriving.values()))
            if how == "link gone":
                net.cut = {there.incarnation, here.incarnation}
            elif how == "silent":
                monkeypatch.setattr(there.store.replicas.giving, "_send", lambda *args: True)
            elif how == "node gone":
                replicas.on_node_gone(there.incarnation)
            else:
                await net.servers.pop(there.incarnation).stop(0)
            assert (await here.answer()).cause == pb.Pulled.LOST
            assert not replicas.space.used_nbytes

    aio.run(scenario())


def test_asker_that_dies_gets_no_pin_and_the_copy_stays(aio: AioLoop) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            there, here = net.add(), net.add()
            d = there.make(data_of(4 * MIB))
            here.pull(d, ONE)
            await asyncio.sleep(0)
            here.die(ONE)
            here.pull(d, TWO)
            await here.answer(TWO)
            assert not here.answers(ONE)
            here.give_back(d, TWO)
            here.free(d)
            assert not here.store.extents.holders()

    aio.run(scenario())


def test_free_that_overtakes_a_pull_ends_it(aio: AioLoop) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            there, here = net.add(), net.add()
            d = there.make(data_of(4 * MIB))
            here.pull(d)
            await asyncio.sleep(0)
            here.free(d)
            assert lost("let go")(here.answers()[0])
            await asyncio.sleep(0.05)
            assert not here.store.extents.holders() and not here.store.replicas.space.used_nbytes

    aio.run(scenario())


def test_end_of_the_root_frees_its_copies(aio: AioLoop) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            there, here = net.add(), net.add()
            d = there.make(data_of(MIB))
            here.pull(d)
            await here.answer()
            here.give_back(d)
            assert here.store.extents.holders()
            here.die(ROOT)
            assert not here.store.extents.holders()

    aio.run(scenario())


@pytest.mark.parametrize("is_freed_first", [True, False])
def test_room_of_copies_goes_back_when_nobody_is_left(aio: AioLoop, is_freed_first: bool) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            there, here = net.add(), net.add()
            d = there.make(data_of(MIB))
            here.pull(d)
            await here.answer()
            here.give_back(d)
            if is_freed_first:
                here.free(d)
            for process in (ONE, TWO, WRITER):
                here.die(process)
                assert here.store.extents.used_nbytes  # kept warm for who comes next
            here.die(ROOT)
            assert not here.store.extents.used_nbytes

    aio.run(scenario())


def test_copies_make_room_for_writers_and_for_other_copies(aio: AioLoop) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            there, here = net.add(), net.add(budget_nbytes=16 * MIB)
            objects = [there.make(data_of(6 * MIB, seq), seq=seq) for seq in (1, 2, 3)]
            for count, d in enumerate(objects[:2], 1):
                here.pull(d)
                await here.answer(count=count)
            here.give_back(objects[0])
            here.pull(objects[2])  # the first one goes
            pulled = await here.answer(count=3)
            assert here.bytes_of(pulled.object) == data_of(6 * MIB, 3)
            assert here.store.extents.find(ObjectId(ROOT, 1), 0) is None
            here.give_back(objects[2])
            lease = pb.Lease(nbytes=8 * MIB).SerializeToString()
            here.store.on_lease(here.peers[WRITER], lease, 0, ())  # type: ignore[arg-type]
            assert here.said[-1][:2] == (WRITER, Frame.SEGMENT)
            segment = pb.Segment.FromString(here.said[-1][2]).segment
            here.store.extents.on_announced(ROOT, 50, 0, segment, 0, 8 * MIB, WRITER)
            assert here.store.extents.find(ObjectId(ROOT, 2), 0) is not None, "it is pinned"
            here.pull(objects[0])
            await here.answer(count=4)
            assert here.answers()[3].cause == pb.Pulled.FULL
            assert "no room for a copy of 6.0 MiB" in here.answers()[3].reason

    aio.run(scenario())


def test_object_of_a_node_that_leaves_stays(aio: AioLoop) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            there, here = net.add(), net.add(budget_nbytes=16 * MIB)
            done: list[str] = []
            replicas = here.store.replicas
            d = there.make(data_of(6 * MIB))
            replicas.take_over(d, ROOT, lambda: done.append("here"))
            here.store.process_died(here.store.new_heir())  # descendants of a fork have ended
            await until(lambda: done)
            replicas.take_over(d, ROOT, lambda: done.append("here already"))
            unknown = pb.Descriptor(owner=ROOT, seq=9, nbytes=4096, node=there.incarnation)
            replicas.take_over(unknown, ROOT, lambda: done.append("nowhere"))
            await until(lambda: len(done) == 3)
            for seq in (2, 3):
                here.pull(there.make(data_of(6 * MIB, seq), seq=seq))
                await here.answer(count=seq - 1)
                here.give_back(pb.Descriptor(owner=ROOT, seq=seq))
            del net.nodes[there.incarnation]
            here.pull(d)
            assert here.bytes_of(here.answers()[-1].object) == data_of(6 * MIB)
            here.free(d)
            net.nodes[there.incarnation] = there

    aio.run(scenario())


def test_pull_that_waits_for_room_goes_on_when_some_comes(aio: AioLoop) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            there, here = net.add(), net.add(budget_nbytes=8 * MIB)

            class Busy:
                state, worker = "BUSY", 5

            here.dispatch.workers = (Busy(),)
            held = here.make(bytes(5 * MIB), seq=7)
            d = there.make(data_of(4 * MIB))
            here.pull(d)
            await asyncio.sleep(0.01)
            assert not here.answers()
            here.free(held)
            here.store.extents.on_given_back(WRITER, held.segment)
            here.settle()
            assert here.bytes_of((await here.answer()).object) == data_of(4 * MIB)

    aio.run(scenario())


def test_inputs_of_later_tasks_fill_half_of_the_budget_at_most(aio: AioLoop) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            there, here = net.add(), net.add(budget_nbytes=32 * MIB)
            objects = [there.make(data_of(5 * MIB, seq), seq=seq) for seq in range(1, 6)]
            here.store.pull_ahead(objects, ROOT)
            await until(lambda: len(here.store.extents._replicas) == 3)
            assert here.store.replicas.space.used_nbytes <= 16 * MIB
            here.pull(objects[0])
            assert len(here.answers()) == 1, "it is there already"
            here.give_back(objects[0])
            here.store.pull_ahead(objects[3:], ROOT)
            await until(lambda: here.store.extents.find(ObjectId(ROOT, 4), 0) is not None)
            assert here.store.extents.find(ObjectId(ROOT, 1), 0) is None, "it was used, and makes room"
            assert here.store.extents.find(ObjectId(ROOT, 5), 0) is None
            here.pull(objects[4])
            await here.answer(count=2)

    aio.run(scenario())


@pytest.mark.parametrize("is_dialled", [True, False], ids=["grpc", "frames"])
def test_object_that_everybody_wants_spreads_like_a_tree(
    aio: AioLoop, is_dialled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            source = net.add()
            takers = [net.add() for _ in range(4 * MOST_TAKERS)]
            if is_dialled:
                for node in (source, *takers):
                    await net.serve(node)
            data = data_of(2 * MIB)
            d = source.make(data)
            most = served = 0
            giving = source.store.replicas.giving
            machine = giving._takers
            turns = [giving.ask_turn(ObjectId(ROOT, 1), 0, node) for node in range(MOST_TAKERS)]
            on_ended = machine.on_ended

            def count(turn: int, *, is_whole: bool) -> None:
                nonlocal most, served
                most = max(most, *(len(wanted.active) for wanted in machine._wanted.values()))
                served += is_whole
                on_ended(turn, is_whole=is_whole)

            monkeypatch.setattr(machine, "on_ended", count)
            for node in takers:
                node.pull(d)
            await until(lambda: len(machine._turns) == MOST_TAKERS + len(takers))
            for turn in turns:
                turn.end(is_whole=False)
            for node in takers:
                assert node.bytes_of((await node.answer()).object) == data
            assert most == MOST_TAKERS and MOST_TAKERS <= served < len(takers)

    aio.run(scenario())


def test_taker_that_waits_for_its_turn_is_asked_for_patience(aio: AioLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with net_of(aio) as net:
            source, dialling, asking = net.add(), net.add(), net.add()
            d = source.make(data_of(MIB))
            giving = source.store.replicas.giving
            turns = [giving.ask_turn(ObjectId(ROOT, 1), 0, node) for node in range(MOST_TAKERS)]
            asking.store.replicas.patience = dialling.store.replicas.patience = 0.5
            asking.pull(d)
            await net.serve(source)
            dialling.pull(d)
            await asyncio.sleep(1.0)
            assert not asking.answers() and not dialling.answers()
            for turn in turns:
                turn.end(is_whole=False)
            assert (await asking.answer()).cause == (await dialling.answer()).cause == pb.Pulled.NONE

    monkeypatch.setattr(grpc_objects, "WORD_SECONDS", 0.1)
    aio.run(scenario())

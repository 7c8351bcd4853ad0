"""Trees over real links: nodes that know each other, clients that become clients of further nodes, relays."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outboard.aioloop import AioLoop
from outboard.ids import ObjectId
from outboard.joining import make_peering
from outboard.node import Node
from outboard.peering import Peering
from outboard.rpc.codec import Frame
from outboard.rpc.grpc_credentials import Security, Token, make_token
from outboard.rpc.grpc_server import Server
from outboard.rpc.local import LoopLink
from outboard.rpc.protos import cluster_pb2
from outboard.rpc.protos import outboard_pb2 as pb
from outboard.rpc.sockets import socketpair
from outboard.seeker import Seeker
from outboard.sessionframes import ALL
from outboard.tree import Tree
from outboard.version import PROTOCOL, __version__
from tests.unit.test_head import warm_library

__all__ = ["warm_library"]

pytestmark = pytest.mark.multihost


class Machine:
    """A node without workers, and what it is reached by."""

    def __init__(self, loop: AioLoop, folder: Path, token: Token, slots: int) -> None:
        self.loop = loop
        ours, self.template = socketpair()
        boot = SimpleNamespace(folder=str(folder), board=None, template_pid=0, template_control=ours)
        settings = {"num_cpus": slots, "num_gpus": 0, "store_memory": 1 << 26}
        self.node = Node(loop, boot, settings, lambda: None, is_embedded=False, joined=True)
        self.peering: Peering = make_peering(self.node, loop, Security(token))
        self.tree = self.node.tree = Tree(self.node, self.peering)
        self.node.seeker = Seeker(self.node, lambda report: None, "head")
        self.address = ""
        self.clients: list[Client] = []
        self.server: Server | None = None

    async def serve(self) -> None:
        self.server = Server(self.peering.security, [self.peering.service.handler])
        self.address = f"127.0.0.1:{await self.server.start('127.0.0.1:0')}"
        self.peering.hello.address = self.address

    async def close(self) -> None:
        self.tree.close()
        self.peering.close()
        if self.server is not None:
            await self.server.stop(0)
        for client in self.clients:
            client.link.close()
        for peer in self.node.peers.values():
            peer.link.close()
        self.node.workforce.template.close()
        self.template.close()


class Client:
    """The far end of a client's link."""

    def __init__(self, machine: Machine) -> None:
        ours, theirs = socketpair()
        self.incarnation = int.from_bytes(os.urandom(8), "little") | 1
        self.heard: list[Any] = []
        self.link = LoopLink(ours, machine.loop, lambda _, frames: self.heard.extend(frames), lambda *_: None)
        machine.clients.append(self)
        machine.node.greet(theirs)
        hello = pb.Hello(protocol=PROTOCOL, release=__version__, python=PYTHON, incarnation=self.incarnation, pid=1)
        self.send(Frame.HELLO, hello)

    def send(self, frame_type: int, message: Any, destination: int = 0) -> None:
        self.link.send(frame_type, message.SerializeToString(), destination)
        self.link.flush()

    async def hears(self, frame_type: int, origin: int | None = None) -> bytes:
        """The body of the first frame of a type that has not been heard yet."""

        def find() -> Any:
            return next((f for f in self.heard if f[0] == frame_type and origin in (None, f[2])), None)

        await until(lambda: find() is not None)
        found = find()
        self.heard.remove(found)
        return bytes(found[1])


PYTHON = "{}.{}".format(*__import__("sys").version_info[:2])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


class World:
    """Two nodes that can be dialled and a slotless one that cannot; all know the members."""

    def __init__(self, one: Machine, two: Machine, slotless: Machine) -> None:
        self.one, self.two, self.slotless = one, two, slotless


@pytest.fixture
def loop(warm_library: None) -> Iterator[AioLoop]:
    made = AioLoop()
    yield made
    made.close()


@asynccontextmanager
async def world(loop: AioLoop) -> AsyncIterator[World]:
    token = make_token()
    with tempfile.TemporaryDirectory() as folder:
        machines = [Machine(loop, Path(folder), token, slots) for slots in (2, 2, 0)]
        for machine in machines[:2]:
            await machine.serve()
            node = machine.node.incarnation
            for other in machines:
                other.peering.members.current[node] = cluster_pb2.Member(incarnation=node, address=machine.address)
        yield World(*machines)
        for machine in machines:
            await machine.close()


async def connect(client: Client, home: Machine, far: Machine) -> pb.Welcome:
    """Let a client become one of a further node; return that node's welcome."""
    await client.hears(Frame.WELCOME)
    home.tree.connect(home.node.peers[client.incarnation], far.node.incarnation, far.address)
    home.node.settle()
    return pb.Welcome.FromString(await client.hears(Frame.WELCOME, far.node.incarnation))


def run(loop: AioLoop, play: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with world(loop) as made:
            await play(made)

    loop.run(whole())


def test_a_client_becomes_one_of_a_further_node_and_is_answered_from_there(loop: AioLoop) -> None:
    async def play(world: World) -> None:
        client, far = Client(world.one), world.two.node
        welcome = await connect(client, world.one, world.two)
        assert welcome.node == far.incarnation and welcome.initial_credit > 0
        client.send(Frame.KIND, pb.Kind(id=1, name="huge", resources={"CPU": 990_000}, num_returns=1), far.incarnation)
        grant = pb.Grant.FromString(await client.hears(Frame.GRANT, far.incarnation))
        assert (grant.kind, grant.credit) == (1, 0)  # others may be able to run it
        assert 1 not in world.one.node.peers[client.incarnation].kinds

    run(loop, play)


def test_the_end_of_a_client_ends_it_everywhere(loop: AioLoop) -> None:
    async def play(world: World) -> None:
        client = Client(world.one)
        await connect(client, world.one, world.two)
        assert client.incarnation in world.two.node.peers
        client.link.close()
        await until(lambda: client.incarnation not in world.two.node.peers)
        assert not list(world.one.tree.sessions()) and not list(world.two.tree.sessions())

    run(loop, play)


def test_a_slotless_node_reaches_all_nodes_over_one_link_and_takes_another_when_that_is_cut(loop: AioLoop) -> None:
    async def play(world: World) -> None:
        client, peering = Client(world.slotless), world.slotless.peering
        await connect(client, world.slotless, world.one)
        world.slotless.tree.connect(
            world.slotless.node.peers[client.incarnation], world.two.node.incarnation, world.two.address
        )
        world.slotless.node.settle()
        await client.hears(Frame.WELCOME, world.two.node.incarnation)
        assert len(peering._links) == 1
        link = next(iter(peering._links.values()))
        link.close()
        peering._on_closed(link, None)
        for far in (world.one.node, world.two.node):
            kind = pb.Kind(id=1, name="huge", resources={"CPU": 990_000}, num_returns=1)
            client.send(Frame.KIND, kind, far.incarnation)
            await client.hears(Frame.GRANT, far.incarnation)

    run(loop, play)


def test_a_link_over_which_nobody_is_heard_is_replaced_before_the_session_is_lost(
    loop: AioLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("scheduler.session", "peering"):
        monkeypatch.setattr(f"outboard.{module}.DOUBT_SECONDS", 0.5)
    monkeypatch.setattr("outboard.scheduler.session.BEAT_SECONDS", 0.1)

    async def play(world: World) -> None:
        client, peering = Client(world.slotless), world.slotless.peering
        await connect(client, world.slotless, world.one)
        (broken,) = peering._links.values()
        (theirs,) = world.one.peering._links.values()
        broken.on_frames = theirs.on_frames = lambda *_: None  # what is said over it gets lost
        await until(lambda: broken not in peering._links.values() and bool(peering._links))
        assert list(peering._links) == [world.two.node.incarnation]  # the other one relays
        kind = pb.Kind(id=1, name="huge", resources={"CPU": 990_000}, num_returns=1)
        client.send(Frame.KIND, kind, world.one.node.incarnation)
        await client.hears(Frame.GRANT, world.one.node.incarnation)
        assert theirs not in world.one.peering._links.values()
        assert not [frame for frame in client.heard if frame[0] == Frame.NODE_GONE]

    run(loop, play)


def test_a_node_whose_process_is_gone_is_lost_by_the_first_dial_that_is_refused(loop: AioLoop) -> None:
    async def play(world: World) -> None:
        client = Client(world.one)
        await connect(client, world.one, world.two)
        assert world.two.server is not None
        await world.two.server.stop(0)
        world.two.peering.close()
        gone = pb.NodeGone.FromString(await client.hears(Frame.NODE_GONE))
        assert gone.node == world.two.node.incarnation and gone.lost

    run(loop, play)


def test_a_struck_node_is_lost_and_its_links_are_refused(loop: AioLoop) -> None:
    async def play(world: World) -> None:
        client, far = Client(world.one), world.two.node.incarnation
        await connect(client, world.one, world.two)
        world.one.peering.on_struck(far)
        world.one.tree.on_struck(far)
        world.one.node.settle()
        assert pb.NodeGone.FromString(await client.hears(Frame.NODE_GONE)).lost
        world.one.tree.connect(world.one.node.peers[client.incarnation], far, world.two.address)
        assert not list(world.one.tree.sessions())

    run(loop, play)


def test_a_client_gets_a_new_session_when_it_knows_that_the_old_one_is_over(loop: AioLoop) -> None:
    async def play(world: World) -> None:
        client, far = Client(world.one), world.two.node
        await connect(client, world.one, world.two)
        peer = world.one.node.peers[client.incarnation]
        (trunk,) = world.one.tree.trunks_of(client.incarnation)
        trunk.end.give_up(trunk)
        world.one.node.settle()
        gone = pb.NodeGone.FromString(await client.hears(Frame.NODE_GONE))
        world.one.tree.connect(peer, far.incarnation, world.two.address)
        client.send(Frame.KIND, pb.Kind(id=1, name="old", num_returns=1), far.incarnation)
        client.send(Frame.NODE_GONE, gone)
        await until(lambda: not peer.gone_nodes)
        assert not list(world.one.tree.sessions())
        world.one.tree.connect(peer, far.incarnation, world.two.address)
        world.one.node.settle()
        await client.hears(Frame.WELCOME, far.incarnation)
        assert not far.peers[client.incarnation].kinds

    run(loop, play)


def test_what_lay_at_a_node_is_waited_for_nowhere_once_the_session_with_it_is_lost(
    loop: AioLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(world: World) -> None:
        client, tree, far = Client(world.slotless), world.slotless.tree, world.two.node.incarnation
        await connect(client, world.slotless, world.one)
        tree.connect(world.slotless.node.peers[client.incarnation], far, world.two.address)
        world.slotless.node.settle()
        await client.hears(Frame.WELCOME, far)
        told: list[tuple[int, int]] = []
        monkeypatch.setattr(world.one.node.store.replicas, "on_session_lost", lambda *lost: told.append(lost))
        (trunk,) = [trunk for trunk in tree.trunks_of(client.incarnation) if trunk.far == far]
        trunk.end.give_up(trunk)
        world.slotless.node.settle()
        client.send(Frame.PULL, pb.Pull(object=pb.Descriptor(owner=client.incarnation, seq=1, version=1, node=far)))
        pulled = pb.Pulled.FromString(await client.hears(Frame.PULLED))
        assert pulled.cause == pb.Pulled.LOST and "session with the node that had it" in pulled.reason
        await until(lambda: told == [(far, client.incarnation)])

        client.send(Frame.NODE_GONE, pb.NodeGone.FromString(await client.hears(Frame.NODE_GONE)))
        await until(lambda: not world.slotless.node.peers[client.incarnation].gone_nodes)
        assert tree.has_lost(far, client.incarnation)
        tree.connect(world.slotless.node.peers[client.incarnation], far, world.two.address)
        world.slotless.node.settle()
        await client.hears(Frame.WELCOME, far)
        assert not tree.has_lost(far, client.incarnation)

    run(loop, play)


def test_a_node_that_says_nonsense_loses_its_link_alone(loop: AioLoop, capfd: Any) -> None:
    async def play(world: World) -> None:
        client = Client(world.one)
        await connect(client, world.one, world.two)
        for frame_type, body in ((Frame.SESSION, b"short"), (Frame.NO_PATH, b"\xff"), (Frame.SUBMIT, b"")):
            await until(lambda: bool(world.one.peering._links))
            world.two.peering.send(world.one.node.incarnation, frame_type, body)
            world.two.node.settle()
            await until(lambda: not world.one.peering._links or not world.two.peering._links)
        kind = pb.Kind(id=1, name="huge", resources={"CPU": 990_000}, num_returns=1)
        client.send(Frame.KIND, kind, world.two.node.incarnation)
        await client.hears(Frame.GRANT, world.two.node.incarnation)

    run(loop, play)
    assert capfd.readouterr().err.count("makes no sense") == 3


def test_what_is_for_all_nodes_reaches_the_own_one_and_every_other(loop: AioLoop) -> None:
    async def play(world: World) -> None:
        client = Client(world.one)
        await connect(client, world.one, world.two)
        freed = pb.Refs(refs=[pb.Ref(owner=client.incarnation, seq=7)])
        client.send(Frame.FREE, freed, ALL)
        for machine in (world.one, world.two):
            ignored = machine.node.store.extents.ignored
            await until(lambda ignored=ignored: ignored["freed early or again"] == 1)  # type: ignore[misc]

    run(loop, play)


class FakeLink:
    """A link that remembers what was sent on it, and from where."""

    closed = False

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []

    def send(self, frame_type: int, body: bytes, origin: int = 0, fds: tuple[int, ...] = ()) -> None:
        self.sent.append((frame_type, origin))

    def flush(self) -> None:
        """All is sent."""

    def close(self) -> None:
        """Nothing is open."""


class Process:
    """A worker of a client, at one of its nodes, that deals with others."""

    def __init__(self, machine: Machine, client: Client) -> None:
        self.node, self.tree = machine.node, machine.tree
        self.link = FakeLink()
        self.incarnation = int.from_bytes(os.urandom(8), "little") | 1
        link: Any = self.link
        self.peer = self.node.add_peer(link, self.incarnation, client.incarnation, None)
        self.node.note_sharing(self.peer)
        self.tree.on_sharing(self.peer)
        self.node.settle()

    def says(self, frame_type: int, message: Any, destination: int = 0) -> None:
        self.node.on_frames(self.peer, [(frame_type, message.SerializeToString(), destination, ())])

    def finishes(self, oid: ObjectId, owner: int, node: int = 0) -> None:
        """Give an owner the result of its task, and an object that lies at a node with it (0: inline)."""
        self.says(Frame.FINISHED, pb.Finished(adopted=[passing(oid, node)]), owner)

    def ends(self) -> None:
        self.node.forget(self.peer)
        self.node.settle()


def passing(oid: ObjectId, node: int = 0) -> pb.Adoption:
    stored = pb.Descriptor(owner=oid.owner, seq=oid.seq, version=1, nbytes=4096, node=node)
    value = pb.Outcome(value=pb.Parcel(stored=stored)).SerializeToString() if node else b"\x80"
    return pb.Adoption(ref=pb.Ref(owner=oid.owner, seq=oid.seq), value=value)


async def tree_of(world: World) -> tuple[Client, list[Process]]:
    """A client of the slotless node, and two workers at each of the other two."""
    client, middle = Client(world.slotless), world.slotless
    await connect(client, middle, world.one)
    middle.tree.connect(middle.node.peers[client.incarnation], world.two.node.incarnation, world.two.address)
    middle.node.settle()
    await client.hears(Frame.WELCOME, world.two.node.incarnation)
    workers = [Process(machine, client) for machine in (world.one, world.one, world.two, world.two)]
    known = middle.node.peers
    await until(lambda: all(worker.incarnation in known for worker in workers))
    return client, workers


def test_a_result_with_objects_in_it_names_its_node_to_an_owner_elsewhere(loop: AioLoop) -> None:
    """A worker elsewhere takes what comes from another node than it sent the task to for the answer of an old run."""

    async def play(world: World) -> None:
        client, (_, _, owner, _) = await tree_of(world)
        maker = Process(world.slotless, client)
        maker.finishes(ObjectId(maker.incarnation, 1), owner.incarnation)
        await until(lambda: bool(owner.link.sent))
        assert owner.link.sent == [(Frame.FINISHED, world.slotless.node.incarnation)]

    run(loop, play)


@pytest.mark.parametrize("is_in_the_middle", [True, False])
def test_what_is_said_of_an_object_reaches_an_owner_elsewhere_that_took_it_with_a_result(
    loop: AioLoop, is_in_the_middle: bool
) -> None:
    async def play(world: World) -> None:
        client, (maker, _, owner, _) = await tree_of(world)
        if is_in_the_middle:
            maker = Process(world.slotless, client)
        oid = ObjectId(maker.incarnation, 1)
        maker.finishes(oid, owner.incarnation)
        released = pb.Borrow(ref=pb.Ref(owner=oid.owner, seq=oid.seq), borrower=maker.incarnation, count=1)
        maker.says(Frame.RELEASE, released)
        await until(lambda: len(owner.link.sent) == 2)
        assert owner.link.sent[1] == (Frame.RELEASE, maker.incarnation)
        assert world.two.node.exchange.adopted[oid] == owner.incarnation

    run(loop, play)


def test_a_node_hears_of_the_next_owner_of_what_passed_on_elsewhere(loop: AioLoop) -> None:
    async def play(world: World) -> None:
        client, (maker, borrower, heir, _) = await tree_of(world)
        oid, notes = ObjectId(maker.incarnation, 1), world.one.node.exchange.adopted
        maker.finishes(oid, heir.incarnation)
        await until(lambda: world.two.node.exchange.adopted.get(oid) == heir.incarnation)
        heir.says(Frame.ADOPT, pb.Adopt(adopted=[passing(oid)]), client.incarnation)
        heir.ends()
        await until(lambda: heir.incarnation not in world.one.node.peers)
        assert notes == {oid: client.incarnation}
        maker.says(Frame.ASK, pb.Ask(ref=pb.Ref(owner=oid.owner, seq=oid.seq), asker=maker.incarnation))
        await client.hears(Frame.ASK)
        assert (Frame.OWNER_LOST, 0) not in borrower.link.sent[:-2]  # of the process, at its end, and of no object

    run(loop, play)


def test_the_own_node_of_a_root_hears_of_what_passes_between_two_processes_elsewhere(loop: AioLoop) -> None:
    async def play(world: World) -> None:
        client, (maker, heir, _, _) = await tree_of(world)
        oid, notes = ObjectId(maker.incarnation, 1), world.slotless.node.exchange.adopted
        maker.finishes(oid, heir.incarnation)
        maker.ends()
        await until(lambda: maker.incarnation not in world.slotless.node.peers)
        assert notes == {oid: heir.incarnation}
        client.send(Frame.ASK, pb.Ask(ref=pb.Ref(owner=oid.owner, seq=oid.seq), asker=client.incarnation))
        await until(lambda: (Frame.ASK, client.incarnation) in heir.link.sent)

    run(loop, play)


def test_what_lies_at_a_third_node_outlives_the_process_that_has_passed_it_on(loop: AioLoop) -> None:
    async def play(world: World) -> None:
        client, (maker, heir, writer, _) = await tree_of(world)
        far, oid = world.two.node, ObjectId(maker.incarnation, 1)
        extents = far.store.extents
        segment = extents.on_lease(writer.incarnation, 4096)
        assert segment is not None
        extents.on_announced(*oid, 1, segment, 0, 4096, writer.incarnation)
        maker.finishes(oid, heir.incarnation, far.incarnation)
        maker.ends()
        await until(lambda: maker.incarnation not in world.slotless.node.peers)
        freed = pb.Refs(refs=[pb.Ref(owner=client.incarnation, seq=7)])
        client.send(Frame.FREE, freed, ALL)  # what comes behind all that was said before
        await until(lambda: extents.ignored["freed early or again"] == 1)
        assert extents.find(oid, 1) is not None
        heir.ends()
        await until(lambda: extents.find(oid, 1) is None)

    run(loop, play)

"""The head's loop: what waits for the disk, streams that are replaced, and what goes over the wire."""

from __future__ import annotations

import asyncio
import socket
import stat
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from outboard import head as heads
from outboard import headwords
from outboard.addresses import check_reachable, join_address, own_host, split_address
from outboard.aioloop import AioLoop
from outboard.clusterfolder import ClusterFolder
from outboard.clustersecurity import read_security
from outboard.errors import AuthenticationError, NodeLostError, OutboardError, TransportError, VersionMismatchError
from outboard.head import Head
from outboard.memberlist import MemberList
from outboard.rpc.codec import ProtocolError
from outboard.rpc.grpc_credentials import make_token, write_token
from outboard.rpc.protos import cluster_pb2 as pb
from outboard.scheduler.kept import KeptState
from outboard.scheduler.members import Member, MembersChanged
from outboard.version import PROTOCOL, __version__

FIRST = 0xA1
SECOND = 0xB2


class FakeLink:
    """The head's end of a node's stream: keeps what is sent when it is flushed."""

    def __init__(self, **said: Any) -> None:
        described = {"protocol": PROTOCOL, "release": __version__, "python": "3.11", "incarnation": FIRST, "slots": 2,
                     "host": "here", "address": "127.0.0.1:1", "totals": {"CPU": 20_000}}  # fmt: skip
        self.first = pb.Registration(**(described | said))
        self.on_message: Callable[[Any, pb.Report], None]
        self.on_closed: Callable[[Any, Exception | None], None]
        self.queue: list[pb.Note] = []
        self.notes: list[pb.Note] = []
        self.closed = False

    def send(self, note: pb.Note) -> None:
        self.queue.append(note)

    def flush(self) -> None:
        self.notes += self.queue
        self.queue = []

    def close(self) -> None:
        self.closed = True

    async def finish(self) -> None:
        self.flush()
        self.close()

    def report(self, **body: Any) -> None:
        self.on_message(self, pb.Report(**body))

    def of(self, body: str) -> list[Any]:
        return [getattr(note, body) for note in self.notes if note.WhichOneof("body") == body]


class World:
    """A head with a disk that can be blocked or refuse, and a clock that can be moved on."""

    def __init__(self, loop: AioLoop, kept: KeptState | None = None) -> None:
        self.loop = loop
        self.written: list[KeptState] = []
        self.may_write = threading.Event()
        self.may_write.set()
        self.refusals: list[OSError] = []
        self.events: list[str] = []
        self.head = Head(loop, kept or KeptState("test"), self.write, self.journal)
        self.ahead = 0.0
        self.head.now = lambda: loop.time() + self.ahead
        self.head.start()

    def write(self, state: KeptState) -> None:
        assert self.may_write.wait(10)
        if self.refusals:
            raise self.refusals.pop()
        self.written.append(state)

    def journal(self, event: str, msg: str, **_: Any) -> None:
        self.events.append(event)

    async def join(self, **said: Any) -> FakeLink:
        link = FakeLink(**said)
        async with asyncio.timeout(10):
            await self.head.on_node(link)  # type: ignore[arg-type]  # a fake
        return link

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.001)

    async def nodes(self) -> list[pb.NodeStatus]:
        return list((await self.head.on_status()).nodes)


@pytest.fixture(scope="session")
def warm_library() -> None:
    """Let the first loop of a process open what the library keeps for all later ones."""
    loop = AioLoop()
    loop.run(asyncio.to_thread(int))
    loop.run(loop.asyncio.shutdown_default_executor())
    loop.close()


@pytest.fixture
def aio(warm_library: None) -> Iterator[AioLoop]:
    loop = AioLoop()
    yield loop
    loop.run(loop.asyncio.shutdown_default_executor())
    loop.close()


@pytest.fixture
def play(aio: AioLoop) -> Iterator[Callable[..., None]]:
    """Run a scenario with a world of its own."""

    def run(scenario: Callable[[World], Coroutine[Any, Any, None]], kept: KeptState | None = None) -> None:
        async def whole() -> None:
            world = World(aio, kept)
            try:
                await scenario(world)
                world.head._cluster.check()
            finally:
                world.may_write.set()
                world.head.close()

        aio.run(whole())

    yield run


def test_node_is_welcomed_when_the_disk_knows_it(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        await world.until(lambda: world.written)
        world.may_write.clear()
        joining = asyncio.ensure_future(world.join())
        await world.until(lambda: world.head._is_keeping)
        assert not joining.done()
        world.may_write.set()
        link = await joining
        assert [member.incarnation for member in world.written[-1].nodes] == [FIRST]
        await world.until(lambda: link.of("membership"))
        told = link.of("membership")[0]
        assert told.whole and [(m.incarnation, m.slots, m.host) for m in told.joined] == [(FIRST, 2, "here")]
        assert world.events == ["joined"]

    play(scenario)


def test_disk_that_refuses_is_tried_again(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "WRITE_AGAIN_SECONDS", 0.001)

    async def scenario(world: World) -> None:
        world.refusals = [OSError("disk full"), OSError("disk full")]
        await world.join()
        assert world.events == ["disk", "disk", "joined"] and world.written[-1].nodes

    play(scenario)


def test_newer_stream_replaces_the_older_one(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        world.may_write.clear()
        first = FakeLink()
        waiting = asyncio.ensure_future(world.head.on_node(first))  # type: ignore[arg-type]  # a fake
        await world.until(lambda: world.head._registering)
        joining = asyncio.ensure_future(world.join(is_return=True))
        with pytest.raises(ProtocolError, match="over another stream"):
            await waiting
        assert first.closed
        world.may_write.set()
        second = await joining
        first.on_closed(first, None)  # the end of the older one says nothing
        assert not second.closed and world.head._links == {FIRST: second}
        assert world.events == ["returned"]

    play(scenario)


def test_node_that_hangs_up_while_it_registers_is_forgotten(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        world.may_write.clear()
        waiting = asyncio.ensure_future(world.head.on_node(FakeLink()))  # type: ignore[arg-type]  # a fake
        await world.until(lambda: world.head._registering)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not world.head._links and not world.head._registering

    play(scenario)


def test_silent_node_is_struck_and_told(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        link = await world.join()
        for _ in range(6):  # in steps: one jump would look as if the head had slept
            world.ahead += 1.0
            world.head._on_timer()
        await world.until(lambda: link.closed)
        assert "nothing was heard" in link.of("struck")[0].reason
        assert world.events[-1] == "lost" and not await world.nodes()
        with pytest.raises(NodeLostError):
            await world.join(is_return=True)

    play(scenario)


def test_node_whose_address_refuses_is_lost_at_once(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        link = await world.join()
        link.on_closed(link, TransportError("cut"))
        await world.until(lambda: world.events[-1] == "lost")

    play(scenario)


def test_known_node_is_awaited_only_while_its_address_answers(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "AWAITED_DELAY", 0.01)
    listener = socket.create_server(("127.0.0.1", 0))
    alive = join_address("127.0.0.1", listener.getsockname()[1])
    members = Member(FIRST, "127.0.0.1:1", "here", "3.11", 2), Member(SECOND, alive, "here", "3.11", 2, True)

    async def scenario(world: World) -> None:
        await world.until(lambda: [node for node, _ in world.head._cluster.awaited()] == [SECOND])
        assert world.events == ["missing"] and (await world.head.on_status()).settling
        listener.close()
        await world.until(lambda: world.events == ["missing"] * 2)
        assert not await world.nodes() and not (await world.head.on_status()).settling
        await world.until(lambda: world.written[-1].nodes == ())

    with listener:
        play(scenario, KeptState("test", 1, members))


def test_known_node_that_is_back_is_not_looked_for_any_more(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        await world.join(is_return=True, cluster="test", epoch=1)
        await world.until(lambda: not world.loop._tasks)
        assert world.events == ["returned"] and [node.awaited for node in await world.nodes()] == [False]

    play(scenario, KeptState("test", 1, (Member(FIRST, "127.0.0.1:1", "here", "3.11", 2),)))


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ({"protocol": PROTOCOL + 1}, VersionMismatchError, "protocol"),
        ({"release": "77.0.0"}, VersionMismatchError, "release 77"),
        ({"cluster": "other"}, AuthenticationError, "belongs to cluster other"),
        ({"python": "x"}, ProtocolError, "no major.minor"),
    ],
)
def test_node_that_does_not_fit_is_refused(
    play: Callable[..., None], said: dict[str, Any], error: type[Exception], words: str
) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(error, match=words):
            await world.join(**said)
        assert world.events == ["refused"] and not world.head._links

    play(scenario)


def test_status_shows_what_nodes_report(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        link = await world.join(pid=77, log="/log", age_seconds=100.0)
        link.report(beat=pb.Beat(free={"CPU": 10_000}, running=1, queued=5, clients=2, store_nbytes=9))
        (node,) = await world.nodes()
        assert (node.pid, node.log, node.load.running, node.load.queued, node.clients) == (77, "/log", 1, 5, 2)
        assert dict(node.free) == {"CPU": 10_000} and dict(node.member.totals) == {"CPU": 20_000}
        assert 100 <= node.age_seconds < 110
        link.report(draining=pb.Draining())
        assert (await world.nodes())[0].draining
        link.report(drained=pb.Drained())
        assert not await world.nodes() and world.events[-1] == "left"

    play(scenario)


def test_status_lists_no_more_than_a_message_holds(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headwords, "STATUS_NBYTES", 150)

    async def scenario(world: World) -> None:
        await asyncio.gather(*(world.join(incarnation=number) for number in range(1, 6)))
        status = await world.head.on_status()
        assert len(status.nodes) + status.unlisted == 5 and 0 < len(status.nodes) < 5

    play(scenario)


def test_room_and_names_go_over_the_wire(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        asker, host = await asyncio.gather(world.join(), world.join(incarnation=SECOND, address="other:1"))
        asker.report(room=pb.RoomQuestion(id=1, shape={"CPU": 10_000}, waiting=9, python="3.11"))
        asker.report(room=pb.RoomQuestion(id=2, shape={"GPU": 10_000}, waiting=1, python="3.11"))
        found, never = asker.of("room")
        assert [(room.node, room.address, room.tasks) for room in found.rooms] == [(SECOND, "other:1", 2)]
        assert never.never and dict(never.asked) == {"GPU": 10_000} and never.pythons == ["3.11"]
        assert [dict(total.amounts) for total in never.totals] == [{"CPU": 20_000}]

        claim = {"namespace": "n", "name": "a", "owner": 5, "incarnation": 1, "record": b"r"}
        host.report(claim=pb.NameClaim(id=3, **claim))
        asker.report(claim=pb.NameClaim(id=4, **claim))
        asker.report(name=pb.NameQuestion(id=5, namespace="n", name="a"))
        asker.report(name=pb.NameQuestion(id=6, namespace="n", name="none"))
        host.report(release=pb.NameRelease(namespace="n", name="a", owner=5, incarnation=1))
        asker.report(name=pb.NameQuestion(id=7, namespace="n", name="a"))
        outcome = pb.NameAnswer
        assert [(a.id, a.outcome) for a in host.of("name")] == [(3, outcome.GRANTED)]
        answers = [(a.id, a.outcome, a.node) for a in asker.of("name")]
        assert answers[:2] == [(4, outcome.FOUND, SECOND), (5, outcome.FOUND, SECOND)]
        assert [answer[:2] for answer in answers[2:]] == [(6, outcome.UNKNOWN), (7, outcome.UNKNOWN)]

        asker.report(client=pb.ClientArrival(id=8, python="3.11"))
        asker.report(client=pb.ClientArrival(id=9, python="3.99"))
        assert [(a.accepted, list(a.pythons)) for a in asker.of("client")] == [(True, []), (False, ["3.11"])]

    play(scenario)


def test_gangs_go_over_the_wire(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        first, second = await world.join(), await world.join(incarnation=SECOND)
        ask = pb.GangWish(gang=7, bundles=[pb.Amounts(amounts={"CPU": 20_000})] * 2, python="3.11",
                          strategy=pb.GangWish.STRICT_SPREAD)  # fmt: skip
        first.report(gang=ask)
        links = {FIRST: first, SECOND: second}
        attempt = 0
        for what, state in ((pb.BundlesOrder.PREPARE, pb.BundlesState.PREPARED),
                            (pb.BundlesOrder.CONFIRM, pb.BundlesState.CONFIRMED)):  # fmt: skip
            orders = {node: link.of("bundles")[-1] for node, link in links.items()}
            assert {order.what for order in orders.values()} == {what}
            if what == pb.BundlesOrder.PREPARE:
                bundles = [(bundle.index, dict(bundle.amounts)) for o in orders.values() for bundle in o.bundles]
                assert sorted(bundles) == [(0, {"CPU": 20_000}), (1, {"CPU": 20_000})]
            for node, link in links.items():
                attempt = orders[node].attempt
                link.report(bundles=pb.BundlesState(gang=7, attempt=attempt, state=state))
        [ready] = first.of("gang")
        assert ready.outcome == pb.GangAnswer.READY and set(ready.nodes) == {FIRST, SECOND}
        second.report(drained=pb.Drained())
        broken = first.of("gang")[-1]
        assert broken.outcome == pb.GangAnswer.BROKEN and list(broken.nodes) == [SECOND]
        first.report(gang_release=pb.GangRelease(gang=7))
        assert first.of("bundles")[-1] == pb.BundlesOrder(gang=7, attempt=attempt, what=pb.BundlesOrder.RELEASE)

    play(scenario)


@pytest.mark.parametrize(
    ("amounts", "reason"),
    [
        ([], "a gang has 1 to 250 bundles, not 0"),
        ([{}], "a bundle is empty"),
        ([{"GPU": 15_000}], "GPUs of a bundle are a share of one or a whole number"),
        ([{"CPU": 30_000}], ""),
    ],
)
def test_gang_that_cannot_be_is_refused(play: Callable[..., None], amounts: list[dict[str, int]], reason: str) -> None:
    async def scenario(world: World) -> None:
        link = await world.join()
        link.report(gang=pb.GangWish(gang=7, bundles=[pb.Amounts(amounts=a) for a in amounts], python="3.11"))
        [refused] = link.of("gang")
        assert (refused.outcome, refused.reason) == (pb.GangAnswer.REFUSED, reason)
        assert [dict(total.amounts) for total in refused.totals] == ([] if reason else [{"CPU": 20_000}])

    play(scenario)


def test_stop_drains_and_waits_until_the_disk_forgets(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        link = await world.join()
        stopping = asyncio.ensure_future(world.head.on_stop(pb.StopRequest(deadline_seconds=30)))
        await world.until(lambda: link.of("drain"))
        assert 0 < link.of("drain")[0].deadline_seconds <= 30 and not world.head.ended.done()
        link.report(drained=pb.Drained())
        reply = await stopping
        assert (reply.left, reply.lost, world.head.is_stopped) == (1, 0, True)
        assert world.written[-1].nodes == () and world.head.ended.done()

    play(scenario)


def test_signal_does_not_cut_a_stop_short(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        link = await world.join()
        stopping = asyncio.ensure_future(world.head.on_stop(pb.StopRequest()))
        await world.until(lambda: link.of("drain"))
        world.head.tell_to_end("SIGTERM")
        assert not world.head.ended.done()
        link.report(drained=pb.Drained())
        assert (await stopping).left == 1
        assert await world.head.ended == "the cluster was stopped"

    play(scenario)


def test_second_signal_cuts_a_stop_short(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        link = await world.join()
        stopping = asyncio.ensure_future(world.head.on_stop(pb.StopRequest()))
        await world.until(lambda: link.of("drain"))
        world.head.tell_to_end("SIGTERM")
        world.head.tell_to_end("SIGTERM")
        assert await world.head.ended == "SIGTERM"
        link.report(drained=pb.Drained())
        stopping.cancel()
        world.head._stopping.cancel()  # type: ignore[union-attr]  # it is stopping
        await asyncio.wait([stopping])

    play(scenario)


def test_stop_does_not_wait_for_ever(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "GOODBYE_SECONDS", 0.02)

    async def scenario(world: World) -> None:
        await world.join()
        reply = await world.head.on_stop(pb.StopRequest(force=True))
        assert (reply.left, reply.lost) == (0, 1)

    play(scenario)


def test_head_gives_way_to_a_later_one(play: Callable[..., None]) -> None:
    async def scenario(world: World) -> None:
        waiting = asyncio.ensure_future(world.head.on_node(FakeLink(epoch=7)))  # type: ignore[arg-type]  # a fake
        assert "higher epoch 7" in await asyncio.wait_for(asyncio.shield(world.head.ended), 10)
        assert world.written[-1].epoch == 7 and not world.head.is_stopped
        waiting.cancel()
        await asyncio.wait([waiting])

    play(scenario)


def test_members_travel_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headwords, "MEMBERS_PER_NOTE", 2)
    members = tuple(Member(number, f"a:{number}", "h", "3.11", 1) for number in range(1, 6))
    known = MemberList()
    notes = list(headwords.membership_notes(MembersChanged(3, 0, 8, members, (), True)))
    assert len(notes) == 3
    for note in notes:
        assert known.current == {} and known.apply(note.membership)
    assert (known.epoch, known.number, sorted(known.current)) == (3, 8, [1, 2, 3, 4, 5])

    (note,) = headwords.membership_notes(MembersChanged(3, 8, 9, (), (1, 2), False))
    assert known.apply(note.membership) and sorted(known.current) == [3, 4, 5]
    assert not known.apply(note.membership)  # it follows on 8, and 9 is known
    assert not known.apply(pb.Membership(epoch=4, since=9, number=10))
    assert known.apply(notes[0].membership)
    known.break_off()
    assert sorted(known.current) == [3, 4, 5]


def test_folder_keeps_for_the_next_head(tmp_path: Path) -> None:
    folder, other = ClusterFolder(tmp_path / "c"), ClusterFolder(tmp_path / "c")
    folder.make()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    begun = folder.read_state()
    assert begun.cluster.startswith("outboard-") and begun.epoch == 0
    folder.write_state(begun._replace(epoch=4))
    assert other.read_state() == begun._replace(epoch=4)
    folder.lock()
    folder.write_address("h:1")
    with pytest.raises(OutboardError, match=r"a head runs with the folder .* already, at h:1"):
        other.lock()
    folder.unlock()
    other.lock()
    other.unlock()
    other.remove_address()
    assert folder.address() == ""
    folder.path.chmod(0o777)
    with pytest.raises(OutboardError, match="others may write to it"):
        folder.make()


def test_token_is_made_once_and_read_from_where_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(OutboardError, match="OUTBOARD_TOKEN_FILE"):
        read_security({}, path, token="")
    made = read_security({}, path, token="", may_make=True).token.reveal()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_security({}, path, token="", may_make=True).token.reveal() == made
    given = make_token()
    assert read_security({}, path, token=given.reveal()).token.reveal() == given.reveal()
    write_token(tmp_path / "file", given)
    settings = {"token_file": str(tmp_path / "file")}
    assert read_security(settings, path, token=made).token.reveal() == given.reveal()
    with pytest.raises(OutboardError, match="certificate and its key together"):
        read_security({"tls_cert": str(path)}, path, token="")


def test_addresses() -> None:
    assert split_address("h:1") == ("h", 1) and split_address("[::1]:2") == ("::1", 2)
    assert split_address("h")[1] == split_address("[::1]")[1] == 6733
    assert join_address("::1", 2) == "[::1]:2" and own_host("h") == "h"
    assert own_host("0.0.0.0", "127.0.0.1") == "127.0.0.1"
    for wrong in ("", ":1", "h:0", "h:65536", "h:x"):
        with pytest.raises(ValueError, match="host:port"):
            split_address(wrong)
    with pytest.raises(TransportError, match="nothing listens there"):
        check_reachable("127.0.0.1:1")

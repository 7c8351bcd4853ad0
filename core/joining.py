"""A node's side of a cluster: it registers with the head, reports what is free, drains, and comes back after breaks.

The first registration must succeed, or the process ends and says why. From then on the node goes on whatever becomes of
the head: it dials the same address for ever, ever more slowly up to `SLOWEST_SECONDS`. When the head says that this
incarnation is no member any more, its work is ended and the process begins again, as a new one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import time
from typing import Any

from .addresses import join_address, own_host, split_address
from .aioloop import AioLoop
from .clusterfolder import ClusterFolder
from .clustersecurity import read_security
from .clusterstatus import ClusterStatus
from .errors import NodeLostError, OutboardError, TransportError
from .exits import FAILED, one_line
from .headgangs import HeadGangs
from .headnames import FIRST_REQUEST, HeadNames
from .journal import Journal
from .launch import HAND_OVER_SECONDS, program
from .localnodes import announce, withdraw
from .memberlist import MemberList
from .node import Node
from .peering import Peering
from .process.limits import raise_descriptor_limit
from .rpc.codec import Frame
from .rpc.grpc_credentials import TOKEN_VARIABLE, Security
from .rpc.grpc_head import NodeEnd, attend
from .rpc.grpc_hello import python_version
from .rpc.grpc_server import Server
from .rpc.protos import cluster_pb2 as pb
from .seeker import Seeker
from .serving import Starter, watch_end
from .tree import Tree
from .version import PROTOCOL, __version__

#: Seconds between two attempts to reach the head again: the first pause, and the longest. Larger leaves a cluster whose
#: head is back without its nodes for longer; smaller makes a thousand nodes knock at its door at once.
FIRST_PAUSE_SECONDS = 0.1
SLOWEST_SECONDS = 2.0

#: Seconds between two looks whether a node that drains still runs something.
LOOK_AGAIN_SECONDS = 0.05

#: Seconds for the last words to be read.
GOODBYE_SECONDS = 2.0


class Membership:
    """One incarnation's membership; every method is called in the loop's thread.

    Args:
        head: where the head listens, ``host:port``.
        address: where this node listens for other nodes.
        log: the file of its log, for people.
        peering: its links; one without an address of its own may leave that to us.
    """

    def __init__(
        self, node: Node, loop: AioLoop, head: str, security: Security, address: str, journal: Journal, log: str = "",
        peering: Peering | None = None,
    ) -> None:  # fmt: skip
        self.peering = peering or make_peering(node, loop, security)
        self.members = self.peering.members
        self.peering.hello.address = address
        node.tree = Tree(node, self.peering)
        node.names = self._names = HeadNames(node, self._report)
        node.gangs = self._gangs = HeadGangs(node, self._report)
        node.seeker = self._seeker = Seeker(node, self._report, head)
        node.handlers[Frame.STATUS] = ClusterStatus(node, loop, head, security).on_status
        self.must_begin_again = False
        self.ended: asyncio.Future[None] = loop.asyncio.create_future()
        self.slots = max(1, node.slots) if address else 0
        self._node = node
        self._loop = loop
        self._head = head
        self._security = security
        self._address = address
        self._journal = journal
        self._log = log
        self._born = loop.time()
        self._link: NodeEnd | None = None
        self._is_return = False
        self._welcome = pb.Registered()
        self._broken = asyncio.Event()
        self._told: dict[str, int] = {}
        self._drain_by: float | None = None
        self.is_draining = False
        self._trouble = ""

    async def join(self) -> str:
        """Register for the first time and return the cluster's name; errors are those of `attend`."""
        await self._attend()
        self._loop.spawn(self._stay())
        return self._welcome.cluster

    async def _attend(self) -> None:
        registration = self._registration()
        self._is_return = True  # from now on the head may know this incarnation
        link = await attend(self._head, self._security, registration)
        link.on_message, link.on_closed = self._on_note, self._on_closed
        self._link, self._welcome = link, link.first
        self._told = dict(registration.free)
        self._broken.clear()
        self.peering.hello.cluster = self._welcome.cluster
        if self._address:
            announce(self._node.folder, self._head)
        self._seeker.on_head(True)
        self._names.on_head()
        self._gangs.on_head(True)
        self._beat(link)

    def _report(self, report: pb.Report) -> None:
        if self._link is not None:
            self._link.send(report)
            self._link.flush()

    def _registration(self) -> pb.Registration:
        node = self._node
        return pb.Registration(
            protocol=PROTOCOL, release=__version__, python=python_version(), incarnation=node.incarnation,
            cluster=self._welcome.cluster, address=self._address, host=node.host, totals=node.totals,
            epoch=self._welcome.epoch, is_return=self._is_return, slots=self.slots,
            free=self._free(node.dispatch.snapshot().free), draining=self.is_draining, pid=os.getpid(), log=self._log,
            age_seconds=self._loop.time() - self._born, names=self._names.claims(),
            held=self._gangs.held(), gangs=self._gangs.wishes(),
        )  # fmt: skip

    async def _stay(self) -> None:
        """Come back after each break, for as long as this node lives."""
        while not self.ended.done():  # a link that breaks afterwards would let this spin and nothing else run
            await self._broken.wait()
            pause = FIRST_PAUSE_SECONDS
            while self._link is None and not self.ended.done():
                # Not all nodes at once: they have all lost the head in the same moment.
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, SLOWEST_SECONDS)
                try:
                    await self._attend()
                except NodeLostError as error:
                    self._begin_again(one_line(error))
                    return
                except (OutboardError, OSError) as error:
                    self._complain(one_line(error))
                else:
                    self._trouble = ""
                    self._journal("returned", f"back with the head at {self._head}")

    def _complain(self, text: str) -> None:
        """Log what keeps this node from the head, once."""
        if text != self._trouble:
            self._trouble = text
            self._journal("head_away", f"no head: {text}; trying again", level=logging.WARNING)

    def _on_closed(self, link: NodeEnd, error: Exception | None) -> None:
        if self._link is not link:
            return
        self._link = None
        withdraw(self._node.folder)
        self._seeker.on_head(False)
        self._gangs.on_head(False)
        self._node.settle()
        self.members.break_off()
        self._broken.set()
        if not self.ended.done():
            self._complain(one_line(error) if error is not None else "it has hung up")

    # -- what it reports ----------------------------------------------------------------------------------------------

    @staticmethod
    def _free(free: dict[str, int]) -> dict[str, int]:
        return {name: max(0, amount) for name, amount in free.items()}

    def _beat(self, link: NodeEnd) -> None:
        if self._link is not link:
            return
        seen, node = self._node.dispatch.snapshot(), self._node
        free = self._free(seen.free)
        beat = pb.Beat(running=seen.running, queued=seen.queued, workers=len(seen.workers),
                       clients=sum(peer.worker is None and peer.trunk is None for peer in node.peers.values()),
                       store_nbytes=node.store.extents.budget_nbytes,
                       store_used_nbytes=node.store.extents.used_nbytes)  # fmt: skip
        actors = node.workforce.describe_actors({w.worker: w.state for w in seen.workers})
        beat.actors.extend(actor.SerializeToString() for actor in actors)
        if free == self._told:
            beat.unchanged = True
        else:
            beat.free.update(free)
            self._told = free
        link.send(pb.Report(beat=beat))
        link.flush()
        self._loop.call_later(self._welcome.beat_seconds or 1.0, self._beat, link)

    # -- what it is told ----------------------------------------------------------------------------------------------

    def _on_note(self, link: NodeEnd, note: pb.Note) -> None:
        body = note.WhichOneof("body")
        if body == "membership":
            self._on_membership(link, note.membership)
        elif body == "room":
            self._seeker.on_room(note.room)
            self._node.settle()
        elif body == "try_later":
            (self._names if note.try_later.id > FIRST_REQUEST else self._seeker).on_try_later(note.try_later.id)
        elif body == "name":
            self._names.on_answer(note.name)
        elif body == "gang":
            self._gangs.on_answer(note.gang)
        elif body == "bundles":
            self._gangs.on_order(note.bundles)
            self._node.settle()
        elif body == "drain":
            self.drain(note.drain.reason, note.drain.deadline_seconds or None)
        elif body == "struck":
            self._begin_again(note.struck.reason)

    def _on_membership(self, link: NodeEnd, change: pb.Membership) -> None:
        if not self.members.apply(change):
            link.send(pb.Report(members_missed=pb.MembersMissed()))
            link.flush()
            return
        assert self._node.tree is not None
        # Who is not in a whole list may just not be back with a head that was started again: sessions judge themselves.
        for node in change.left:
            self.peering.on_struck(node)
            self._node.tree.on_struck(node)
            self._seeker.on_node_gone(node)
        self._node.settle()

    def _begin_again(self, reason: str) -> None:
        """End all work here: somebody else may run it by now."""
        withdraw(self._node.folder)
        self._journal("struck", f"this node was given up: {reason}; it begins again", level=logging.WARNING)
        self.must_begin_again = True
        if self._link is not None:
            self._link.close()
        self._end()

    # -- ends ---------------------------------------------------------------------------------------------------------

    def drain(self, reason: str, timeout: float | None) -> None:
        """Finish what is here, at most ``timeout`` seconds (None: without limit), and leave.

        A second call may shorten the time that is left.
        """
        by = None if timeout is None else self._loop.time() + timeout
        if by is not None and (self._drain_by is None or by < self._drain_by):
            self._drain_by = by
        if not self.is_draining:
            self.is_draining = True
            withdraw(self._node.folder)
            self._journal("draining", f"this node finishes what it has and leaves: {reason}")
            self._loop.spawn(self._drain())

    async def _drain(self) -> None:
        if self._link is not None:
            self._link.send(pb.Report(draining=pb.Draining()))
            self._link.flush()
        self._node.dispatch.on_drain(self._node.now())
        self._node.settle()
        while self._is_busy() and (self._drain_by is None or self._loop.time() < self._drain_by):
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        self._node.dispatch.on_drain_due(self._node.now())
        self._node.settle()
        await self._hand_over()
        await self._say_goodbye()
        if self._link is not None:
            link, self._link = self._link, None
            link.send(pb.Report(drained=pb.Drained()))
            await link.finish(GOODBYE_SECONDS)
        self._journal("left", "this node has left")
        self._end()

    async def close(self) -> None:
        """End transfers, links and timers."""
        await self._node.store.replicas.close()
        assert self._node.tree is not None
        self._node.tree.close()
        self._seeker.close()
        self.peering.close()

    async def _hand_over(self) -> None:
        """Give what lies here to the nodes of those whose it is."""
        assert self._node.tree is not None
        handover, deadline = self._node.tree.handover, self._loop.time() + HAND_OVER_SECONDS
        handover.begin(self._node.tree.stems())
        self._node.settle()
        while not handover.is_done and self._loop.time() < deadline:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _say_goodbye(self) -> None:
        """Wait until what was said last has been heard."""
        tree, deadline = self._node.tree, self._loop.time() + GOODBYE_SECONDS
        assert tree is not None
        while self._loop.time() < deadline and (
            self.peering.has_unwritten or any(session.out.base < session.out.next for session in tree.sessions())
        ):
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        await asyncio.sleep(LOOK_AGAIN_SECONDS)  # what a stream has taken is on its way then

    def _is_busy(self) -> bool:
        """Whether something runs here, or elsewhere for clients of this node."""
        assert self._node.tree is not None
        return self._node.tree.has_branches or not self._node.dispatch.is_idle

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def run(boot: Any, settings: dict[str, Any], ready_fd: int, life_fd: int, token: str | None) -> int:
    """Be a node of the cluster at ``settings["address"]`` until it has left; return the exit code."""
    starter = Starter(ready_fd)
    loop = AioLoop()
    raise_descriptor_limit()
    node = Node(loop, boot, settings, _nothing, is_embedded=False, joined=True)
    must_begin_again = False
    try:
        with starter.told_of_faults():
            must_begin_again = loop.run(_serve(loop, node, boot, settings, starter, life_fd, token))
    finally:
        node.end()
    if must_begin_again:
        _begin_again(settings, ready_fd if starter.is_waiting else -1, life_fd, token)
    return starter.exit_code


async def _serve(
    loop: AioLoop, node: Node, boot: Any, settings: dict[str, Any], starter: Starter, life_fd: int, token: str | None
) -> bool:
    security = read_security(settings, ClusterFolder(settings["folder"]).token, token=token or "")
    journal = Journal("node", as_json=bool(settings["log"]))
    journal.fields.update(node=f"{node.incarnation:016x}", host=node.host)
    node.listen(boot.listener)
    head = settings["address"]
    peering = make_peering(node, loop, security)
    host = own_host(settings["host"] or "", split_address(head)[0])
    listening_at = settings["host"] or host
    objects = node.store.replicas.service(security, listening_at)
    server = Server(security, [peering.service.handler, objects.handler])
    try:
        port = await server.start(join_address(listening_at, settings["port"]))
    except TransportError as error:
        raise OutboardError(error._text()) from None
    address = join_address(host, port)
    membership = Membership(node, loop, head, security, address, journal, settings["log"], peering)
    node.stop = membership._end
    try:
        try:
            cluster = await membership.join()
        except NodeLostError:
            membership.must_begin_again = starter.is_waiting  # a first registration that broke: another incarnation
            return membership.must_begin_again
        journal.fields["cluster"] = cluster
        journal("joined", f"node {node.incarnation:016x} of cluster {cluster}, head at {head}")
        starter.answer(address=address, cluster=cluster, node=f"{node.incarnation:016x}", slots=membership.slots)
        grace = settings["grace"]
        watch_end(loop, life_fd, _Ender(membership, grace))
        await membership.ended
        if not membership.must_begin_again and not membership.is_draining:
            starter.exit_code = FAILED  # the node gave up, and has said why
    finally:
        await membership.close()
        await server.stop(0)
    return membership.must_begin_again


def make_peering(node: Node, loop: AioLoop, security: Security) -> Peering:
    """Give a node its links to others; where it is reached, and the cluster's name, are filled in later."""
    hello = pb.PeerHello(protocol=PROTOCOL, release=__version__, python=python_version(), incarnation=node.incarnation)
    node.peering = Peering(node, loop, security, MemberList(), hello)
    node.store.replicas.start()
    return node.peering


class _Ender:
    """The first SIGTERM lets what runs finish, the second does not."""

    def __init__(self, membership: Membership, grace: float) -> None:
        self._membership = membership
        self._grace = grace

    def __call__(self, reason: str) -> None:
        self._membership.drain(reason, self._grace)
        self._grace = 0.0


def _begin_again(settings: dict[str, Any], ready_fd: int, life_fd: int, token: str | None) -> None:
    """Replace this process by a fresh one: workers, template and store have ended, and nothing of them is left."""
    env = dict(os.environ) | ({TOKEN_VARIABLE: token} if token else {})
    for fd in (ready_fd, life_fd):
        if fd >= 0:
            os.set_inheritable(fd, True)
    time.sleep(random.uniform(0.0, FIRST_PAUSE_SECONDS))
    sys.stderr.flush()
    os.execve(sys.executable, program("node", ready_fd, life_fd, settings), env)


def _nothing() -> None:
    """Stand for what ends the node before there is anything to end."""

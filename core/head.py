"""The head: joins the cluster's machine to the streams of nodes, the disk and the clock.

Events come from streams, questions and one timer. What the machine orders is done in order; when it orders that state
be kept, everything behind that waits until a thread has it on disk, since nobody may hear of what the next start would
not know. A node's older stream is closed when it registers over a newer one.

Collections and their invariants:

- ``_links``: the newest stream of each node, registering ones among them.
- ``_registering``: who awaits the machine's answer to a registration; each of them has an entry in ``_links``.
- ``_facts``: what nodes that were welcomed, and have not left or been lost, tell for people.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, repeat
from typing import Any, get_args

from .addresses import split_address
from .aioloop import AioLoop
from .errors import AuthenticationError, NodeLostError, VersionMismatchError
from .gangwords import gang_note, gang_wish, gangs_told
from .headwords import (
    Facts,
    add_nodes,
    membership_notes,
    name_claim,
    name_note,
    name_refusal_note,
    no_room_note,
    node_info,
    request_note,
    room_note,
    status_of,
)
from .rpc.codec import ProtocolError
from .rpc.grpc_head import HeadEnd
from .rpc.protos import cluster_pb2 as pb
from .scheduler import cluster_commands as commands
from .scheduler.cluster import Cluster
from .scheduler.kept import KeptState
from .scheduler.roster import NODE_LOST_SECONDS
from .version import PROTOCOL, __version__

#: Nodes report at least so often: a fifth of what they are given up after.
BEAT_SECONDS = 1.0

#: Seconds until a disk that refused the state is tried again.
WRITE_AGAIN_SECONDS = 1.0

#: Seconds in which the address of a node must answer or refuse, and the pauses between attempts: where a stream broke,
#: and where a node has yet to come back to this start of the head.
PROBE_SECONDS = 1.0
PROBE_DELAYS = (0.0, 0.05, 0.2, 0.5, 1.0)
AWAITED_DELAY = 1.0

#: Attempts at a time. Larger finds who is gone of many nodes sooner, smaller leaves the head more descriptors.
PROBES = 64

#: Seconds between two looks whether nodes of the last start may still come back. Larger delays the end of a stop that
#: waits for them.
COMING_SECONDS = 0.1

#: Seconds beyond their deadline that nodes may take to say goodbye.
GOODBYE_SECONDS = 3.0

_REFUSALS = {
    commands.RefusalCause.VERSION: VersionMismatchError,
    commands.RefusalCause.OTHER_CLUSTER: AuthenticationError,
}


class Head:
    """One head; every method is called in the loop's thread.

    Args:
        write: keeps state durably; called in a thread, raises OSError when it cannot.
        journal: is told what happens: ``journal(event, text, **fields)``.
        log: the file of its log, for people.
    """

    def __init__(
        self, loop: AioLoop, kept: KeptState, write: Callable[[KeptState], None], journal: Callable[..., None],
        log: str = "",
    ) -> None:  # fmt: skip
        self.now: Callable[[], float] = loop.time
        self.log = log
        self.refused: Callable[[], int] = int
        self.is_stopped = False
        self._is_told = False
        self.ended: asyncio.Future[str] = loop.asyncio.create_future()
        self._loop = loop
        self._write = write
        self._journal = journal
        self._born = self.now()
        self._cluster = Cluster(kept, self._born)
        self._links: dict[int, HeadEnd] = {}
        self._registering: dict[int, asyncio.Future[pb.Registered]] = {}
        self._facts: dict[int, Facts] = {}
        self._ordered: deque[commands.Command] = deque()
        self._dirty: dict[HeadEnd, None] = {}
        self._is_keeping = False
        self._timer: asyncio.TimerHandle | None = None
        self._kept = len(kept.nodes)  # so many nodes would the next start wait for
        self._probes = asyncio.Semaphore(PROBES)
        self._stopping: asyncio.Task[pb.StopReply] | None = None  # the whole cluster: nodes leave
        self._drain_by: float | None = None  # at the latest then
        self._left = 0
        self._unheard: set[int] = set()  # nodes of the last start that did not come back to a cluster being stopped
        self._changed = asyncio.Event()
        self._reports: dict[str, Callable[[int, Any], None]] = {
            "beat": self._on_beat, "room": self._on_room, "claim": self._on_claim, "release": self._on_release,
            "name": self._on_name, "drained": self._on_drained, "draining": self._on_draining,
            "members_missed": self._on_members_missed, "client": self._on_client, "gang": self._on_gang,
            "gang_release": self._on_gang_release, "bundles": self._on_bundles,
        }  # fmt: skip
        self._actions: dict[type, Callable[[Any], None]] = {
            commands.Welcome: self._welcome, commands.RefuseNode: self._refuse, commands.Rejoin: self._rejoin,
            commands.Drain: self._drain, commands.TellMembers: self._tell_members, commands.StepDown: self._step_down,
            commands.RoomAnswer: lambda c: self._send(c.node, room_note(c)),
            commands.RoomRefused: lambda c: self._send(c.node, no_room_note(c)),
            commands.NameAnswer: lambda c: self._send(c.node, name_note(c)),
            commands.NameRefused: lambda c: self._send(c.node, name_refusal_note(c)),
            **dict.fromkeys(get_args(commands.GangCommand), lambda c: self._send(c.node, gang_note(c))),
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<Head {self._cluster!r} links={len(self._links)} registering={len(self._registering)}>"

    def start(self) -> None:
        """Keep the new epoch, begin to judge, and look which nodes of the last start have gone meanwhile."""
        self._settle()
        for node, address in self._cluster.awaited():
            if address:
                self._loop.spawn(self._probe(node, address, chain((0.0,), repeat(AWAITED_DELAY))))

    def close(self) -> None:
        """Judge no more and close every stream; the cluster goes on without a head."""
        if self._timer is not None:
            self._timer.cancel()
        for link in self._links.values():
            link.close()
        self.end("closed")

    def end(self, reason: str) -> None:
        """Let whoever waits for the end of this head go on; a second call does nothing."""
        if not self.ended.done():
            self.ended.set_result(reason)

    def tell_to_end(self, reason: str) -> None:
        """End, but not before a cluster that is being stopped has; a second call does not wait for that."""
        if self._stopping is None or self._is_told:
            self.end(reason)
        self._is_told = True

    # -- events -------------------------------------------------------------------------------------------------------

    async def on_node(self, link: HeadEnd) -> pb.Registered:
        """Take a node's stream; return when the node is a member, or raise why it is not."""
        said: pb.Registration = link.first
        node = said.incarnation
        older = self._links.get(node)
        if older is not None:
            older.close()
        waiting = self._registering.pop(node, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(ProtocolError("the node has registered over another stream since"))
        answer = self._registering[node] = self._loop.asyncio.create_future()
        self._links[node] = link
        link.on_message, link.on_closed = self._on_report, self._on_closed
        self._cluster.on_registered(
            node_info(said), self.now(), is_return=said.is_return, cluster=said.cluster, epoch=said.epoch,
            free=dict(said.free) or None, hosted=[name_claim(name) for name in said.names], gangs=gangs_told(said),
        )  # fmt: skip
        self._settle()
        try:
            registered: pb.Registered = await answer
            return registered
        except BaseException:
            if self._links.get(node) is link:
                del self._links[node]
                self._registering.pop(node, None)
            raise

    def _on_report(self, link: HeadEnd, report: pb.Report) -> None:
        node = link.first.incarnation
        body = report.WhichOneof("body") or ""
        handler = self._reports.get(body)
        if handler is not None:  # what a later release may say is ignored
            handler(node, getattr(report, body))
            self._settle()

    def _on_closed(self, link: HeadEnd, error: Exception | None) -> None:
        node = link.first.incarnation
        if self._links.get(node) is not link:
            return
        del self._links[node]
        if node in self._facts:
            self._journal("link_broke", f"the stream of node {node:016x} broke: {error or 'it hung up'}",
                          node=f"{node:016x}", host=link.first.host)  # fmt: skip
            if link.first.address:
                self._loop.spawn(self._probe(node, link.first.address, PROBE_DELAYS))

    async def _probe(self, node: int, address: str, delays: Iterable[float]) -> None:
        """Find out whether the process of a node still listens: where it does not, it is gone.

        A process that is being killed may close the stream a moment before the port, and one that this head has yet to
        hear of may end while it is awaited, so it is tried more than once.
        """
        host, port = split_address(address)
        for delay in delays:
            await asyncio.sleep(delay)
            async with self._probes:
                if node in self._links or not self._cluster.is_member(node):
                    return  # it is back, or lost
                is_gone = await _refuses(host, port)
            if is_gone:
                if node not in self._facts:
                    text = f"node {node:016x} of the last start has gone: nobody listens at {address}"
                    self._journal("missing", text, node=f"{node:016x}", level=logging.WARNING)
                self._unheard.discard(node)
                self._cluster.on_link_refused(node, self.now())
                self._settle()
                return

    def _on_timer(self) -> None:
        self._timer = None
        self._cluster.on_timer(self.now())
        self._settle()

    def _on_beat(self, node: int, beat: pb.Beat) -> None:
        self._cluster.on_beat(node, None if beat.unchanged else dict(beat.free), self.now())
        if node in self._facts:
            self._facts[node].note(beat)

    def _on_room(self, node: int, asked: pb.RoomQuestion) -> None:
        self._cluster.on_wanted(node, asked.id, asked.python, dict(asked.shape), asked.waiting, self.now())

    def _on_claim(self, node: int, claim: pb.NameClaim) -> None:
        self._cluster.on_claimed(node, claim.id, name_claim(claim), self.now())

    def _on_release(self, node: int, said: pb.NameRelease) -> None:
        self._cluster.on_released(node, said.namespace, said.name, said.owner, said.incarnation, self.now())

    def _on_name(self, node: int, asked: pb.NameQuestion) -> None:
        self._cluster.on_looked_up(node, asked.id, asked.namespace, asked.name, self.now())

    def _on_draining(self, node: int, _: pb.Draining) -> None:
        self._cluster.on_draining(node, self.now())

    def _on_members_missed(self, node: int, _: pb.MembersMissed) -> None:
        self._cluster.on_members_missed(node, self.now())

    def _on_client(self, node: int, said: pb.ClientArrival) -> None:
        self._cluster.on_client_arrived(node, said.id, said.python, self.now())

    def _on_gang(self, node: int, said: pb.GangWish) -> None:
        self._cluster.on_gang_wanted(node, gang_wish(said), self.now())

    def _on_gang_release(self, node: int, said: pb.GangRelease) -> None:
        self._cluster.on_gang_released(node, said.gang, self.now())

    def _on_bundles(self, node: int, said: pb.BundlesState) -> None:
        cluster = self._cluster
        on_state = {pb.BundlesState.PREPARED: cluster.on_bundles_prepared,
                    pb.BundlesState.CONFIRMED: cluster.on_bundles_confirmed}  # fmt: skip
        on_state.get(said.state, cluster.on_bundles_declined)(node, said.gang, said.attempt, self.now())

    def _on_drained(self, node: int, _: pb.Drained) -> None:
        self._cluster.on_left(node, self.now())
        facts = self._facts.pop(node, None)
        if facts is not None:
            self._left += 1
            self._tell(node, facts, "left", "has left")

    # -- questions ----------------------------------------------------------------------------------------------------

    async def on_status(self) -> pb.ClusterStatus:
        """Describe the cluster."""
        now = self.now()
        view = self._cluster.snapshot(now)
        status = status_of(view)
        status.protocol, status.release = PROTOCOL, __version__
        status.host, status.pid, status.log = socket.gethostname(), os.getpid(), self.log
        status.age_seconds, status.refused = now - self._born, self.refused()
        add_nodes(status, ((node, self._facts.get(node.incarnation)) for node in view.nodes), now)
        return status

    async def on_stop(self, request: pb.StopRequest) -> pb.StopReply:
        """Have every node drain and leave, then end; return when they have, or their deadline is over.

        It goes on when who asked hangs up; a second request may shorten what is left.
        """
        grace = 0.0 if request.force else request.deadline_seconds or None
        by = None if grace is None else self.now() + grace
        self._drain_by = by if self._drain_by is None or by is None else min(by, self._drain_by)
        for node in list(self._facts):
            self._cluster.on_drain_ordered(node, self.now())
            self._drain(commands.Drain(node))  # also those that drain already: now there is a deadline
        self._settle()
        self._changed.set()
        if self._stopping is None:
            self._journal("stopping", "the cluster is being stopped")
            self._stopping = self._loop.spawn(self._stop(self._left))
        return await asyncio.shield(self._stopping)

    async def _stop(self, left_before: int) -> pb.StopReply:
        self._unheard.update(node.incarnation for node in self._awaited() if node.slots)  # clients come and go
        while self._has_nodes_to_come() or self._facts or self._remembers_nodes(len(self._awaited())):
            if self._is_goodbye_over():
                break
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                seconds = COMING_SECONDS if self._has_nodes_to_come() else GOODBYE_SECONDS
                await asyncio.wait_for(self._changed.wait(), seconds)
        self.is_stopped = True
        self.end("the cluster was stopped")
        return pb.StopReply(left=self._left - left_before, lost=len(self._facts) + len(self._unheard))

    def _awaited(self) -> list[Any]:
        return [node for node in self._cluster.snapshot(self.now()).nodes if node.state == "awaited"]

    def _has_nodes_to_come(self) -> bool:
        """Whether nodes of the last start may still come back, to be told that the cluster ends."""
        return not self._cluster.is_settled

    def _remembers_nodes(self, awaited: int) -> bool:
        """Whether the next start would wait for nodes that have left: that is kept a moment after they have."""
        return self._is_keeping or self._kept > awaited

    def _is_goodbye_over(self) -> bool:
        return self._drain_by is not None and self.now() >= self._drain_by + GOODBYE_SECONDS

    # -- orders -------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Do what the machine has ordered, up to what must be on disk first, and set the timer."""
        self._ordered.extend(self._cluster.take_commands())
        while self._ordered and not self._is_keeping:
            command = self._ordered.popleft()
            if isinstance(command, commands.Keep):
                self._is_keeping = True
                self._loop.spawn(self._keep(command.state))
            else:
                self._actions.get(type(command), self._answer)(command)
        while self._dirty:
            self._dirty.popitem()[0].flush()
        self._set_timer()

    def _set_timer(self) -> None:
        due = self._cluster.due
        delay = None if due is None else max(0.0, due - self.now())
        if delay is None or self.ended.done():
            return
        loop = self._loop.asyncio
        if self._timer is None or self._timer.when() > loop.time() + delay + 1e-3:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(delay, self._on_timer)

    async def _keep(self, state: KeptState) -> None:
        while True:
            try:
                await asyncio.to_thread(self._write, state)
                break
            except OSError as error:
                text = f"the state cannot be kept, nobody joins or leaves until it can: {error}"
                self._journal("disk", text, level=logging.ERROR)
                await asyncio.sleep(WRITE_AGAIN_SECONDS)
        self._is_keeping = False
        self._kept = len(state.nodes)
        self._settle()
        self._changed.set()

    def _send(self, node: int, note: pb.Note) -> None:
        link = self._links.get(node)
        if link is not None:
            link.send(note)
            self._dirty[link] = None

    def _answer(self, command: Any) -> None:
        self._send(command.node, request_note(command))

    def _welcome(self, command: commands.Welcome) -> None:
        node = command.node
        answer, link = self._registering.pop(node, None), self._links.get(node)
        if answer is None or answer.done() or link is None:
            return
        self._unheard.discard(node)
        is_back = node in self._facts or link.first.is_return
        facts = self._facts[node] = Facts(link.first, self.now())
        answer.set_result(pb.Registered(epoch=command.epoch, cluster=command.cluster, beat_seconds=BEAT_SECONDS,
                                        patience_seconds=NODE_LOST_SECONDS))  # fmt: skip
        self._tell(node, facts, *(("returned", "is back") if is_back else ("joined", "has joined")))
        if self._stopping is not None:
            self._loop.call_soon(partial(self._drain_late, node))

    def _drain_late(self, node: int) -> None:
        """A node that came while the cluster is being stopped."""
        self._cluster.on_drain_ordered(node, self.now())
        self._settle()

    def _refuse(self, command: commands.RefuseNode) -> None:
        self._fail(command.node, _REFUSALS.get(command.cause, ProtocolError)(command.reason))
        self._journal("refused", f"node {command.node:016x} may not join: {command.reason}",
                      node=f"{command.node:016x}", level=logging.WARNING)  # fmt: skip

    def _rejoin(self, command: commands.Rejoin) -> None:
        node = command.node
        facts = self._facts.pop(node, None)
        if facts is not None:
            self._tell(node, facts, "lost", f"is lost: {command.reason}", level=logging.WARNING)
        if not self._fail(node, NodeLostError(command.reason)) and node in self._links:
            link = self._links.pop(node)
            link.send(pb.Note(struck=pb.Struck(reason=command.reason)))
            self._loop.spawn(link.finish())

    def _fail(self, node: int, error: Exception) -> bool:
        """Refuse a registration that waits for its answer; False when there is none."""
        answer = self._registering.pop(node, None)
        if answer is None or answer.done():
            return False
        answer.set_exception(error)
        return True

    def _drain(self, command: commands.Drain) -> None:
        left = 0.0 if self._drain_by is None else max(1e-3, self._drain_by - self.now())
        self._send(
            command.node, pb.Note(drain=pb.Drain(reason="the cluster's operator says so", deadline_seconds=left))
        )

    def _tell_members(self, command: commands.TellMembers) -> None:
        for note in membership_notes(command.change):
            for node in command.nodes:
                self._send(node, note)

    def _step_down(self, command: commands.StepDown) -> None:
        self._journal("superseded", f"a head with the higher epoch {command.epoch} was started: this one ends")
        self.end(f"a head with the higher epoch {command.epoch} was started")

    def _tell(self, node: int, facts: Facts, event: str, text: str, **more: Any) -> None:
        """Log what has become of a node, and wake who waits for nodes to leave."""
        who = f"node {node:016x} on {facts.host} {text}"
        self._journal(event, who, node=f"{node:016x}", host=facts.host, **more)
        self._changed.set()


async def _refuses(host: str, port: int) -> bool:
    """Say whether nobody listens there; False when that cannot be told."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False

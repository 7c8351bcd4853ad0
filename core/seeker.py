"""Room at other nodes for what waits here: joins the machine that seeks it to the node, the head and the tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .ids import RESOURCE_UNIT
from .rpc.codec import Frame
from .rpc.grpc_hello import python_version
from .rpc.protos import cluster_pb2
from .rpc.protos import outboard_pb2 as pb
from .scheduler.seeking import AskRoom, Connect, Refuse, Seeking, Stay

if TYPE_CHECKING:
    from .node import Node, Peer

#: Says something to the head; it is dropped where there is none, and asked again when it is back.
Report = Callable[[cluster_pb2.Report], object]


class Seeker:
    """Drives one `Seeking`; every method is called in the loop's thread. ``head``: where it listens."""

    def __init__(self, node: Node, report: Report, head: str) -> None:
        self.machine = Seeking(node.incarnation)
        self._node = node
        self._head = head
        self._has_head = False
        self._report = report
        self._python = python_version()
        self._timer: Any = None
        self._due: float | None = None

    # -- what clients say ---------------------------------------------------------------------------------------------

    def on_want(self, peer: Peer, kind: int, waiting: int) -> None:
        """So many tasks of a client here can be sent nowhere."""
        body = peer.kinds.get(kind)
        if body is not None:
            needs = dict(pb.Kind.FromString(body).resources)
            is_home = self._node.dispatch.takes(peer.incarnation, kind)
            self.machine.on_want(
                peer.incarnation, kind, needs, self._python, waiting, self._node.now(), is_home=is_home
            )
            self._do()

    def on_client_left(self, client: int) -> None:
        """A client has ended."""
        self.machine.on_client_left(client)
        self._do()

    def on_kind_dropped(self, client: int, kind: int) -> None:
        """A client has no more tasks of a kind."""
        self.machine.on_kind_dropped(client, kind)
        self._do()

    def on_welcome(self, peer: Peer, body: bytes) -> None:
        """A process here hears that it may send tasks to a node."""
        node = pb.Welcome.FromString(body).node
        if node != self._node.incarnation:
            self.machine.on_connected(peer.incarnation, node)
            self._do()

    def on_gone(self, peer: Peer, node: int) -> None:
        """A process here knows that it may no longer."""
        self.machine.on_disconnected(peer.incarnation, node)
        self._do()

    # -- what the head says -------------------------------------------------------------------------------------------

    def on_room(self, answer: cluster_pb2.RoomAnswer) -> None:
        """Nodes with room, or the news that there is none that could ever do it."""
        if answer.never:
            totals = [dict(amounts.amounts) for amounts in answer.totals]
            self.machine.on_never(answer.id, dict(answer.asked), totals, list(answer.pythons))
        else:
            offers = [(room.node, room.address, room.tasks) for room in answer.rooms]
            self.machine.on_offers(answer.id, offers, self._node.now())
        self._do()

    def on_try_later(self, request: int) -> None:
        """The head takes no more questions for now."""
        self.machine.on_try_later(request, self._node.now())
        self._do()

    def on_head(self, is_there: bool) -> None:
        """The head has come, or gone."""
        now = self._node.now()
        self._has_head = is_there
        (self.machine.on_head_up if is_there else self.machine.on_head_down)(now)
        self._do()

    def on_node_gone(self, node: int) -> None:
        """A node is no member any more."""
        self.machine.on_node_gone(node)
        self._do()

    # -- what the machine commands ------------------------------------------------------------------------------------

    def _do(self) -> None:
        for command in self.machine.take_commands():
            match command:
                case AskRoom(request, needs, python, waiting):
                    asked = cluster_pb2.RoomQuestion(id=request, shape=needs, waiting=waiting, python=python)
                    self._report(cluster_pb2.Report(room=asked))
                case Connect(client, node, address):
                    peer = self._node.peers.get(client)
                    if peer is not None and self._node.tree is not None:
                        self._node.tree.connect(peer, node, address)
                case Refuse():
                    self._refuse(command)
                case Stay(client, needs_of_all):
                    self._say(client, needs_of_all)
        self._set_timer()

    def _refuse(self, refused: Refuse) -> None:
        available: dict[str, int] = {}
        for totals in refused.totals:
            for name, amount in totals.items():
                available[name] = max(available.get(name, 0), amount)
        reason = ""
        if self._python not in refused.pythons:
            reason = f"no node runs Python {self._python}: they run {', '.join(refused.pythons) or 'nothing'}"
        body = pb.KindRefused(id=refused.kind, asked=refused.asked, available=available, reason=reason)
        self._node.send(refused.client, Frame.KIND_REFUSED, body.SerializeToString())

    def _say(self, client: int, needs_of_all: Sequence[Mapping[str, int]]) -> None:
        """Tell people why nothing goes on; of what a worker waits for its client is told."""
        peer = self._node.peers.get(client)
        if peer is not None:
            what = " and for ".join(map(_describe, needs_of_all))
            text = f"outboard: waiting for {what}: {self._why_none()}\n"
            self._node.print_lines(peer.root, [pb.Line(text=text, stderr=True, ended=True)])

    def _why_none(self) -> str:
        if not self._has_head:
            return f"the head at {self._head} is away"
        assert self._node.peering is not None
        count = sum(
            bool(member.slots) and not member.draining for member in self._node.peering.members.current.values()
        )
        if not count:
            return f"the cluster at {self._head} has no node that takes work; it goes on when one joins"
        return f"of {count} node{'s' if count > 1 else ''} none has room for that now; it goes on when one has"

    def _set_timer(self) -> None:
        due = self.machine.due
        if due == self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = None
        if due is not None:
            self._timer = self._node.loop.call_later(max(0.0, due - self._node.now()), self._on_timer)

    def _on_timer(self) -> None:
        self._due = self._timer = None
        self.machine.on_timer(self._node.now())
        self._do()
        self._node.settle()

    def close(self) -> None:
        """Wake up no more."""
        if self._timer is not None:
            self._timer.cancel()


def _describe(needs: Mapping[str, int]) -> str:
    amounts = (f"{name} {amount / RESOURCE_UNIT:g}" for name, amount in sorted(needs.items()) if amount)
    return ", ".join(amounts) or "a worker"

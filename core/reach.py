"""What a client has told which node, and which of its objects went beyond its own node. Used under the client's lock.

The own node is 0 here and in the client's machine, any other its incarnation: what a frame to it carries as its
destination. On a frame from a node the destination says where it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .bindings import Bindings
from .errors import describe_machine_loss
from .ids import ObjectId
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler.outcomes import BindingMark

if TYPE_CHECKING:
    from .client import Client

#: The own node.
HOME = 0

#: Destination of what every node of a program is to hear.
ALL_NODES = (1 << 64) - 1


class Reach:
    """`joined`: the own node belongs to a cluster, so that others may come.

    - `home`: incarnation of the own node, as it stands in descriptors.
    - `told`: nodes that take this client's tasks, the own one first, and the kinds that each knows.
    - `travelled`: objects of which other nodes may know: named in a task that was sent to one, made there, or with a
      value that went to another process or came from one. Their ends are told to all. Empty unless `joined`.
    """

    __slots__ = ("_client", "bindings", "home", "joined", "told", "travelled")

    def __init__(self, client: Client, welcome: pb.Welcome) -> None:
        self._client = client
        self.home = welcome.node
        self.joined = welcome.joined
        self.told: dict[int, set[int]] = {HOME: set()}
        self.travelled: set[tuple[int, int]] = set()
        self.bindings = Bindings(HOME, welcome.slots, dict(welcome.totals), is_alone=not welcome.joined)

    def __repr__(self) -> str:
        return f"<Reach {len(self.told)} nodes, {len(self.travelled)} objects travelled>"

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def want(self, node: int) -> None:
        """Ask for a session with a further node; WELCOME comes, or NODE_GONE."""
        self._client.send(Frame.REACH, pb.Connect(node=node).SerializeToString())

    def on_joined(self, welcome: pb.Welcome) -> None:
        """A further node takes our tasks; one that did before does so anew."""
        if welcome.node in self.told:
            self._client.on_gang_node_gone(welcome.node, is_lost=True)
        self.on_gone(welcome.node, is_lost=True, reason="it began anew")
        self.told[welcome.node] = set()
        slots = welcome.slots if welcome.initial_credit else 0
        bindings = self.bindings.on_node_joined(welcome.node, slots, dict(welcome.totals))
        self._client.owner.on_node_joined(welcome.node, welcome.initial_credit, welcome.slots)
        for binding in bindings:
            self.confine(binding)
        self._client.actors.on_node_joined(welcome.node)

    def on_gone(self, node: int, *, is_lost: bool, reason: str) -> None:
        """A further node takes none any more, and has forgotten what it was told."""
        client = self._client
        if node == HOME or node not in self.told:
            return
        for sender in client.senders:
            if sender.node == node:
                sender.hand_back()
        del self.told[node]
        left = self.bindings.on_node_gone(node)
        if is_lost:
            client.owner.on_session_lost(node, reason)
        else:
            client.owner.on_session_closed(node)
        for binding in left.bereft:
            client.fail_binding(binding, self._bereft_mark(binding, reason))
        for binding in left.moved:
            self.confine(binding)
        for binding in left.ended:
            client.on_unbound(binding)
        client.failures += 1
        for stream in list(client.owner.arrays):
            client.on_items(stream)

    def _bereft_mark(self, binding: int, reason: str) -> BindingMark:
        label = self._client.labels.get(binding, "")
        return BindingMark(label, b"", None, is_actor=True, reason=describe_machine_loss(reason))

    # -- bindings and kinds --------------------------------------------------------------------------------------------

    def confine(self, binding: int) -> None:
        """The nodes that have processes of a binding have changed, or its kinds have."""
        places, is_seeking = self.bindings.places(binding), self.bindings.is_seeking(binding)
        owner = self._client.owner
        for kind, of in self._client.kind_binding.items():
            if of == binding:
                owner.confine(owner.kinds[kind], places, is_seeking=is_seeking)
        lane = self._client.lanes.get(binding)
        if lane is not None:
            place = next(iter(places or ()), None)
            lane.place(place, is_seeking=is_seeking)
            if place is not None:
                self._client.outbox.introduce_binding(binding, place)  # others may call it before we do
            owner.stir(lane)
            self._client.actors.on_placed(binding, place)

    def forget_unbound(self, binding: int) -> None:
        """Say that a binding has gone when nobody who was told of it has it any more."""
        if self.bindings.has_ended(binding):
            self._client.on_unbound(binding)

    def forget_kind(self, kind: int) -> list[int]:
        """Return the nodes that were told of a kind, and forget that."""
        nodes = [node for node, kinds in self.told.items() if kind in kinds]
        for node in nodes:
            self.told[node].discard(kind)
        return nodes

    # -- objects -------------------------------------------------------------------------------------------------------

    def note_travelled(self, objects: Iterable[tuple[int, int]]) -> None:
        """Other nodes may know of these from now on."""
        if self.joined:
            self.travelled.update(objects)

    def note_call(self, call: bytes) -> None:
        """The stored objects in an encoded call (or function) may be known to other nodes from now on."""
        if call[:1] not in (b"", b"\x80"):
            parcel = pb.Parcel.FromString(call)
            stored = [parcel.stored, *(buffer.stored for buffer in parcel.buffers)]
            self.note_travelled(ObjectId(d.owner, d.seq) for d in stored if d.nbytes)

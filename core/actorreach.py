"""The actors that one process calls: where they are, and what becomes of their calls. Used under the client's lock.

An actor is a binding of the process that made it. Handles contain a reference to its *anchor*, an object of that
process whose value says where the actor is: so they are counted like all references, and the end of the last one lets
the binding go.

Another process that has a handle knows the actor by a number of its own below zero, as if it were a binding of its own:
its kinds name the owner and the owner's number when they are sent (`describe`), and go to the actor's node directly. It
holds the anchor until it has no handle and no unanswered call any more. Of another program's actor, which it knows by
name, it holds nothing: that lives as long as its program, or as it was told to.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import describe_machine_loss
from .ids import ObjectId
from .reach import HOME
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler import owner as machine
from .scheduler.outcomes import BindingMark, RefusedMark

if TYPE_CHECKING:
    from .client import Client


class Address(NamedTuple):
    """Value of an anchor: the owner's number of the binding, and the incarnation of the node that has the actor."""

    binding: int
    node: int

    def encode(self) -> bytes:
        """Give it as value bytes."""
        return pickle.dumps(tuple(self), 4)


class Far:
    """An actor of another process. `address` is None while nobody has told; `handles`: attached and not detached.

    `is_outer`: it is another program's, which does not count who refers to it.
    """

    __slots__ = ("address", "anchor", "handles", "id", "is_outer", "lane")

    def __init__(self, number: int, anchor: ObjectId, lane: machine.Lane, address: Address | None) -> None:
        self.id = number
        self.anchor = anchor
        self.lane = lane
        self.address = address
        self.is_outer = address is not None
        self.handles = 0


class ActorReach:
    """`anchors`: number of its anchor by binding, of own actors that have handles. `far`: those of others by id."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.anchors: dict[int, int] = {}
        self.names: dict[int, tuple[str, str]] = {}  # of own actors: namespace and name by binding
        self.far: dict[int, Far] = {}
        self._by_anchor: dict[ObjectId, Far] = {}
        self.ending: dict[int, None] = {}  # of others, without handles: to be let go when their calls are answered
        self._last = 0

    def __repr__(self) -> str:
        return f"<ActorReach own={len(self.anchors)} far={len(self.far)}>"

    # -- own actors ----------------------------------------------------------------------------------------------------

    def open(self, binding: int, seq: int, demand: Mapping[str, int], nodes: frozenset[int] | None) -> None:
        """A binding whose description is known is an actor: a node is told of it. Its anchor has one reference."""
        client = self._client
        spec = client.binding_specs[binding]
        client.lanes[binding] = machine.Lane(in_order=not spec.max_concurrency)
        client.owner.anchor(seq, binding)
        self.anchors[binding] = seq
        client.reach.bindings.open(binding, 1, ordered=True, demand=demand, restarts=spec.max_restarts,
                                   nodes=nodes)  # fmt: skip
        client.reach.confine(binding)

    def on_placed(self, binding: int, node: int | None) -> None:
        """An own actor is at that node from now on; None: nobody knows where."""
        seq = self.anchors.get(binding)
        if seq is not None:
            address = None if node is None else Address(binding, node or self._client.reach.home).encode()
            self._client.owner.move_anchor(seq, address)

    def on_failed(self, binding: int, mark: BindingMark | RefusedMark) -> None:
        """An own actor has ended for good: whoever asks where it is learns that."""
        self._release_name(binding)
        seq = self.anchors.get(binding)
        if seq is not None:
            self._client.owner.move_anchor(seq, mark)

    def on_anchor_ended(self, binding: int) -> None:
        """No handle is left: the actor ends after the calls that were made."""
        self._release_name(binding)
        self._client.on_anchor_ended(self.anchors.pop(binding))
        if binding in self._client.binding_specs:
            self._client.leaving[binding] = None

    def _release_name(self, binding: int) -> None:
        name = self.names.pop(binding, None)
        if name is not None and self._client.closed_mark is None:
            released = pb.NameRequest(what=pb.NameRequest.RELEASE, namespace=name[0], name=name[1],
                                      owner=self._client.incarnation)  # fmt: skip
            self._client.send(Frame.NAME, released.SerializeToString())

    # -- actors of other processes -------------------------------------------------------------------------------------

    def attach(self, anchor: ObjectId, label: str, *, in_order: bool, address: Address | None) -> int:
        """A handle of another process's actor has come; returns its number here. `address`: of another program's."""
        far = self._by_anchor.get(anchor)
        if far is None:
            client = self._client
            self._last -= 1
            far = Far(self._last, anchor, machine.Lane(in_order=in_order), address)
            self.far[far.id] = self._by_anchor[anchor] = far
            client.lanes[far.id] = far.lane
            client.labels[far.id] = label
            if far.is_outer:
                self.call_at(far.id)
            else:
                client.owner.refs.hold(anchor)
                self._look_up(far)
        far.handles += 1
        self.ending.pop(far.id, None)
        return far.id

    def detach(self, number: int) -> None:
        """A handle has gone."""
        far = self.far[number]
        far.handles -= 1
        if not far.handles:
            self.ending[number] = None

    def let_go(self) -> list[int]:
        """Forget those without handles whose calls are all answered, and return their numbers."""
        client = self._client
        idle = [n for n in self.ending if not self.far[n].lane.calls and not self.far[n].lane.share.outstanding]
        for number in idle:
            del self.ending[number]
            far = self.far.pop(number)
            del self._by_anchor[far.anchor], client.lanes[number]
            client.labels.pop(number, None)
            client.failed_bindings.pop(number, None)
            if not far.is_outer:
                client.owner.refs.drop(far.anchor)
        return idle

    def describe(self, kind: pb.Kind, number: int) -> pb.Kind:
        """Name the owner and its number of the binding in a kind of its calls, which is about to be sent."""
        far = self.far.get(number)
        if far is not None and far.address is not None:
            kind.binding_owner, kind.binding = far.anchor.owner, far.address.binding
        return kind

    def _look_up(self, far: Far) -> None:
        entry = self._client.owner.refs.find(far.anchor)
        assert entry is not None
        if entry.value is None:
            entry.watched = True
            self._client.owner.ask(far.anchor)
        else:
            self._on_address(far, entry.value)

    def on_settled(self, oid: ObjectId, value: Any) -> None:
        """A watched object has its value: it may be an anchor's."""
        far = self._by_anchor.get(oid)
        if far is not None:
            self._on_address(far, value)

    def _on_address(self, far: Far, value: Any) -> None:
        client = self._client
        if machine.is_failure(value):
            outcome = value if isinstance(value, bytes) else b""
            client.fail_binding(far.id, BindingMark(client.labels[far.id], outcome, None, is_actor=True))
            return
        far.address = Address(*pickle.loads(value))
        self.call_at(far.id)

    def call_at(self, number: int) -> None:
        """Have calls go to the actor's node, with which a session is opened if there is none."""
        far = self.far.get(number)
        if far is None or far.address is None or far.lane.shares:
            return
        reach, node = self._client.reach, far.address.node
        if node == reach.home:
            far.lane.place(HOME, is_seeking=False)
        elif node in reach.told:
            far.lane.place(node, is_seeking=False)
        else:
            reach.want(node)
            return
        self._client.owner.stir(far.lane)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def on_node_joined(self, node: int) -> None:
        """A session with a node has begun."""
        for far in self.far.values():
            if far.address is not None and far.address.node == node:
                self.call_at(far.id)

    def on_gone(self, kind: machine.Kind) -> None:
        """The node that should have an actor does not have it any more."""
        number = self._client.kind_binding.get(kind.id, 0)
        label = self._client.labels.get(number, "")
        self._client.fail_binding(number, BindingMark(label, b"", None, is_actor=True))

    def on_node_gone(self, node: int, *, is_lost: bool) -> None:
        """A session with a node is over; if it is lost the actor's owner knows what became of it, or will."""
        for far in self.far.values():
            if far.address is None or far.address.node != node:
                continue
            far.lane.place(None, is_seeking=False)
            if is_lost and far.is_outer:
                reason = describe_machine_loss("")
                label = self._client.labels[far.id]
                self._client.fail_binding(far.id, BindingMark(label, b"", None, is_actor=True, reason=reason))
            elif is_lost:
                far.address = None
                self._client.owner.forget_value(far.anchor)
            elif far.lane.calls:
                self.call_at(far.id)

    # -- ends ----------------------------------------------------------------------------------------------------------

    def ask_end(self, anchor: ObjectId, how: int) -> None:
        """Have the owner of an actor end it; where that is another program, its node."""
        far = self._by_anchor.get(anchor)
        if far is not None and far.is_outer and far.address is not None:
            node = HOME if far.address.node == self._client.reach.home else far.address.node
            unbind = pb.Unbind(id=far.address.binding, force=True, restart=how == pb.Ask.RESTART, owner=anchor.owner)
            self._client.send(Frame.UNBIND, unbind.SerializeToString(), node)
            return
        ask = pb.Ask(ref=pb.Ref(owner=anchor.owner, seq=anchor.seq), asker=self._client.incarnation,
                     end=pb.Ask.End.Name(how))  # fmt: skip
        self._client.send(Frame.ASK, ask.SerializeToString(), anchor.owner)

"""Actors of the native engine: bindings with an anchor, those of other processes included."""

from __future__ import annotations

import sys
import weakref
from functools import partial
from typing import TYPE_CHECKING

from . import engine as engines
from .actorreach import Address
from .engine import ActorTerms
from .errors import ActorDiedError, ActorNameError, HeadUnreachableError
from .ids import ObjectId
from .interrupts import shield
from .nativebinding import NativeBinding
from .reach import HOME
from .refs import AnchorRef
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler import owner as machine
from .scheduler.outcomes import BindingMark

if TYPE_CHECKING:
    from .native import NativeEngine

#: The number of its binding that every detached actor's keeper has for it.
KEPT_BINDING = 1

_WHY: dict[int, str] = {
    pb.Ask.KILL: "it was killed by outboard.kill()",
    pb.Ask.EXIT: "it has called exit_actor()",
}


class NativeActors:
    """See `ActorCalls`. `_own`: bindings of actors of this process by anchor."""

    def __init__(self, engine: NativeEngine) -> None:
        self._engine = engine
        self._client = engine.client
        self._own: dict[int, NativeBinding] = {}
        engine.client.on_actor_end = self.on_end
        engine.client.on_anchor_ended = self.on_anchor_ended

    def open(self, binding: NativeBinding, terms: ActorTerms, nodes: frozenset[int] | None) -> None:
        """Take a new binding into the books and tell a node of it, one of these. Under the client's lock."""
        spec = self._client.binding_specs[binding.id]
        spec.ordered, spec.max_restarts, spec.max_concurrency = True, terms.max_restarts, terms.max_concurrency
        spec.anchor, spec.class_name = terms.anchor.seq, terms.class_name
        spec.name, spec.namespace = terms.name, terms.namespace
        binding.is_actor = True
        self._own[terms.anchor.seq] = binding
        self._client.actors.open(binding.id, terms.anchor.seq, terms.calls.demand(), nodes)

    def seek(self, binding: NativeBinding, kind: machine.Kind) -> None:
        """A kind of an actor's calls is there, with which the own node can look for a node while there is none."""
        client = self._client
        with shield, client.lock:
            lane = client.lanes.get(binding.id)
            if lane is not None:
                lane.seeker = kind
                client.owner.stir(lane)
        client.flush()

    def place(self, terms: ActorTerms) -> tuple[int, int]:
        """See `ActorCalls.place`. What finds a node is an actor without an object, which ends again."""
        engine = self._engine
        scout = ActorTerms(engine.reserve_id(), calls=terms.calls)
        engine.bind(processes=1, label="a detached actor", actor=scout)
        address = Address(*engine.get(AnchorRef(*scout.anchor, engine)))
        return KEPT_BINDING, address.node

    def bind_detached(
        self, terms: ActorTerms, address: tuple[int, int], make: bytes, label: str, name: tuple[str, str] | None,
        record: bytes,
    ) -> None:  # fmt: skip
        """See `ActorCalls.bind_detached`."""
        client, node = self._client, address[1]
        space, own = name or ("", "")
        spec = pb.Binding(
            id=KEPT_BINDING, keeper=terms.anchor.owner, processes=1, initializer=make, label=label, ordered=True,
            eager=not terms.calls.num_gpus, max_restarts=terms.max_restarts, max_concurrency=terms.max_concurrency,
            sys_path=sys.path, modules=engines.companions, namespace=space, name=own, record=record,
            anchor=terms.anchor.seq, class_name=terms.class_name,
        )  # fmt: skip
        with shield, client.lock:
            client.check_open()
            client.send(Frame.BIND, spec.SerializeToString(), HOME if node == client.reach.home else node)

    def on_anchor_ended(self, seq: int) -> None:
        """No handle of an own actor is left. Under the client's lock."""
        del self._own[seq]

    def attach(
        self, anchor: ObjectId, label: str, *, in_order: bool, address: tuple[int, int] | None = None
    ) -> NativeBinding:
        """See `ActorCalls.attach`."""
        client = self._client
        with shield, client.lock:
            client.check_open()
            if anchor.owner == client.incarnation:
                own = self._own.get(anchor.seq)
                if own is None:
                    raise ActorDiedError(actor=label, reason="its last handle had gone")
                return own
            lies = None if address is None else Address(*address)
            number = client.actors.attach(anchor, label, in_order=in_order, address=lies)
        client.background.start()
        binding = NativeBinding(number, 1, label, anchor.owner)
        binding.client, binding.is_actor = client, True
        weakref.finalize(binding, self._detach, number).atexit = False
        return binding

    def _detach(self, number: int) -> None:
        """A handle has gone; may be called from a finaliser."""
        self._client.requests.append(partial(self._client.actors.detach, number))
        self._client.background.nudge()

    def end(self, anchor: ObjectId, *, restart: bool = False) -> None:
        """See `ActorCalls.end`."""
        how = pb.Ask.RESTART if restart else pb.Ask.KILL
        client = self._client
        with shield, client.lock:
            client.check_open()
            if anchor.owner == client.incarnation:
                self.on_end(anchor, how)
            else:
                client.actors.ask_end(anchor, how)
        client.flush()

    # -- names ---------------------------------------------------------------------------------------------------------

    def claim_name(self, anchor: ObjectId, namespace: str, name: str, record: bytes) -> bytes | None:
        """See `ActorCalls.claim_name`."""
        client = self._client
        request = pb.NameRequest(what=pb.NameRequest.CLAIM, namespace=namespace, name=name, record=record,
                                 owner=client.incarnation)  # fmt: skip
        reply = self._ask_name(request)
        if reply.outcome == pb.NameReply.GRANTED:
            with shield, client.lock:
                own = self._own.get(anchor.seq)
                if own is not None:
                    client.actors.names[own.id] = namespace, name
            return None
        return bytes(reply.record)

    def find_name(self, namespace: str, name: str) -> bytes | None:
        """See `ActorCalls.find_name`."""
        reply = self._ask_name(pb.NameRequest(what=pb.NameRequest.FIND, namespace=namespace, name=name))
        return bytes(reply.record) if reply.outcome == pb.NameReply.FOUND else None

    def _ask_name(self, request: pb.NameRequest) -> pb.NameReply:
        reply: pb.NameReply = self._client.ask_node(Frame.NAME, request.SerializeToString(), Frame.NAME_REPLY)
        if reply.outcome == pb.NameReply.UNREACHABLE:
            raise HeadUnreachableError(reply.reason)
        if reply.outcome == pb.NameReply.REFUSED:
            raise ActorNameError(f"no actor can be named {request.name!r}: {reply.reason}")
        return reply

    # -- ends ----------------------------------------------------------------------------------------------------------

    def leave(self, anchor: ObjectId) -> None:
        """See `ActorCalls.leave`."""
        client = self._client

        def part() -> None:
            client.parting = None
            client.actors.ask_end(anchor, pb.Ask.EXIT)

        client.parting = part

    def on_end(self, anchor: ObjectId, how: int) -> None:
        """An actor of ours is to end. Under the client's lock."""
        client = self._client
        own = self._own.get(anchor.seq)
        if own is None:
            return
        if how != pb.Ask.RESTART:
            mark = BindingMark(client.labels.get(own.id, ""), b"", None, is_actor=True, reason=_WHY[how])
            self._engine.drop_binding(own, force=True, mark=mark)
            return
        body = pb.Unbind(id=own.id, force=True, restart=True).SerializeToString()
        for node in client.reach.bindings.places(own.id) or (HOME,):
            client.send(Frame.UNBIND, body, node)

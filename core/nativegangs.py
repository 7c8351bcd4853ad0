"""Gangs of the native engine: asking for them, and the bindings through which tasks and actors run in their bundles.

What runs in a gang has a binding of its own, which names the gang and the bundle and is confined to the nodes that have
them. So the processes are the gang's alone, and when it is over they end as those of a pool do. A worker that is for a
gang knows that: what its tasks submit runs in the gang too, since they might wait for ever for CPUs outside it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from random import getrandbits
from typing import TYPE_CHECKING, NamedTuple

from .errors import GangBrokenError, GetTimeoutError, HeadUnreachableError, OutboardError, TaskUnschedulableError
from .gangs import Gang
from .ids import RESOURCE_UNIT
from .interrupts import shield
from .options import TaskOptions
from .reach import HOME
from .rpc.codec import Frame
from .rpc.protos import outboard_pb2 as pb
from .scheduler.outcomes import BindingMark

if TYPE_CHECKING:
    from .native import NativeEngine
    from .nativebinding import NativeBinding

#: Seconds after which people are told that a gang is waited for.
NOTICE_SECONDS = 2.0


#: Released gangs of which it is remembered why they are over.
OVER_KEPT = 1000


class Place(NamedTuple):
    """Where the tasks of a binding run: in a bundle of a gang, None for any at these nodes (HOME: the own one)."""

    gang: Gang
    bundle: int | None
    nodes: frozenset[int]

    def describe(self) -> pb.Binding:
        """Give what the description of a binding says of it."""
        return pb.Binding(gang=_message(self.gang), bundle=0 if self.bundle is None else 1 + self.bundle)


class _Known:
    """A gang that this process asks for or uses. `said`: the answer; `over`: why it is over, once it is."""

    __slots__ = ("actors", "bindings", "by_options", "gang", "over", "said")

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.said: pb.GangState | None = None
        self.over = ""
        self.actors = 0  # made without a bundle: they take turns
        self.bindings: list[tuple[Place, NativeBinding]] = []
        self.by_options: dict[object, tuple[Place, NativeBinding] | None] = {}  # those of tasks; None: outside the gang


class NativeGangs:
    """See `GangCalls`."""

    def __init__(self, engine: NativeEngine) -> None:
        self._engine = engine
        self._client = engine.client
        self._known: dict[int, _Known] = {}
        self._over: dict[int, str] = {}  # why gangs are over that were released, the last of them
        self.inherited: Gang | None = None
        engine.client.on_gang_state = self.on_state
        engine.client.on_gang_node_gone = self.on_node_gone

    def inherit(self, message: pb.Gang) -> None:
        """This worker is for a gang."""
        bundles = tuple({n: a / RESOURCE_UNIT for n, a in bundle.amounts.items()} for bundle in message.bundles)
        self.inherited = Gang(message.number, bundles, message.strategy, tuple(message.nodes), message.owner)

    # -- asking --------------------------------------------------------------------------------------------------------

    def ask(self, bundles: tuple[dict[str, float], ...], strategy: str, timeout: float | None) -> Gang:
        """See `GangCalls.ask`."""
        client = self._client
        gang = Gang(getrandbits(63) | 1, bundles, strategy, (), client.incarnation, self._engine)
        deadline = None if timeout is None else time.monotonic() + timeout
        with shield, client.lock:
            client.check_open()
            known = self._known[gang.number] = _Known(gang)
            client.send(Frame.GANG, pb.GangRequest(gang=_message(gang)).SerializeToString())
        client.background.start()
        client.flush()
        try:
            said = self._wait(known, deadline)
            gang.places = self._read(said, known)
        except BaseException:
            self._let_go(known)
            raise
        return gang

    def _wait(self, known: _Known, deadline: float | None) -> pb.GangState:
        notice = time.monotonic() + NOTICE_SECONDS
        turns = self._client.turns
        if (deadline is None or notice < deadline) and not turns.wait(lambda: known.said is not None, notice):
            self._tell_waiting(known.gang)
        if not turns.wait(lambda: known.said is not None, deadline):
            raise GetTimeoutError(f"a gang was not set aside in time: {self._describe(known.gang)}")
        assert known.said is not None
        return known.said

    def _tell_waiting(self, gang: Gang) -> None:
        sys.stderr.write(f"outboard: waiting for a gang of {self._describe(gang)}\n")

    def _describe(self, gang: Gang) -> str:
        """Say for people what a gang needs, and what is free of that."""
        needed: dict[str, float] = {}
        for bundle in gang.bundles:
            for name, amount in bundle.items():
                needed[name] = needed.get(name, 0) + amount
        free: dict[str, float] = {}
        with contextlib.suppress(OutboardError):
            free = self._engine.available_resources()
        wants = ", ".join(f"{amount:g} {name} ({free.get(name, 0):g} free)" for name, amount in sorted(needed.items()))
        return f"{len(gang)} bundles, {gang.strategy}: {wants}"

    def _read(self, said: pb.GangState, known: _Known) -> tuple[int, ...]:
        gang = known.gang
        if said.outcome == pb.GangState.UNREACHABLE:
            raise HeadUnreachableError(said.reason)
        if said.outcome == pb.GangState.REFUSED and said.reason:
            raise ValueError(f"there can be no such gang: {said.reason}")
        if said.outcome == pb.GangState.REFUSED:
            totals = {name: amount / RESOURCE_UNIT for name, amount in sorted(said.totals.items())}
            raise TaskUnschedulableError(
                f"no nodes of this cluster could ever have {list(gang.bundles)}, {gang.strategy}; the most that a node "
                f"has of each is {totals}", available=totals,
            )  # fmt: skip
        if known.over:
            raise GangBrokenError(gang=_label(gang), reason=known.over)
        return tuple(said.nodes)

    def release(self, gang: Gang) -> None:
        """See `GangCalls.release`."""
        if os.getpid() != self._engine.pid:
            raise ValueError(f"{gang!r} was asked for before this process was forked: only its parent can release it")
        known = self._known.get(gang.number)
        if known is not None:
            self._let_go(known)

    def _let_go(self, known: _Known) -> None:
        client = self._client
        with shield, client.lock:
            if client.closed_mark is None and self._known.pop(known.gang.number, None) is not None:
                self._end(known, "it was released")
                self._over[known.gang.number] = known.over
                if len(self._over) > OVER_KEPT:
                    del self._over[next(iter(self._over))]
                request = pb.GangRequest(gang=pb.Gang(number=known.gang.number), release=True)
                client.send(Frame.GANG, request.SerializeToString())
        client.flush()

    # -- what becomes of them; under the client's lock -----------------------------------------------------------------

    def on_state(self, said: pb.GangState) -> None:
        """The node says what has become of a gang."""
        known = self._known.get(said.gang)
        if known is None:
            return
        if said.outcome == pb.GangState.BROKEN:
            lost = f"node {said.nodes[0]:016x}" if any(said.nodes) else "a node"
            self._end(known, f"{lost}, which had bundles of it, is lost")
        known.said = known.said or said

    def on_node_gone(self, node: int, *, is_lost: bool) -> None:
        """A session with a further node is over; if it was just idle another one is opened for what waits."""
        for known in list(self._known.values()):
            if known.over or node not in known.gang.places:
                continue
            if is_lost:
                self._end(known, f"node {node:016x}, which had bundles of it, is lost")
            elif any(node in place.nodes and self._is_used(binding.id) for place, binding in known.bindings):
                self._client.reach.want(node)

    def _is_used(self, binding: int) -> bool:
        """Whether anything of a binding waits to be sent."""
        client = self._client
        kinds = [client.owner.kinds[kind] for kind, of in client.kind_binding.items() if of == binding]
        return any(kind.waiting() for kind in kinds)

    def _end(self, known: _Known, why: str) -> None:
        known.over = why
        bindings, known.bindings = known.bindings, []
        known.by_options.clear()
        for _, binding in bindings:
            mark = BindingMark(binding.label, b"", None, binding.is_actor, why, is_ganged=True)
            self._engine.drop_binding(binding, force=True, mark=mark)

    # -- places; the books are changed under the client's lock, and read without ---------------------------------------

    def find_binding(self, options: TaskOptions) -> NativeBinding | None:
        """The binding of tasks with such options; None for those in no gang. Thread-safe.

        Raises:
            GangBrokenError: the gang is over.
        """
        gang = options.gang or self.inherited
        if gang is None:
            return None
        known = self._known.get(gang.number)
        found = known.by_options.get(options.key) if known is not None else None
        if found is None and (known is None or options.key not in known.by_options):
            with shield, self._client.lock:
                found = self._open_for(self._use(gang), options)
        if found is None:
            return None
        self._want(found[0])
        return found[1]

    def _open_for(self, known: _Known, options: TaskOptions) -> tuple[Place, NativeBinding] | None:
        if options.key not in known.by_options:
            place = self._find_place(known, options)
            bound = next((b for p, b in known.bindings if p == place and not b.processes), None)
            if bound is None and place is not None:
                bound = self._engine.open_binding(processes=0, label=_label(known.gang), place=place)
            known.by_options[options.key] = None if place is None or bound is None else (place, bound)
        return known.by_options[options.key]

    def find_place(self, options: TaskOptions, *, is_actor: bool) -> Place | None:
        """Where a binding is to be that somebody opens; None for no gang. An actor is given one bundle. Thread-safe.

        Raises:
            GangBrokenError: the gang is over.
        """
        gang = options.gang or self.inherited
        if gang is None:
            return None
        with shield, self._client.lock:
            known = self._use(gang)
            if is_actor and options.bundle is None and (fitting := gang.fitting(options.demand())):
                options = options.merged(gang=gang, bundle=fitting[known.actors % len(fitting)])
                known.actors += 1
            return self._find_place(known, options)

    def check_up(self, place: Place) -> None:
        """Raise GangBrokenError when the gang of a place is over. Under the client's lock."""
        self._use(place.gang)

    def on_opened(self, place: Place, binding: NativeBinding) -> None:
        """There is a binding for what runs there. Under the client's lock."""
        self._use(place.gang).bindings.append((place, binding))
        self._want(place)

    def _use(self, gang: Gang) -> _Known:
        over = self._over.get(gang.number, "")
        known = self._known.get(gang.number)
        if known is None and not over:
            known = self._known[gang.number] = _Known(gang)
            self._client.background.start()
        if known is None or known.over:
            raise GangBrokenError(gang=_label(gang), reason=over or (known.over if known is not None else ""))
        return known

    def _find_place(self, known: _Known, options: TaskOptions) -> Place | None:
        gang, home = known.gang, self._client.reach.home
        fitting = gang.fitting(options.demand(), options.bundle)
        if not fitting:
            return None  # of a gang that was inherited: it runs outside
        nodes = (gang.places[bundle] for bundle in fitting)
        return Place(gang, options.bundle, frozenset(HOME if node == home else node for node in nodes))

    def _want(self, place: Place) -> None:
        """Have sessions opened with the nodes of a place."""
        told = self._client.reach.told
        for node in place.nodes:
            if node not in told:
                with shield, self._client.lock:
                    self._client.reach.want(node)


def _label(gang: Gang) -> str:
    return f"gang {gang.number:016x}"


def _message(gang: Gang) -> pb.Gang:
    message = pb.Gang(number=gang.number, nodes=gang.places, owner=gang.owner, strategy=gang.strategy)
    for bundle in gang.bundles:
        message.bundles.add(amounts=_units(bundle))
    return message


def _units(bundle: Mapping[str, float]) -> dict[str, int]:
    return {name: round(amount * RESOURCE_UNIT) for name, amount in bundle.items()}

"""Conservation of credit: what an owner counts as outstanding is on its way, at the node, or its answer is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ..rpc.codec import Frame
from ..rpc.protos import outboard_pb2 as pb

if TYPE_CHECKING:
    from .world import World

_ANSWERS: dict[int, Any] = {Frame.FINISHED: pb.Finished, Frame.LOST: pb.Lost, Frame.RETURNED: pb.Returned}


class Credits:
    """Counts tasks in frames that were sent and not handled yet."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._in_flight: Counter[tuple[int, int]] = Counter()  # (owner, kind)
        self._kinds: dict[tuple[int, int, int], int] = {}  # kind of a plain task, or of an array as index -1

    def sent_by_process(self, owner: int, frame_type: int, body: bytes) -> None:
        """An owner writes a frame."""
        if frame_type != Frame.SUBMIT:
            return
        for i in pb.Submit.FromString(body).intervals:
            if i.stream:
                self._kinds[owner, i.stream, -1] = i.kind
            else:
                for at in range(len(i.calls)):
                    self._kinds[owner, 0, i.first + at * i.stride] = i.kind
            self._in_flight[owner, i.kind] += len(i.calls)
            kind = self._world.processes[owner].client.owner.kinds[i.kind]
            assert kind.outstanding <= kind.credit, f"{kind.outstanding} sent on {kind.credit} credits"

    def handled_by_node(self, owner: int, frame_type: int, body: bytes) -> None:
        """The node's machine has taken over what a frame carried."""
        if frame_type == Frame.SUBMIT:
            for i in pb.Submit.FromString(body).intervals:
                self._in_flight[owner, i.kind] -= len(i.calls)

    def sent_by_node(self, owner: int, frame_type: int, body: bytes) -> None:
        """The node answers for tasks."""
        self._count(owner, frame_type, body, 1)

    def read_by_process(self, owner: int, frame_type: int, body: bytes) -> None:
        """Their owner handles the answer."""
        self._count(owner, frame_type, body, -1)

    def _count(self, owner: int, frame_type: int, body: bytes, sign: int) -> None:
        message = _ANSWERS.get(frame_type)
        if message is None:
            return
        answer = message.FromString(body)
        spans = answer.done if frame_type == Frame.FINISHED else answer.spans
        for span in spans:
            tasks = len(span.values) // span.stride if frame_type == Frame.FINISHED else span.count
            kind = self._kinds[owner, span.stream, -1 if span.stream else span.first]
            self._in_flight[owner, kind] += sign * tasks

    def process_died(self, owner: int) -> None:
        """Nobody counts any more."""
        for key in [key for key in self._in_flight if key[0] == owner]:
            del self._in_flight[key]

    def check(self, owner: int) -> None:
        """Compare what an owner counts with what there is."""
        process = self._world.processes[owner]
        client = process.machine.node.dispatch._tables.clients.get(owner)
        if client is None and not self._world.processes[process.root].alive:
            return  # the node has forgotten it with its root; it is about to be killed
        for kind in process.client.owner.kinds.values():
            at_node = client.kinds[kind.id].outstanding if client is not None and kind.id in client.kinds else 0
            there = self._in_flight[owner, kind.id] + at_node
            assert kind.outstanding == there, f"{process} counts {kind.outstanding}, there are {there}"

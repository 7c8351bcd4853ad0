"""Conservation of credit: what an owner counts as outstanding is on its way, at the node, or its answer is.

For the own node that holds exactly. A further node, with which the owner has a session, never counts more of a kind
than its owner; that it counts no less in the end is looked at when all is quiet.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ..rpc.codec import Frame
from ..rpc.protos import outboard_pb2 as pb

if TYPE_CHECKING:
    from ..scheduler.kinds import Kind
    from .process import Process
    from .world import TaskWorld

_ANSWERS: dict[int, Any] = {Frame.FINISHED: pb.Finished, Frame.LOST: pb.Lost, Frame.RETURNED: pb.Returned}


class Credits:
    """Counts tasks in frames between owners and their own nodes that were sent and not handled yet."""

    def __init__(self, world: TaskWorld) -> None:
        self._world = world
        self._in_flight: Counter[tuple[int, int]] = Counter()  # (owner, kind)
        self._kinds: dict[tuple[int, int, int], int] = {}  # kind of a plain task, or of an array as index -1

    def sent_by_process(self, process: Process, frame_type: int, body: bytes, node: int) -> None:
        """An owner writes a frame to a node; 0: its own."""
        if frame_type != Frame.SUBMIT:
            return
        owner = process.incarnation
        for i in pb.Submit.FromString(body).intervals:
            if i.stream:
                self._kinds[owner, i.stream, -1] = i.kind
            else:
                for at in range(len(i.calls)):
                    self._kinds[owner, 0, i.first + at * i.stride] = i.kind
            if not node:
                self._in_flight[owner, i.kind] += len(i.calls)
            else:
                self._world.mark("task sent elsewhere")
            share = process.client.owner.kinds[i.kind].shares[node]
            assert share.outstanding <= share.credit, f"{share.outstanding} sent on {share.credit} credits"

    def handled_by_node(self, owner: int, frame_type: int, body: bytes) -> None:
        """The own node's machine has taken over what a frame carried."""
        if frame_type == Frame.SUBMIT:
            for i in pb.Submit.FromString(body).intervals:
                self._in_flight[owner, i.kind] -= len(i.calls)

    def sent_by_node(self, owner: int, frame_type: int, body: bytes) -> None:
        """The own node answers for tasks."""
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
        home = process.machine.node.dispatch._tables.clients.get(owner)
        root = self._world.processes.get(process.root)
        if home is None and (root is None or not root.alive or process.machine.is_joined):
            return  # the node has forgotten it with its root; it is about to be killed
        in_flight = self._in_flight
        for kind in process.client.owner.kinds.values():
            there = in_flight.get((owner, kind.id), 0)
            if home is not None and kind.id in home.kinds:
                there += home.kinds[kind.id].outstanding
            home_share = kind.shares.get(0)  # the calls of each simulated actor are of one kind
            counted = home_share.outstanding if home_share is not None else 0
            assert counted == there, f"{process} counts {counted}, there are {there}"
            if len(kind.shares) > 1 or home_share is None:
                self._check_elsewhere(process, kind)

    def _check_elsewhere(self, process: Process, kind: Kind) -> None:
        for node, share in kind.shares.items():
            machine = self._world.machine_of(node) if node else None
            client = machine.node.dispatch._tables.clients.get(process.incarnation) if machine is not None else None
            there = client.kinds[kind.id].outstanding if client is not None and kind.id in client.kinds else 0
            assert there <= share.outstanding, f"{process} counts {share.outstanding} at {node:x}: there are {there}"

"""The node's share of one call: a SUBMIT becomes a packet, a FINISHED goes on to its owner.

Client and worker are played by this file in the same thread; the rest is the node as it runs.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from outboard import node as node_module
from outboard.boot import Boot
from outboard.node import Node
from outboard.process.board import Board
from outboard.rpc.codec import Frame, encode_frame
from outboard.rpc.local import BlockingLink, LoopLink, socketpair
from outboard.rpc.protos import outboard_pb2 as pb
from outboard.version import PROTOCOL

INCARNATION = 77
ROUNDS, CALLS = 7, 2_000


class StillLoop:
    """Takes the place of the event loop: this file says when a link is readable."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None

    def time(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()


class Rig:
    """A node with one client and one worker."""

    def __init__(self) -> None:
        self.ends: list[socket.socket] = []
        self.board = Board.create(64)
        control, self.template = socketpair()
        ours, theirs = socketpair()
        boot = Boot(theirs, None, "", theirs, self.board, 0, control)
        self.node = Node(StillLoop(), boot, {"num_cpus": 2, "num_gpus": 0, "store_memory": 0.1}, print)
        self.links: list[LoopLink] = []
        node_module.LoopLink = self._made  # type: ignore[assignment,misc]  # a maker in the place of a class
        self.node.greet(theirs)
        node_module.LoopLink = LoopLink  # type: ignore[misc]  # the class again
        self.client = BlockingLink(ours)
        python = "{}.{}".format(*__import__("sys").version_info[:2])
        hello = pb.Hello(protocol=PROTOCOL, python=python, incarnation=INCARNATION)
        self.tell(Frame.HELLO, hello)
        kind = pb.Kind(id=1, function=b"\x80", name="f", resources={"CPU": 10_000}, num_returns=1)
        self.tell(Frame.KIND, kind)
        self.submit = pb.Submit(
            intervals=[pb.Interval(kind=1, attempt=1, stride=1, first=1, calls=[b"\x80" + bytes(18)])]
        )
        self.tell(Frame.SUBMIT, self.submit)
        self.hand = next(iter(self.node.workforce.hands.values()))
        self.claim = self.hand.claim._read_end
        self.worker, there = socketpair()
        there.setblocking(False)
        self.hand.link._sock, self.hand.link._fd = there, there.fileno()
        self.finished = pb.Finished(packet_done=True)
        self.done = self.finished.done.add(attempt=1, stride=1, values=[b"\x80\x05N."], seconds=1e-6)

    def _made(self, *arguments: Any) -> LoopLink:
        self.links.append(LoopLink(*arguments))
        return self.links[-1]

    def tell(self, frame_type: int, message: Any) -> float:
        """Send a frame as the client; return how long the node took."""
        self.client.send(frame_type, message.SerializeToString())
        started = time.perf_counter()
        self.links[0]._on_readable()
        return time.perf_counter() - started

    def finish(self) -> float:
        """Answer the packet as the worker; return how long the node took."""
        packet = pb.Submit.FromString(self.claim.recv(1 << 20))
        self.done.first, self.finished.packet = packet.intervals[0].first, packet.packet
        self.worker.sendall(encode_frame(Frame.FINISHED, self.finished.SerializeToString(), INCARNATION))
        started = time.perf_counter()
        self.hand.link._on_readable()
        took = time.perf_counter() - started
        self.client.receive(1)
        self.client.frames()
        return took

    def calls(self) -> tuple[float, float]:
        """Time so many calls: seconds each for the way there and for the way back."""
        there = back = 0.0
        for _ in range(CALLS):
            back += self.finish()
            self.submit.intervals[0].first += 1
            there += self.tell(Frame.SUBMIT, self.submit)
        return there / CALLS, back / CALLS


def main() -> None:
    """Print the table."""
    rig = Rig()
    there, back = min(rig.calls() for _ in range(ROUNDS))
    print(f"{'node: a submission becomes a packet':<58} {there * 1e6:10.2f} µs")
    print(f"{'node: a result goes to its owner, and the books':<58} {back * 1e6:10.2f} µs")


if __name__ == "__main__":
    main()

"""An object of 1 GB that one node brings in from another, and control frames of the same two loops meanwhile."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.parts.grpc_link import Probe, echo, lone, show
from outboard.aioloop import AioLoop
from outboard.ids import ObjectId
from outboard.nodestore import NodeStore
from outboard.rpc.codec import Frame
from outboard.rpc.grpc_credentials import TOKEN_VARIABLE, Security, make_token, read_token
from outboard.rpc.grpc_hello import make_hello
from outboard.rpc.grpc_links import LinksService, PeerLink, dial
from outboard.rpc.grpc_server import Server
from outboard.rpc.protos import outboard_pb2 as pb
from outboard.store.extent import extent_nbytes
from outboard.store.segments import SegmentWriter

OBJECT_NBYTES = 1_000_000_000
BUDGET_NBYTES = 3_000_000_000
SOURCE, TAKER, OWNER, WRITER = 1, 2, 3, 4
LONE = 2_000

#: Pulls beside which frames are timed: enough frames that their p99 means something.
PULLS = 5


class Node:
    """What a store needs of its node. The other one is dialled at `address`; without one it is asked over `link`."""

    def __init__(self, loop: AioLoop, incarnation: int, security: Security) -> None:
        self.loop = loop
        self.incarnation = incarnation
        self.security = security
        self.address = ""
        self.link: PeerLink | None = None
        self.peers: dict[int, Any] = {OWNER: None}  # where nobody is, the room of copies goes back to the system
        self.tree = None
        self.answered = asyncio.Event()
        self.on_rest: Callable[[PeerLink, list[Any]], None] = echo
        self.store = NodeStore(self, BUDGET_NBYTES)  # type: ignore[arg-type]  # it has what a store needs of a node
        self.store.replicas.start()
        self.peering = self

    def now(self) -> float:
        return self.loop.time()

    def is_struck(self, node: int) -> bool:
        """Nobody is, here."""
        return False

    def address_of(self, node: int) -> str:
        return self.address

    def send(self, to: int, frame_type: int, body: bytes, *_: Any) -> bool:
        if frame_type in (Frame.FETCH, Frame.PIECE):
            assert self.link is not None
            self.link.send(frame_type, body)
            self.link.flush()
        elif frame_type == Frame.PULLED:
            assert not pb.Pulled.FromString(body).cause, body
            self.answered.set()
        return True

    def flush_soon(self) -> None:
        self.loop.call_soon(lambda: self.store.execute(self.store.extents.take_commands()))

    def on_frames(self, link: PeerLink, frames: list[Any]) -> None:
        """Take parts of objects; echo the rest."""
        self.link = link
        rest = []
        for frame in frames:
            if frame[0] == Frame.FETCH:
                self.store.replicas.on_fetch(frame[1])
            elif frame[0] == Frame.PIECE:
                self.store.replicas.on_piece(frame[1])
            else:
                rest.append(frame)
        if rest:
            self.on_rest(link, rest)

    def make(self, seq: int) -> None:
        """Store an object."""
        nbytes = extent_nbytes(0, [OBJECT_NBYTES])
        made = self.store._make_segment(WRITER, nbytes, may_evict=False)
        assert made is not None
        segment, fd, _ = made
        data = bytes(OBJECT_NBYTES)
        SegmentWriter(segment, fd, nbytes).write(0, ObjectId(OWNER, seq), 0, b"", [data], fresh=True)
        self.store.extents.on_announced(OWNER, seq, 0, segment, 0, nbytes, WRITER)


async def serve(loop: AioLoop, ports: int, stop: int) -> None:
    """Be the node that has an object."""
    node = Node(loop, SOURCE, Security(read_token()))
    node.make(1)

    def greet(link: PeerLink) -> None:
        link.on_frames = node.on_frames

    links = LinksService(make_hello(SOURCE), greet)
    server = Server(node.security, [links.handler, node.store.replicas.service(node.security, "127.0.0.1").handler])
    os.write(ports, str(await server.start("127.0.0.1:0")).encode())
    stopped = loop.asyncio.create_future()
    loop.add_reader(stop, stopped.set_result, None)
    await stopped
    loop.remove_reader(stop)
    await server.stop(0)


async def measure(loop: AioLoop, address: str, security: Security) -> None:
    """Be the node that brings it in."""
    node = Node(loop, TAKER, security)
    probe = Probe()
    node.on_rest = probe.on_frames
    node.link = link = await dial(address, security, make_hello(TAKER), node.on_frames, lambda *_: None)
    rounds = iter(range(LONE))
    show("one frame there and back", await lone(probe, link, lambda: next(rounds, None) is None))
    for over, known in (("gRPC", address), ("frames", "")):
        node.address = known
        await pull(node, f"over {over}, into new pages")
        await pull(node, f"over {over}, into used pages")
        moving = asyncio.create_task(pull(node, f"over {over}, with frames beside it", PULLS))
        show("one frame there and back beside it", await lone(probe, link, moving.done))
        await moving
        node.store._shrink()
    await node.store.replicas.close()
    await link.finish()


async def pull(node: Node, label: str, times: int = 1) -> None:
    """Bring the object in and let it go, so many times."""
    nbytes = extent_nbytes(0, [OBJECT_NBYTES])
    started, used = time.perf_counter(), time.process_time()
    for _ in range(times):
        node.answered.clear()
        node.store.replicas.want(pb.Descriptor(owner=OWNER, seq=1, nbytes=nbytes, node=SOURCE), TAKER, OWNER)
        await node.answered.wait()
        node.store.extents.unpin(ObjectId(OWNER, 1), 0, TAKER, pulled=True)
        node.store.extents.evict()
        node.store.execute(node.store.extents.take_commands())
    took, used = (time.perf_counter() - started) / times, (time.process_time() - used) / times
    print(f"{label:<48} {OBJECT_NBYTES / took / 1e9:10.2f} GB/s, {used:.2f} CPU seconds a GB here")


def main() -> None:
    """Print the table; the other node is a process of its own, started anew since gRPC does not survive a fork."""
    loop = AioLoop()
    if len(sys.argv) == 3:
        loop.run(serve(loop, int(sys.argv[1]), int(sys.argv[2])))
        return
    token = make_token()
    ports, ports_end = os.pipe()
    stop_end, stop = os.pipe()
    command = [sys.executable, "-m", "benchmarks.parts.replicas", str(ports_end), str(stop_end)]
    environ = {**os.environ, TOKEN_VARIABLE: token.reveal()}
    with subprocess.Popen(
        command, pass_fds=(ports_end, stop_end), cwd=Path(__file__).resolve().parents[2], env=environ
    ):
        os.close(ports_end)
        port = int(os.read(ports, 16))
        print("load of this machine:", " ".join(f"{load:.1f}" for load in os.getloadavg()))
        loop.run(measure(loop, f"127.0.0.1:{port}", Security(token)))
        os.close(stop)


if __name__ == "__main__":
    main()

"""A link between nodes over gRPC: one frame there and back, many in a row, pieces of an object, and both at once.

``--asyncio`` takes asyncio's own loop on both ends, as where uvloop is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from outboard.aioloop import AioLoop
from outboard.ids import ObjectId
from outboard.rpc.codec import Frame
from outboard.rpc.grpc_credentials import TOKEN_VARIABLE, Security, make_token, read_token
from outboard.rpc.grpc_hello import make_hello
from outboard.rpc.grpc_links import LinksService, PeerLink, dial
from outboard.rpc.grpc_objects import ObjectsService, Pull, Source
from outboard.rpc.grpc_server import Server

BODY = bytes(100)
LONE = 2_000
MANY = 20_000
ROUND = 1_000
OBJECT_NBYTES = 256 << 20
OBJECT = ObjectId(1, 1)


class Probe:
    """Counts what comes back."""

    def __init__(self) -> None:
        self.left = 0
        self.arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_frames(self, _: PeerLink, frames: list[object]) -> None:
        self.left -= len(frames)
        if self.left <= 0 and not self.arrived.done():
            self.arrived.set_result(None)

    async def call(self, link: PeerLink, count: int, frame_type: int = Frame.SUBMIT) -> None:
        self.left, self.arrived = count, asyncio.get_running_loop().create_future()
        for _ in range(count):
            link.send(frame_type, BODY)
        link.flush()
        await self.arrived


def echo(link: PeerLink, frames: list[tuple[int, bytes, int, tuple[int, ...]]]) -> None:
    for frame_type, body, destination, _ in frames:
        link.send(frame_type, body, destination)
    link.flush()


async def serve(ports: int, stop: int) -> None:
    data = memoryview(bytearray(OBJECT_NBYTES))

    @contextlib.contextmanager
    def open_object(_: ObjectId, __: int) -> Iterator[memoryview]:
        yield data

    def greet(link: PeerLink) -> None:
        link.on_frames = echo

    links = LinksService(make_hello(1), greet)
    server = Server(Security(read_token()), [links.handler, ObjectsService(open_object).handler])
    os.write(ports, str(await server.start("127.0.0.1:0")).encode())
    loop = asyncio.get_running_loop()
    stopped = loop.create_future()
    loop.add_reader(stop, stopped.set_result, None)
    await stopped
    loop.remove_reader(stop)
    await server.stop(0)


async def lone(probe: Probe, link: PeerLink, is_over: Callable[[], bool]) -> list[float]:
    """Time single control frames there and back until it is over."""
    times = []
    while not is_over():
        started = time.perf_counter()
        await probe.call(link, 1, Frame.STATUS)
        times.append(time.perf_counter() - started)
    return times


def show(label: str, times: list[float]) -> None:
    ordered = sorted(times)
    p99 = ordered[int(len(ordered) * 0.99)] * 1e6
    print(f"{label:<48} median {statistics.median(times) * 1e6:8.0f} µs  p99 {p99:8.0f} µs  ({len(times)} frames)")


async def measure(address: str, security: Security) -> None:
    probe = Probe()
    link = await dial(address, security, make_hello(2), probe.on_frames, lambda *_: None)
    rounds = iter(range(LONE))
    show("one frame there and back", await lone(probe, link, lambda: next(rounds, None) is None))
    started = time.perf_counter()
    for _ in range(MANY // ROUND):
        await probe.call(link, ROUND)
    print(f"{f'{ROUND} at a time, there and back':<48} {MANY / (time.perf_counter() - started):10,.0f} frames/s")
    source = Source(address, security)
    into = memoryview(bytearray(OBJECT_NBYTES))
    for label in ("pulled, into fresh memory", "pulled, into memory that was used"):
        await pull(source, into, label)
    moving = asyncio.create_task(pull(source, into, "pulled, with frames beside it"))
    show("one frame there and back beside it", await lone(probe, link, moving.done))
    await moving
    await source.close()
    await link.finish()


async def pull(source: Source, into: memoryview, label: str) -> None:
    started = time.perf_counter()
    await source.fetch(Pull(OBJECT, 0, into))
    print(f"{label:<48} {OBJECT_NBYTES / (time.perf_counter() - started) / 1e9:10.2f} GB/s")


def main() -> None:
    """Print the table; the other end is a process of its own, started anew since gRPC does not survive a fork."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parts.grpc_link", description=__doc__.splitlines()[0])
    parser.add_argument("--asyncio", action="store_true", help="on asyncio's own loop")
    parser.add_argument("--serve", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.asyncio:
        sys.modules["uvloop"] = None  # type: ignore[assignment]  # what an import takes for "there is none"
    if options.serve:
        AioLoop().run(serve(*options.serve))
        return
    import subprocess

    token = make_token()
    ports, ports_end = os.pipe()
    stop_end, stop = os.pipe()
    command = [sys.executable, "-m", "benchmarks.parts.grpc_link", "--serve", str(ports_end), str(stop_end)]
    command += ["--asyncio"] if options.asyncio else []
    root = Path(__file__).resolve().parents[2]
    environ = {**os.environ, TOKEN_VARIABLE: token.reveal()}
    with subprocess.Popen(command, pass_fds=(ports_end, stop_end), cwd=root, env=environ):
        os.close(ports_end)
        port = int(os.read(ports, 16))
        print("load of this machine:", " ".join(f"{load:.1f}" for load in os.getloadavg()))
        loop = AioLoop()
        loop.run(measure(f"127.0.0.1:{port}", Security(token)))
        os.close(stop)


if __name__ == "__main__":
    main()

"""One loop for all tests that speak gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def aio() -> Iterator[Any]:
    """Give a loop on which gRPC has started: its thread and descriptors stay for the whole run, as in a node."""
    from outboard.aioloop import AioLoop
    from outboard.rpc.grpc_library import grpc
    from tests.unit.rpc.grpc_world import Inbox, World

    loop = AioLoop()
    world = World()

    async def warm_up() -> Any:
        async with world.serving():
            link = await world.dial(Inbox())
            await link.finish()
            # The first stream of a loop of uvloop opens a descriptor that the loop keeps.
            _, writer = await asyncio.open_connection(*world.address.split(":"))
            writer.close()
            await writer.wait_closed()
        return grpc.aio.insecure_channel("127.0.0.1:1")

    channel = loop.run(warm_up())
    yield loop
    loop.run(channel.close())
    loop.close()

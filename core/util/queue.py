"""A queue that tasks, actors and programs share: an actor with one of asyncio's."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterable
from typing import Any

from .. import actors, api

__all__ = ["Empty", "Full", "Queue"]


class Empty(queue.Empty):
    """Nothing was there, or came in time."""


class Full(queue.Full):
    """There was no room, or none came in time."""


class QueueActor:
    """The actor. A call that waits is a coroutine: cancelled, or its caller dead, it takes nothing with it."""

    def __init__(self, maxsize: int) -> None:
        self.items: asyncio.Queue[Any] = asyncio.Queue(maxsize)
        self.takers = 0

    async def put(self, item: list[Any], timeout: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await self.items.put(item[0])
        except TimeoutError:
            return False
        return True

    async def get(self, timeout: float | None) -> list[Any]:
        self.takers += 1
        try:
            async with asyncio.timeout(timeout):
                return [await self.items.get()]
        except TimeoutError:
            return []
        finally:
            self.takers -= 1

    async def waiting(self) -> int:
        """How many calls wait for an item."""
        return self.takers

    async def put_all_now(self, items: list[Any]) -> bool:
        """Put all or none."""
        if self.items.maxsize and self.items.qsize() + len(items) > self.items.maxsize:
            return False
        for item in items:
            self.items.put_nowait(item)
        return True

    async def get_all_now(self, count: int) -> list[Any] | None:
        """Get so many or none."""
        return [self.items.get_nowait() for _ in range(count)] if self.items.qsize() >= count else None

    async def qsize(self) -> int:
        return self.items.qsize()


class Queue:
    """First in, first out, for any number of producers and consumers on any nodes; may be passed to all of them.

    What was put is there when `put` returns. Waiting calls are served in their order. The queue and what is in it end
    with the last `Queue` object, or with `shutdown`; its process is an actor of class ``QueueActor``.

    Args:
        maxsize: items at most, 0 for any number.
        actor_options: options of its actor, as ``{"name": "jobs", "resources": {"disk": 1}}``.
    """

    def __init__(self, maxsize: int = 0, actor_options: dict[str, Any] | None = None) -> None:
        self.maxsize = maxsize
        remote = api.remote(QueueActor).options(**{"max_concurrency": 1_000_000} | (actor_options or {}))
        self.actor = remote.remote(maxsize)

    def __repr__(self) -> str:
        return f"<Queue maxsize={self.maxsize} {self.actor!r}>"

    def __len__(self) -> int:
        return self.qsize()

    def qsize(self) -> int:
        """How many items are there now."""
        return int(api.get(self.actor.qsize.remote()))

    size = qsize

    def empty(self) -> bool:
        """Whether nothing is there now."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether there is no room now."""
        return 0 < self.maxsize <= self.qsize()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put one item, waiting for room if need be.

        Raises:
            Full: there was none, or none came within `timeout` seconds. ValueError: a negative timeout.
        """
        if not api.get(self.actor.put.remote([item], _limit(block, timeout))):
            raise Full

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take one item, waiting for it if need be.

        Raises:
            Empty: there was none, or none came within `timeout` seconds. ValueError: a negative timeout.
        """
        found = api.get(self.actor.get.remote(_limit(block, timeout)))
        if not found:
            raise Empty
        return found[0]

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """As `put`, in an event loop."""
        if not await self.actor.put.remote([item], _limit(block, timeout)):
            raise Full

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """As `get`, in an event loop."""
        found = await self.actor.get.remote(_limit(block, timeout))
        if not found:
            raise Empty
        return found[0]

    def put_nowait(self, item: Any) -> None:
        """Put one item if there is room now, else raise `Full`."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """Take one item if there is one now, else raise `Empty`."""
        return self.get(block=False)

    def put_nowait_batch(self, items: Iterable[Any]) -> None:
        """Put all of several items if there is room for them now, else none, and raise `Full`."""
        if not api.get(self.actor.put_all_now.remote(list(items))):
            raise Full

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Take so many items if they are there now, else none, and raise `Empty`; ValueError for less than 0."""
        if num_items < 0:
            raise ValueError(f"num_items must be 0 or more, not {num_items}")
        found = api.get(self.actor.get_all_now.remote(num_items))
        if found is None:
            raise Empty
        return list(found)

    def shutdown(self, force: bool = False, grace_period_s: float = 5) -> None:
        """End the queue: what waits in it fails with `ActorDiedError`.

        Without `force` items that are left get `grace_period_s` seconds to be taken.
        """
        import time

        deadline = time.monotonic() + (0 if force else grace_period_s)
        while not force and not self.empty() and time.monotonic() < deadline:
            time.sleep(0.02)
        actors.kill(self.actor)


def _limit(block: bool, timeout: float | None) -> float | None:
    if not block:
        return 0
    if timeout is not None and timeout < 0:
        raise ValueError(f"timeout must be 0 or more, not {timeout!r}")
    return timeout

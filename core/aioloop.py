"""An event loop for processes that speak gRPC: asyncio's, with the face that the node knows from its own loop.

grpc.aio wants an asyncio loop; a node wants descriptors, timers and callbacks. Both live in one thread on this loop, so
that nothing between a link and a stream needs a lock. A local link is slower here than on `pollloop`, which is why only
processes that joined a cluster use it. uvloop is taken where it is installed: one frame over gRPC and back takes 140 µs
on it and 230 µs on asyncio's own loop (2 shared cores).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class AioLoop:
    """See `outboard.loops.Loop`. An exception of a callback is shown on stderr; the loop goes on.

    ``asyncio`` is the loop within; gRPC objects are made while it runs. All methods belong to its thread.
    """

    add_reader: Callable[..., object]
    remove_reader: Callable[[int], object]
    add_writer: Callable[..., object]
    remove_writer: Callable[[int], object]
    call_soon: Callable[..., object]
    call_later: Callable[..., object]

    def __init__(self) -> None:
        self.asyncio = loop = new_loop()
        loop.set_exception_handler(_show)
        self._tasks: set[asyncio.Task[Any]] = set()
        # Bound once: a wrapper would add its own cost to each readiness event.
        self.add_reader = loop.add_reader
        self.remove_reader = loop.remove_reader
        self.add_writer = loop.add_writer
        self.remove_writer = loop.remove_writer
        self.call_soon = loop.call_soon
        self.call_later = loop.call_later
        # uvloop's own clock stands still within a turn and counts milliseconds.
        self.time = time.monotonic

    def spawn(self, coroutine: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start a coroutine and keep it until it ends; an exception that nobody fetches is shown on stderr."""
        task = self.asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Serve until the coroutine has ended; return its result or raise its exception."""
        return self.asyncio.run_until_complete(coroutine)

    def run_forever(self) -> None:
        """Serve until `stop`."""
        self.asyncio.run_forever()

    def stop(self) -> None:
        """Return from `run_forever` after this turn."""
        self.asyncio.stop()

    def close(self) -> None:
        """End what `spawn` started, and the loop; descriptors stay their owners'. Not while it runs; once is enough."""
        if self.asyncio.is_closed():
            return
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            self.asyncio.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self.asyncio.run_until_complete(self.asyncio.shutdown_asyncgens())
        self.asyncio.close()


def new_loop() -> asyncio.AbstractEventLoop:
    """Make a loop of uvloop where it is installed, else of asyncio."""
    try:
        import uvloop
    except ImportError:
        return asyncio.SelectorEventLoop()
    return uvloop.new_event_loop()


def _show(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if error is None:
        print(f"outboard: {context.get('message')}", file=sys.stderr)
    else:
        sys.excepthook(type(error), error, error.__traceback__)

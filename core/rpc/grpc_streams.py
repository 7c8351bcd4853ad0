"""One stream of gRPC as two pumps: what is queued goes out as the stream takes it, what comes in is handed on.

The library's calls are coroutines and the loops of ring 3 are callbacks; this is where one becomes the other. The next
message is put together only when the stream has taken the last one, so a slow peer makes batches larger, and nothing
waits within the library but one message a stream and what flow control allows on the way (a few MiB at most).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from .grpc_errors import error_of
from .grpc_library import grpc

#: What a listener answers at once; a refused call has a status instead.
_ADMITTED = (("outboard", "admitted"),)

#: Tasks that run a dialler's streams; asyncio itself holds tasks weakly.
_tasks: set[asyncio.Task[None]] = set()


async def admit(context: Any) -> None:
    """Tell a dialler that its call was let in; before anything else."""
    await context.send_initial_metadata(_ADMITTED)


async def await_admission(call: Any, peer: str) -> None:
    """Wait until a call was let in; raise our error for its status when it was not.

    A dialler waits for it before it writes: the library forgets the status of a call that ends while one writes.
    """
    if _ADMITTED[0] not in [tuple(item) for item in await call.initial_metadata() or ()]:
        raise error_of(peer, await call.code(), await call.details())


class Duplex:
    """Both directions of one stream: a call of grpc.aio, or the context of a handler.

    ``take()`` returns the next message, empty when there is none; ``give(data)`` gets each message that came and raises
    to break the stream off; ``end(error)`` is called exactly once, with None when the peer finished or after `stop`.

    A peer that ends the stream while a dialler writes may be reported as an error, and its last words be lost: the
    library stops reading then. Sessions send again; without one, let the dialler finish.
    """

    __slots__ = (
        "_end",
        "_ended",
        "_finishing",
        "_give",
        "_peer",
        "_stopping",
        "_stream",
        "_take",
        "_task",
        "_wake",
        "_written",
    )

    def __init__(self, stream: Any, peer: str, take: Callable[[], bytes], give: Callable[[bytes], object]) -> None:
        self._stream = stream
        self._peer = peer
        self._take = take
        self._give = give
        self._end: Callable[[Exception | None], object] = _nothing
        self._wake: asyncio.Future[None] | None = None
        self._task: asyncio.Task[Any] | None = None
        loop = asyncio.get_running_loop()
        self._written: asyncio.Future[None] = loop.create_future()  # nothing more will be written
        self._ended: asyncio.Future[None] = loop.create_future()
        self._stopping = False
        self._finishing = False

    async def run(self, end: Callable[[Exception | None], object], first: bytes = b"") -> None:
        """Pump until the stream ends, in the calling task; ``first`` goes out before all else.

        Raises what ``give`` raised.
        """
        self._end = end
        self._task = asyncio.current_task()
        writer = asyncio.create_task(self._write_all(first))
        error: Exception | None = None
        try:
            while not self._stopping:
                data = await self._stream.read()
                if data is grpc.aio.EOF:
                    break
                self._give(data)
        except grpc.aio.AioRpcError as problem:
            error = error_of(self._peer, problem.code(), problem.details())
        except grpc.aio.BaseError:  # the server is being stopped
            pass
        except asyncio.CancelledError:
            if not self._stopping:  # the peer, or the end of the process
                raise
            if self._task is not None:
                self._task.uncancel()
        except Exception as problem:
            error = problem
            raise
        finally:
            writer.cancel()
            self._task = None
            settle(self._ended)
            self._end(error)

    def start(self, end: Callable[[Exception | None], object], after: Callable[[], Any]) -> None:
        """Pump in a task of its own, for a dialler; ``after()`` is awaited when the stream has ended."""
        task = asyncio.create_task(self._run_to_end(end, after))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    async def _run_to_end(self, end: Callable[[Exception | None], object], after: Callable[[], Any]) -> None:
        try:
            await self.run(end)
        except Exception:  # ``end`` has been told
            pass
        finally:
            self._stream.cancel()
            await after()

    async def _write_all(self, first: bytes) -> None:
        loop = asyncio.get_running_loop()
        take, write = self._take, self._stream.write
        try:
            if first:
                await write(first)
            while True:
                data = take()
                if data:
                    await write(data)
                elif self._finishing:
                    return
                else:
                    self._wake = loop.create_future()
                    await self._wake
        except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            pass  # the stream is over: the reader says why
        finally:
            settle(self._written)

    def wake(self) -> None:
        """Send what there is to take."""
        if self._wake is not None:
            settle(self._wake)

    def stop(self) -> None:
        """End the stream now, or before it has begun; a second call does nothing."""
        if self._stopping:
            return
        self._stopping = True
        task = self._task
        # Called from ``give``, the task would be cancelled at some later step of the library.
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def finish(self, timeout: float) -> None:
        """Send what there is to take, let the peer read it, then end the stream; at the latest after ``timeout``."""
        deadline = time.monotonic() + timeout
        self._finishing = True
        self.wake()
        await asyncio.wait({self._written}, timeout=timeout)
        if self._written.done() and not self._ended.done() and hasattr(self._stream, "done_writing"):
            try:
                await self._stream.done_writing()
            except (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
                pass
            await asyncio.wait({self._ended}, timeout=max(0.0, deadline - time.monotonic()))
        self.stop()


def settle(future: asyncio.Future[None]) -> None:
    """Let those who wait for it go on; a second call does nothing."""
    if not future.done():
        future.set_result(None)


def _nothing(_: Exception | None) -> None:
    """Stand for an end that nobody waits for yet."""

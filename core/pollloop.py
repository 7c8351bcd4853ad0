"""The node's event loop: epoll (or what the system has), callbacks, timers. Nothing else, and so it is quick.

It echoes a message about as quickly as uvloop, and a node that imports neither that nor asyncio starts some 25 ms
earlier and is 8 MB smaller (`python -m benchmarks.parts.loop`).
"""

from __future__ import annotations

import heapq
import itertools
import select
import selectors
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

_Call = tuple[Callable[..., object], tuple[Any, ...]]

_IN, _OUT = (select.EPOLLIN, select.EPOLLOUT) if hasattr(select, "epoll") else (1, 4)


class PollLoop:
    """See `outboard.loops.Loop`. An exception of a callback is shown on stderr; the loop goes on."""

    def __init__(self) -> None:
        self._poller = select.epoll() if hasattr(select, "epoll") else _SelectorPoller()
        self._readers: dict[int, _Call] = {}
        self._writers: dict[int, _Call] = {}
        self._soon: deque[_Call] = deque()
        self._timers: list[tuple[float, int, _Call]] = []
        self._count = itertools.count()
        self._stopping = False
        self.time = time.monotonic

    def add_reader(self, fd: int, callback: Callable[..., object], /, *args: Any) -> None:
        """See `Loop.add_reader`."""
        self._readers[fd] = (callback, args)
        self._watch(fd)

    def remove_reader(self, fd: int, /) -> None:
        """See `Loop.remove_reader`."""
        if self._readers.pop(fd, None) is not None:
            self._watch(fd)

    def add_writer(self, fd: int, callback: Callable[..., object], /, *args: Any) -> None:
        """See `Loop.add_writer`."""
        self._writers[fd] = (callback, args)
        self._watch(fd)

    def remove_writer(self, fd: int, /) -> None:
        """See `Loop.remove_writer`."""
        if self._writers.pop(fd, None) is not None:
            self._watch(fd)

    def _watch(self, fd: int) -> None:
        events = (_IN if fd in self._readers else 0) | (_OUT if fd in self._writers else 0)
        if not events:
            self._poller.unregister(fd)
            return
        try:
            self._poller.modify(fd, events)
        except FileNotFoundError:
            self._poller.register(fd, events)

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> None:
        """See `Loop.call_soon`."""
        self._soon.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> None:
        """See `Loop.call_later`."""
        heapq.heappush(self._timers, (self.time() + delay, next(self._count), (callback, args)))

    def stop(self) -> None:
        """Return from `run_forever` after this turn."""
        self._stopping = True

    def run_forever(self) -> None:
        """Serve until `stop`."""
        self._stopping = False
        while not self._stopping:
            try:
                self._turn()
            except Exception:
                sys.excepthook(*sys.exc_info())

    def _turn(self) -> None:
        readers, writers = self._readers, self._writers
        for fd, event in self._poller.poll(self._patience()):
            # What an earlier callback of this turn closed is no longer here. All but "takes bytes" concerns the reader.
            call = readers.get(fd) if event & ~_OUT else None
            if call is not None:
                call[0](*call[1])
            call = writers.get(fd) if event & ~_IN else None
            if call is not None:
                call[0](*call[1])
        if self._timers:
            self._run_due()
        for _ in range(len(self._soon)):
            callback, args = self._soon.popleft()
            callback(*args)

    def _patience(self) -> float:
        if self._soon:
            return 0
        if not self._timers:
            return -1
        return max(0.0, self._timers[0][0] - self.time())

    def _run_due(self) -> None:
        now = self.time()
        while self._timers and self._timers[0][0] <= now:
            callback, args = heapq.heappop(self._timers)[2]
            callback(*args)

    def close(self) -> None:
        """Close the poller; descriptors stay their owners'."""
        self._poller.close()


class _SelectorPoller:
    """The same calls as `select.epoll` on what the system has (kqueue on macOS)."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def register(self, fd: int, events: int) -> None:
        """Watch a descriptor."""
        self._selector.register(fd, self._translate(events))

    def modify(self, fd: int, events: int) -> None:
        """Watch a descriptor for other events; FileNotFoundError when it is not watched."""
        try:
            self._selector.modify(fd, self._translate(events))
        except KeyError:
            raise FileNotFoundError(fd) from None

    def unregister(self, fd: int) -> None:
        """Watch a descriptor no more."""
        self._selector.unregister(fd)

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        """Wait for events; a negative timeout is none."""
        ready = self._selector.select(None if timeout < 0 else timeout)
        return [
            (key.fd, (_IN if event & selectors.EVENT_READ else 0) | (_OUT if event & selectors.EVENT_WRITE else 0))
            for key, event in ready
        ]

    def close(self) -> None:
        """Close the selector."""
        self._selector.close()

    @staticmethod
    def _translate(events: int) -> int:
        return (selectors.EVENT_READ if events & _IN else 0) | (selectors.EVENT_WRITE if events & _OUT else 0)

"""The client's background thread: reads the link when nobody else does, and sends what nobody waits for.

A thread that waits for a result reads the link itself, which saves two thread switches a task. So this thread must not
fight it for the bytes. It is in one of three states:

- ARMED: nobody waits; it blocks in poll on the link and its wake-up pipe. An idle client rests here without any CPU.
- LULL: somebody waited a moment ago; it blocks on its wake-up pipe alone and looks again after `LULL_SECONDS`, so a
  tight loop of short waits costs nothing but a glance each time.
- PARKED: a long wait is going on; it blocks on its wake-up pipe until the waiter leaves.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from enum import Enum

#: Seconds after a short wait before the thread takes the link back. Shorter answers borrowers and callbacks sooner when
#: the program computes between waits; longer disturbs loops of short waits less.
LULL_SECONDS = 0.01


class State(Enum):
    """Where the thread rests; see the head of this file."""

    ARMED = "armed"
    LULL = "lull"
    PARKED = "parked"


class Background:
    """Owns the thread. `serve()` reads and handles what the link has; `flush()` sends what is due.

    `serve` returns False when the link has ended; the thread ends then. `is_reading()`: whether a waiter has the link.
    """

    def __init__(self, fileno: int, serve: Callable[[], bool], flush: Callable[[], None],
                 is_reading: Callable[[], bool]) -> None:  # fmt: skip
        self._fileno = fileno
        self._serve, self._flush, self._is_reading = serve, flush, is_reading
        self._thread: threading.Thread | None = None
        self._wake_r = self._wake_w = -1
        self._pipe = threading.RLock()
        self.state = State.PARKED
        self.visits = 0  # waits begun, counted by the waiters
        self._nudged = False
        self._stopping = False
        self._watched = -1
        self._on_ready: Callable[[], None] | None = None

    def watch(self, fileno: int, on_ready: Callable[[], None]) -> None:
        """Call `on_ready` whenever this descriptor is readable; before the thread is started."""
        self._watched, self._on_ready = fileno, on_ready

    def start(self) -> None:
        """Start the thread unless it runs."""
        if self._thread is None:
            self._wake_r, self._wake_w = os.pipe()
            os.set_blocking(self._wake_r, False)
            os.set_blocking(self._wake_w, False)
            self._stopping, self._nudged, self.state = False, False, State.ARMED
            self._thread = threading.Thread(target=self._run, name="outboard-background", daemon=True)
            self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the thread has been started and not stopped."""
        return self._thread is not None

    def stop(self) -> None:
        """End the thread and wait for it (never called by itself)."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stopping = True
            self._wake()
            if thread is not threading.current_thread():
                thread.join()
            self._close_pipe()

    def abandon(self) -> None:
        """Forget the thread in a forked child, where it does not exist."""
        if self._thread is not None:
            self._thread = None
            self._pipe = threading.RLock()  # the old one may be held by a thread that is not here
            self._close_pipe()

    def _close_pipe(self) -> None:
        """Close the wake-up pipe; whoever wakes us late must not write to what gets its number next."""
        with self._pipe:
            for fd in (self._wake_r, self._wake_w):
                os.close(fd)
            self._wake_r = self._wake_w = -1

    def nudge(self) -> None:
        """Ask for a flush, once until it happened."""
        if not self._nudged:
            self._nudged = True
            self._wake()

    def disarm(self) -> None:
        """A waiter takes the link."""
        self.visits += 1
        if self.state is State.ARMED:
            self._wake()

    def rearm(self) -> None:
        """A waiter left the link."""
        if self.state is State.PARKED:
            self._wake()

    def _wake(self) -> None:
        with self._pipe:
            if self._wake_w >= 0:
                try:
                    os.write(self._wake_w, b"!")
                except BlockingIOError:
                    pass  # full: it is awake already

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._wake_r, select.POLLIN)
        if self._watched >= 0:
            poller.register(self._watched, select.POLLIN)
        armed = False
        while not self._stopping:
            self.state = State.PARKED  # before looking, so that a waiter who leaves now sees it and wakes us
            if not self._is_reading():
                self.state = State.ARMED
            if self.state is State.ARMED and not armed:
                poller.register(self._fileno, select.POLLIN)
            elif self.state is State.PARKED and armed:
                poller.unregister(self._fileno)
            armed = self.state is State.ARMED
            if not self._step(poller.poll()):
                return

    def _step(self, events: list[tuple[int, int]]) -> bool:
        woken = any(fd == self._wake_r for fd, _ in events)
        if woken:
            try:
                os.read(self._wake_r, 4096)
            except BlockingIOError:
                pass
        if self._stopping:
            return True
        if self._nudged:
            self._nudged = False
            self._flush()
        if self._on_ready is not None and any(fd == self._watched for fd, _ in events):
            self._on_ready()
        if any(fd == self._fileno for fd, _ in events) and not self._is_reading() and not self._serve():
            return False
        if woken and self.visits:
            self._lull()
        return True

    def _lull(self) -> None:
        """Stay off the link while short waits follow each other."""
        self.state = State.LULL
        own = [self._wake_r] if self._watched < 0 else [self._wake_r, self._watched]
        while not self._stopping:
            visits = self.visits
            ready, _, _ = select.select(own, [], [], LULL_SECONDS)
            if ready or visits == self.visits:
                break
        self.visits = 0

"""The client's background thread: reads the link when nobody else does, and sends what nobody waits for.

A thread that waits for a result reads the link itself, which saves two thread switches a task. So this thread must not
fight it for the bytes. It also watches a worker's alarm, and one of its own, for what others gather while they are held
up. It is in one of three states:

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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .process.alarm import Alarm

#: Seconds after a short wait before the thread takes the link back. Shorter answers borrowers and callbacks sooner when
#: the program computes between waits; longer disturbs loops of short waits less.
LULL_SECONDS = 0.01


class State(Enum):
    """Where the thread rests; see the head of this file."""

    ARMED = "armed"
    LULL = "lull"
    PARKED = "parked"


class _Waker:
    """The wake-up pipe of one thread, and the word that it shall end; never used again for the next thread."""

    __slots__ = ("_lock", "_w", "fileno", "stopping")

    def __init__(self) -> None:
        self.fileno, self._w = os.pipe()
        os.set_blocking(self.fileno, False)
        os.set_blocking(self._w, False)
        self.stopping = False
        self._lock = threading.RLock()

    def wake(self) -> None:
        """Make the thread look."""
        with self._lock:
            if self._w >= 0:
                try:
                    os.write(self._w, b"!")
                except BlockingIOError:
                    pass  # full: it is awake already

    def drain(self) -> None:
        """Forget that the thread was woken; it is about to look."""
        try:
            os.read(self.fileno, 4096)
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Close the pipe; whoever wakes late must not write to what gets its number next."""
        with self._lock:
            if self._w >= 0:
                os.close(self.fileno)
                os.close(self._w)
                self.fileno = self._w = -1

    def abandon(self) -> None:
        """Close the pipe in a forked child, where the lock may be held by a thread that is not there."""
        self._lock = threading.RLock()
        self.close()


class Background:
    """Owns the thread. `serve()` reads and handles what the link has; `flush()` sends what is due.

    `serve` returns False when the link has ended; the thread ends then. `is_reading()`: whether a waiter has the link.
    `on_broken(error)`: one of these has raised, and the thread ends.
    """

    def __init__(self, fileno: int, serve: Callable[[], bool], flush: Callable[[], None],
                 is_reading: Callable[[], bool], on_broken: Callable[[Exception], None]) -> None:  # fmt: skip
        self._on_broken = on_broken
        self._fileno = fileno
        self._serve, self._flush, self._is_reading = serve, flush, is_reading
        self._thread: threading.Thread | None = None
        self._waker: _Waker | None = None  # of the thread
        self._changing = threading.RLock()  # guards the two
        self._has_ended = False
        self.state = State.PARKED
        self.visits = 0  # waits begun, counted by the waiters
        self._nudged = False
        self._watched: dict[int, Callable[[], None]] = {}
        self._alarm: Alarm | None = None

    def watch(self, fileno: int, on_ready: Callable[[], None]) -> None:
        """Call `on_ready` whenever this descriptor is readable."""
        self._watched[fileno] = on_ready
        self._wake()  # it watches what it knew when it began to rest

    def flush_within(self, seconds: float) -> None:
        """Ask for a flush in so many seconds (less than one); the last word counts. Takes about a microsecond."""
        (self._alarm or self._set_up_alarm()).set(seconds)

    def _set_up_alarm(self) -> Alarm:
        from .process.alarm import Alarm  # few programs need it: it loads ctypes

        with self._changing:
            alarm = self._alarm
            if alarm is None:
                alarm = self._alarm = Alarm()
                self.watch(alarm.fileno, self._on_alarm)
            self.start()
        return alarm

    def _on_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.clear()
            self._flush()

    def start(self) -> None:
        """Start the thread unless it runs, or was stopped for good."""
        with self._changing:
            if self._thread is None and not self._has_ended:
                self._nudged, self.state = False, State.ARMED
                self._waker = waker = _Waker()
                self._thread = threading.Thread(
                    target=self._run, args=(waker,), name="outboard-background", daemon=True
                )
                self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the thread has been started and not stopped."""
        return self._thread is not None

    @property
    def is_current(self) -> bool:
        """Whether it is the thread that asks."""
        return self._thread is threading.current_thread()

    def stop(self, *, for_good: bool = False) -> None:
        """End the thread and wait for it (never called by itself); `start` does nothing afterwards when `for_good`."""
        with self._changing:
            thread, waker = self._thread, self._waker
            self._thread = self._waker = None
            self._has_ended = self._has_ended or for_good
        if thread is not None and waker is not None:
            waker.stopping = True
            waker.wake()
            if thread is not threading.current_thread():
                thread.join()
            waker.close()
        if for_good:
            self._close_alarm()

    def _close_alarm(self) -> None:
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            del self._watched[alarm.fileno]
            alarm.close()

    def abandon(self) -> None:
        """Forget the thread in a forked child, where it does not exist."""
        self._changing = threading.RLock()  # the old one may be held by a thread that is not here
        self._thread, waker, self._waker = None, self._waker, None
        if waker is not None:
            waker.abandon()
        self._close_alarm()

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
        waker = self._waker
        if waker is not None:
            waker.wake()

    def _run(self, waker: _Waker) -> None:
        try:
            self._work(waker)
        except Exception as error:
            self._on_broken(error)
            raise  # to be shown as of any thread

    def _work(self, waker: _Waker) -> None:
        poller = select.poll()
        poller.register(waker.fileno, select.POLLIN)
        watched: set[int] = set()
        armed = False
        while not waker.stopping:
            for fileno in self._watched.keys() - watched:
                poller.register(fileno, select.POLLIN)
                watched.add(fileno)
            self.state = State.PARKED  # before looking, so that a waiter who leaves now sees it and wakes us
            if not self._is_reading():
                self.state = State.ARMED
            if self.state is State.ARMED and not armed:
                poller.register(self._fileno, select.POLLIN)
            elif self.state is State.PARKED and armed:
                poller.unregister(self._fileno)
            armed = self.state is State.ARMED
            if not self._step(waker, poller.poll()):
                return

    def _step(self, waker: _Waker, events: list[tuple[int, int]]) -> bool:
        woken = any(fd == waker.fileno for fd, _ in events)
        if woken:
            waker.drain()
        if waker.stopping:
            return True
        if self._nudged:
            self._nudged = False
            self._flush()
        self._serve_watched(events)
        if any(fd == self._fileno for fd, _ in events) and not self._is_reading() and not self._serve():
            return False
        if woken and self.visits:
            self._lull(waker)
        return True

    def _serve_watched(self, events: list[tuple[int, int]]) -> None:
        for fd, _ in events:
            if fd in self._watched:
                self._watched[fd]()

    def _lull(self, waker: _Waker) -> None:
        """Stay off the link while short waits follow each other."""
        self.state = State.LULL
        poller = select.poll()  # select() takes no descriptor above 1023
        poller.register(waker.fileno, select.POLLIN)
        for fileno in list(self._watched):
            poller.register(fileno, select.POLLIN)
        while not waker.stopping:
            visits = self.visits
            ready = poller.poll(LULL_SECONDS * 1000)
            self._serve_watched(ready)
            if any(fd == waker.fileno for fd, _ in ready) or visits == self.visits:
                break
        self.visits = 0

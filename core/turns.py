"""Who reads the link: one thread at a time, whoever waits for something; the others wait for its word."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .interrupts import shield
from .rpc.codec import Frame

if TYPE_CHECKING:
    from .client import Client

#: Seconds a task may wait for an object before it gives back its CPUs.
BLOCKED_AFTER = 0.001

#: Seconds after which a blocked task looks again; any length will do.
BLOCKED_LIMIT = 3600.0


class Idle:
    """A context in which a task leaves its CPUs to others; one that outlives its task has no meaning any more."""

    __slots__ = ("_turns",)

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def __enter__(self) -> None:
        self._turns.begin_idle(self)

    def __exit__(self, *exc: object) -> None:
        self._turns.end_idle(self)


class Turns:
    """The waits of a client. `told_blocked`: the node knows that the task in this worker waits."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._turn = threading.RLock()
        self.reading = False
        self._reader: int | None = None
        self._waiters: deque[Any] = deque()  # locks of threads that wait for word from the one that reads
        self.told_blocked = False
        self._idle: set[Idle] = set()  # while there are any, no wait of the task blocks or unblocks it

    def begin_idle(self, context: Idle) -> None:
        """Give back the CPUs of the task that calls, until the context ends; outside of tasks do nothing."""
        if not self._client.in_task():
            return
        with shield:
            self._idle.add(context)
            if not self.told_blocked:
                self.block()

    def end_idle(self, context: Idle) -> None:
        """Take the CPUs back, unless the context was of no effect or another one is left."""
        if context not in self._idle:
            return
        with shield:
            self._idle.discard(context)
            if threading.current_thread() is threading.main_thread():  # a generator may be collected in any
                self._unblock()

    def end_task(self) -> None:
        """End what a task has left: contexts that it kept, or that an exception of a signal handler tore away."""
        with shield:
            self._idle.clear()
            self._unblock()

    def wait(self, ready: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait until `ready()`; False when the deadline (monotonic seconds) passed first. Ctrl-C ends it at once."""
        with shield:
            if self.reading and self._reader == threading.get_ident() and shield.is_outermost:
                self._leave()  # a handler of the program raised before we could do so
            self._client.forget_torn()
            if not ready() and self._client.has_due():
                self._client.pump_and_send()
            while not ready():
                self._client.check_open()
                if not self._take(ready, deadline) and not ready():
                    self._client.check_open()
                    return False
            return True

    def _take(self, ready: Callable[[], bool], deadline: float | None) -> bool:
        """Read the link until ready, or until another thread that reads it has news. False: time is over."""
        me = threading.get_ident()
        nested = self.reading and self._reader == me
        if not nested:
            with self._turn:
                is_taken = self.reading
                if is_taken:
                    news = threading.Lock()
                    news.acquire()
                    self._waiters.append(news)
                else:
                    self.reading, self._reader = True, me
            if is_taken:
                return self._wait_for_reader(news, ready, deadline)
            self._client.background.disarm()
        try:
            return self._read_until(ready, deadline)
        finally:
            if not nested:
                self._leave()
                self._client.background.rearm()

    def _leave(self) -> None:
        with self._turn:
            self.reading, self._reader = False, None
        self.tell_waiters()

    def tell_waiters(self) -> None:
        """There is news, or nobody reads any more: whoever waits looks again."""
        waiters = self._waiters
        while waiters:
            try:
                waiters.popleft().release()
            except IndexError:
                break  # another thread told the last one

    def _wait_for_reader(self, news: Any, ready: Callable[[], bool], deadline: float | None) -> bool:
        if ready():
            return True
        timeout = -1.0 if deadline is None else deadline - time.monotonic()
        if deadline is not None and timeout <= 0:
            return False
        if self.told_blocked or not self._client.in_task() or 0 <= timeout <= BLOCKED_AFTER:
            shield.open(news.acquire, True, timeout)
        elif not shield.open(news.acquire, True, BLOCKED_AFTER):
            self.block()
            try:
                shield.open(news.acquire, True, timeout)
            finally:
                self._unblock()
        return True

    def _read_until(self, ready: Callable[[], bool], deadline: float | None) -> bool:
        blocks = self._client.in_task()
        receive = self._client.link.receive
        try:
            while not ready():
                timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
                if blocks and not self.told_blocked and (timeout is None or timeout > BLOCKED_AFTER):
                    got = receive(BLOCKED_AFTER)
                    if not got:
                        self.block()
                        continue
                else:
                    # With a limit it waits in poll, which a cancelling signal ends; recvmsg it would only restart.
                    got = shield.open(receive, BLOCKED_LIMIT if blocks and timeout is None else timeout)
                if not self._client.handle_input():
                    return False
                if not got and deadline is not None and time.monotonic() >= deadline:
                    return False
            return True
        except BaseException:
            self._client.on_interrupted()
            raise
        finally:
            if blocks:
                self._unblock()

    def block(self) -> None:
        """Give back the CPUs of the task that waits."""
        self.told_blocked = True
        self._client.pump_and_send()
        with self._client.lock:
            self._client.send(Frame.BLOCKED, b"")

    def _unblock(self) -> None:
        """Take the CPUs back before the task goes on."""
        if self._idle or not self.told_blocked or self._client.closed_mark is not None:
            return
        self._client.inbox.replies.pop(Frame.RESUME, None)
        with self._client.lock:
            self._client.send(Frame.UNBLOCK, b"")
        while Frame.RESUME not in self._client.inbox.replies and self._client.closed_mark is None:
            self._read_once()
        self.told_blocked = False

    def _read_once(self) -> None:
        """Read the link once, or wait until the thread that reads it has news."""
        me = threading.get_ident()
        with self._turn:
            is_mine = self.reading and self._reader == me
            is_free = not self.reading
            if is_free:
                self.reading, self._reader = True, me
            elif not is_mine:
                news = threading.Lock()
                news.acquire()
                self._waiters.append(news)
        if not (is_free or is_mine):
            if Frame.RESUME not in self._client.inbox.replies:  # it may have come before we stood in line
                news.acquire()
            return
        try:
            self._client.link.receive(None)
            self._client.handle_input()
        finally:
            if is_free:
                self._leave()

    def read_on(self) -> None:
        """Take in what has come, if this thread has the link already: who it waits for may wait for just that."""
        if self.reading and self._reader == threading.get_ident():
            self._client.link.receive(0)
            self._client.handle_input()

    def serve(self) -> bool:
        """Read and handle what is there; the background thread's turn. False: the link has ended."""
        with self._turn:
            if self.reading:
                return True
            self.reading, self._reader = True, threading.get_ident()
        try:
            self._client.link.receive(0)
            return self._client.handle_input()
        finally:
            self._leave()

    def poll(self) -> None:
        """Handle what has come without waiting for more, unless another thread is doing it."""
        with shield:
            self.serve()

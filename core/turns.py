"""Who reads the link: one thread at a time, whoever waits for something; the others wait for its word."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .interrupts import shield
from .lending import Lending, State
from .rpc.codec import Frame

if TYPE_CHECKING:
    from .client import Client

#: Seconds a task may wait for an object before it gives back its CPUs.
BLOCKED_AFTER = 0.001

#: Seconds after which a blocked task looks again; any length will do.
BLOCKED_LIMIT = 3600.0


class Idle:
    """A wait that the client does not see: the task lends its CPUs meanwhile. Without meaning when the task is over."""

    __slots__ = ("_thread", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._thread = 0  # that lends

    def __enter__(self) -> None:
        if self._turns.lends():
            self._thread = threading.get_ident()
            with shield:
                self._turns.lend(self)

    def __exit__(self, *exc: object) -> None:
        if self._thread:
            with shield:
                self._turns.ask_back(self)
                if threading.get_ident() == self._thread:  # a generator may be collected in any
                    self._turns.await_cpus()


class Aside:
    """A context of a thread whose waits are not the task's: it serves another thread of it."""

    __slots__ = ("_turns",)

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def __enter__(self) -> None:
        self._turns.aside.add(threading.get_ident())

    def __exit__(self, *exc: object) -> None:
        self._turns.aside.discard(threading.get_ident())


class Turns:
    """The waits of a client. `lending`: those for which the task in this worker has given back its CPUs.

    `aside`: threads whose waits are not the task's.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._turn = threading.RLock()
        self.reading = False
        self._reader: int | None = None
        self._waiters: deque[Any] = deque()  # locks of threads that wait for word from the one that reads
        self.lending = Lending()
        self.aside: set[int] = set()

    # -- the CPUs of the task -----------------------------------------------------------------------------------------

    def lends(self) -> bool:
        """Whether a wait of this thread gives back CPUs."""
        return self._client.in_task() and threading.get_ident() not in self.aside

    def lend(self, wait: object) -> None:
        """Give back the CPUs of the task that waits, until `ask_back` with the same wait."""
        client = self._client
        client.pump_and_send()
        with client.lock:
            is_due = self.lending.begin(wait)
            # Looked at after the task's end can see that we began, since it looks the other way round.
            if is_due and client.in_task():
                client.send(Frame.BLOCKED, b"")
            elif is_due:
                self.lending.undo(wait)

    def ask_back(self, wait: object) -> None:
        """End a wait of `lend`; the last one asks for the CPUs."""
        self._ask_if(lambda: self.lending.end(wait))

    def end_task(self) -> None:
        """End what a task has left: waits of its threads, or that an exception of a signal handler tore away."""
        with shield:
            self._ask_if(self.lending.end_all)
            self.await_cpus()

    def _ask_if(self, ends: Callable[[], bool]) -> None:
        with self._client.lock:
            if ends():
                self._client.send(Frame.UNBLOCK, b"")

    def on_resumed(self) -> None:
        """The task has its CPUs; under the lock."""
        if self.lending.on_resumed():
            self._client.send(Frame.BLOCKED, b"")

    def await_cpus(self) -> None:
        """Wait until CPUs that were asked for are there."""
        while self.is_asking() and self._client.closed_mark is None:
            self._read_once(self.is_asking)

    def is_asking(self) -> bool:
        """Whether CPUs were asked for that are not there yet."""
        return self.lending.state is State.ASKED

    # -- waiting ------------------------------------------------------------------------------------------------------

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
        if not self.lends() or 0 <= timeout <= BLOCKED_AFTER:
            shield.open(news.acquire, True, timeout)
        elif not shield.open(news.acquire, True, BLOCKED_AFTER):
            self.lend(news)
            try:
                shield.open(news.acquire, True, timeout)
            finally:
                self._take_back(news)
        return True

    def _read_until(self, ready: Callable[[], bool], deadline: float | None) -> bool:
        lends, wait = self.lends(), None
        receive = self._client.link.receive
        try:
            while not ready():
                timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
                if lends and wait is None and (timeout is None or timeout > BLOCKED_AFTER):
                    got = receive(BLOCKED_AFTER)
                    if not got:
                        wait = object()
                        self.lend(wait)
                        continue
                else:
                    # With a limit it waits in poll, which a cancelling signal ends; recvmsg it would only restart.
                    got = shield.open(receive, BLOCKED_LIMIT if lends and timeout is None else timeout)
                if not self._client.handle_input():
                    return False
                if not got and deadline is not None and time.monotonic() >= deadline:
                    return False
            return True
        except BaseException:
            self._client.on_interrupted()
            raise
        finally:
            if wait is not None:
                self._take_back(wait)

    def _take_back(self, wait: object) -> None:
        self.ask_back(wait)
        self.await_cpus()

    def _read_once(self, waits: Callable[[], bool]) -> None:
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
            if waits():  # what it waits for may have come before it stood in line
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

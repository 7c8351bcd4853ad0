"""The callback thread of an engine: callbacks run one after the other, where they cannot hold up the link."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue


class CallbackThread:
    """One thread that runs callbacks one after the other; started with the first."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def call(self, function: Callable[[], None]) -> None:
        """Queue a call; safe in finalisers (SimpleQueue is reentrant)."""
        self._queue.put(function)
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="outboard-callbacks", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        while (function := self._queue.get()) is not None:
            try:
                function()
            except SystemExit:
                sys.excepthook(*sys.exc_info())  # that of threads would say nothing, and the callbacks go on
            except BaseException:
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until everything queued so far has run (not from the thread itself); False after so many seconds."""
        if self._thread is None or threading.current_thread() is self._thread:
            return True
        done = threading.Event()
        self.call(done.set)
        return done.wait(timeout)

    def stop(self, timeout: float | None = None) -> None:
        """End the thread after what is queued; one that hangs in a callback is left after so many seconds."""
        thread = self._thread
        if thread is not None:
            self._queue.put(None)
            if threading.current_thread() is not thread:
                thread.join(timeout)
            self._thread = None

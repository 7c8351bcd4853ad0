"""A man in the middle: TCP connections that pass through a test, which lets bytes through or not."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import Any

#: Bytes that are passed on at once, and seconds between two looks at what may pass.
CHUNK = 65536
LOOK_SECONDS = 0.02


class Middleman:
    """Listens on a port of its own and passes what comes on to ``target``, and back.

    What may not pass waits, as it does in front of a broken cable, and goes on afterwards. ``there`` and ``back`` say
    what passes; they may be changed at any time.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.there = self.back = True
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LOOK_SECONDS)
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        """What to dial instead of the target."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Hang up everywhere."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _listen(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                near, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(near,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, near: socket.socket) -> None:
        with (
            near,
            contextlib.suppress(OSError),
            socket.create_connection(self._target) as far,
            selectors.DefaultSelector() as ready,
        ):
            ways = {near: (far, "there"), far: (near, "back")}
            while not self._ended.is_set():
                self._pass_on(ready, ways)

    def _pass_on(self, ready: selectors.DefaultSelector, ways: dict[socket.socket, Any]) -> None:
        for end, (_, way) in ways.items():
            is_watched = end in ready.get_map()
            if getattr(self, way) and not is_watched:
                ready.register(end, selectors.EVENT_READ)
            elif is_watched and not getattr(self, way):
                ready.unregister(end)
        if not ready.get_map():
            self._ended.wait(LOOK_SECONDS)
        for key, _ in ready.select(LOOK_SECONDS):
            assert isinstance(key.fileobj, socket.socket)
            data = key.fileobj.recv(CHUNK)
            if not data:
                raise ConnectionResetError
            ways[key.fileobj][0].sendall(data)

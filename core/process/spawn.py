"""The node's side of the template: start it, ask it for workers, hear how they ended."""

from __future__ import annotations

import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from .interpreter import command_line
from .lifetime import open_pidfd
from .template import EXITED, Entry, decode_report, encode_fork, encode_kill, encode_signal, main

if TYPE_CHECKING:
    from ..loops import Loop

#: What a forked worker runs, as ``module:function``, and what the template imports so that the worker has it.
WORKER_ENTRY = "outboard.worker:main"
WORKER_MODULES = ("cloudpickle", "outboard.worker")

#: Reports taken in one readiness event; then others get their turn.
_MAX_REPORTS = 64

_MAX_REPORT_NBYTES = 4096

#: Packets where the system has them between connected processes.
_PACKETS = socket.SOCK_DGRAM if sys.platform == "darwin" else socket.SOCK_SEQPACKET

#: Program of a template started by exec: takes the arguments of ``run_from_arguments``.
_PROGRAM = "from outboard.process.template import run_from_arguments as run; run(sys.argv[1:])"


def fork_template(
    entry: Entry | str,
    *,
    folder: str = "",
    board_fd: int = -1,
    modules: Sequence[str] = (),
    unwanted_fds: Sequence[int] = (),
) -> tuple[int, socket.socket]:
    """Fork the template from this process, which must have one thread; return its pid and the control socket.

    See ``template.main`` for the arguments. ``unwanted_fds`` are closed in the template.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, _PACKETS)
    node_pid = os.getpid()
    node_pidfd = open_pidfd(node_pid)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            for fd in unwanted_fds:
                os.close(fd)
            main(theirs, node_pid, node_pidfd, entry, folder=folder, board_fd=board_fd, modules=modules)
        finally:
            os._exit(1)
    theirs.close()
    if node_pidfd is not None:
        os.close(node_pidfd)
    return pid, ours


def exec_template(
    entry: str, *, folder: str = "", board_fd: int = -1, modules: Sequence[str] = ()
) -> tuple[int, socket.socket]:
    """Start a template in a new interpreter, from a process that may have threads; return as ``fork_template``."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, _PACKETS)
    node_pidfd = open_pidfd(os.getpid())
    passed = [theirs.detach(), -1 if node_pidfd is None else node_pidfd]
    passed.append(-1 if board_fd < 0 else os.dup(board_fd))
    try:
        for fd in passed:
            if fd >= 0:
                os.set_inheritable(fd, True)
        control, pidfd, board = map(str, passed)
        arguments = [control, str(os.getpid()), pidfd, board, folder, entry, *modules]
        return os.posix_spawn(sys.executable, command_line(_PROGRAM, *arguments), os.environ), ours
    except OSError:
        ours.close()
        raise
    finally:
        for fd in passed:
            if fd >= 0:
                os.close(fd)


class TemplateHandle:
    """Ask a template for workers, from the loop's thread. Owns ``sock``, its control socket.

    Callbacks: ``on_forked(worker, pid, error)`` with pid 0 and a text when the fork failed;
    ``on_exited(worker, pid, exitcode, signal, peak_nbytes)``, after the worker's process group is gone;
    ``on_lost()`` once, when the template itself has ended (its workers end with it). ``close`` calls none.
    """

    __slots__ = ("_fd", "_is_waiting", "_loop", "_on_exited", "_on_forked", "_on_lost", "_queue", "_sock", "closed")

    def __init__(
        self,
        sock: socket.socket,
        loop: Loop,
        on_forked: Callable[[int, int, str], None],
        on_exited: Callable[[int, int, int, int, int], None],
        on_lost: Callable[[], None],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._on_forked = on_forked
        self._on_exited = on_exited
        self._on_lost = on_lost
        self._queue: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._is_waiting = False  # for room: the loop calls _write
        self.closed = False
        loop.add_reader(self._fd, self._on_readable)

    def fork(self, worker: int, fds: Sequence[int], env: Mapping[str, str]) -> None:
        """Ask for a worker with descriptors link, claim, stdout and stderr; the caller may close its own.

        Raises ValueError for other descriptors or too long an environment. A request to a template that has ended is
        dropped: ``on_lost`` tells.
        """
        if len(fds) != 4:
            raise ValueError(f"a worker needs link, claim, stdout and stderr; {len(fds)} descriptors were given")
        self._send(encode_fork(worker, env), fds)

    def kill(self, worker: int, number: int) -> None:
        """Send a signal to the worker's process group; nothing happens when the worker has ended."""
        self._send(encode_kill(worker, number), ())

    def signal(self, worker: int, number: int) -> None:
        """Send a signal to the worker's process alone; nothing happens when the worker has ended."""
        self._send(encode_signal(worker, number), ())

    def close(self) -> None:
        """Close the control socket: the template kills its workers, removes its folder and ends."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._fd)
        self._stop_waiting()
        for _, fds in self._queue:
            for fd in fds:
                os.close(fd)
        self._queue.clear()
        self._sock.close()

    def _send(self, packet: bytes, fds: Sequence[int]) -> None:
        if not self.closed:
            self._queue.append((packet, tuple(map(os.dup, fds))))
            if not self._is_waiting:
                self._write()

    def _write(self) -> None:
        try:
            while self._queue:
                packet, fds = self._queue[0]
                socket.send_fds(self._sock, [packet], fds) if fds else self._sock.send(packet)
                self._queue.popleft()
                for fd in fds:
                    os.close(fd)
        except BlockingIOError:
            if not self._is_waiting:
                self._is_waiting = True
                self._loop.add_writer(self._fd, self._write)
        except OSError:
            self._loop.call_soon(self._lose)  # not from within the caller's turn
        else:
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._fd)

    def _on_readable(self) -> None:
        for _ in range(_MAX_REPORTS):
            if self.closed:
                return
            try:
                packet = self._sock.recv(_MAX_REPORT_NBYTES)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self._lose()
                return
            report = decode_report(packet)
            if report.what == EXITED:
                self._on_exited(report.worker, report.pid, report.exitcode, report.signal, report.peak_nbytes)
            else:
                self._on_forked(report.worker, report.pid, report.text)

    def _lose(self) -> None:
        if not self.closed:
            self.close()
            self._on_lost()

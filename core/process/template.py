"""The template: a process with one thread for life that forks workers, reaps them, and outlives nobody.

It imports what workers need, freezes that out of the garbage collector, and then sits in one ``poll`` on three
descriptors: its control socket (a packet a message), the node's pidfd, and the wakeup of SIGCHLD. When the node is gone
it kills every worker's session, removes the cluster's folder and ends; when the template itself is killed, the
parent-death signal ends its workers.

Packets from the node are ``_REQUEST`` and a payload: for FORK the environment as ``name=value`` ended by NULs, with the
descriptors link, claim, stdout and stderr; for KILL (the worker's group) and SIGNAL (its process alone) the signal
number. Packets to the node are ``_REPORT`` and, for FORK_FAILED, a text.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from .birth import apply_env, attach_streams, buffer_c_output_by_lines, flush_streams, restore_signals
from .lifetime import (
    become_subreaper,
    children,
    dead_child,
    die_with,
    kill_group,
    kill_session,
    load_prctl,
    reap,
    remove_folder,
)

#: Bytes of a request at most; environments of workers are small.
MAX_REQUEST = 64 * 1024

#: Milliseconds between two looks at the parent where there is no pidfd of the node.
_LOOK_AT_PARENT = 200

_REQUEST = struct.Struct("<BI")  # what, worker
_REPORT = struct.Struct("<BIIiiQ")  # what, worker, pid, exit code, signal, peak bytes
_FORK, _KILL, _SIGNAL = 1, 2, 3
FORKED, FORK_FAILED, EXITED = 1, 2, 3

#: Descriptors of a fork request: link, claim socket, stdout, stderr.
_FDS = 4


class WorkerSetup(NamedTuple):
    """What a worker finds when it begins; the sockets and descriptors are its own."""

    worker: int
    link: socket.socket
    claim: socket.socket
    board_fd: int  # -1: none


#: A worker's whole life; its return ends the process with exit code 0, an exception with a traceback and 1.
Entry = Callable[[WorkerSetup], None]


class Report(NamedTuple):
    """One packet from the template. ``text`` is the reason of FORK_FAILED."""

    what: int
    worker: int
    pid: int
    exitcode: int
    signal: int
    peak_nbytes: int
    text: str


def encode_fork(worker: int, env: Mapping[str, str]) -> bytes:
    """Encode the request to fork a worker; raises ValueError when the environment is too long."""
    packet = _REQUEST.pack(_FORK, worker) + b"".join(os.fsencode(f"{name}={value}\0") for name, value in env.items())
    if len(packet) > MAX_REQUEST:
        raise ValueError(f"environment of worker {worker} has {len(packet)} bytes; at most {MAX_REQUEST} are sent")
    return packet


def encode_kill(worker: int, number: int) -> bytes:
    """Encode the request to send a signal to a worker's process group."""
    return _REQUEST.pack(_KILL, worker) + bytes([number])


def encode_signal(worker: int, number: int) -> bytes:
    """Encode the request to send a signal to a worker's process alone."""
    return _REQUEST.pack(_SIGNAL, worker) + bytes([number])


def decode_report(packet: bytes) -> Report:
    """Decode a packet from the template."""
    what, worker, pid, exitcode, number, peak_nbytes = _REPORT.unpack_from(packet)
    text = packet[_REPORT.size :].decode("utf-8", "replace")
    return Report(what, worker, pid, exitcode, number, peak_nbytes, text)


def resolve_entry(entry: Entry | str) -> Entry:
    """Import ``module:function``; a callable is itself."""
    if callable(entry):
        return entry
    import importlib

    module, _, name = entry.partition(":")
    found: Entry = getattr(importlib.import_module(module), name)
    return found


def main(
    control: socket.socket,
    node_pid: int,
    node_pidfd: int | None,
    entry: Entry | str,
    *,
    folder: str = "",
    board_fd: int = -1,
    modules: Sequence[str] = (),
) -> NoReturn:
    """Be the template until the node ends or closes the control socket; never returns.

    Args:
        entry: what each worker runs, called in the child. A ``module:function`` is imported here.
        folder: removed at the end; empty for none.
        modules: imported before the first fork; one that fails to import is left to the workers.
    """
    code = 1
    try:
        template = _Template(control, node_pid, node_pidfd, entry, board_fd, modules)
        template.run()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        if folder:
            remove_folder(folder)
        os._exit(code)


class _Template:
    def __init__(
        self,
        control: socket.socket,
        node_pid: int,
        node_pidfd: int | None,
        entry: Entry | str,
        board_fd: int,
        modules: Sequence[str],
    ) -> None:
        control.setblocking(True)
        self._control = control
        self._node_pid = node_pid
        self._node_pidfd = node_pidfd
        self._board_fd = board_fd
        self._pid = os.getpid()
        self._workers: dict[int, int] = {}  # pid -> worker number, of every worker that is not reaped
        gc.disable()  # collecting costs more here, on the way to the first task, than there is garbage
        self._wakeup, self._wakeup_send = _watch_children()
        self._own_env = _import_quietly(modules)
        self._entry = resolve_entry(entry)
        load_prctl()
        buffer_c_output_by_lines()
        become_subreaper()
        gc.freeze()

    def run(self) -> None:
        """Serve until the node is gone; then end everything that descends from here."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        if self._node_pidfd is not None:
            poll.register(self._node_pidfd, select.POLLIN)
        timeout = None if self._node_pidfd is not None else _LOOK_AT_PARENT
        try:
            while True:
                ready = {fd for fd, _ in poll.poll(timeout)}
                if self._node_pidfd in ready or (timeout and os.getppid() != self._node_pid):
                    return
                if self._wakeup.fileno() in ready:
                    self._wakeup.recv(4096)
                    self._reap()
                if self._control.fileno() in ready and not self._serve():
                    return
        except (BrokenPipeError, ConnectionResetError):
            return  # the node is gone in the middle of a packet
        finally:
            self._end_all()

    def _serve(self) -> bool:
        """Take one request; False at the end of the control socket."""
        packet, fds, _, _ = socket.recv_fds(self._control, MAX_REQUEST, _FDS, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        if not packet:
            return False
        what, worker = _REQUEST.unpack_from(packet)
        payload = packet[_REQUEST.size :]
        if what == _FORK:
            self._fork(worker, fds, payload)
        else:
            # By number of the worker: only who reaps a process knows that its id still means it.
            for pid, number in self._workers.items():
                if number == worker and (what == _SIGNAL or not kill_group(pid, payload[0])):
                    os.kill(pid, payload[0])  # a group it may not have come to lead yet
        return True

    def _fork(self, worker: int, fds: list[int], env: bytes) -> None:
        try:
            if len(fds) < _FDS:
                raise OSError(f"{len(fds)} of {_FDS} descriptors arrived; the limit of open files may be reached")
            pid = os.fork()
            if pid == 0:
                self._be_worker(worker, fds, env)
        except OSError as error:
            self._control.send(_REPORT.pack(FORK_FAILED, worker, 0, 0, 0, 0) + str(error).encode())
        else:
            self._workers[pid] = worker
            self._control.send(_REPORT.pack(FORKED, worker, pid, 0, 0, 0))
        finally:
            for fd in fds:
                os.close(fd)

    def _be_worker(self, worker: int, fds: list[int], env: bytes) -> NoReturn:
        code = 1
        try:
            die_with(self._pid)
            os.setsid()
            restore_signals()
            for end in (self._control, self._wakeup, self._wakeup_send):
                end.close()
            if self._node_pidfd is not None:
                os.close(self._node_pidfd)
            link, claim, stdout, stderr = fds
            attach_streams(stdout, stderr)
            apply_env(self._own_env, env)
            gc.enable()
            sockets = socket.socket(fileno=link), socket.socket(fileno=claim)
            self._entry(WorkerSetup(worker, *sockets, self._board_fd))
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            flush_streams(redirected=True)
            os._exit(code)

    def _reap(self) -> None:
        """Report workers that have ended, after whatever they left in their sessions has been killed."""
        while pid := dead_child():
            if pid in self._workers:
                kill_session(pid)
            found, status, peak_nbytes = reap(pid)
            if not found:
                return
            worker = self._workers.pop(found, None)
            if worker is not None:
                if pid < 0:
                    kill_session(found)
                self._control.send(_REPORT.pack(EXITED, worker, found, *_decode_status(status), peak_nbytes))

    def _end_all(self) -> None:
        for pid in self._workers:
            kill_group(pid)
        while True:
            # Again after each death: what it leaves behind is adopted here.
            for pid in children() or list(self._workers):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                self._workers.pop(os.wait()[0], None)
            except ChildProcessError:
                return


def _decode_status(status: int) -> tuple[int, int]:
    """Split a wait status into (exit code, signal); one of them is 0."""
    code = os.waitstatus_to_exitcode(status)
    return (code, 0) if code >= 0 else (0, -code)


def _watch_children() -> tuple[socket.socket, socket.socket]:
    """Make SIGCHLD write to a socket, and ignore what a terminal sends to the node's whole group."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # the wakeup needs a handler in Python
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return reader, writer


def _import_quietly(modules: Sequence[str]) -> dict[str, str | None]:
    """Import ``modules`` such that none starts threads; return the settings this replaced in the environment."""
    from .limits import thread_limit_env

    limits = thread_limit_env(1) | {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
    own = {name: os.environ.get(name) for name in limits}
    os.environ.update(limits)
    for module in modules:
        try:
            __import__(module)
        except Exception:  # the worker that needs it shows the error where it belongs
            continue
    return own


def run_from_arguments(arguments: Sequence[str]) -> NoReturn:
    """Be the template in a new interpreter: control fd, node's pid, its pidfd, board fd, folder, entry, modules."""
    control, node_pid, node_pidfd, board_fd, folder, entry, *modules = arguments
    for inherited in (control, node_pidfd, board_fd):
        if int(inherited) >= 0:
            os.set_inheritable(int(inherited), False)
    main(
        socket.socket(fileno=int(control)),
        int(node_pid),
        int(node_pidfd) if int(node_pidfd) >= 0 else None,
        entry,
        folder=folder,
        board_fd=int(board_fd),
        modules=modules,
    )


if __name__ == "__main__":
    run_from_arguments(sys.argv[1:])

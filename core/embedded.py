"""The embedded cluster: one child process, started with the first call and ended with this process."""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from . import __version__, errors
from .client import Client, new_incarnation, python_version
from .interrupts import shield
from .native import NativeEngine
from .options import Settings
from .process.lifetime import open_pidfd
from .rpc.codec import Frame
from .rpc.local import BlockingLink, connect, socketpair
from .rpc.protos import outboard_pb2 as pb

PROTOCOL = 1

#: Modules that the template may import ahead for its workers, when the client has imported them.
PRELOADABLE = ("numpy", "scipy", "pandas", "sklearn")

#: Seconds until a node that was told to end is killed.
END_TIMEOUT = 5.0

#: Program of the node: the client's import path, then the arguments of `boot.main`.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[4].split('\\n'); "
    "from outboard.boot import main; main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"
)

_engines: weakref.WeakSet[NativeEngine] = weakref.WeakSet()
_inherited_address: str | None = None


def start(settings: Settings) -> NativeEngine:
    """Start an embedded cluster, or connect to that of the process this one was forked from.

    Raises:
        NodeLostError: the node ended before it answered. GetTimeoutError: no answer within `start_timeout`.
        VersionMismatchError: the two ends do not fit.
    """
    shield.install()
    _register_hooks()
    if settings.address not in (None, "", "local"):
        raise errors.TransportError(
            f"address {settings.address!r}: joining a running cluster is not supported by this release; "
            "leave OUTBOARD_ADDRESS unset for an embedded one"
        )
    if _inherited_address is not None and settings.address != "local":
        engine = _join(_inherited_address, settings)
        if engine is not None:
            return engine
    with shield:
        ours, theirs = socketpair()
        process = _spawn(theirs, settings)
        theirs.close()
        try:
            client = _greet(BlockingLink(ours), settings.start_timeout)
        except BaseException:
            ours.close()
            _end(process)
            raise
        engine = NativeEngine(client, on_shutdown=functools.partial(_end, process))
        return _adopt(engine)


def _spawn(theirs: socket.socket, settings: Settings) -> subprocess.Popen[bytes]:
    pidfd = open_pidfd(os.getpid())
    described = json.dumps({
        "num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus, "resources": dict(settings.resources),
        "store_memory": settings.store_memory,
    })  # fmt: skip
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    fds = [theirs.fileno()] + ([] if pidfd is None else [pidfd])
    env = {k: v for k, v in os.environ.items() if k != "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"}
    arguments = [str(theirs.fileno()), str(-1 if pidfd is None else pidfd), described, "\n".join(sys.path)]
    try:
        return subprocess.Popen([sys.executable, *flags, "-c", _PROGRAM, *arguments], pass_fds=fds, env=env,
                                stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    finally:
        if pidfd is not None:
            os.close(pidfd)


def _greet(link: BlockingLink, timeout: float) -> Client:
    incarnation = new_incarnation()
    link.send(Frame.HELLO, _hello(incarnation).SerializeToString())
    deadline = time.monotonic() + timeout
    while True:
        if not link.receive(max(0.0, deadline - time.monotonic())):
            raise errors.GetTimeoutError(f"the embedded node did not answer within {timeout:g} s")
        for frame_type, body, _, _ in link.frames():
            if frame_type == Frame.REFUSAL:
                raise errors.VersionMismatchError(pb.Refusal.FromString(body).reason)
            if frame_type == Frame.WELCOME:
                return Client(link, incarnation, pb.Welcome.FromString(body))
        if link.closed:
            raise errors.NodeLostError("the embedded node ended before it answered; see its message on stderr")


def _hello(incarnation: int) -> pb.Hello:
    main = sys.modules.get("__main__")
    process = sys.modules.get("multiprocessing.process")
    authkey = process.current_process().authkey if process is not None else b""
    if not authkey:
        import multiprocessing.process

        authkey = multiprocessing.process.current_process().authkey
    preload = [name for name in PRELOADABLE if name in sys.modules]
    return pb.Hello(protocol=PROTOCOL, release=__version__, python=python_version(), pid=os.getpid(),
                    incarnation=incarnation, role=pb.Hello.CLIENT, sys_path=[p or os.getcwd() for p in sys.path],
                    cwd=os.getcwd(), main_path=getattr(main, "__file__", None) or "", authkey=bytes(authkey),
                    preload=preload)  # fmt: skip


def _join(address: str, settings: Settings) -> NativeEngine | None:
    """Connect to the node of the process we were forked from; None when it has gone."""
    global _inherited_address
    try:
        sock = connect(address)
    except OSError:
        _inherited_address = None
        return None
    return _adopt(NativeEngine(_greet(BlockingLink(sock), settings.start_timeout)))


def _adopt(engine: NativeEngine) -> NativeEngine:
    from .logs import Printer

    engine.client.on_lines = Printer().print
    _engines.add(engine)
    if engine.client.background is not None:
        engine.client.background.start()
    return engine


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the node's end, which follows that of its link; kill it when it does not come."""
    try:
        process.wait(END_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# -- the end of this process, and its forks --------------------------------------------------------------------------------


@functools.cache
def _register_hooks() -> None:
    atexit.register(_shut_down_all)
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
    os.register_at_fork(after_in_parent=_restart_soon())


def _shut_down_all() -> None:
    for engine in list(_engines):
        engine.shutdown()


def _live() -> list[NativeEngine]:
    return [e for e in list(_engines) if e.client.closed_mark is None and e.pid == os.getpid()]


_forking: list[NativeEngine] = []
_to_restart: list[NativeEngine] = []


def _before_fork() -> None:
    """Stop our threads (a fork with threads is a hazard, and Python 3.12 warns of it) and take our locks."""
    for engine in _live():
        if engine.client.background.running and threading.current_thread() is not engine.client.background._thread:
            engine.client.background.stop()
            _to_restart.append(engine)
        engine.client.before_fork()
        _forking.append(engine)


def _after_fork_in_parent() -> None:
    while _forking:
        _forking.pop().client.after_fork_in_parent()


def _after_fork_in_child() -> None:
    """The child has no threads and no connection of its own; what it inherited belongs to its parent."""
    global _inherited_address
    from . import engine as engines

    while _forking:
        engine = _forking.pop()
        _inherited_address = engine.client.welcome.address
        engine.client.after_fork_in_child()
    _to_restart.clear()
    _engines.clear()
    shield.__init__()  # type: ignore[misc]
    engines.clear()


def _restart() -> None:
    while _to_restart:
        engine = _to_restart.pop()
        if engine.client.closed_mark is None and engine.pid == os.getpid():
            engine.client.background.start()


def _restart_soon() -> Callable[[], Any]:
    """A hook that restarts our threads right after the fork, not within it.

    A thread started in the hook itself would make Python 3.12 and later warn of a fork with threads, and none at all
    would leave a child waiting for a parent that waits for the child. So the hook only asks the interpreter to call
    `_restart` at its next step in the main thread.
    """
    import ctypes

    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

    def pending(_: Any) -> int:
        _restart()
        return 0

    callback = prototype(pending)
    call = functools.partial(ctypes.pythonapi.Py_AddPendingCall, callback, None)
    _keep.append(callback)
    return call


_keep: list[Any] = []

"""What happens to engines when this process forks, and when it ends.

A forked child has no threads and no connection of its own, and what it inherited belongs to its parent. So before the
fork our threads stop and our locks are taken; in the child descriptors are closed and nothing else is touched; its
first call makes a connection of its own to the same node.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import engine as engines
from .interrupts import shield

if TYPE_CHECKING:
    from .native import NativeEngine

_engines: weakref.WeakSet[NativeEngine] = weakref.WeakSet()
_inherited: str | None = None
_forking: list[NativeEngine] = []
_to_restart: list[NativeEngine] = []
_keep: list[Any] = []


def watch(engine: NativeEngine) -> None:
    """Take care of an engine from now on."""
    _register_hooks()
    _engines.add(engine)


def inherited_address() -> str | None:
    """Path of the socket of the node that the parent of this forked process uses."""
    return _inherited


@functools.cache
def _register_hooks() -> None:
    atexit.register(_shut_down_all)
    engines.fork_hooks.append(engines.ForkHooks(_before_fork, _after_fork_in_parent, _after_fork_in_child))
    os.register_at_fork(after_in_parent=_restart_soon())


def _shut_down_all() -> None:
    for engine in list(_engines):
        engine.shutdown()


def _live() -> list[NativeEngine]:
    return [e for e in list(_engines) if e.client.closed_mark is None and e.pid == os.getpid()]


def _before_fork() -> None:
    """Stop our threads (a fork with threads is a hazard, and Python 3.12 warns of it) and take our locks."""
    for engine in _live():
        background = engine.client.background
        if background.running and not background.is_current:
            background.stop()
            _to_restart.append(engine)
        elif engine.client.owner.refs.owned:
            _to_restart.append(engine)  # somebody must answer the child when it asks for what it inherited
        engine.client.before_fork()
        _forking.append(engine)


def _after_fork_in_parent() -> None:
    while _forking:
        _forking.pop().client.after_fork_in_parent()
    if threading.get_ident() != threading.main_thread().ident:
        # Two threads are there in any case, so Python's warning is no reason to wait for the main one, which may rest
        # in a call that only our threads can end.
        _restart()


def _after_fork_in_child() -> None:
    """The child has no threads and no connection of its own; what it inherited belongs to its parent."""
    global _inherited
    while _forking:
        engine = _forking.pop()
        _inherited = engine.client.welcome.address
        engine.client.after_fork_in_child()
    _to_restart.clear()
    _engines.clear()
    shield.reset()


def _restart() -> None:
    while _to_restart:
        engine = _to_restart.pop()
        if engine.client.closed_mark is None and engine.pid == os.getpid():
            engine.client.background.start()


def _restart_soon() -> Callable[[], Any]:
    """A hook that restarts our threads right after the fork, not within it.

    A thread started in the hook itself would make Python 3.12 and later warn of a fork with threads, and none at all
    would leave a child waiting for a parent that waits for the child. So the hook only asks the interpreter to call
    `_restart` at its next step in the main thread. (Forks of other threads have restarted them by then.)
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

"""Who dies with whom: small guarded calls of the operating system that tie processes' lives together.

Linux has pidfds, parent-death signals and child subreapers. Elsewhere each function says so by its result, and the
template falls back to looking whether its parent is still the node.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator

#: Interrupts what a worker runs. User code and libraries use the lower real-time signals if any at all.
CANCEL_SIGNAL: int = signal.SIGRTMAX - 2 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

#: Longest pause between two looks at a process that has no pidfd, in seconds.
_LOOK_AGAIN = 0.02

_prctl: Callable[..., int] | None = None


def load_prctl() -> None:
    """Load what the other calls need, so that a forked child need not import it again."""
    global _prctl
    if _prctl is None and sys.platform == "linux":
        import ctypes

        _prctl = ctypes.CDLL(None, use_errno=True).prctl


def set_parent_death_signal(number: int) -> bool:
    """Have the kernel send signal ``number`` to this process when the *thread* that forked it ends.

    Right only where the parent keeps one thread for life. The parent may be gone already: check ``os.getppid`` after.
    Returns False where the system has no such signal.
    """
    return _call_prctl(_PR_SET_PDEATHSIG, int(number))


def become_subreaper() -> bool:
    """Adopt descendants whose own parent dies, instead of init; False where the system cannot."""
    return _call_prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _call_prctl(option: int, value: int) -> bool:
    load_prctl()
    return _prctl is not None and _prctl(option, value, 0, 0, 0) == 0


def die_with(parent_pid: int) -> None:
    """End this freshly forked process when its parent ends, also when the parent is gone by now.

    Call it first thing in a child of a single-threaded parent with id ``parent_pid``.
    """
    set_parent_death_signal(signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def open_pidfd(pid: int) -> int | None:
    """Open a descriptor that becomes readable when ``pid`` ends; None where the system has none.

    Raises ProcessLookupError when there is no such process.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:  # an old kernel, or a sandbox that forbids the call
        return None


def kill_group(pid: int, number: int = signal.SIGKILL) -> bool:
    """Send a signal to the process group that ``pid`` leads; False when the group is empty."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):  # macOS: EPERM when only zombies are left
        return False
    return True


def kill_session(pid: int) -> None:
    """Kill every process of the session that ``pid`` leads: its group, and groups made within it.

    Processes that opened a session of their own have left it and are not reached.
    """
    kill_group(pid, signal.SIGKILL)
    for other in _all_pids():
        try:
            if other != pid and os.getsid(other) == pid:
                os.kill(other, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _all_pids() -> Iterator[int]:
    if sys.platform == "linux":
        for name in os.listdir("/proc"):
            if name.isdigit():
                yield int(name)


def children() -> list[int]:
    """Children of this process, adopted ones included; [] where the system does not list them."""
    try:
        found = []
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", encoding="ascii") as listing:
                found += [int(pid) for pid in listing.read().split()]
        return found
    except OSError:
        return []


def dead_child() -> int:
    """Id of a child that has ended and is not reaped, so that its number cannot have been reused; 0 when there is none.

    -1, for any, where the system cannot look without reaping.
    """
    if not hasattr(os, "waitid"):
        return -1
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    return ended.si_pid if ended is not None else 0


def reap(pid: int) -> tuple[int, int, int]:
    """Reap a child that has ended (-1: any) without waiting; return pid (0: none), status, peak memory in bytes."""
    try:
        found, status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return 0, 0, 0
    return found, status, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def wait_child(pid: int, timeout: float) -> int | None:
    """Wait at most ``timeout`` seconds for a child's end and reap it; return its status, None when it still runs.

    Raises ChildProcessError when it is no child of this process.
    """
    deadline = time.monotonic() + timeout
    pidfd = open_pidfd(pid)
    try:
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            left = deadline - time.monotonic()
            if found or left <= 0:
                return status if found else None
            if pidfd is None:
                time.sleep(min(left, _LOOK_AGAIN))
            else:
                poll = select.poll()
                poll.register(pidfd, select.POLLIN)
                poll.poll(left * 1000)
    finally:
        if pidfd is not None:
            os.close(pidfd)


def remove_folder(path: str) -> None:
    """Remove a folder and what lies in it, without following links; what cannot be removed stays."""
    for folder, names, files in os.walk(path, topdown=False):
        for name in files:
            _quietly(os.unlink, os.path.join(folder, name))
        for name in names:
            inner = os.path.join(folder, name)
            _quietly(os.unlink if os.path.islink(inner) else os.rmdir, inner)
    _quietly(os.rmdir, path)


def _quietly(remove: Callable[[str], None], path: str) -> None:
    with contextlib.suppress(OSError):
        remove(path)

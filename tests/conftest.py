"""What holds for every test: an order, who runs beside it, a deadline, and nothing left behind."""

from __future__ import annotations

import compileall
import faulthandler
import fcntl
import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest

#: Folders of tests in the order in which they run: what fails first is what is closest to the cause.
ORDER = ("unit", "conformance", "integration", "faults", "backends", "simulation")

#: Beginnings of the names of files that come after all others: they load gRPC, whose threads and descriptors stay in
#: this process, where other tests fork and count.
LAST = ("test_aioloop", "test_grpc", "test_head", "test_cluster")

#: Seconds which processes, threads and descriptors of a test have to go once the test is over.
GRACE = 2.0

#: Seconds between repeats of an expired deadline; a test that ignores three of them ends the process that runs it.
REPEAT = 5.0

#: In the environment of every process that tests start, so that one that lost its parent is found too.
MARK = "TESTS_OF_PROCESS"

#: In the environment of the processes that share a run (pytest-xdist): the folder of that which started them.
RUN = "TESTS_OF_RUN"

SHARED_MEMORY = Path("/dev/shm")

#: What processes import that tests start.
SOURCES = [Path(__file__).parent, *(Path(__file__).parents[1] / name for name in ("core", "backends"))]


def pytest_configure(config: pytest.Config) -> None:
    """Give each process a temporary folder of its own: what lies there is ours, whoever else runs tests here.

    Names are short: there are sockets in it, and a socket's path has room for 107 bytes.
    """
    folder = tempfile.mkdtemp(prefix="ob-")
    config.option.basetemp = f"{folder}/t"
    os.environ["TMPDIR"] = os.environ["XDG_RUNTIME_DIR"] = folder
    tempfile.tempdir = None
    os.environ[MARK] = str(os.getpid())
    sys.path.insert(0, str(Path(__file__).parent / "in_workers"))  # for workers; this process has its pytest
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    if not hasattr(config, "workerinput"):
        os.environ[RUN] = folder
        if sys.dont_write_bytecode:
            # Tests start thousands of processes, and each would compile all that it imports: 0.3 s of CPU time.
            for sources in SOURCES:
                compileall.compile_dir(sources, quiet=2)
    config.stash[BESIDE] = beside = Beside(Path(os.environ[RUN]))
    config.add_cleanup(beside.close)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests in `ORDER`; those directly in tests/ come first, those of `LAST` at the end."""
    places = {name: place for place, name in enumerate(ORDER)}
    root = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        if item.path.name.startswith(LAST):
            return len(ORDER)
        return places.get(item.path.relative_to(root).parts[0], -1)

    items.sort(key=place)


# ---------------------------------------------------------------------------------------------------------------------
# Who runs beside a test, where several processes share a run: others of it, or nobody.


class Beside:
    """Keeps apart what must be alone, by locks on two files; a lock ends with its process and no child inherits it.

    A test holds `floor` while it runs: together with others, or for itself. It passes through `door`, where one that
    waits to be alone keeps out those that come after it.
    """

    def __init__(self, folder: Path) -> None:
        self._door, self._floor = ((folder / name).open("a+") for name in ("door", "floor"))

    def close(self) -> None:
        """Close the files."""
        self._door.close()
        self._floor.close()

    @contextmanager
    def entered(self, *, alone: bool) -> Iterator[None]:
        """Wait until a test may run; it ends with the block."""
        fcntl.lockf(self._door, fcntl.LOCK_EX)
        fcntl.lockf(self._floor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.lockf(self._door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.lockf(self._floor, fcntl.LOCK_UN)


BESIDE = pytest.StashKey[Beside]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let nothing run beside a test that is marked as `alone`. Waiting for that is before the deadline is armed."""
    with item.config.stash[BESIDE].entered(alone=item.get_closest_marker("alone") is not None):
        return (yield)


# ---------------------------------------------------------------------------------------------------------------------
# The deadline. pytest-timeout decides when; the timer is a signal, because a thread would be seen by code that forks.


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Arm the deadline of a test."""
    if threading.current_thread() is not threading.main_thread():
        return None
    strikes = 0

    def expire(_signum: int, _frame: FrameType | None) -> None:
        nonlocal strikes
        strikes += 1
        faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
        kill(psutil.Process().children(recursive=True))
        if strikes == 3:
            os._exit(70)
        pytest.fail(f"{item.nodeid} took longer than {settings.timeout:g} s")

    signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, REPEAT)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    """Disarm it."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return True


def kill(processes: list[psutil.Process]) -> None:
    """End processes for good and wait until they have gone."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass
    psutil.wait_procs(processes, timeout=GRACE)


# ---------------------------------------------------------------------------------------------------------------------
# Nothing left behind.


class Inventory:
    """What there is at one moment: processes, threads, descriptors, files."""

    def __init__(self, *, everything: bool) -> None:
        self.processes = set(psutil.Process().children(recursive=True))
        if everything:
            self.processes |= strays()
        self.threads = set(threading.enumerate())
        self.descriptors = open_descriptors()
        self.files = temporary_files()


def strays() -> set[psutil.Process]:
    """Find processes that this run started and that no longer descend from it."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == str(os.getpid()):
                found.add(process)
        except psutil.Error:
            continue
    return found


def open_descriptors() -> set[tuple[int, str]]:
    """List the open descriptors and what they stand for, but gRPC's: it makes its own anew around each fork."""
    found = set()
    has_grpc = "grpc" in sys.modules
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the one that lists the folder
        if not (has_grpc and target == "anon_inode:[eventfd]"):
            found.add((int(name), target))
    return found


def temporary_files() -> set[Path]:
    """List what Outboard keeps in the temporary folder and in shared memory."""
    found = set(Path(tempfile.gettempdir()).glob("outboard-*"))
    return found | (set(SHARED_MEMORY.glob("outboard-*")) if SHARED_MEMORY.is_dir() else set())


def has_engine() -> bool:
    """Say whether this process keeps an engine on purpose, as a fixture for several tests does."""
    engine = sys.modules.get("outboard.engine")
    return engine is not None and engine.peek() is not None


def is_running(process: psutil.Process) -> bool:
    """Say whether a process still runs; an unreaped child counts, for somebody should have waited for it."""
    try:
        return process.is_running()
    except psutil.Error:
        return False


def left_processes(before: Inventory, *, everything: bool) -> list[psutil.Process]:
    """List new processes; not those that a process from before the test started: it keeps them."""
    new = Inventory(everything=everything).processes - before.processes
    kept = set()
    for process in new:
        try:
            kept |= {process} if before.processes & set(process.parents()) else set()
        except psutil.NoSuchProcess:
            kept.add(process)
    return [process for process in new - kept if is_running(process)]


def left_over(before: Inventory, *, everything: bool) -> dict[str, list[Any]]:
    """Compare what there is now with what there was."""
    left: dict[str, list[Any]] = {"processes": left_processes(before, everything=everything)}
    if not has_engine():
        left["threads"] = [thread for thread in threading.enumerate() if thread not in before.threads]
        left["descriptors"] = sorted(open_descriptors() - before.descriptors)
        left["files"] = sorted(temporary_files() - before.files)
    return {what: things for what, things in left.items() if things}


def settle(before: Inventory, *, everything: bool) -> dict[str, list[Any]]:
    """Wait up to `GRACE` for what a test left to go by itself; return what stays."""
    deadline = time.monotonic() + GRACE
    left = left_over(before, everything=everything)
    if left:
        gc.collect()  # descriptors and threads that only a cycle still holds
        left = left_over(before, everything=everything)
    while left and (remaining := deadline - time.monotonic()) > 0:
        # Waits are short and on the things themselves; only descriptors and files leave nothing to wait on.
        if processes := left.get("processes"):
            psutil.wait_procs(processes, timeout=min(remaining, 0.1))
        elif threads := left.get("threads"):
            threads[0].join(min(remaining, 0.1))
        else:
            threading.Event().wait(min(remaining, 0.01))
        left = left_over(before, everything=everything)
    return left


@pytest.fixture(scope="session", autouse=True)
def light_workers() -> None:
    """Let no worker import numpy or a backend because another test of this process has: it takes 0.2 s of CPU time.

    Workers of programs that tests start do, and those of the backend's own tests.
    """
    from outboard import engine, greeting

    greeting.PRELOADABLE = ()
    engine.companions.clear()


@pytest.fixture(scope="session")
def folder_of_run() -> Path:
    """The folder of all processes that share the run, for what one of them makes and the others use."""
    return Path(os.environ[RUN])


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves a process, thread, descriptor, shared memory or temporary folder."""
    everything = "unit" not in request.path.parts  # looking at every process of the machine takes milliseconds
    before = Inventory(everything=everything)
    yield
    left = settle(before, everything=everything)
    kill(left.get("processes", []))
    if left:
        pytest.fail("left behind: " + "; ".join(f"{what}: {things}" for what, things in left.items()))

"""The template with real processes: forks, ends, strays, and what happens when somebody is killed."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outboard.process.lifetime import open_pidfd, wait_child
from outboard.process.spawn import TemplateHandle, exec_template, fork_template
from outboard.process.template import WorkerSetup, encode_fork
from outboard.rpc.local import claim_pair, socketpair

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


def follow(setup: WorkerSetup) -> None:
    """A worker that does what its link says."""
    while order := setup.link.recv(1000).decode():
        what, _, argument = order.partition(" ")
        if what == "say":
            print(argument)
            print(argument.upper(), file=sys.stderr)
            setup.link.send(b"said")
        elif what == "env":
            setup.link.send(os.environ.get(argument, "unset").encode())
        elif what == "ids":
            setup.link.send(f"{setup.worker} {os.getpid()} {os.getpgrp()} {os.getsid(0)} {os.getppid()}".encode())
        elif what == "claim":
            setup.link.send(setup.claim.recv(100))
        elif what == "signals":
            setup.link.send(repr([signal.getsignal(n) for n in (signal.SIGINT, signal.SIGCHLD)]).encode())
        elif what == "spawn":
            child = subprocess.Popen([sys.executable, "-c", "import os, signal\n" + argument + "\nsignal.pause()"])
            setup.link.send(str(child.pid).encode())
        elif what == "exit":
            os._exit(int(argument))
        elif what == "raise":
            raise RuntimeError(argument)
        elif what == "fds":
            setup.link.send(" ".join(os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)).encode())


class Node:
    """A node's use of one template."""

    def __init__(self, start: Callable[..., Any], entry: Any, folder: str = "") -> None:
        self.loop = asyncio.new_event_loop()
        self.pid, control = start(entry, folder=folder)
        self.forked: dict[int, tuple[int, str]] = {}
        self.exited: dict[int, tuple[int, int, int, int]] = {}
        self.lost = 0
        self.handle = TemplateHandle(control, self.loop, self.on_forked, self.on_exited, self.on_lost)
        self.fds: list[Any] = []

    def on_forked(self, worker: int, pid: int, error: str) -> None:
        self.forked[worker] = (pid, error)

    def on_exited(self, worker: int, *how: int) -> None:
        self.exited[worker] = how  # type: ignore[assignment]  # two numbers

    def on_lost(self) -> None:
        self.lost += 1

    def run_until(self, condition: Callable[[], object]) -> None:
        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(asyncio.wait_for(wait(), 20))

    def start_worker(self, worker: int = 1, **env: str) -> Worker:
        ours, theirs = socketpair()
        claim_send, claim_read = claim_pair()
        out, out_write = os.pipe()
        err, err_write = os.pipe()
        self.handle.fork(worker, [theirs.fileno(), claim_read.fileno(), out_write, err_write], env)
        theirs.close()
        claim_read.close()
        os.close(out_write)
        os.close(err_write)
        self.fds += [ours, claim_send, os.fdopen(out, "rb"), os.fdopen(err, "rb")]
        return Worker(self, worker, *self.fds[-4:])

    def close(self) -> None:
        if self.loop.is_closed():
            return
        self.handle.close()
        assert wait_child(self.pid, 10) is not None
        for fd in self.fds:
            fd.close()
        self.loop.close()


class Worker:
    def __init__(self, node: Node, number: int, link: Any, claim: Any, out: Any, err: Any) -> None:
        self.node, self.number, self.link, self.claim, self.out, self.err = node, number, link, claim, out, err
        link.settimeout(20)

    def ask(self, order: str) -> str:
        self.link.send(order.encode())
        return str(self.link.recv(1000).decode())

    def end(self) -> tuple[int, int, int, int]:
        self.node.run_until(lambda: self.number in self.node.exited)
        return self.node.exited[self.number]

    @property
    def pid(self) -> int:
        self.node.run_until(lambda: self.number in self.node.forked)
        return self.node.forked[self.number][0]


@pytest.fixture(params=["fork", "exec"])
def node(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    if request.param == "exec":
        monkeypatch.syspath_prepend(str(Path(__file__).parent))
        made = Node(exec_template, f"{Path(__file__).stem}:follow")
    else:
        made = Node(fork_template, follow)
    yield made
    made.close()


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    made = Node(fork_template, follow)
    yield made
    made.close()


def wait_gone(pid: int) -> None:
    try:
        pidfd = open_pidfd(pid)
    except ProcessLookupError:
        return
    assert pidfd is not None
    ready, _, _ = select.select([pidfd], [], [], 10)
    os.close(pidfd)
    assert ready, f"process {pid} still runs"


def test_worker_has_its_sockets_streams_and_a_session_of_its_own(node: Node) -> None:
    worker = node.start_worker(5, GREETING="hello")
    assert worker.ask("env GREETING") == "hello"
    assert worker.ask("ids") == f"5 {worker.pid} {worker.pid} {worker.pid} {node.pid}"
    assert worker.ask("say words") == "said"
    assert (worker.out.readline(), worker.err.readline()) == (b"words\n", b"WORDS\n")
    worker.claim.send(b"packet")
    assert worker.ask("claim now") == "packet"
    nothing, out, err = worker.ask("fds now").split()
    assert nothing == "/dev/null" and out.startswith("pipe:") and err.startswith("pipe:") and out != err
    worker.link.close()
    pid, exitcode, number, peak = worker.end()
    assert (pid, exitcode, number) == (worker.pid, 0, 0)
    assert peak > 1 << 20


def test_limits_for_the_templates_imports_are_undone(forked: Node) -> None:
    worker = forked.start_worker()
    assert worker.ask("env OMP_NUM_THREADS") == os.environ.get("OMP_NUM_THREADS", "unset")
    assert worker.ask("signals") == repr([signal.default_int_handler, signal.SIG_DFL])


@pytest.mark.parametrize(("order", "expected"), [("exit 3", (3, 0)), ("raise oops", (1, 0))])
def test_own_end_of_a_worker_is_told(forked: Node, order: str, expected: tuple[int, int]) -> None:
    worker = forked.start_worker()
    worker.link.send(order.encode())
    assert worker.end()[1:3] == expected
    stderr = worker.err.read().decode()
    assert ("RuntimeError: oops" in stderr) == order.startswith("raise")


def test_killed_worker_is_told_with_its_signal_and_peak(forked: Node) -> None:
    worker, other = forked.start_worker(1), forked.start_worker(2)
    assert worker.ask("ids")
    forked.handle.kill(1, signal.SIGKILL)
    assert worker.end()[1:3] == (0, signal.SIGKILL)
    assert other.ask("env NOTHING") == "unset"
    forked.handle.kill(1, signal.SIGKILL)
    assert other.ask("env NOTHING") == "unset"


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_signal_for_a_worker_does_not_reach_its_children(forked: Node) -> None:
    worker = forked.start_worker(1)
    child = int(worker.ask("spawn "))
    pid = worker.pid
    forked.handle.signal(1, signal.SIGSTOP)
    forked.run_until(lambda: state(pid) == "T")
    assert state(child) != "T"
    forked.handle.kill(1, signal.SIGKILL)
    assert worker.end()[1:3] == (0, signal.SIGKILL)
    forked.handle.signal(1, signal.SIGKILL)  # nobody has this number now
    assert forked.start_worker(2).ask("ids now").startswith("2 ")


@pytest.mark.parametrize("code", ["", "os.setpgid(0, 0)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_children_of_a_dead_worker_are_swept(forked: Node, code: str) -> None:
    worker = forked.start_worker()
    stray = int(worker.ask(f"spawn {code}"))
    os.kill(worker.pid, signal.SIGKILL)
    worker.end()
    wait_gone(stray)


def test_strays_of_other_sessions_end_with_the_cluster(forked: Node, tmp_path: Path) -> None:
    left = tmp_path / "has_left"
    worker = forked.start_worker()
    stray = int(worker.ask(f"spawn os.setsid(); open({str(left)!r}, 'w').close()"))
    forked.run_until(left.exists)
    worker.link.send(b"exit 0")
    worker.end()
    assert os.path.exists(f"/proc/{stray}")
    forked.close()
    wait_gone(stray)


def test_template_that_is_killed_takes_its_workers_along(forked: Node) -> None:
    pids = [forked.start_worker(number).pid for number in range(3)]
    os.kill(forked.pid, signal.SIGKILL)
    for pid in pids:
        wait_gone(pid)
    forked.run_until(lambda: forked.lost)
    forked.start_worker(9)
    assert forked.lost == 1


def test_node_that_is_killed_takes_everything_along(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_text("x")
    (folder / "link").symlink_to(tmp_path)
    told, tell = os.pipe()
    node_pid = os.fork()
    if node_pid == 0:
        try:
            node = Node(fork_template, follow, str(folder))
            workers = [node.start_worker(number) for number in range(2)]
            stray = workers[0].ask("spawn os.setpgid(0, 0)")
            os.write(tell, f"{node.pid} {workers[0].pid} {workers[1].pid} {stray}".encode())
            signal.pause()
        finally:
            os._exit(1)
    os.close(tell)
    pids = [int(pid) for pid in os.read(told, 100).split()]
    os.close(told)
    assert len(pids) == 4
    os.kill(node_pid, signal.SIGKILL)
    started = time.monotonic()
    os.waitpid(node_pid, 0)
    for pid in pids:
        wait_gone(pid)
    assert time.monotonic() - started < 5
    assert not folder.exists()
    assert tmp_path.exists()


def test_fork_that_fails_is_told_and_the_next_one_works(forked: Node) -> None:
    forked.handle._send(encode_fork(3, {}), [0])
    forked.run_until(lambda: 3 in forked.forked)
    pid, error = forked.forked[3]
    assert pid == 0
    assert error.startswith("1 of 4 descriptors")
    assert forked.start_worker(4).ask("ids").startswith("4 ")


def test_request_that_cannot_work_is_refused(forked: Node) -> None:
    with pytest.raises(ValueError, match="needs link, claim"):
        forked.handle.fork(3, [0], {})
    with pytest.raises(ValueError, match="at most"):
        forked.handle.fork(3, [0, 0, 0, 0], {"LONG": "x" * 70_000})


def test_burst_of_forks_is_served_in_order(forked: Node) -> None:
    workers = [forked.start_worker(number) for number in range(20)]
    assert [worker.ask("ids").split()[0] for worker in workers] == [str(number) for number in range(20)]
    for worker in workers:
        worker.link.close()
    forked.run_until(lambda: len(forked.exited) == 20)
    assert {how[1:3] for how in forked.exited.values()} == {(0, 0)}

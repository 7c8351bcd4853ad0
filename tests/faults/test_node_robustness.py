"""What one process says or does wrong must not harm the others."""

from __future__ import annotations

import errno
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import outboard as ob
from outboard import boot, errors, greeting
from outboard import node as nodes
from outboard.client import Client
from outboard.exchange import Exchange
from outboard.ids import Span
from outboard.multiprocessing import Pool
from outboard.process import spawn
from outboard.process.lifetime import CANCEL_SIGNAL
from outboard.rpc.codec import Frame
from outboard.rpc.local import BlockingLink, socketpair
from outboard.rpc.protos import outboard_pb2 as pb
from outboard.scheduler.commands import SignalCancel
from outboard.workforce import Workforce

pytestmark = pytest.mark.timeout(40)


# -- threads and pools that say too much


def test_pool_that_is_closed_and_then_terminated(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=2)
    with Pool(1) as pool:
        assert pool.map(abs, [-1]) == [1]
        pool.close()
        pool.join()
    pool.terminate()
    assert ob.get(ob.remote(abs).remote(-2), timeout=10) == 2
    assert ob.get(ob.put(1), timeout=10) == 1


def slow(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def leave_a_thread_that_gets(number: int) -> int:
    threading.Thread(target=lambda: ob.get(ob.remote(slow).remote(0.02)), daemon=True).start()
    time.sleep(0.0008 * (number % 4))
    return number


def test_threads_that_outlive_their_tasks_harm_nobody(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=2)
    function = ob.remote(leave_a_thread_that_gets)
    assert ob.get([function.remote(n) for n in range(40)], timeout=30) == list(range(40))


def get_beside_a_thread() -> float:
    thread = threading.Thread(target=lambda: ob.get(ob.remote(slow).remote(0.2)))
    thread.start()
    time.sleep(0.05)  # the thread reads the link now
    value: float = ob.get(ob.remote(slow).remote(0.01))
    thread.join()
    return value


def test_task_that_waits_beside_its_thread_gives_back_its_cpu(cluster: Callable[..., Any]) -> None:
    cluster(num_cpus=1)
    assert ob.get(ob.remote(get_beside_a_thread).remote(), timeout=20) == 0.01


# -- the node


def quiet_node(handlers: dict[int, Any]) -> Any:
    """Make the part of a node that handles frames."""
    node = object.__new__(nodes.Node)
    node.handlers, node.tree, node.peering, node.seeker, node.names, node.gangs = handlers, None, None, None, None, None
    node.settled, node.killed, node.peers = [], [], {}  # type: ignore[attr-defined]  # of the test
    node.settle = lambda: node.settled.append(1)  # type: ignore[attr-defined, method-assign]  # counts
    workforce = SimpleNamespace(kill=node.killed.append, forget_bindings=lambda client: None)
    node.workforce = workforce  # type: ignore[assignment]  # a fake
    return node


def raises(*_: object) -> None:
    raise KeyError("nonsense")


@pytest.mark.parametrize("worker", [4, None])
def test_frame_that_cannot_be_handled_costs_its_sender_alone(worker: int | None, capfd: Any) -> None:
    handled: list[bytes] = []
    node = quiet_node({1: raises, 2: lambda peer, body, destination, fds: handled.append(body)})
    closed: list[Any] = []
    link: Any = SimpleNamespace(closed=False, close=lambda: closed.append("link"))
    node._client_left = closed.append
    peer = nodes.Peer(link, 5, 5, worker)
    node.on_frames(peer, [(1, b"", 0, ()), (2, b"next", 0, ())])
    assert node.settled
    assert (handled, node.killed, closed) == (([b"next"], [4], []) if worker else ([], [], ["link", peer]))
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "KeyError('nonsense')" in said


def test_worker_that_only_borrows_hears_who_has_ended() -> None:
    node = quiet_node({})
    sent: list[tuple[int, int]] = []
    node.send = lambda to, frame_type, body, origin=0: sent.append((to, frame_type)) or True
    node.store = SimpleNamespace(process_died=lambda incarnation: None)
    node.exchange = Exchange(node)
    link: Any = SimpleNamespace(closed=False)
    owner, borrower, other = (nodes.Peer(link, n, n, n) for n in (1, 2, 3))
    node.peers = {1: owner, 2: borrower, 3: other}
    node.exchange.on_borrow(borrower, pb.Borrow(ref=pb.Ref(owner=1, seq=9), borrower=2).SerializeToString(), 1, ())
    del sent[:]
    node.forget(owner)
    assert sent == [(2, Frame.BORROWER_DIED), (2, Frame.OWNER_LOST)]


def test_node_without_descriptors_does_not_spin_on_its_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(listener: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(nodes, "accept", refuse)
    node = quiet_node({})
    calls: list[str] = []
    node.loop = SimpleNamespace(
        add_reader=lambda *_: calls.append("watched"), remove_reader=lambda *_: calls.append("not watched"),
        call_later=lambda delay, do, *arguments: (calls.append("later"), do(*arguments)),
    )  # fmt: skip
    with socket.socket() as listener:
        node.listen(listener)
        node._on_connection()
    assert calls == ["watched", "not watched", "later", "watched"]


def test_cancel_reaches_a_worker_by_its_place_and_never_by_a_process_id(monkeypatch: pytest.MonkeyPatch) -> None:
    signals: list[tuple[int, int]] = []
    force = object.__new__(Workforce)
    force.template = SimpleNamespace(signal=lambda *what: signals.append(what))  # type: ignore[assignment]  # a fake
    slot = SimpleNamespace(running=lambda: (7, 0, 3), request_cancel=lambda *task: None)
    force.hands = {2: SimpleNamespace(slot=slot, pid=1, place=5, is_concurrent=False)}  # type: ignore[dict-item]  # a fake
    monkeypatch.setattr(os, "kill", raises)
    force._signal_cancel(SignalCancel(2, 7, [Span(0, 1, 5, 1)]))
    assert signals == [(5, CANCEL_SIGNAL)]


# -- starts


def test_folder_is_made_where_it_can_be(tmp_path: Path) -> None:
    long = tmp_path / ("d" * 100)
    long.mkdir()
    with tempfile.TemporaryDirectory() as short:
        folder, listener = boot.open_folder((None, f"{short}/missing", str(long), short))
        listener.close()
        assert os.path.dirname(folder) == short
        with pytest.raises(OSError, match="no folder"):
            boot.open_folder((f"{short}/missing",))
    assert list(long.iterdir()) == []


def test_node_that_ends_before_the_greeting_is_lost() -> None:
    ours, theirs = socketpair()
    theirs.close()
    with ours, pytest.raises(errors.NodeLostError, match="before it answered"):
        greeting.greet(ours, 1.0, lambda: None)


def test_new_template_has_the_flags_of_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    programs: list[list[str]] = []
    monkeypatch.setattr("os.posix_spawn", lambda path, program, env: programs.append(program) or 1)
    monkeypatch.setattr("subprocess._args_from_interpreter_flags", lambda: ["-X", "dev"])
    _, control = spawn.exec_template("outboard.worker:main")
    control.close()
    assert programs[0][:4] == [sys.executable, "-X", "dev", "-c"]


# -- clients


def test_descriptors_that_were_dropped_are_told_once() -> None:
    ours, theirs = socketpair()
    link = BlockingLink(ours)
    link._inbox.append((b"bytes", [], int(socket.MSG_CTRUNC), None))
    with theirs:
        with pytest.raises(OSError, match="limit of open files"):
            link.frames()
        assert (link.frames(), link.closed) == ([], True)
        link.close()


def test_fault_in_a_client_is_named_as_what_it_is() -> None:
    ours, theirs = socketpair()
    peer, link = BlockingLink(theirs), BlockingLink(ours)
    client = Client(link, 1, pb.Welcome())
    client.inbox.handlers[Frame.GRANT] = raises
    peer.send(Frame.GRANT, b"")
    link.receive(5.0)
    with pytest.raises(errors.InternalError, match="nonsense"):
        client.handle_input()
    assert "KeyError: 'nonsense'" in (client.closed_reason or "")
    client.close("over")
    peer.close()

"""`outboard start`, `status` and `stop` on real processes, and what becomes of a cluster when some of them die."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from outboard.errors import VersionMismatchError, WorkerLostError
from outboard.options import TaskOptions
from outboard.rpc.grpc_credentials import Security, make_token
from outboard.rpc.grpc_head import HeadEnd, HeadService
from outboard.rpc.grpc_server import Server
from outboard.rpc.protos import cluster_pb2 as pb
from outboard.version import PROTOCOL
from tests.faults.conftest import eventually
from tests.integration.clusters import COMMAND, LOSS_SECONDS, Commands, await_end, commands

__all__ = ["commands", "eventually"]

pytestmark = pytest.mark.multihost


def node_folder(pid: int) -> Path:
    """Find the folder of a node by the socket on which it listens."""
    for connection in psutil.Process(pid).net_connections("unix"):
        if connection.laddr.endswith("node.sock"):
            return Path(connection.laddr).parent
    raise AssertionError(f"process {pid} listens on no socket")


def connect_to(pid: int) -> Any:
    """Return an engine on a node, as a client on its machine would have it."""
    from outboard.greeting import greet
    from outboard.rpc.sockets import connect

    return greet(connect(str(node_folder(pid) / "node.sock")), 10.0, lambda: None)


def test_cluster_starts_shows_itself_and_stops(commands: Commands) -> None:
    head, node = commands.head()
    found = commands.status()
    assert (found["pid"], found["epoch"], found["settling"]) == (head, 1, False)
    assert Path(found["log"]).parent == commands.folder and '"event": "serving"' in Path(found["log"]).read_text()
    shown = found["nodes"][0]
    assert (shown["pid"], shown["state"], shown["slots"]) == (node, "ready", 2)
    assert shown["total"] == shown["free"] == {"CPU": 2.0}
    assert shown["running"] == shown["queued"] == 0 < shown["store_nbytes"]
    assert '"event": "joined"' in Path(shown["log"]).read_text()

    table = commands.run("status")
    for word in (found["cluster"], shown["node"], "ready", "CPU 2 / 2", shown["log"], found["log"]):
        assert word in table

    assert "stopped: 1 node left" in commands.run("stop")
    await_end(head, node)
    assert not (commands.folder / "address").exists()
    assert json.loads((commands.folder / "head.json").read_text())["nodes"] == []
    for command in ("status", "stop"):
        assert "no cluster: give --address" in commands.run(command, code=3)


def test_node_joins_and_leaves_politely(commands: Commands, eventually: Callable[..., Any]) -> None:
    commands.head()
    node = commands.join()
    assert commands.nodes()[node]["slots"] == 1
    os.kill(node, signal.SIGTERM)
    await_end(node)
    assert node not in commands.nodes()
    log = Path(commands.status()["log"]).read_text()
    assert '"event": "left"' in log and '"event": "lost"' not in log
    commands.run("stop")


def test_killed_node_is_gone_from_the_status(commands: Commands, eventually: Callable[..., Any]) -> None:
    commands.head()
    node = commands.join()
    folder = node_folder(node)
    os.kill(node, signal.SIGKILL)
    eventually(lambda: node not in commands.nodes(), within=LOSS_SECONDS)
    eventually(lambda: not folder.exists())
    commands.run("stop")


def test_stopped_node_is_given_up_and_comes_back_as_another(commands: Commands, eventually: Callable[..., Any]) -> None:
    commands.head()
    node = commands.join()
    before = commands.nodes()[node]["node"]
    folder = node_folder(node)
    os.kill(node, signal.SIGSTOP)
    try:
        eventually(lambda: node not in commands.nodes(), within=LOSS_SECONDS)
    finally:
        os.kill(node, signal.SIGCONT)
    eventually(lambda: node in commands.nodes())
    assert commands.nodes()[node]["node"] != before
    assert not folder.exists()
    assert not [p for p in psutil.Process(node).children() if p.status() == psutil.STATUS_ZOMBIE]
    commands.run("stop")
    await_end(node)


def test_nodes_come_back_to_a_head_that_was_killed(commands: Commands, eventually: Callable[..., Any]) -> None:
    head, first = commands.head()
    second = commands.join()
    before = {pid: node["node"] for pid, node in commands.nodes().items()}
    address = commands.address
    os.kill(head, signal.SIGKILL)
    await_end(head)
    assert "nothing listens there" in commands.run("status", code=3)
    printed = commands.run("start", "--head", "--no-node", "--detach")  # of its own, at the same address
    assert f"at {address} (pid" in printed
    back = eventually(lambda: found if 0 not in (found := commands.nodes()) and len(found) == 2 else None)
    assert {pid: node["node"] for pid, node in back.items()} == before
    assert {node["state"] for node in back.values()} == {"ready"}
    found = commands.status()
    assert (found["epoch"], found["settling"]) == (2, False)
    assert "stopped: 2 nodes left" in commands.run("stop")
    await_end(first, second)


def test_head_waits_for_nodes_that_it_knows_while_they_may_live(
    commands: Commands, eventually: Callable[..., Any]
) -> None:
    head, node = commands.head()
    killed = commands.join()
    stopped = commands.nodes()[node]["node"]
    os.kill(node, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    os.kill(head, signal.SIGKILL)
    await_end(head, killed)
    commands.run("start", "--head", "--no-node", "--detach")
    eventually(lambda: [shown["node"] for shown in commands.status()["nodes"]] == [stopped], within=LOSS_SECONDS)
    found = commands.status()
    assert found["settling"] and [shown["state"] for shown in found["nodes"]] == ["awaited"]
    assert "waiting for its nodes to come back" in commands.run("status")
    assert (
        "1 node did not say goodbye"
        in subprocess.run(
            [*COMMAND, "stop"], env=commands.env, text=True, capture_output=True, timeout=30, check=False
        ).stderr
    )


def test_head_does_not_wait_for_nodes_that_have_gone(commands: Commands, eventually: Callable[..., Any]) -> None:
    before = commands.head()
    for pid in before:
        os.kill(pid, signal.SIGTERM)  # each by itself: the node cannot say goodbye to a head that has ended
    await_end(*before)
    node = commands.head()[1]
    found = eventually(lambda: None if (found := commands.status())["settling"] else found, within=5.0)
    assert [shown["pid"] for shown in found["nodes"]] == [node]
    engine = connect_to(node)
    assert engine.get(engine.submit(abs, (-1,), {}, TaskOptions()), 2.0) == 1
    engine.shutdown()
    commands.run("stop")


def test_drain_lets_what_runs_finish(commands: Commands, tmp_path: Path, eventually: Callable[..., Any]) -> None:
    commands.head()
    node = commands.join("--grace", "30")
    engine, gate = connect_to(node), tmp_path / "gate"
    os.mkfifo(gate)
    ref = engine.submit(_read, (str(gate),), {}, TaskOptions())
    eventually(lambda: commands.nodes()[node]["running"] == 1)
    os.kill(node, signal.SIGTERM)
    eventually(lambda: commands.nodes()[node]["state"] == "draining")
    gate.write_text("done")
    assert engine.get(ref, 10.0) == "done"
    await_end(node)
    assert node not in commands.nodes()
    engine.shutdown()
    commands.run("stop")


def test_what_runs_gets_its_own_tasks_done_when_all_nodes_leave(
    commands: Commands, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    head, node = commands.head("--resources", "special=1")
    engine, gate = connect_to(node), tmp_path / "gate"
    os.mkfifo(gate)
    ref = engine.submit(_sum_when_told, (str(gate), 70), {}, TaskOptions(max_retries=0))
    eventually(lambda: commands.nodes()[node]["running"] == 1)
    stop = commands.start("stop", "--grace", "20")
    eventually(lambda: commands.nodes()[node]["state"] == "draining")
    gate.write_text("")
    assert engine.get(ref, 10.0) == sum(range(70))
    engine.shutdown()
    assert stop.wait(15.0) == 0
    await_end(head, node)


def test_stop_ends_what_does_not_finish(commands: Commands, tmp_path: Path, eventually: Callable[..., Any]) -> None:
    head, node = commands.head()
    engine, gate = connect_to(node), tmp_path / "gate"
    os.mkfifo(gate)
    ref = engine.submit(_read, (str(gate),), {}, TaskOptions(max_retries=0))
    eventually(lambda: commands.nodes()[node]["running"] == 1)
    begun = time.monotonic()
    done = subprocess.run(
        [*COMMAND, "stop", "--grace", "1.5"], env=commands.env, text=True, capture_output=True, timeout=30, check=True
    )
    assert 1.5 < time.monotonic() - begun < 15
    assert "stopped: 1 node left" in done.stdout and "1 node with 1 task to leave" in done.stderr
    await_end(head, node)
    with pytest.raises(WorkerLostError):  # said before the node left
        engine.get(ref, 10.0)
    engine.shutdown()


def _read(path: str) -> str:
    return Path(path).read_text()


def _sum_when_told(path: str, count: int) -> int:
    """Wait for a word, then for so many tasks, more than may be sent at once, that only this node can run."""
    import outboard

    Path(path).read_text()
    task = outboard.remote(resources={"special": 1})(abs)
    return sum(outboard.get([task.remote(i) for i in range(count)]))


def test_token_is_private_and_shown_nowhere(commands: Commands, tmp_path: Path, eventually: Callable[..., Any]) -> None:
    head, node = commands.head()
    path = commands.folder / "token"
    token = path.read_text().strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(commands.folder.stat().st_mode) == 0o700
    commands.env["OUTBOARD_TOKEN"] = token
    other = commands.join()
    engine = connect_to(other)
    assert engine.get(engine.submit(os.environ.get, ("OUTBOARD_TOKEN",), {}, TaskOptions()), 10.0) is None
    processes = [psutil.Process(pid) for pid in (head, node, other)]
    processes += [child for process in processes for child in process.children(recursive=True)]
    assert len(processes) == 6  # two templates and a worker
    assert not [process for process in processes if token in " ".join(process.cmdline())]
    engine.shutdown()
    printed = commands.run("status") + commands.run("status", "--json") + commands.run("stop")
    logs = "".join(log.read_text() for log in commands.folder.glob("*.log"))
    assert token not in printed + logs and token not in (commands.folder / "head.json").read_text()
    await_end(head, node, other)


def test_wrong_token_is_refused(commands: Commands, tmp_path: Path) -> None:
    commands.head()
    wrong = make_token().reveal()
    for arguments in (["status"], ["stop"], ["start", "--address", commands.address]):
        said = commands.run(*arguments, code=4, OUTBOARD_TOKEN=wrong)
        assert "asks for its token" in said and wrong not in said
    loose = tmp_path / "loose"
    loose.write_text(wrong)
    loose.chmod(0o644)
    assert "others must not read it: chmod 600" in commands.run("status", "--token-file", str(loose), code=1)
    assert "no such file" in commands.run("status", "--token-file", str(tmp_path / "none"), code=1)
    assert "OUTBOARD_TOKEN: this is no token" in commands.run("status", code=1, OUTBOARD_TOKEN="short")
    assert commands.status()["refused"] == 3
    commands.run("stop")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["status", "--address", "127.0.0.1:1"], 3, "127.0.0.1:1 cannot be reached: nothing listens there"),
        (["stop", "--address", "127.0.0.1:1"], 3, "nothing listens there"),
        (["start", "--address", "127.0.0.1:1"], 3, "nothing listens there"),
        (["status", "--address", "no-such-host.invalid:1"], 3, "no-such-host.invalid cannot be resolved"),
        (["start", "--address", "no-such-host.invalid:1", "--detach"], 3, "cannot be resolved"),
        (["status", "--address", "127.0.0.1:port"], 2, "no address of the form host:port"),
        (["status"], 3, "no cluster: give --address"),
        (["stop"], 3, "no cluster: give --address"),
        (["start"], 2, "give --head to start a cluster, or --address"),
        (["start", "--head", "--address", "127.0.0.1:1"], 2, "not both"),
        (["start", "--head", "--port", "0", "--host", "0.0.0.0"], 1, "without TLS everybody on the way"),
        (["start", "--head", "--port", "0", "--tls-cert", "/none.pem", "--tls-key", "/none.pem"], 1, "/none.pem"),
        (["start", "--head", "--store-memory", "much"], 2, "store_memory"),
    ],
)  # fmt: skip
def test_faults_are_one_line(commands: Commands, arguments: list[str], code: int, words: str) -> None:
    assert words in commands.run(*arguments, code=code)


def test_taken_port_and_taken_folder_are_said(commands: Commands, tmp_path: Path) -> None:
    commands.head()
    said = commands.run("start", "--head", "--port", "0", code=1)
    assert f"a head runs with the folder {commands.folder} already, at {commands.address}" in said
    port = commands.address.rpartition(":")[2]
    said = commands.run("start", "--head", "--port", port, "--folder", str(tmp_path / "other"), code=1)
    assert f"cannot listen on 127.0.0.1:{port}: the port is taken" in said
    commands.run("stop")


def test_damaged_state_is_said(commands: Commands) -> None:
    commands.folder.mkdir(mode=0o700)
    (commands.folder / "head.json").write_text("{")
    assert "head.json: the kept state is damaged" in commands.run("start", "--head", "--port", "0", code=1)


def test_something_else_that_listens_is_no_head(commands: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        done = subprocess.run(
            [*COMMAND, "status", "--address", address], env=commands.env | {"OUTBOARD_TOKEN": make_token().reveal()},
            text=True, capture_output=True, timeout=30, check=False,
        )  # fmt: skip
    lines = done.stderr.splitlines()
    assert (done.returncode, lines[0]) == (3, f"outboard: {address}: waiting for the head to answer")
    assert len(lines) == 2 and "is that a head, and awake?" in lines[1]


def test_another_version_is_said(commands: Commands) -> None:
    token = make_token()

    async def on_status() -> pb.ClusterStatus:
        return pb.ClusterStatus(protocol=PROTOCOL + 1, release="9.9")

    async def refuse(_: HeadEnd) -> pb.Registered:
        raise VersionMismatchError("this head runs 9.9")

    async def on_stop(_: pb.StopRequest) -> pb.StopReply:
        raise AssertionError("a head that does not fit was asked to stop")

    async def scenario() -> None:
        server = Server(Security(token), [HeadService(refuse, on_status, on_stop).handler])
        address = f"127.0.0.1:{await server.start('127.0.0.1:0')}"
        for command in ("status", "stop"):
            said = await asyncio.to_thread(
                commands.run, command, "--address", address, code=1, OUTBOARD_TOKEN=token.reveal()
            )
            assert f"the head runs 9.9 (protocol {PROTOCOL + 1})" in said
        said = await asyncio.to_thread(
            commands.run, "start", "--address", address, code=1, OUTBOARD_TOKEN=token.reveal()
        )
        assert "this head runs 9.9" in said
        await server.stop(0)

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_foreground_ends_all_that_it_started(commands: Commands, number: int, eventually: Callable[..., Any]) -> None:
    command = commands.start("start", "--head", "--port", "0", "--num-cpus", "1")
    assert command.stdout is not None
    pids = [pid for _ in range(3) for pid in commands.note(command.stdout.readline())]
    assert len(pids) == 2 and set(commands.nodes()) == {pids[1]}
    command.send_signal(number)
    _, said = command.communicate(timeout=15)
    await_end(*pids)
    assert command.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    assert "Traceback" not in said and "outboard node: this node has left" in said


def test_foreground_ends_with_the_cluster(commands: Commands) -> None:
    command = commands.start("start", "--head", "--port", "0", "--num-cpus", "1")
    assert command.stdout is not None
    pids = [pid for _ in range(3) for pid in commands.note(command.stdout.readline())]
    commands.run("stop")
    command.communicate(timeout=15)
    assert command.returncode == 0
    await_end(*pids)
    assert not (commands.folder / "address").exists()


def test_tls_keeps_strangers_out(commands: Commands, tmp_path: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509")
    from tests.unit.rpc.test_grpc_credentials import Authority

    here = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    trust = {"OUTBOARD_TLS_CA": ours.ca}
    cert, key = ours.issue("node", here)
    commands.env |= trust | {"OUTBOARD_TLS_CERT": cert, "OUTBOARD_TLS_KEY": key}
    commands.head()
    commands.join()
    assert len(commands.nodes()) == 2
    stranger = theirs.issue("stranger", here)
    commands.run("status", "--tls-cert", stranger[0], "--tls-key", stranger[1], code=3)
    commands.run("start", "--address", commands.address, "--tls-ca", theirs.ca, code=3)
    plain = {name: "" for name in ("OUTBOARD_TLS_CA", "OUTBOARD_TLS_CERT", "OUTBOARD_TLS_KEY")}
    commands.run("status", code=3, **plain)
    commands.run("stop")

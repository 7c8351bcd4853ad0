"""Programs that join a running cluster: how they find it, what they are told when they cannot, and how they leave."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from outboard.errors import VersionMismatchError
from outboard.rpc.grpc_credentials import Security, make_token
from outboard.rpc.grpc_head import HeadEnd, HeadService
from outboard.rpc.grpc_server import Server
from outboard.rpc.protos import cluster_pb2 as pb
from tests.faults.conftest import eventually
from tests.integration.clusters import LOSS_SECONDS, Commands, await_end, commands, is_alive

__all__ = ["commands", "eventually"]

pytestmark = pytest.mark.multihost

#: Seconds in which the node that a program brought along must have ended after it.
END_SECONDS = 1.0

#: A program that joins, says so, and does as it is told line by line; the answers are JSON.
PROGRAM = """
    import json, os, sys
    import outboard

    outboard.init(*sys.argv[1:])
    print(json.dumps([child["pid"] for child in outboard.nodes()]), flush=True)
    for line in sys.stdin:
        print(json.dumps(eval(line)), flush=True)
    outboard.shutdown()
"""

#: A program that tries to join and says what it meets.
ATTEMPT = """
    import sys
    import outboard

    try:
        outboard.init(sys.argv[1], start_timeout=float(sys.argv[2]))
    except Exception as error:
        print(type(error).__name__, error, sep=": ")
"""


class Program:
    """One that has joined, and is asked over its stdin."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pids: list[int] = self._read()

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return json.loads(line)

    def ask(self, expression: str) -> Any:
        """Have it evaluate something and return the value."""
        assert self.process.stdin is not None
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        return self._read()

    @property
    def node(self) -> psutil.Process | None:
        """The node that it brought along."""
        return next(iter(psutil.Process(self.process.pid).children()), None)

    def end(self) -> str:
        """Let it end by itself and return what it wrote to stderr."""
        out, err = self.process.communicate(timeout=15)
        assert (self.process.returncode, out) == (0, ""), err
        return err


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """Variables of programs that find no node at hand, as on another machine."""
    folder = tmp_path / "e"
    folder.mkdir(mode=0o700)
    return {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder)}


@pytest.fixture
def join(commands: Commands, start_program: Callable[..., Any]) -> Callable[..., Program]:
    """Start a program that joins the test's cluster: ``join(**variables)``, or one that names it: ``join(address)``."""

    def start(address: str | None = None, **env: str) -> Program:
        if address is not None:
            return Program(start_program(PROGRAM, address, env=commands.env | env))
        return Program(start_program(PROGRAM, env=commands.env | {"OUTBOARD_ADDRESS": commands.address} | env))

    return start


@pytest.fixture
def attempt(commands: Commands, run_program: Callable[..., str]) -> Callable[..., str]:
    """Run a program that cannot join and return what it met; nothing is written to stderr."""

    def run(address: str, timeout: float = 10.0, **env: str) -> str:
        return run_program(ATTEMPT, address, str(timeout), env=commands.env | env).strip()

    return run


def test_program_uses_the_node_of_its_machine(commands: Commands, join: Callable[..., Program]) -> None:
    _, node = commands.head()
    program = join(OUTBOARD_TOKEN="", OUTBOARD_FOLDER="/nowhere")  # it needs neither
    assert program.pids == [node] and program.node is None
    assert program.ask("outboard.get(outboard.remote(os.getppid).remote())") == psutil.Process(node).children()[0].pid
    assert program.end() == ""
    assert is_alive(node)
    port = commands.address.rpartition(":")[2]
    for address in ("auto", f"localhost:{port}"):
        program = join(address)
        assert program.pids == [node] and program.node is None
        assert program.end() == ""
    commands.run("status", OUTBOARD_ADDRESS="auto")
    commands.run("stop", OUTBOARD_ADDRESS="local")


@pytest.mark.parametrize("address", ["auto", None])
def test_program_brings_a_way_of_its_own(
    commands: Commands, join: Callable[..., Program], elsewhere: dict[str, str], address: str | None,
    eventually: Callable[..., Any],
) -> None:  # fmt: skip
    _, node = commands.head()
    program = join(address, **elsewhere)
    own = program.node
    assert own is not None and own.pid != node
    assert not [c for c in own.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    found = commands.status()
    assert [shown["pid"] for shown in found["nodes"]] == [node]
    assert [(shown["pid"], shown["clients"]) for shown in found["programs"]] == [(own.pid, 1)]
    assert found["clients"] == 1
    assert f"clients: 1, of them 1 with a way of their own, on {socket.gethostname()}" in commands.run("status")
    assert program.ask("outboard.get(outboard.put([1, 2]))") == [1, 2]
    assert program.end() == ""
    await_end(own.pid, within=END_SECONDS)
    assert commands.status()["programs"] == []  # it has said goodbye
    eventually(lambda: not list(Path(elsewhere["TMPDIR"]).iterdir()))
    commands.run("stop")


@pytest.mark.parametrize("is_at_hand", [True, False])
def test_a_program_sees_the_whole_cluster(
    commands: Commands,
    join: Callable[..., Program],
    elsewhere: dict[str, str],
    is_at_hand: bool,
    eventually: Callable[..., Any],
) -> None:
    head, first = commands.head()
    second = commands.join("--resources", "licence=2")
    program = join(**({} if is_at_hand else elsewhere))
    assert sorted(program.pids) == sorted((first, second))
    if is_at_hand:
        assert program.pids[0] == second  # the node that it is connected to: the one that joined last
    assert program.ask("outboard.cluster_resources()") == {"CPU": 3.0, "licence": 2.0}
    assert program.ask("outboard.available_resources()") == {"CPU": 3.0, "licence": 2.0}
    assert program.ask("__import__('outboard.multiprocessing').multiprocessing.cpu_count()") == 3
    os.kill(head, signal.SIGKILL)
    await_end(head)
    assert program.ask("outboard.cluster_resources()") == {"CPU": 3.0, "licence": 2.0}
    program.end()
    commands.run("start", "--head", "--no-node", "--detach")
    eventually(lambda: commands.nodes().keys() >= {first, second})
    commands.run("stop")


def test_program_on_a_cluster_without_nodes_says_once_what_it_waits_for(
    commands: Commands, join: Callable[..., Program], elsewhere: dict[str, str]
) -> None:
    commands.run("start", "--head", "--no-node", "--port", "0", "--detach")
    program = join(**elsewhere)
    assert program.process.stdin is not None and program.process.stderr is not None
    program.process.stdin.write("outboard.get([outboard.remote(abs).remote(-n) for n in range(3)])\n")
    program.process.stdin.flush()
    said = program.process.stderr.readline()
    where = f"the cluster at {commands.address} has no node that takes work; it goes on when one joins"
    assert said == f"outboard: waiting for CPU 1: {where}\n"
    commands.join()
    assert program._read() == [0, 1, 2]
    assert program.end() == ""
    commands.run("stop")


def test_program_whose_demand_others_hold_says_so(
    commands: Commands, join: Callable[..., Program], elsewhere: dict[str, str], eventually: Callable[..., Any]
) -> None:
    commands.head("--resources", "key=1")
    programs = [join(**elsewhere) for _ in range(2)]
    hold = "outboard.remote(__import__('time').sleep).options(resources=dict(key=1)).remote({})"
    programs[0].ask(f"setattr(outboard, 'held', {hold.format(60)})")
    eventually(lambda: [node["free"]["key"] for node in commands.nodes().values()] == [0])
    stdin, stderr = programs[1].process.stdin, programs[1].process.stderr
    assert stdin is not None and stderr is not None
    stdin.write(f"outboard.get({hold.format(0)})\n")
    stdin.flush()
    assert stderr.readline() == (
        "outboard: waiting for CPU 1, key 1: of 1 node none has room for that now; it goes on when one has\n"
    )
    programs[0].ask("outboard.cancel(outboard.held, force=True) and None")
    assert programs[1]._read() is None
    for program in programs:
        program.end()
    commands.run("stop")


def test_a_killed_program_takes_its_way_along(
    commands: Commands, join: Callable[..., Program], elsewhere: dict[str, str], eventually: Callable[..., Any]
) -> None:
    commands.head()
    program = join(**elsewhere)
    own = program.node
    assert own is not None
    program.process.kill()
    await_end(own.pid, within=END_SECONDS)
    eventually(lambda: not commands.status()["programs"], within=END_SECONDS)
    eventually(lambda: not list(Path(elsewhere["TMPDIR"]).iterdir()))
    commands.run("stop")


def test_a_program_whose_way_is_killed_takes_another(
    commands: Commands, join: Callable[..., Program], elsewhere: dict[str, str], eventually: Callable[..., Any]
) -> None:
    commands.head()
    program = join(commands.address, **elsewhere)
    own = program.node
    assert own is not None
    own.kill()
    eventually(lambda: not program.ask("outboard.is_initialized()"))
    assert program.ask("outboard.get(outboard.put(3))") == 3
    other = program.node
    assert other is not None and other.pid != own.pid
    eventually(lambda: [p["pid"] for p in commands.status()["programs"]] == [other.pid], within=LOSS_SECONDS)
    program.end()
    commands.run("stop")


def test_a_forked_child_shares_its_parents_way(
    commands: Commands, join: Callable[..., Program], elsewhere: dict[str, str]
) -> None:
    commands.head()
    program = join(**elsewhere)
    own = program.node
    assert own is not None
    in_child = "outboard.get(outboard.put(7)) - 7 or [c.pid for c in __import__('psutil').Process().children()] != []"
    status = program.ask(f"(lambda pid: os.waitpid(pid, 0)[1] if pid else os._exit({in_child}))(os.fork())")
    assert status == 0 and own.is_running()
    program.end()
    commands.run("stop")


def test_a_program_outlives_the_head(
    commands: Commands, join: Callable[..., Program], elsewhere: dict[str, str], eventually: Callable[..., Any]
) -> None:
    head, node = commands.head()
    program = join(**elsewhere)
    other = join(**elsewhere)
    before = {program["pid"]: program["node"] for program in commands.status()["programs"]}
    os.kill(head, signal.SIGKILL)
    await_end(head)
    assert program.ask("outboard.get(outboard.put(1))") == 1
    left = other.node
    assert left is not None
    other.end()  # there is nobody to say goodbye to
    await_end(left.pid, within=END_SECONDS)
    commands.run("start", "--head", "--no-node", "--detach")
    (after,) = eventually(lambda: commands.status()["programs"])
    assert after["pid"] != left.pid and before[after["pid"]] == after["node"]
    assert program.ask("outboard.get(outboard.put(2))") == 2
    said = program.end().splitlines()
    assert said and all("outboard client: no head: " in line for line in said)
    commands.run("stop")
    await_end(node)


def test_stopping_the_cluster_ends_a_programs_way(
    commands: Commands, join: Callable[..., Program], elsewhere: dict[str, str], eventually: Callable[..., Any]
) -> None:
    commands.head()
    program = join(**elsewhere)
    own = program.node
    assert own is not None
    commands.run("stop", "--grace", "5")
    await_end(own.pid)
    eventually(lambda: not program.ask("outboard.is_initialized()"))
    program.end()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "TransportError: OB301: 127.0.0.1:1 cannot be reached: nothing listens there"),
        ("no-such-host.invalid:1", "TransportError: OB301: no-such-host.invalid cannot be resolved"),
        ("127.0.0.1:port", "ValueError: '127.0.0.1:port' is no address of the form host:port, like"),
        ("auto", "TransportError: OB301: no cluster of this user runs on this machine: start one with `outboard start"),
    ],
)
def test_who_cannot_be_reached_is_said(attempt: Callable[..., str], address: str, words: str) -> None:
    assert attempt(address).startswith(words)


def test_wrong_and_missing_tokens_are_said(
    commands: Commands, attempt: Callable[..., str], elsewhere: dict[str, str], tmp_path: Path
) -> None:
    commands.head()
    wrong = make_token().reveal()
    said = attempt(commands.address, OUTBOARD_TOKEN=wrong, **elsewhere)
    assert said.startswith("AuthenticationError: OB304: ") and "asks for its token" in said and wrong not in said
    said = attempt(commands.address, OUTBOARD_FOLDER=str(tmp_path / "none"), **elsewhere)
    assert said.startswith("OutboardError: OB100: no token: ") and "OUTBOARD_TOKEN_FILE" in said
    said = attempt(commands.address, OUTBOARD_TOKEN_FILE=str(tmp_path / "none"), **elsewhere)
    assert said.endswith("/none: no such file")
    assert list(Path(elsewhere["TMPDIR"]).iterdir()) == []
    commands.run("stop")


def test_token_stands_on_no_command_line(
    commands: Commands, join: Callable[..., Program], elsewhere: dict[str, str], tmp_path: Path
) -> None:
    commands.head()
    token = (commands.folder / "token").read_text().strip()
    program = join(OUTBOARD_TOKEN=token, OUTBOARD_FOLDER=str(tmp_path / "none"), **elsewhere)
    own = program.node
    assert own is not None
    processes = [own, *own.children(recursive=True)]
    assert not [process for process in processes if token in " ".join(process.cmdline())]
    assert token not in program.ask("repr(outboard.nodes())")
    assert program.end() == ""
    commands.run("stop")


def test_resources_are_not_given_to_a_running_cluster(commands: Commands, run_program: Callable[..., str]) -> None:
    text = "import outboard; outboard.init('127.0.0.1:1', num_cpus=2)"
    with pytest.raises(AssertionError, match="num_cpus, num_gpus and resources are for an embedded cluster"):
        run_program(text, env=commands.env)


def test_program_joins_over_tls(
    commands: Commands, join: Callable[..., Program], attempt: Callable[..., str], elsewhere: dict[str, str],
    tmp_path: Path,
) -> None:  # fmt: skip
    x509 = pytest.importorskip("cryptography.x509")
    from tests.unit.rpc.test_grpc_credentials import Authority

    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    cert, key = ours.issue("node", [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    tls = {"OUTBOARD_TLS_CA": ours.ca, "OUTBOARD_TLS_CERT": cert, "OUTBOARD_TLS_KEY": key}
    commands.env |= tls
    commands.head()
    program = join(**elsewhere)
    assert program.node is not None and program.ask("outboard.get(outboard.put(1))") == 1
    assert program.end() == ""
    for wrong in ({"OUTBOARD_TLS_CA": theirs.ca}, dict.fromkeys(tls, "")):
        assert attempt(commands.address, **elsewhere, **wrong).startswith("TransportError: OB301: ")
    commands.run("stop")


@contextlib.contextmanager
def silent_listener() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_what_never_answers_is_given_up_in_time(attempt: Callable[..., str]) -> None:
    with silent_listener() as address:
        begun = time.monotonic()
        said = attempt(address, 2.0, OUTBOARD_TOKEN=make_token().reveal())
        assert time.monotonic() - begun < 15
    assert said.startswith(f"TransportError: OB301: the head at {address} did not answer within")


def test_interrupt_ends_the_wait_for_a_head(
    commands: Commands, start_program: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    with silent_listener() as address:
        text = f"import outboard; print(flush=True); outboard.init({address!r})"
        program = start_program(text, env=commands.env | {"OUTBOARD_TOKEN": make_token().reveal()})
        program.stdout.readline()
        (own,) = eventually(psutil.Process(program.pid).children)
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=20)
    assert said.splitlines()[-1] == "KeyboardInterrupt" and program.returncode == -signal.SIGINT
    await_end(own.pid)


def test_another_version_is_said(attempt: Callable[..., str]) -> None:
    token = make_token()

    async def on_status() -> pb.ClusterStatus:
        raise AssertionError("nobody asks")

    async def on_stop(_: pb.StopRequest) -> pb.StopReply:
        raise AssertionError("nobody asks")

    async def refuse(_: HeadEnd) -> pb.Registered:
        raise VersionMismatchError("this head runs 9.9")

    async def scenario() -> str:
        server = Server(Security(token), [HeadService(refuse, on_status, on_stop).handler])
        address = f"127.0.0.1:{await server.start('127.0.0.1:0')}"
        said = await asyncio.to_thread(attempt, address, OUTBOARD_TOKEN=token.reveal())
        await server.stop(0)
        return said

    said = asyncio.run(scenario())
    assert said.startswith("VersionMismatchError: OB303: ") and "this head runs 9.9" in said

"""Commands that were given a wrong address, token file, TLS file or port: one line that names it, and an exit code."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outboard.addresses import check_host, split_address
from outboard.rpc.pemfiles import check_files
from tests.integration.clusters import Commands, commands

__all__ = ["commands"]

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(60)]

TOKEN = "t" * 40


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://127.0.0.1:1", "leave out the http://"),
        ("127.0.0.1:notanumber", "'notanumber' is no port, a number from 1 to 65535"),
        ("127.0.0.1:0", "'0' is no port"),
        ("127.0.0.1:70000", "'70000' is no port"),
        ("host:", "'' is no port"),
        ("::1", "an IPv6 address stands in brackets"),
        ("fe80::1:6733", "an IPv6 address stands in brackets"),
        ("[::1:1", "an IPv6 address stands in brackets"),
        ("[::zz]:1", "'::zz' is no IP address"),
        (":6733", "the host is missing"),
        ("me@host:1", "characters that no name has"),
    ],
)
def test_wrong_address_is_told_what_one_looks_like(address: str, words: str) -> None:
    with pytest.raises(ValueError, match="no address of the form host:port, like gpu01:6733 or") as caught:
        split_address(address)
    assert words in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1:6733", "http://a", "", "a b", "[::1]"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="no name or IP address"):
        check_host(host)


@pytest.mark.parametrize("host", ["gpu01", "10.0.0.1", "::1", "a.b-c_d.example"])
def test_names_and_addresses_are_hosts(host: str) -> None:
    check_host(host)


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--address", ""], ["stop", "--address", " "], ["start", "--address", "http://h"],
        ["start", "--address", "h:0"], ["start", "--head", "--host", "127.0.0.1:1"],
    ],
)  # fmt: skip
def test_commands_with_a_wrong_address_are_faults_of_usage(commands: Commands, arguments: list[str]) -> None:
    commands.run(*arguments, code=2)


def test_address_that_is_empty_by_mistake_stops_no_other_cluster(commands: Commands) -> None:
    commands.head()
    assert "--address is empty" in commands.run("stop", "--address", "", code=2)
    assert len(commands.nodes()) == 1
    commands.run("stop")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "there are none"), (b"short", "there are fewer"), (b"x" * 5000, "there are more"),
        (bytes(range(256)), "there are others"), (b"x" * 40 + b"\n" + b"y" * 40, "there are others"),
    ],
)  # fmt: skip
def test_token_file_that_holds_none_is_named(commands: Commands, tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with served(lambda _: None) as address:
        said = commands.run("status", "--token-file", str(path), "--address", address, code=1)
    assert f"{path}: this is no token: 32 to 512 visible ASCII characters" in said and said.endswith(words)


def test_folder_in_place_of_a_token_file_is_named(commands: Commands, tmp_path: Path) -> None:
    with served(lambda _: None) as address:
        said = commands.run("status", "--token-file", str(tmp_path), "--address", address, code=1)
    assert f"{tmp_path} is not a regular file" in said


@contextlib.contextmanager
def served(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """Listen, and have each connection answered; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        opened: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):  # the listener has been closed
                while True:
                    connection, _ = listener.accept()
                    opened.append(connection)
                    with contextlib.suppress(OSError):  # the other end has hung up
                        answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in opened:
                connection.close()


STRANGERS = {
    "closes": (lambda connection: connection.close(), "it hung up at once"),
    "is a web server": (
        lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
        "no cluster is served there: is it the port of a web server",
    ),
    "speaks first": (lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"), "no cluster is served there"),
    "is silent": (lambda connection: None, "did not answer within"),
}


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("command", ["status", "start"])
def test_port_of_something_else_is_no_head(commands: Commands, command: str, stranger: str) -> None:
    answer, words = STRANGERS[stranger]
    with served(answer) as address:
        assert words in commands.run(command, "--address", address, code=3, OUTBOARD_TOKEN=TOKEN)


def test_port_that_cannot_be_had_is_said(commands: Commands) -> None:
    start = ["start", "--head", "--no-node", "--port", "0", "--insecure", "--host"]
    for host, words in (("192.0.2.1", "it is no address of this machine"), ("no-such-host.invalid", "not known")):
        command = commands.start(*start, host)
        said = command.communicate(timeout=20)[1].splitlines()[-1]  # ahead of it the warning of --insecure
        assert command.returncode == 1 and said.startswith(f"outboard: cannot listen on {host}:0: ") and words in said


def test_tls_files_that_are_not_what_they_should_be_are_named(tmp_path: Path) -> None:
    pytest.importorskip("cryptography.x509")
    from tests.unit.rpc.test_grpc_credentials import Authority

    ours = Authority(tmp_path, "ours")
    cert, key = ours.issue("one", [])
    _, other = ours.issue("other", [])
    text, damaged = tmp_path / "text", tmp_path / "damaged"
    text.write_text("hello")
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    check_files(cert, key, ours.ca)
    for files, words in {
        (key, cert, None): f"{key} holds no certificate in PEM: are certificate and key swapped?",
        (str(text), key, None): f"{text} holds no certificate in PEM",
        (cert, str(text), None): f"{text} holds no private key in PEM",
        (cert, cert, None): f"{cert} holds no private key in PEM: are certificate and key swapped?",
        (cert, key, str(text)): f"{text} holds no certificate in PEM",
        (str(damaged), key, None): f"{damaged} holds a damaged certificate",
        (cert, other, None): f"the private key in {other} does not belong to the certificate in {cert}",
    }.items():
        with pytest.raises(ValueError) as caught:
            check_files(*files)
        assert str(caught.value) == words
    with pytest.raises(FileNotFoundError):
        check_files(str(tmp_path / "none"), key, None)


def test_tls_that_does_not_fit_is_said(commands: Commands, tmp_path: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509")
    from tests.unit.rpc.test_grpc_credentials import Authority

    here = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    cert, key = ours.issue("node", here)
    tls = ["--tls-cert", cert, "--tls-key", key, "--tls-ca", ours.ca]
    foreign = theirs.issue("stranger", here)
    swapped = ["--tls-cert", key, "--tls-key", cert]
    assert f"{key} holds no certificate" in commands.run("start", "--head", "--port", "0", *swapped, code=1)
    commands.head(*tls)
    for given, words in (
        ([], "it may use TLS (tls_ca)"),
        (["--tls-ca", theirs.ca], "an authority that is not trusted here: name it with tls_ca"),
        (["--tls-ca", ours.ca], "not accept our certificate (tls_cert, tls_key)"),
        (["--tls-ca", ours.ca, "--tls-cert", foreign[0], "--tls-key", foreign[1]], "not accept our certificate"),
    ):
        assert words in commands.run("status", *given, code=3)
    commands.run("stop", *tls)
    commands.head()
    assert "it does not speak TLS: leave out tls_ca" in commands.run("status", *tls, code=3)
    commands.run("stop")

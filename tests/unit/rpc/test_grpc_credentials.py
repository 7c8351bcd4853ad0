"""The token and its file, addresses without TLS, and TLS itself."""

from __future__ import annotations

import datetime
import ipaddress
import logging
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outboard.aioloop import AioLoop
from outboard.errors import TransportError
from outboard.rpc.grpc_channels import open_channel
from outboard.rpc.grpc_credentials import (
    METADATA_KEY,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    Security,
    Tls,
    Token,
    is_loopback,
    make_token,
    read_token,
    split_address,
    write_token,
)
from outboard.rpc.grpc_server import Server
from tests.unit.rpc.grpc_world import Inbox, World

TEXT = "0123456789abcdefghijklmnopqrstuvwxyzABCDEF"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    write_token(path, Token(TEXT))
    return path


def test_tokens_differ_and_are_shown_nowhere() -> None:
    token = make_token()
    secret = token.reveal()
    assert secret != make_token().reveal()
    security = Security(token)
    assert secret not in f"{token!r}{token}{security!r}{security}"
    for thing in (token, security):
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(thing)


@pytest.mark.parametrize("text", ["", "short", "x" * 31, "x" * 513, "x" * 40 + " ", "x" * 40 + "é", "x" * 40 + "\n"])
def test_text_that_cannot_be_a_token_is_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="this is no token") as caught:
        Token(text)
    assert not text or text not in str(caught.value)


def test_written_token_is_private_and_read_back(token_file: Path) -> None:
    assert token_file.stat().st_mode & 0o777 == 0o600
    assert read_token(token_file).reveal() == TEXT
    with pytest.raises(FileExistsError):
        write_token(token_file, make_token())


def test_token_comes_from_path_then_file_variable_then_variable(token_file: Path, tmp_path: Path) -> None:
    other = "z" * 40
    environ = {TOKEN_VARIABLE: other}
    assert read_token(environ=environ).reveal() == other
    environ[TOKEN_FILE_VARIABLE] = str(token_file)
    assert read_token(environ=environ).reveal() == TEXT
    write_token(tmp_path / "second", Token("y" * 40))
    assert read_token(tmp_path / "second", environ).reveal() == "y" * 40
    with pytest.raises(ValueError, match=TOKEN_FILE_VARIABLE):
        read_token(environ={})
    with pytest.raises(FileNotFoundError):
        read_token(tmp_path / "missing", environ)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o777])
def test_token_file_that_others_may_use_is_refused(token_file: Path, mode: int) -> None:
    token_file.chmod(mode)
    with pytest.raises(PermissionError, match="chmod 600") as caught:
        read_token(token_file)
    assert TEXT not in str(caught.value)


def test_token_file_of_somebody_else_is_refused(token_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.stat(token_file)
    monkeypatch.setattr(os, "geteuid", lambda: found.st_uid + 1)
    if found.st_uid == 0:  # what belongs to root is trusted: take a file of somebody else
        other = os.stat_result((*found[:4], 12345, *found[5:]))
        monkeypatch.setattr(os, "fstat", lambda _: other)
    with pytest.raises(PermissionError, match="belongs to user"):
        read_token(token_file)


def test_pipe_in_place_of_a_token_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(PermissionError, match="regular file"):
        read_token(tmp_path / "pipe")


@pytest.mark.parametrize("value", ["Bearer " + TEXT, b"Bearer " + TEXT.encode()])
def test_metadata_with_the_token_are_admitted(value: Any) -> None:
    token = Token(TEXT)
    assert token.admits(((METADATA_KEY, value), ("user-agent", "x")))
    assert token.admits(token.metadata)
    assert not token.admits(((METADATA_KEY, value), (METADATA_KEY, value)))
    assert not token.admits(None)
    assert not token.admits(((METADATA_KEY, b"\xff\xfe"), ("other", value)))
    assert not token.admits(((METADATA_KEY, "Bearer \udcff"),))


@pytest.mark.parametrize(
    ("address", "parts"),
    [("host:1", ("host", 1)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:65535", ("::1", 65535))],
)
def test_addresses_are_split(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address",
    ["", "host", ":1", "host:", "host:x", "host:65536", "host:-1", "::1:5", "unix:/tmp/x", "dns:///host:5",
     "unix:7", "Unix-Abstract:7", "vsock:1", "[]:5", "host:²", "a%b:1"],
)  # fmt: skip
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="no address of the form"):
        split_address(address)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "8.8.8.8", "no-such-host.invalid", "fe80::1"])
def test_other_hosts_are_not_this_machine(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_is_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_without_tls_only_loopback_is_used(aio: AioLoop, address: str) -> None:
    async def scenario() -> None:
        security = Security(make_token())
        server = Server(security, [])
        with pytest.raises(ValueError, match="without TLS") as caught:
            await server.start(address)
        assert security.token.reveal() not in str(caught.value)
        await server.stop(0)
        with pytest.raises(ValueError, match="without TLS"):
            open_channel(address, security)

    aio.run(scenario())


def test_insecure_listens_everywhere_with_a_warning(aio: AioLoop, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        security = Security(make_token(), insecure=True)
        server = Server(security, [])
        with caplog.at_level(logging.WARNING, "outboard.rpc"):
            assert await server.start("0.0.0.0:0")
        await server.stop(0)
        assert "without TLS" in caplog.text
        assert security.token.reveal() not in caplog.text

    aio.run(scenario())


@pytest.mark.parametrize("files", [{}, {"cert": "x"}, {"key": "x"}, {"cert": "x", "ca": "y"}])
def test_half_a_pair_is_no_tls(files: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="TLS needs"):
        Tls(**files)


def test_server_needs_a_certificate() -> None:
    with pytest.raises(ValueError, match="need a certificate and its key"):
        Tls(ca="x").server_credentials()


def test_missing_file_is_named(tmp_path: Path) -> None:
    tls = Tls(cert=str(tmp_path / "cert"), key=str(tmp_path / "key"))
    with pytest.raises(FileNotFoundError, match="key"):
        tls.server_credentials()


# ---------------------------------------------------------------------------------------------------------------------
# TLS. The certificates are made once: keys of elliptic curves cost little.

Make = Callable[..., tuple[str, str]]


class Authority:
    """Signs certificates and writes them as PEM files."""

    def __init__(self, folder: Path, name: str) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self.folder = folder
        self.name = name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.ca = str(folder / f"{name}-ca.pem")
        Path(self.ca).write_bytes(self._sign(name, self.key, [], 1, is_ca=True))

    def issue(self, name: str, hosts: list[Any], days: int = 1) -> tuple[str, str]:
        """Return the paths of a certificate and its key; with negative `days` it has expired."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        cert_path, key_path = self.folder / f"{self.name}-{name}.pem", self.folder / f"{self.name}-{name}.key"
        cert_path.write_bytes(self._sign(name, key, hosts, days, is_ca=False))
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return str(cert_path), str(key_path)

    def _sign(self, name: str, key: Any, hosts: list[Any], days: int, *, is_ca: bool) -> bytes:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=3))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    x509 = pytest.importorskip("cryptography.x509")
    folder = tmp_path_factory.mktemp("tls")
    ours, theirs = Authority(folder, "ours"), Authority(folder, "theirs")
    here = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    return {
        "ca": ours.ca,
        "node": ours.issue("node", here),
        "expired": ours.issue("expired", here, days=-1),
        "elsewhere": ours.issue("elsewhere", [x509.DNSName("elsewhere.example")]),
        "other ca": theirs.ca,
        "stranger": theirs.issue("stranger", here),
    }


def tls_of(files: dict[str, Any], pair: str | None = None, ca: str | None = "ca", mutual: bool = True) -> Tls:
    cert, key = files[pair] if pair else (None, None)
    return Tls(cert, key, files[ca] if ca else None, mutual)


def link_over(aio: AioLoop, server: Tls, client: Tls | None) -> None:
    """Open one link from `client` to `server`, both with the right token; raises what `dial` raises."""

    async def scenario() -> None:
        world = World()
        async with world.serving(security=Security(world.security.token, server)):
            world.security = Security(world.security.token, client)
            try:
                link = await world.dial(Inbox())
            except TransportError:
                assert world.calls == []
                raise
            link.close()

    aio.run(scenario())


def test_both_ends_show_certificates(aio: AioLoop, files: dict[str, Any]) -> None:
    link_over(aio, tls_of(files, "node"), tls_of(files, "node"))


def test_client_needs_none_where_the_server_does_not_ask(aio: AioLoop, files: dict[str, Any]) -> None:
    link_over(aio, tls_of(files, "node", mutual=False), tls_of(files))
    link_over(aio, tls_of(files, "node", ca=None), tls_of(files))


@pytest.mark.parametrize(
    ("server", "client"),
    [
        ({"pair": "stranger"}, {"pair": "node"}),
        ({"pair": "elsewhere"}, {"pair": "node"}),
        ({"pair": "expired"}, {"pair": "node"}),
        ({"pair": "node"}, {}),
        ({"pair": "node"}, {"pair": "stranger"}),
        ({"pair": "node"}, {"pair": "expired"}),
        ({"pair": "node"}, {"pair": "node", "ca": "other ca"}),
        ({"pair": "node"}, {"pair": "node", "ca": None}),
        ({"pair": "node"}, None),
    ],
    ids=["server of another authority", "server of another name", "server expired", "client without certificate",
         "client of another authority", "client expired", "client trusts another authority",
         "client trusts public authorities", "client in plain text"],
)  # fmt: skip
def test_certificates_that_do_not_hold_are_refused(
    aio: AioLoop, files: dict[str, Any], server: dict[str, Any], client: dict[str, Any] | None
) -> None:
    with pytest.raises(TransportError, match="UNAVAILABLE"):
        link_over(aio, tls_of(files, **server), None if client is None else tls_of(files, **client))

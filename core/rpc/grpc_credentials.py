"""Who may talk to a node: the cluster's token, and TLS.

Tasks are code, so whoever may talk to a node may run anything there. The token is one secret of the whole cluster; it
lies in a file that only its owner may read and travels as metadata of every call. It is never part of a repr, an
error, a log line or a pickle. TLS keeps it secret on the way: without TLS only loopback addresses are used, unless the
operator insists.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import secrets
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from .grpc_library import grpc

#: Metadata key of the token; the value is ``Bearer TOKEN``.
METADATA_KEY = "authorization"
_SCHEME = b"Bearer "

#: Variables from which `read_token` reads: the path of a file, or the token itself.
TOKEN_FILE_VARIABLE = "OUTBOARD_TOKEN_FILE"
TOKEN_VARIABLE = "OUTBOARD_TOKEN"

#: Random bytes of a new token: 256 bits cannot be guessed.
TOKEN_NBYTES = 32

#: Characters of a token. Fewer than 32 may be guessed; more than 512 do not fit well beside other metadata.
TOKEN_LENGTHS = range(32, 513)

#: What gRPC takes for the kind of an address when it stands before a colon.
_SCHEMES = {"dns", "ipv4", "ipv6", "unix", "unix-abstract", "vsock", "xds", "fd", "google-c2p"}

_log = logging.getLogger("outboard.rpc")


class Token:
    """The cluster's secret. Compared in constant time; shown nowhere."""

    __slots__ = ("_header",)

    def __init__(self, text: str) -> None:
        """Raises ValueError for a text that cannot be a token; the text is not repeated."""
        is_text = all("!" <= character <= "~" for character in text)
        if len(text) not in TOKEN_LENGTHS or not is_text:
            count = "more" if len(text) >= TOKEN_LENGTHS.stop else "fewer" if text else "none"
            raise ValueError(
                f"this is no token: {TOKEN_LENGTHS.start} to {TOKEN_LENGTHS.stop - 1} visible ASCII characters in one "
                f"line; there are {count if is_text else 'others'}"
            )
        self._header = _SCHEME + text.encode()

    def reveal(self) -> str:
        """Return the secret itself, for the file."""
        return self._header.removeprefix(_SCHEME).decode()

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call carries."""
        return ((METADATA_KEY, self._header.decode()),)

    def admits(self, metadata: Any) -> bool:
        """Say whether a call's metadata, pairs of key and value, hold this token exactly once and no other."""
        given = [value for key, value in metadata or () if key == METADATA_KEY]
        if len(given) != 1:
            return False
        value = given[0]
        return hmac.compare_digest(value if isinstance(value, bytes) else value.encode(errors="replace"), self._header)

    def __repr__(self) -> str:
        return "Token(secret)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a token is not pickled: it must not travel with other data")


def make_token() -> Token:
    """Draw a new token."""
    return Token(secrets.token_urlsafe(TOKEN_NBYTES))


def write_token(path: str | os.PathLike[str], token: Token) -> None:
    """Write a token to a new file that only this user may read; FileExistsError when there is one."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="ascii") as file:
        file.write(token.reveal() + "\n")


def read_token(path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> Token:
    """Read the token: from ``path``, else from the file ``OUTBOARD_TOKEN_FILE`` names, else from ``OUTBOARD_TOKEN``.

    Raises:
        OSError: the file cannot be read.
        PermissionError: it belongs to somebody else, or others may read or write it.
        ValueError: neither file nor variable is given, or what is there is no token.
    """
    environ = os.environ if environ is None else environ
    path = path or environ.get(TOKEN_FILE_VARIABLE)
    if path:
        return _token_of(_read_private(Path(path)), str(path))
    text = environ.get(TOKEN_VARIABLE)
    if not text:
        raise ValueError(f"no token: set {TOKEN_FILE_VARIABLE} to the path of the cluster's token file")
    return _token_of(text, TOKEN_VARIABLE)


def _token_of(text: str, source: str) -> Token:
    try:
        return Token(text.strip())
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def _read_private(path: Path) -> str:
    # Judged through the descriptor, so that it is the file that is read. O_NONBLOCK: a pipe is not waited for.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise PermissionError(f"{path} is not a regular file")
        if found.st_uid not in (os.geteuid(), 0):
            raise PermissionError(f"{path} belongs to user {found.st_uid}, not to this one ({os.geteuid()})")
        if stat.S_IMODE(found.st_mode) & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            raise PermissionError(f"{path} has mode {mode:04o}; others must not read it: chmod 600 {path}")
        return os.read(fd, 2 * TOKEN_LENGTHS.stop).decode("latin-1")
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files.

    Args:
        cert, key: this process's certificate chain and private key; a server needs both.
        ca: certificates that sign the peers'. A dialler without it trusts the public authorities.
        mutual: a server with ``ca`` demands a certificate of every client.
    """

    cert: str | None = None
    key: str | None = None
    ca: str | None = None
    mutual: bool = True

    def __post_init__(self) -> None:
        if bool(self.cert) != bool(self.key):
            raise ValueError("TLS needs a certificate and its key together: tls_cert and tls_key")
        if not (self.cert or self.ca):
            raise ValueError("TLS needs a certificate with its key, or the certificates of an authority")

    def server_credentials(self) -> Any:
        """Read the files for a server; OSError when one cannot be read."""
        if not (self.cert and self.key):
            raise ValueError("heads and nodes need a certificate and its key for TLS: tls_cert and tls_key")
        ca = _read_pem(self.ca)
        pairs = [(_read_pem(self.key), _read_pem(self.cert))]
        return grpc.ssl_server_credentials(pairs, ca, require_client_auth=self.mutual and ca is not None)

    def channel_credentials(self) -> Any:
        """Read the files for a dialler; OSError when one cannot be read."""
        return grpc.ssl_channel_credentials(_read_pem(self.ca), _read_pem(self.key), _read_pem(self.cert))


def _read_pem(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path else None


@dataclass(frozen=True)
class Security:
    """Token and TLS of a process in a cluster. ``insecure`` allows plain text beyond loopback."""

    token: Token
    tls: Tls | None = None
    insecure: bool = False

    @cached_property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call carries."""
        return self.token.metadata

    def check(self, address: str) -> None:
        """Refuse ``host:port`` where the token would travel in plain text beyond this machine; ValueError says why."""
        host = split_address(address)[0]
        if self.tls is None and not self.insecure and not is_loopback(host):
            raise ValueError(
                f"{address} is not on this machine alone, and without TLS everybody on the way can read the token and "
                "run code: give TLS files, use a loopback address, or insist with insecure"
            )

    def check_listening(self, address: str) -> None:
        """As `check`; where ``insecure`` allows what it would refuse, a warning is logged."""
        self.check(address)
        if self.tls is None and self.insecure and not is_loopback(split_address(address)[0]):
            _log.warning("listening on %s without TLS: whoever reads the network can run code in this cluster", address)


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` (IPv6 in brackets); ValueError for anything else, other schemes of gRPC included."""
    host, colon, port = address.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    is_name = bool(host) and (is_bracketed or (not set(host) & set(":/[]%") and host.lower() not in _SCHEMES))
    if not colon or not is_name or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{address!r} is no address of the form host:port")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Say whether a host name or IP address means this machine alone; a name that cannot be resolved does not."""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(str(ip).partition("%")[0]).is_loopback for ip in found)

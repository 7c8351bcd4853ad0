"""Addresses of machines: which one others can dial, and whether somebody listens there."""

from __future__ import annotations

import ipaddress
import socket
import threading
from typing import Any

from .errors import TransportError

#: Port of a head unless somebody says otherwise.
DEFAULT_PORT = 6733

#: Seconds for a name to be resolved, and for a connection.
REACH_SECONDS = 5.0

_WILDCARDS = ("", "0.0.0.0", "::")


def join_address(host: str, port: int) -> str:
    """Write ``host:port``, IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Read ``host:port``; a missing port is the default one. ValueError says what is wrong with anything else."""
    host, colon, port = address.strip().rpartition(":")
    if not colon or address.strip().endswith("]"):
        host, port = address.strip(), str(DEFAULT_PORT)
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    problem = _problem_with(host, is_bracketed)
    if not problem and (not (port.isascii() and port.isdigit()) or int(port) not in range(1, 65536)):
        problem = f"{port!r} is no port, a number from 1 to 65535"
    if problem:
        form = "of the form host:port, like gpu01:6733 or [fd00::1]:6733"
        raise ValueError(f"{address!r} is no address {form}: {problem}")
    return host, int(port)


def check_host(host: str) -> None:
    """Refuse what is neither the name nor the IP address of a machine; ValueError says why."""
    if problem := _problem_with(host, is_ip=":" in host and "/" not in host):
        raise ValueError(f"{host!r} is no name or IP address of a machine: {problem}")


def _problem_with(host: str, is_ip: bool) -> str:
    """Say what keeps a text from being a host; ``is_ip``: it must be an IP address."""
    if not host:
        return "the host is missing"
    if "/" in host:
        return "leave out the http:// and all that follows a slash" if "://" in host else "it holds a slash"
    if is_ip:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return f"{host!r} is no IP address"
    elif ":" in host:
        return "an IPv6 address stands in brackets"
    return "it holds characters that no name has" if set(host) & set(" []@,;") else ""


def own_host(host: str, peer: str = "192.0.2.1") -> str:
    """Return under what others dial who listens on ``host``: where that is a wildcard, the address towards ``peer``."""
    if host not in _WILDCARDS:
        return host
    try:
        family, _, _, _, where = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(where)  # sends nothing: it only picks the route
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()


def check_reachable(address: str, timeout: float = REACH_SECONDS) -> None:
    """Connect to ``host:port`` and hang up; TransportError says in words why that does not work."""
    problem: OSError | None = None
    for family, kind, proto, _, where in resolve(*split_address(address), timeout):
        with socket.socket(family, kind, proto) as probe:
            probe.settimeout(timeout)
            try:
                return probe.connect(where)
            except OSError as error:
                problem = error
    raise TransportError(f"{address} cannot be reached: {_describe(problem, timeout)}")


def resolve(host: str, port: int, timeout: float = REACH_SECONDS) -> list[Any]:
    """Look a host up, as `socket.getaddrinfo` does, which has no timeout of its own and may take minutes.

    Raises:
        TransportError: there is none of that name, or the name service does not answer.
    """
    found: list[Any] = []
    thread = threading.Thread(target=_resolve, args=(host, port, found), daemon=True)
    thread.start()
    thread.join(timeout)
    if not found:
        raise TransportError(f"{host} was not resolved within {timeout:g} s: the name service does not answer")
    if isinstance(found[0], OSError):
        raise TransportError(f"{host} cannot be resolved: {found[0].strerror or found[0]}")
    addresses: list[Any] = found[0]
    return addresses


def _resolve(host: str, port: int, found: list[Any]) -> None:
    try:
        found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except OSError as error:
        found.append(error)
    except UnicodeError:
        found.append(OSError(0, "it is no host name"))


def _describe(error: OSError | None, timeout: float) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there (connection refused)"
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:g} s"
    return str(error and (error.strerror or error))

"""What a status of gRPC means here, and which status says what we mean: the seam between its errors and ours.

Our own meanings use only codes that the library never makes by itself, so a reader of either end can tell them apart.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from ..errors import (
    AuthenticationError,
    NodeLostError,
    ObjectLostError,
    OutboardError,
    TransportError,
    VersionMismatchError,
)
from .codec import ProtocolError
from .grpc_library import grpc

Code = grpc.StatusCode

#: Characters of a peer's own words that an error repeats.
DETAIL_LENGTH = 500


_CLASS_OF: dict[Any, type[OutboardError]] = {
    Code.UNAUTHENTICATED: AuthenticationError,
    Code.PERMISSION_DENIED: AuthenticationError,
    Code.FAILED_PRECONDITION: VersionMismatchError,
    Code.UNIMPLEMENTED: VersionMismatchError,
    Code.ABORTED: NodeLostError,
    Code.NOT_FOUND: ObjectLostError,
}

#: What to say and to look at first, by what the library says. The first that fits counts.
_KNOWN = {
    "Method not found": "nothing of that kind is served there: is it a node's port, and not the head's?",
    "http2 header with status": "no cluster is served there: is a web server or proxy in the way?",
    "Expected SETTINGS frame": "no cluster is served there: is it the port of a web server or something else?",
    "certificate has expired": "its certificate has expired",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is from an authority that is not trusted here: name it with tls_ca",
    "Hostname Verification": "its certificate is for another host: dial it by a name or address that stands in it",
    "WRONG_VERSION_NUMBER": "it does not speak TLS: leave out tls_ca, tls_cert and tls_key, or start it with them",
}
#: The same for connections that did not come about.
_NO_CONNECTION = "failed to connect"
_NOT_CONNECTED = dict.fromkeys(
    ("Socket closed", "reset by peer"),
    "it hung up at once: it may use TLS (tls_ca), not accept our certificate (tls_cert, tls_key), or be no head at all",
) | {"refused": "nothing listens there (connection refused)"}

_CODE_OF: dict[type[Exception], Any] = {
    VersionMismatchError: Code.FAILED_PRECONDITION,
    AuthenticationError: Code.PERMISSION_DENIED,
    NodeLostError: Code.ABORTED,
    ObjectLostError: Code.NOT_FOUND,
    ProtocolError: Code.INVALID_ARGUMENT,
}


def error_of(peer: str, code: Any, details: str | None) -> OutboardError:
    """Return the error that stands for a status other than OK which ``peer`` (host:port) answered."""
    words = (details or "").strip()[:DETAIL_LENGTH]
    known = _KNOWN | (_NOT_CONNECTED if _NO_CONNECTION in words else {})
    words = next((text for part, text in known.items() if part in words), words)
    return _CLASS_OF.get(code, TransportError)(f"{peer}: {words or 'no details'} ({code.name})")


async def refuse(context: Any, error: Exception) -> NoReturn:
    """End a call on the server's side with the status that stands for ``error``; a fault of ours is shown on stderr.

    Its text is sent only when it is one of our own errors: another one might quote anything.
    """
    code = next((_CODE_OF[kind] for kind in type(error).__mro__ if kind in _CODE_OF), None)
    if code is None:
        sys.excepthook(type(error), error, error.__traceback__)
        await context.abort(Code.INTERNAL, "a fault at the other end; its stderr says more")
    text = error._text() if isinstance(error, OutboardError) else str(error)
    await context.abort(code, text[:DETAIL_LENGTH])
    raise AssertionError("abort returned")


@asynccontextmanager
async def refusing(context: Any) -> AsyncIterator[None]:
    """Turn an exception of a handler into a status (see `refuse`)."""
    try:
        yield
    except grpc.aio.AbortError:
        raise
    except Exception as error:
        await refuse(context, error)


@asynccontextmanager
async def translated(peer: str) -> AsyncIterator[None]:
    """Turn a failed call of the body into our error."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise error_of(peer, error.code(), error.details()) from None

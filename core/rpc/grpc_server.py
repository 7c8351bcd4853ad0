"""The listening side: one port, one gate before every call, and the health service.

The gate stands before the library looks for the method, so services, health and unknown methods are refused alike, and
it answers without reading a message.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Sequence
from typing import Any

from ..errors import TransportError
from .grpc_channels import SERVER_OPTIONS
from .grpc_credentials import Security, Token, split_address
from .grpc_errors import refusing
from .grpc_library import grpc
from .grpc_messages import parse, service
from .protos import cluster_pb2 as pb

#: The name probes ask for.
HEALTH_NAME = "grpc.health.v1.Health"

#: Bytes of a request to the health service.
MAX_HEALTH_NBYTES = 2048

#: Seconds for calls under way when the server stops; links should be closed before.
STOP_GRACE = 1.0

#: Why a port cannot be had, by error number.
_REASONS = {
    errno.EADDRINUSE: "the port is taken",
    errno.EADDRNOTAVAIL: "it is no address of this machine",
    errno.EACCES: "ports of this kind are for root",
}

_log = logging.getLogger("outboard.rpc")


class Server:
    """Serves ``handlers`` (the ``handler`` of each service) and health on one port, to those who know the token.

    Made and used in a running asyncio loop. ``health`` says what is served; ``refused`` counts calls without the token.
    """

    def __init__(self, security: Security, handlers: Sequence[Any]) -> None:
        self._security = security
        self._gate = _Gate(security.token)
        self._names = [handler.service_name() for handler in handlers]
        self.health = Health()
        self._server = grpc.aio.server(interceptors=(self._gate,), options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((*handlers, self.health.handler))

    @property
    def refused(self) -> int:
        """Calls that were refused for lack of the token."""
        return self._gate.refused

    async def start(self, address: str) -> int:
        """Listen on ``host:port``, port 0 for any, and return the port.

        Raises:
            ValueError: see `Security.check_listening`; nothing is opened. TransportError: the address cannot be had.
        """
        self._security.check_listening(address)
        tls = self._security.tls
        try:
            if tls is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, tls.server_credentials())
        except RuntimeError:
            raise TransportError(f"cannot listen on {address}: {_why_not(*split_address(address))}") from None
        await self._server.start()
        for name in ("", *self._names):
            self.health.set(name, True)
        _log.info("listening on %s:%d", split_address(address)[0], port)
        return int(port)

    async def stop(self, grace: float = STOP_GRACE) -> None:
        """Take no more calls; those under way are cut off after ``grace`` seconds."""
        self.health.stop()
        await self._server.stop(grace)


def _why_not(host: str, port: int) -> str:
    """Say why a port cannot be had, which the library keeps to itself."""
    try:
        family, kind, proto, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            probe.listen()
    except OSError as error:
        return _REASONS.get(error.errno or 0, str(error.strerror or error))
    return "the library does not say why"


class _Gate(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # the library has no types
    """Lets a call pass that carries the token once."""

    def __init__(self, token: Token) -> None:
        self._token = token
        self.refused = 0

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Return the handler of the call, or the one that refuses."""
        if self._token.admits(details.invocation_metadata):
            return await continuation(details)
        self.refused += 1
        return _DENY


async def _deny(_: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this cluster asks for its token, and this is not it")


# Of the kind that reads nothing by itself, whatever kind of call it answers.
_DENY = grpc.stream_stream_rpc_method_handler(_deny)


class Health:
    """The standard health service: ``""`` stands for the whole server, other names for its services."""

    def __init__(self) -> None:
        self._statuses: dict[str, pb.HealthReply.Status] = {}
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopped = False
        methods = {"Check": self._check, "Watch": self._watch}
        self.handler = service(pb.DESCRIPTOR.services_by_name["Health"], methods, HEALTH_NAME)

    def set(self, name: str, is_serving: bool) -> None:
        """Say whether a service can be used; watchers are told."""
        self._statuses[name] = pb.HealthReply.SERVING if is_serving else pb.HealthReply.NOT_SERVING
        self._tell()

    def stop(self) -> None:
        """Say that nothing is served any more, and let go of watchers."""
        self._statuses = dict.fromkeys(self._statuses, pb.HealthReply.NOT_SERVING)
        self._stopped = True
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, self._changed.get_loop().create_future()
        changed.set_result(None)

    async def _check(self, request: bytes, context: Any) -> bytes:
        async with refusing(context):
            name = parse(pb.HealthRequest, request, MAX_HEALTH_NBYTES).service
            if name not in self._statuses:
                await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
            return bytes(pb.HealthReply(status=self._statuses[name]).SerializeToString())

    async def _watch(self, request: bytes, context: Any) -> None:
        async with refusing(context):
            name = parse(pb.HealthRequest, request, MAX_HEALTH_NBYTES).service
            told: pb.HealthReply.Status | None = None
            while True:
                changed = self._changed
                status = self._statuses.get(name, pb.HealthReply.SERVICE_UNKNOWN)
                if status != told:
                    await context.write(pb.HealthReply(status=status).SerializeToString())
                    told = status
                if self._stopped:
                    return
                await asyncio.shield(changed)  # it is everybody's: one watcher that leaves must not cancel it

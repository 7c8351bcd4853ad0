"""Settings of gRPC on both ends, and connections to other machines."""

from __future__ import annotations

from typing import Any

from .grpc_credentials import Security
from .grpc_library import grpc

#: Bytes of payload of one gRPC message: larger ones hold up the loop and the control frames behind them.
MAX_PAYLOAD = 1 << 20

#: Bytes of one gRPC message, with prefixes and framing; the library ends a call that sends more.
MAX_MESSAGE_NBYTES = MAX_PAYLOAD + 4096

#: Bytes of the metadata of a call. The token takes at most 600.
MAX_METADATA_NBYTES = 8 * 1024

#: Calls at a time on one connection. A node uses one for its link and a few for objects.
MAX_STREAMS = 128

#: Seconds without a byte after which a connection is probed, and seconds an answer may take. Links in use say something
#: each second, so this finds only peers that vanished while idle.
KEEPALIVE_SECONDS = 10.0
KEEPALIVE_TIMEOUT_SECONDS = 5.0

#: Seconds that a connection to a server may take to prove itself, and may stay without a call. Whoever does not know
#: the token cannot hold one for longer.
HANDSHAKE_SECONDS = 10.0
IDLE_SECONDS = 60.0

_COMMON = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_NBYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_NBYTES),
    ("grpc.max_metadata_size", MAX_METADATA_NBYTES),
    ("grpc.absolute_max_metadata_size", MAX_METADATA_NBYTES),
    ("grpc.keepalive_time_ms", int(KEEPALIVE_SECONDS * 1000)),
    ("grpc.keepalive_timeout_ms", int(KEEPALIVE_TIMEOUT_SECONDS * 1000)),
    ("grpc.http2.max_pings_without_data", 0),
)

SERVER_OPTIONS = (
    *_COMMON,
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_SECONDS * 1000)),
    ("grpc.max_connection_idle_ms", int(IDLE_SECONDS * 1000)),
    ("grpc.http2.min_ping_interval_without_data_ms", int(KEEPALIVE_SECONDS * 500)),
    # The library's default lets two servers share a port, and half of the calls would reach the other one.
    ("grpc.so_reuseport", 0),
)

CHANNEL_OPTIONS = (
    *_COMMON,
    ("grpc.enable_retries", 0),  # sessions resend; a repeat below them would be a second one
    ("grpc.enable_http_proxy", 0),  # nodes reach each other directly, whatever the environment says for the web
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each channel
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


def open_channel(address: str, security: Security) -> Any:
    """Return a channel to ``host:port`` with a connection of its own; it connects with the first call.

    Called in a running asyncio loop; whoever opened it closes it. ValueError: see `Security.check`.
    """
    security.check(address)
    if security.tls is None:
        return grpc.aio.insecure_channel(address, CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(address, security.tls.channel_credentials(), CHANNEL_OPTIONS)

"""The first words of a link between nodes, and whether the two fit."""

from __future__ import annotations

import sys

from ..errors import AuthenticationError, NodeLostError, VersionMismatchError
from ..version import PROTOCOL, __version__
from .codec import HEADER_NBYTES, START, Frame, ProtocolError, decode
from .grpc_messages import parse
from .protos import cluster_pb2 as pb

#: Bytes of a hello.
MAX_HELLO_NBYTES = 8 * 1024


def python_version() -> str:
    """Return this interpreter's major.minor."""
    return "{}.{}".format(*sys.version_info[:2])


def make_hello(incarnation: int, cluster: str = "", address: str = "") -> pb.PeerHello:
    """Say who this process is: protocol, release and Python are filled in."""
    return pb.PeerHello(protocol=PROTOCOL, release=__version__, python=python_version(), incarnation=incarnation,
                        cluster=cluster, address=address)  # fmt: skip


def read_hello(data: bytes) -> pb.PeerHello:
    """Decode the first message of a stream; ProtocolError when it is not one hello."""
    frames, state = decode(START, data[: HEADER_NBYTES + MAX_HELLO_NBYTES])
    if state is not START or len(frames) != 1 or frames[0][0] != Frame.HELLO:
        raise ProtocolError("the first message of a link is one hello")
    hello = parse(pb.PeerHello, frames[0][1], MAX_HELLO_NBYTES)
    if not hello.incarnation:
        raise ProtocolError("a hello without an incarnation")
    return hello


def check_fit(mine: pb.PeerHello, theirs: pb.PeerHello) -> None:
    """Raise VersionMismatchError, AuthenticationError or NodeLostError unless the two may talk (see `dial`)."""
    if (theirs.protocol, theirs.python) != (mine.protocol, mine.python):
        raise VersionMismatchError(
            f"one end runs Outboard {mine.release} (protocol {mine.protocol}) on Python {mine.python}, the other one "
            f"{theirs.release or 'something else'} (protocol {theirs.protocol}) on Python {theirs.python or 'unknown'}"
        )
    if theirs.cluster != mine.cluster:
        raise AuthenticationError(f"one end belongs to cluster {mine.cluster!r}, the other one to {theirs.cluster!r}")
    if theirs.wanted not in (0, mine.incarnation):
        raise NodeLostError(f"node {theirs.wanted:016x} is not here any more; this is {mine.incarnation:016x}")

"""Bounds of messages, services against their descriptors, and what statuses stand for."""

from __future__ import annotations

from typing import Any

import pytest

from outboard.errors import (
    AuthenticationError,
    InternalError,
    NodeLostError,
    ObjectLostError,
    TransportError,
    VersionMismatchError,
)
from outboard.rpc.codec import ProtocolError
from outboard.rpc.grpc_errors import DETAIL_LENGTH, error_of
from outboard.rpc.grpc_library import grpc
from outboard.rpc.grpc_messages import MAX_BYTES_NBYTES, MAX_ENTRIES, MAX_STRING_NBYTES, parse, service
from outboard.rpc.protos import cluster_pb2 as pb

HEALTH = pb.DESCRIPTOR.services_by_name["Health"]


def test_message_within_its_bounds_is_given() -> None:
    report = pb.Report(
        registration=pb.Registration(
            incarnation=1,
            host="x" * MAX_STRING_NBYTES,
            totals={"CPU": 1 << 60},
            names=[pb.NameClaim(name="a", record=bytes(MAX_BYTES_NBYTES))] * 3,
        )
    )
    assert parse(pb.Report, report.SerializeToString(), 1 << 20) == report


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (pb.Member(host="x" * (MAX_STRING_NBYTES + 1)), "Member.host has 1025 bytes"),
        (pb.Member(host="é" * 513), "Member.host has 1026 bytes"),
        (pb.Member(totals={"x" * 1025: 1}), "Member.totals has 1025 bytes"),
        (pb.Membership(left=range(MAX_ENTRIES + 1)), "Membership.left has 4097 entries"),
        (pb.Membership(joined=[pb.Member(host="x" * 1025)]), "Member.host"),
        (pb.Note(membership=pb.Membership(joined=[pb.Member(python="x" * 1025)])), "Member.python"),
        (pb.NameClaim(record=bytes(MAX_BYTES_NBYTES + 1)), "NameClaim.record has 65537 bytes"),
    ],
)
def test_field_over_its_bounds_is_refused(message: Any, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        parse(type(message), message.SerializeToString(), 1 << 20)


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05abc", b"\x12\x02\xff\xfe"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="are no PeerHello"):
        parse(pb.PeerHello, data, 100)


def test_long_message_is_refused_unread() -> None:
    with pytest.raises(ProtocolError, match="PeerHello of 101 bytes"):
        parse(pb.PeerHello, b"\xff" * 101, 100)


async def method(_: Any, __: Any) -> None: ...


@pytest.mark.parametrize("names", [("Check",), ("Check", "Watch", "Other"), ()])
def test_service_has_a_method_for_each_rpc(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"Health has \['Check', 'Watch'\]"):
        service(HEALTH, dict.fromkeys(names, method))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("UNAUTHENTICATED", AuthenticationError),
        ("PERMISSION_DENIED", AuthenticationError),
        ("FAILED_PRECONDITION", VersionMismatchError),
        ("UNIMPLEMENTED", VersionMismatchError),
        ("ABORTED", NodeLostError),
        ("NOT_FOUND", ObjectLostError),
        ("UNAVAILABLE", TransportError),
        ("DEADLINE_EXCEEDED", TransportError),
        ("RESOURCE_EXHAUSTED", TransportError),
        ("INTERNAL", TransportError),
    ],
)
def test_statuses_stand_for_our_errors(code: str, error: type[Exception]) -> None:
    found = error_of("host:1", grpc.StatusCode[code], "x" * 10_000)
    assert type(found) is error
    assert not isinstance(found, InternalError)
    assert str(found).endswith(f" ({code})")
    assert "host:1: xxx" in str(found)
    assert len(str(found)) < DETAIL_LENGTH + 100

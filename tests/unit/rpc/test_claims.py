"""Claim sockets: each packet to exactly one reader."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from outboard.rpc.claims import ClaimSender, claim_pair


@pytest.fixture
def claims() -> Iterator[tuple[ClaimSender, int]]:
    send_end, read_end = claim_pair()
    sender = ClaimSender(send_end, read_end)
    worker = os.dup(read_end.fileno())
    yield sender, worker
    os.close(worker)
    sender.close()


def test_what_the_node_takes_back_the_worker_never_sees(claims: tuple[ClaimSender, int]) -> None:
    sender, worker = claims
    for packet in (b"one", b"two", b"three"):
        assert sender.send(packet)
    assert os.read(worker, 100) == b"one"
    assert sender.take_back() == b"two"
    assert os.read(worker, 100) == b"three"
    assert sender.take_back() is None


def test_full_socket_says_so_and_takes_more_once_read(claims: tuple[ClaimSender, int]) -> None:
    sender, _ = claims
    sent = 0
    while sender.send(bytes(50_000)):
        sent += 1
    assert sent >= 4
    returned = 0
    while sender.take_back() is not None:
        returned += 1
    assert returned == sent
    assert sender.send(b"again")


def test_longest_packet_comes_through_whole(claims: tuple[ClaimSender, int]) -> None:
    sender, _ = claims
    packet = os.urandom(sender.max_nbytes)
    assert sender.send(packet)
    assert sender.take_back() == packet


@pytest.mark.parametrize("excess", [None, 1])
def test_packet_of_wrong_size_is_refused(claims: tuple[ClaimSender, int], excess: int | None) -> None:
    sender, _ = claims
    with pytest.raises(ValueError, match="a packet has 1 to"):
        sender.send(b"" if excess is None else bytes(sender.max_nbytes + excess))


def test_finished_socket_ends_after_the_packets_dealt(claims: tuple[ClaimSender, int]) -> None:
    sender, worker = claims
    sender.send(b"one")
    sender.send(b"two")
    sender.finish()
    assert os.read(worker, 100) == b"one"
    assert sender.take_back() == b"two"
    assert sender.take_back() is None
    assert os.read(worker, 100) == b""


def test_packets_of_a_dead_worker_can_be_taken_back() -> None:
    send_end, read_end = claim_pair()
    sender = ClaimSender(send_end, read_end)
    sender.send(b"packet")
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert sender.take_back() == b"packet"
    sender.close()

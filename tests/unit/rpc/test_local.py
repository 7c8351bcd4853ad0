"""The blocking end of a local link: whole frames, interruptions at every step, descriptors, the end of the stream."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from outboard.rpc import sockets
from outboard.rpc.codec import MAX_DESCRIPTORS, Frame, FrameDecoder, ProtocolError, encode_frame
from outboard.rpc.local import BlockingLink, accept, connect, listen, peer_ids, socketpair

RPC_FOLDER = os.path.dirname(sockets.__file__)


class Interrupted(BaseException):
    """What a signal handler raises."""


def interrupt_at(number: int, action: Callable[[], Any]) -> bool:
    """Run ``action``; raise at its ``number``-th step in the link's code. False when it has fewer steps.

    Steps are where the interpreter looks for signals: at the start of a function and after a call of C code.
    """
    left = number

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(RPC_FOLDER):
            left -= 1
            if left == 0:
                raise Interrupted

    sys.setprofile(look)
    try:
        action()
    except Interrupted:
        pass
    finally:
        sys.setprofile(None)
    return left <= 0


@pytest.fixture
def pair() -> Iterator[tuple[BlockingLink, BlockingLink]]:
    first, second = map(BlockingLink, socketpair())
    yield first, second
    first.close()
    second.close()


def take(link: BlockingLink, count: int) -> list[Any]:
    frames: list[Any] = []
    while len(frames) < count:
        assert link.receive(10.0)
        frames.extend(link.frames())
    return frames


def test_frames_arrive_in_order_and_whole(pair: tuple[BlockingLink, BlockingLink]) -> None:
    here, there = pair
    here.send(Frame.SUBMIT, b"one", 5)
    here.send_raw(encode_frame(Frame.WANT, b"two") + encode_frame(Frame.CANCEL, b"three"))
    assert take(there, 3) == [
        (Frame.SUBMIT, b"one", 5, ()),
        (Frame.WANT, b"two", 0, ()),
        (Frame.CANCEL, b"three", 0, ()),
    ]


def test_receive_without_anything_to_read_times_out(pair: tuple[BlockingLink, BlockingLink]) -> None:
    assert not pair[0].receive(0)
    assert not pair[0].receive(0.01)


def test_interrupted_receive_loses_and_doubles_nothing() -> None:
    number, goes_on = 0, True
    while goes_on:
        number += 1
        here, there = map(BlockingLink, socketpair())
        with open(os.devnull) as file:
            here.send(Frame.SUBMIT, b"first")
            here.send(Frame.SEGMENT, b"second", fds=[file.fileno()])
            here.send(Frame.SUBMIT, b"third")
        got: list[Any] = []

        def read(link: BlockingLink = there, got: list[Any] = got) -> None:
            while len(got) < 3:
                link.receive(1.0)
                got.extend(link.frames())

        goes_on = interrupt_at(number, read)
        read()
        assert [frame[1] for frame in got] == [b"first", b"second", b"third"], f"interrupted at step {number}"
        assert [len(frame[3]) for frame in got] == [0, 1, 0]
        os.close(got[1][3][0])
        here.close()
        there.close()
    assert number > 10


def test_interrupted_send_is_completed_before_the_next_frame() -> None:
    bodies = [bytes([letter]) * 40_000 for letter in range(4)]
    number, goes_on = 0, True
    while goes_on:
        number += 1
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        link, decoder = BlockingLink(ours), FrameDecoder()
        reader = threading.Thread(target=feed_until_end, args=(theirs, decoder))
        reader.start()
        sent: list[int] = []

        def write(link: BlockingLink = link, sent: list[int] = sent) -> None:
            for index, body in enumerate(bodies[:3]):
                link.send(Frame.SUBMIT, body, index)
                sent.append(index)

        goes_on = interrupt_at(number, write)
        link.send(Frame.SUBMIT, bodies[3], 3)
        link.close()
        reader.join()
        theirs.close()
        frames = decoder.frames()
        arrived = [frame[2] for frame in frames]
        assert all(frame[1] == bodies[frame[2]] for frame in frames), f"interrupted at step {number}"
        assert arrived == sorted(set(arrived)), f"interrupted at step {number}"
        assert {*sent, 3} <= set(arrived), f"interrupted at step {number}"
    assert number > 10


def feed_until_end(sock: socket.socket, decoder: FrameDecoder) -> None:
    while chunk := sock.recv(3000):
        decoder.feed(chunk)


def test_two_ends_that_both_send_more_than_fits_do_not_deadlock(pair: tuple[BlockingLink, BlockingLink]) -> None:
    body = bytes(4_000_000)
    got: list[Any] = []

    def exchange(link: BlockingLink) -> None:
        link.send(Frame.ANSWER, body)
        got.extend(take(link, 1))

    other = threading.Thread(target=exchange, args=(pair[1],))
    other.start()
    exchange(pair[0])
    other.join(20)
    assert [frame[1] for frame in got] == [body, body]


def test_sending_and_receiving_threads_share_a_link(pair: tuple[BlockingLink, BlockingLink]) -> None:
    count = 300
    got: dict[BlockingLink, list[Any]] = {}
    threads = [threading.Thread(target=lambda link=link: got.update({link: take(link, count)})) for link in pair]
    threads.append(
        threading.Thread(target=lambda: [pair[1].send(Frame.LOG, bytes(20_000), number) for number in range(count)])
    )
    for thread in threads:
        thread.start()
    for number in range(count):
        pair[0].send(Frame.SUBMIT, bytes(20_000), number)
    for thread in threads:
        thread.join(20)
    assert [[frame[2] for frame in got[link]] for link in pair] == [list(range(count))] * 2


def test_end_of_the_stream_comes_after_all_frames(pair: tuple[BlockingLink, BlockingLink]) -> None:
    here, there = pair
    here.send(Frame.FINISHED, b"last")
    here.close()
    assert take(there, 1)[0][1] == b"last"
    assert there.receive(None)
    assert there.frames() == []
    assert there.closed
    assert there.receive(None)


def test_peer_that_is_gone_breaks_sending_but_not_reading(pair: tuple[BlockingLink, BlockingLink]) -> None:
    here, there = pair
    there.send(Frame.SUBMIT, b"unread")
    here.send(Frame.FINISHED, b"last words")
    here.close()
    with pytest.raises(BrokenPipeError):
        there.send(Frame.SUBMIT, b"")
    assert take(there, 1)[0][1] == b"last words"
    assert there.receive(None)
    there.frames()
    assert there.closed


def test_descriptors_are_the_callers_to_close_at_once_and_not_inherited(
    pair: tuple[BlockingLink, BlockingLink],
) -> None:
    read_end, write_end = os.pipe()
    pair[0].send(Frame.FORKED, b"", 0, [read_end])
    os.close(read_end)
    ((_, _, _, (received,)),) = take(pair[1], 1)
    os.write(write_end, b"through")
    assert os.read(received, 10) == b"through"
    assert fcntl.fcntl(received, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    os.close(received)
    os.close(write_end)


def test_descriptors_nobody_took_are_closed_with_the_link() -> None:
    here, there = map(BlockingLink, socketpair())
    read_end, write_end = os.pipe()
    for _ in range(2):
        here.send(Frame.SEGMENT, b"", 0, [read_end])
    there.receive(1.0)
    here.close()
    os.close(read_end)
    there.close()
    with pytest.raises(BrokenPipeError):
        os.write(write_end, b"nobody reads")
    os.close(write_end)


def test_too_many_descriptors_are_refused(pair: tuple[BlockingLink, BlockingLink]) -> None:
    with pytest.raises(ProtocolError, match="at most 253 descriptors"):
        pair[0].send(Frame.SEGMENT, b"", 0, [0] * (MAX_DESCRIPTORS + 1))


def test_listener_lies_in_a_folder_of_its_own(tmp_path: Any) -> None:
    path = str(tmp_path / "s" / "node.sock")
    with listen(path) as listener, connect(path) as ours, accept(listener) as theirs:
        assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700
        assert peer_ids(ours) == peer_ids(theirs) == (os.getpid(), os.geteuid())
    with pytest.raises(FileExistsError):
        listen(path)


def test_stranger_is_refused_on_both_sides(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "s" / "node.sock")
    with listen(path) as listener, connect(path) as ours:
        monkeypatch.setattr(sockets.os, "geteuid", lambda: 12345)  # type: ignore[attr-defined]  # the one that it imported
        with pytest.raises(PermissionError, match="not to 12345"):
            accept(listener)
        with pytest.raises(PermissionError):
            connect(path)
        assert ours.recv(1) == b""


def test_path_too_long_for_a_socket_is_named() -> None:
    with pytest.raises(OSError, match="at most 103 bytes"):
        connect("/tmp/" + "x" * 200)

"""What every event loop of a node promises: readiness, timers, order, and what callbacks may do."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator

import pytest

from outboard.aioloop import AioLoop
from outboard.pollloop import PollLoop, _SelectorPoller

AnyLoop = PollLoop | AioLoop

if importlib.util.find_spec("uvloop") is not None:
    AioLoop().close()  # its library keeps a pipe for the process from its first loop on


@pytest.fixture(params=["epoll", "selectors", "uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[AnyLoop]:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    elif request.param == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    made: AnyLoop = AioLoop() if request.param in {"uvloop", "asyncio"} else PollLoop()
    if isinstance(made, AioLoop):
        assert (type(made.asyncio).__module__ == "uvloop") is (request.param == "uvloop")
    elif request.param == "selectors":
        made.close()
        made._poller = _SelectorPoller()
    yield made
    made.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        try:
            os.close(fd)
        except OSError:
            pass


def test_reader_is_called_while_there_is_something_to_read(loop: AnyLoop, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    seen: list[bytes] = []

    def take(tag: str) -> None:
        seen.append(os.read(reader, 1))
        if len(seen) == 3:
            loop.stop()

    loop.add_reader(reader, take, "tag")
    os.write(writer, b"abc")
    loop.run_forever()
    assert seen == [b"a", b"b", b"c"]
    loop.remove_reader(reader)
    loop.remove_reader(reader)


def test_end_of_file_calls_the_reader(loop: AnyLoop, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    loop.add_reader(reader, lambda: loop.stop() if os.read(reader, 1) == b"" else None)
    os.close(writer)
    loop.run_forever()
    loop.remove_reader(reader)


def test_reader_and_writer_of_one_descriptor_are_apart(loop: AnyLoop, pipe: tuple[int, int]) -> None:
    _, writer = pipe
    calls: list[str] = []

    def write() -> None:
        calls.append("write")
        loop.remove_writer(writer)
        loop.remove_writer(writer)
        loop.call_soon(loop.stop)

    loop.add_reader(writer, lambda: calls.append("read"))
    loop.add_writer(writer, write)
    loop.run_forever()
    loop.remove_reader(writer)
    assert calls == ["write"]


def test_what_a_callback_removed_is_not_called_in_the_same_turn(loop: AnyLoop) -> None:
    first, second = os.pipe(), os.pipe()
    calls: list[int] = []

    def take(mine: int, other: int) -> None:
        calls.append(mine)
        loop.remove_reader(mine)
        loop.remove_reader(other)
        loop.call_soon(loop.stop)

    loop.add_reader(first[0], take, first[0], second[0])
    loop.add_reader(second[0], take, second[0], first[0])
    os.write(first[1], b"x")
    os.write(second[1], b"x")
    loop.run_forever()
    assert len(calls) == 1
    for fd in (*first, *second):
        os.close(fd)


def test_timers_run_in_order_of_their_time(loop: AnyLoop) -> None:
    calls: list[str] = []
    loop.call_later(0.02, calls.append, "late")
    loop.call_later(0.0, calls.append, "now")
    loop.call_later(0.01, calls.append, "soon")
    loop.call_later(0.03, loop.stop)
    loop.run_forever()
    assert calls == ["now", "soon", "late"]


def test_clock_goes_on_within_a_turn(loop: AnyLoop) -> None:
    times: list[float] = []

    def look() -> None:
        times.append(loop.time())
        while loop.time() == times[0]:
            pass
        times.append(loop.time())
        loop.stop()

    loop.call_soon(look)
    loop.run_forever()
    assert 0 < times[1] - times[0] < 0.001


def test_exception_of_a_callback_is_shown_and_the_loop_goes_on(
    loop: AnyLoop, capsys: pytest.CaptureFixture[str]
) -> None:
    loop.call_soon(lambda: 1 // 0)
    loop.call_later(0.01, loop.stop)
    loop.run_forever()
    assert "ZeroDivisionError" in capsys.readouterr().err

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from outboard.process import stdio
from outboard.process.stdio import MAX_LINE, TAIL_NBYTES, LineReader


class Pipe:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        read_end, self.write_end = os.pipe()
        self.texts: list[str] = []
        self.ends = 0
        self.reader = LineReader(read_end, self.loop, self.on_text)

    def on_text(self, texts: list[str], is_ended: bool) -> None:
        self.texts += texts
        self.ends += is_ended

    def write(self, data: bytes) -> None:
        os.write(self.write_end, data)

    def run_until(self, condition: Callable[[], object]) -> None:
        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0)

        self.loop.run_until_complete(asyncio.wait_for(wait(), 10))

    def end(self) -> None:
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.end()
    made.reader.close()
    made.loop.close()


def test_whole_lines_are_passed_on_and_the_rest_waits(pipe: Pipe) -> None:
    pipe.write(b"one\r\ntwo\n\nhal")
    pipe.run_until(lambda: pipe.texts)
    assert pipe.texts == ["one\r\n", "two\n", "\n"] and pipe.reader.is_within_line
    pipe.write(b"f\n")
    pipe.run_until(lambda: len(pipe.texts) == 4)
    assert pipe.texts[3] == "half\n" and not pipe.reader.is_within_line


def test_unfinished_line_comes_at_the_end(pipe: Pipe) -> None:
    pipe.write(b"last wor\xffds \xe2\x82")
    pipe.end()
    pipe.run_until(lambda: pipe.reader.closed)
    assert pipe.texts == ["last wor\ufffdds \ufffd"]
    assert pipe.ends == 1


def test_unfinished_line_comes_after_a_while(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "PIECE_SECONDS", 0.001)
    pipe.write("50 \u20ac".encode()[:-1])
    pipe.run_until(lambda: pipe.texts)
    pipe.write("\u20ac more".encode()[2:])
    pipe.run_until(lambda: len(pipe.texts) == 2)
    assert pipe.texts == ["50 ", "\u20ac more"]
    assert pipe.ends == 0 and pipe.reader.is_within_line


def test_line_that_began_later_has_its_own_while(pipe: Pipe) -> None:
    due: list[Any] = []
    pipe.loop.call_later = lambda delay, callback, *args: due.append((callback, args))  # type: ignore[assignment]  # a fake
    pipe.write(b"on")
    pipe.reader.drain()
    pipe.write(b"e\ntwo")
    pipe.reader.drain()
    callback, args = due.pop()
    callback(*args)
    assert pipe.texts == ["one\n"]
    callback, args = due.pop()
    callback(*args)
    assert pipe.texts == ["one\n", "two"]
    assert not due


def test_line_of_a_task_that_has_ended_ends(pipe: Pipe) -> None:
    pipe.write(b"a")
    pipe.reader.drain()
    pipe.reader.pass_rest(is_ended=False)
    pipe.reader.pass_rest(is_ended=False)
    pipe.write(b"\xe2")  # of a character: nothing to pass on, and the line goes on
    pipe.reader.drain()
    assert (pipe.texts, pipe.ends, pipe.reader.is_within_line) == (["a"], 0, True)
    pipe.reader.pass_rest(is_ended=True)
    pipe.reader.pass_rest(is_ended=True)
    assert (pipe.texts, pipe.ends) == (["a", ""], 1)


def test_endless_line_comes_in_pieces(pipe: Pipe) -> None:
    pipe.write(b"x" * (MAX_LINE + 10))
    pipe.run_until(lambda: pipe.texts)
    assert pipe.texts == ["x" * (MAX_LINE + 10)] and pipe.reader.is_within_line


def test_tail_keeps_the_last_lines(pipe: Pipe) -> None:
    pipe.write(b"short\n")
    pipe.run_until(lambda: pipe.texts)
    assert pipe.reader.tail == "short\n"
    for number in range(300):
        pipe.write(b"line %d of many\n" % number)
    pipe.run_until(lambda: len(pipe.texts) == 301)
    assert len(pipe.reader.tail) <= TAIL_NBYTES
    assert pipe.reader.tail.startswith("line ")
    assert pipe.reader.tail.endswith("line 299 of many\n")


def test_drain_takes_what_lies_in_a_pipe_that_others_hold_open(pipe: Pipe) -> None:
    pipe.write(b"before death\n")
    pipe.reader.drain()
    assert pipe.texts == ["before death\n"]
    assert not pipe.reader.closed


def test_close_stops_reading_and_passes_the_rest_on(pipe: Pipe) -> None:
    pipe.write(b"rest")
    pipe.reader.drain()
    pipe.reader.close()
    pipe.reader.close()
    assert pipe.texts == ["rest"]

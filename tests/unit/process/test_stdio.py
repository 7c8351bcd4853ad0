from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator

import pytest

from outboard.process.stdio import MAX_LINE_NBYTES, TAIL_NBYTES, LineReader


class Pipe:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        read_end, self.write_end = os.pipe()
        self.lines: list[str] = []
        self.reader = LineReader(read_end, self.loop, self.lines.extend)

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
    pipe.run_until(lambda: pipe.lines)
    assert pipe.lines == ["one", "two", ""]
    pipe.write(b"f\n")
    pipe.run_until(lambda: len(pipe.lines) == 4)
    assert pipe.lines[3] == "half"


def test_unfinished_line_comes_at_the_end(pipe: Pipe) -> None:
    pipe.write(b"last wor\xffds")
    pipe.end()
    pipe.run_until(lambda: pipe.reader.closed)
    assert pipe.lines == ["last wor\ufffdds"]


def test_endless_line_comes_in_pieces(pipe: Pipe) -> None:
    pipe.write(b"x" * (MAX_LINE_NBYTES + 10))
    pipe.run_until(lambda: pipe.lines)
    assert pipe.lines == ["x" * MAX_LINE_NBYTES]


def test_tail_keeps_the_last_lines(pipe: Pipe) -> None:
    pipe.write(b"short\n")
    pipe.run_until(lambda: pipe.lines)
    assert pipe.reader.tail == "short\n"
    for number in range(300):
        pipe.write(b"line %d of many\n" % number)
    pipe.run_until(lambda: len(pipe.lines) == 301)
    assert len(pipe.reader.tail) <= TAIL_NBYTES
    assert pipe.reader.tail.startswith("line ")
    assert pipe.reader.tail.endswith("line 299 of many\n")


def test_drain_takes_what_lies_in_a_pipe_that_others_hold_open(pipe: Pipe) -> None:
    pipe.write(b"before death\n")
    pipe.reader.drain()
    assert pipe.lines == ["before death"]
    assert not pipe.reader.closed


def test_close_stops_reading_and_passes_the_rest_on(pipe: Pipe) -> None:
    pipe.write(b"rest")
    pipe.reader.drain()
    pipe.reader.close()
    pipe.reader.close()
    assert pipe.lines == ["rest"]

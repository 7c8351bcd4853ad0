"""What the client's terminal shows of workers' output."""

from __future__ import annotations

from typing import Any

import pytest

from outboard.logs import Printer
from outboard.rpc.protos import outboard_pb2 as pb


def piece(text: str, pid: int = 1, function: str = "f", **fields: Any) -> pb.Line:
    return pb.Line(text=text, pid=pid, function=function, host="h", **fields)


def shown(printer: Printer, capsys: pytest.CaptureFixture[str], *lines: pb.Line, dropped: int = 0) -> str:
    for line in lines:
        printer.print(pb.Log(lines=[line]))
    if dropped:
        printer.print(pb.Log(dropped=dropped))
    out, err = capsys.readouterr()
    return out + err


@pytest.mark.parametrize(
    ("prefix", "plain", "expected"),
    [
        (None, False, "f@h:1 | a\n"), (None, True, "a\n"),
        (True, True, "f@h:1 | a\n"), (False, False, "a\n"),
    ],
)  # fmt: skip
def test_prefix_is_for_plain_tasks_unless_told_otherwise(
    capsys: pytest.CaptureFixture[str], prefix: bool | None, plain: bool, expected: str
) -> None:
    assert shown(Printer(prefix), capsys, piece("a\n", plain=plain)) == expected


@pytest.mark.parametrize("prefix", [None, True])
def test_word_of_a_node_has_no_prefix(capsys: pytest.CaptureFixture[str], prefix: bool | None) -> None:
    assert shown(Printer(prefix), capsys, pb.Line(text="outboard: waiting\n", stderr=True, ended=True)) == (
        "outboard: waiting\n"
    )


def test_pieces_of_one_line_are_put_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(Printer(None), capsys, piece("a"), piece("b"), piece("c\n"), piece("d\n")) == (
        "f@h:1 | abc\nf@h:1 | d\n"
    )


def test_line_that_another_process_cuts_off_goes_on_in_a_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(Printer(None), capsys, piece("a"), piece("other\n", 2), piece("b\n")) == (
        "f@h:1 | a\nf@h:2 | other\nf@h:1 | b\n"
    )


def test_task_that_ends_ends_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer(None)
    assert shown(printer, capsys, piece("a"), piece("", ended=True)) == "f@h:1 | a\n"
    assert shown(printer, capsys, piece("a", ended=True), piece("b\n")) == "f@h:1 | a\nf@h:1 | b\n"
    assert shown(printer, capsys, piece("a"), piece("b\n", 2), piece("", ended=True)) == "f@h:1 | a\nf@h:2 | b\n"


def test_progress_bar_stays_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(Printer(None), capsys, piece("\r10%"), piece("\r20%\r30%"), piece("\n"), piece("x\r\n")) == (
        "f@h:1 | 10%\rf@h:1 | 20%\rf@h:1 | 30%\nf@h:1 | x\n"
    )


def test_text_without_prefix_comes_as_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    pieces = [piece("a", plain=True, ended=True), piece("b", 2, plain=True), piece("\r10%\r\n", plain=True)]
    assert shown(Printer(None), capsys, *pieces) == "ab\r10%\r\n"


def test_prefixed_and_plain_lines_do_not_run_into_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(Printer(None), capsys, piece("a", plain=True), piece("b", 2), piece("c", plain=True)) == (
        "a\nf@h:2 | b\nc"
    )


def test_streams_are_kept_apart(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer(None)
    printer.print(pb.Log(lines=[piece("a"), piece("error\n", stderr=True), piece("b\n")]))
    assert capsys.readouterr() == ("f@h:1 | ab\n", "f@h:1 | error\n")


def test_end_of_the_session_ends_a_prefixed_line(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer(None)
    printer.print(pb.Log(lines=[piece("a"), piece("b", stderr=True, plain=True)]))
    printer.close()
    printer.close()
    assert capsys.readouterr() == ("f@h:1 | a\n", "b")


def test_dropped_lines_are_counted_in_a_line_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(Printer(None), capsys, piece("a", stderr=True), dropped=3)
    assert text.startswith("f@h:1 | a\noutboard: 3 lines of workers were dropped")


def test_closed_stream_loses_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    Printer(None).print(pb.Log(lines=[piece("a\n")]))

from __future__ import annotations

import signal

import pytest

from outboard.process.reasons import death_message, decode_status, describe_exit, format_nbytes

GIB = 1 << 30


@pytest.mark.parametrize(("status", "expected"), [(0, (0, 0)), (3 << 8, (3, 0)), (9, (0, 9)), (0x80 | 11, (0, 11))])
def test_status_is_an_exit_code_or_a_signal(status: int, expected: tuple[int, int]) -> None:
    assert decode_status(status) == expected


def test_ends_have_names() -> None:
    assert describe_exit(0, signal.SIGKILL) == "SIGKILL (-9)"
    assert describe_exit(3, 0) == "exit code 3"
    assert describe_exit(0, 63) == "signal 63 (-63)"


@pytest.mark.parametrize(("nbytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**50, "1024.0 TiB")])
def test_sizes_have_units(nbytes: int, text: str) -> None:
    assert format_nbytes(nbytes) == text


def test_kill_near_the_limit_points_to_memory() -> None:
    text = death_message(
        "train_step", pid=41207, host="gpu03", signal_number=9, attempt=3, max_attempts=3,
        peak_nbytes=30 * GIB, limit_nbytes=32 * GIB, stderr_tail="a\nb\n",
    )  # fmt: skip
    assert "train_step lost: worker process 41207 on gpu03 ended with SIGKILL (-9) during attempt 3 of 3" in text
    assert "no attempts left" in text
    assert "30.0 GiB of 32.0 GiB" in text
    assert "Run fewer tasks at once" in text
    assert text.endswith("stderr:\n  a\n  b")


def test_kill_far_below_the_limit_points_elsewhere() -> None:
    text = death_message("f", pid=1, host="h", signal_number=9, peak_nbytes=GIB, limit_nbytes=32 * GIB)
    assert "somebody else" in text
    assert "Run fewer" not in text


def test_kill_without_figures_still_advises() -> None:
    text = death_message("f", pid=1, host="h", signal_number=9, attempt=1, max_attempts=4)
    assert "it will be run again" in text
    assert "memory runs out" in text
    assert "peak" not in text


def test_other_ends_are_told_apart() -> None:
    assert "Compiled code crashed" in death_message("f", pid=1, host="h", signal_number=signal.SIGSEGV)
    assert "signal from outside" in death_message("f", pid=1, host="h", signal_number=signal.SIGTERM)
    assert "os._exit(5)" in death_message("f", pid=1, host="h", exitcode=5, peak_nbytes=GIB)

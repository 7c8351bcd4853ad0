"""Why a process ended, in words that say what to do next."""

from __future__ import annotations

import os
import signal

#: Peak memory from this share of the limit on makes memory the likely reason of a SIGKILL.
_NEAR_LIMIT = 0.8

#: Signals that compiled code brings on itself.
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT}


def decode_status(status: int) -> tuple[int, int]:
    """Split a wait status into (exit code, signal); one of them is 0."""
    code = os.waitstatus_to_exitcode(status)
    return (code, 0) if code >= 0 else (0, -code)


def describe_exit(exitcode: int, signal_number: int) -> str:
    """Name an end: ``SIGKILL (-9)`` for a signal, ``exit code 3`` otherwise."""
    if not signal_number:
        return f"exit code {exitcode}"
    try:
        name = signal.Signals(signal_number).name
    except ValueError:  # real-time signals have no names
        name = f"signal {signal_number}"
    return f"{name} (-{signal_number})"


def format_nbytes(nbytes: int) -> str:
    """Write a size with a binary unit and one decimal: ``30.1 GiB``."""
    size, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{nbytes} B" if unit == "B" else f"{size:.1f} {unit}"


def death_message(
    function: str,
    *,
    pid: int,
    host: str,
    exitcode: int = 0,
    signal_number: int = 0,
    attempt: int = 1,
    max_attempts: int = 1,
    peak_nbytes: int = 0,
    limit_nbytes: int = 0,
    stderr_tail: str = "",
) -> str:
    """Tell of a task whose worker process ended under it: what, what is known, what was done, what to do next.

    Args:
        attempt: number of this run, from 1; ``max_attempts`` is how many the task gets in all.
        peak_nbytes: most memory the process used; 0 when unknown. ``limit_nbytes`` likewise, 0 for none.
        stderr_tail: last lines the process wrote to stderr.
    """
    ended = describe_exit(exitcode, signal_number)
    head = (
        f"{function} lost: worker process {pid} on {host} ended with {ended} during attempt {attempt} of {max_attempts}"
    )
    then = "no attempts left." if attempt >= max_attempts else "it will be run again."
    text = f"{head}; {then} {_advice(exitcode, signal_number, peak_nbytes, limit_nbytes)}"
    tail = stderr_tail.strip("\n")
    if tail:
        text += "\nLast lines of its stderr:\n" + "\n".join("  " + line for line in tail.splitlines())
    return text


def _advice(exitcode: int, signal_number: int, peak_nbytes: int, limit_nbytes: int) -> str:
    memory = ""
    if peak_nbytes:
        memory = f"Its peak memory was {format_nbytes(peak_nbytes)}"
        memory += f" of {format_nbytes(limit_nbytes)}." if limit_nbytes else "."
    if signal_number == signal.SIGKILL:
        if limit_nbytes and 0 < peak_nbytes < _NEAR_LIMIT * limit_nbytes:
            return f"{memory} That is below the limit, so somebody else probably sent the signal."
        cause = "The kernel ends processes this way when memory runs out."
        return " ".join(filter(None, (cause, memory, "Run fewer tasks at once or raise the memory limit.")))
    if signal_number in _CRASHES:
        cause = "Compiled code crashed; set PYTHONFAULTHANDLER=1 to see where."
    elif signal_number:
        cause = "A signal from outside ended it."
    else:
        cause = f"It left by itself: look for os._exit({exitcode}) or a library that ends its process."
    return " ".join(filter(None, (cause, memory)))

"""Show how far joblib is, by the lines that its ``verbose`` prints.

joblib says on stderr how many tasks of a ``Parallel`` are done, whatever the backend and whoever calls it. On a
terminal these lines become one that is drawn anew; elsewhere some of them become plain lines.
"""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from typing import TextIO

import joblib
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

#: Above 10 joblib says a line for each batch, from 50 on it does so on stdout.
VERBOSE = 49

#: Seconds between two lines of progress where the output is no terminal.
LINE_PERIOD = 3.0

DONE = re.compile(r"\[Parallel\(.*\)\]: Done +(\d+) ")


class Listener(io.TextIOBase):
    """Stands for stderr: hears what joblib says, and passes everything else on."""

    def __init__(self, on_done: Callable[[int], object], beyond: TextIO) -> None:
        self._on_done = on_done
        self._beyond = beyond

    def write(self, text: str) -> int:
        """Take a text; joblib writes a line at a time."""
        said = DONE.match(text)
        if said is not None:
            self._on_done(int(said[1]))
        elif not text.startswith("[Parallel("):
            self._beyond.write(text)
        return len(text)

    def flush(self) -> None:
        """Pass on."""
        self._beyond.flush()


@contextmanager
def line(name: str, total: int, console: Console) -> Iterator[Callable[[int], object]]:
    """Draw a live line; gives what to call with the number of tasks that are done."""
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task(name, total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def lines(name: str, total: int, console: Console) -> Iterator[Callable[[int], object]]:
    """Print a plain line every few seconds; gives what to call with the number of tasks that are done."""
    started = said = time.perf_counter()

    def on_done(done: int) -> None:
        nonlocal said
        now = time.perf_counter()
        if now - said >= LINE_PERIOD or done == total:
            said = now
            console.print(f"{name}: {done}/{total}, {now - started:.1f} s")

    yield on_done


@contextmanager
def watched(name: str, total: int, console: Console) -> Iterator[None]:
    """Show how the one ``Parallel`` that is called meanwhile gets on with its tasks."""
    show = line if console.is_terminal else lines
    with (
        show(name, total, console) as on_done,
        redirect_stderr(Listener(on_done, sys.stderr)),
        joblib.parallel_config(verbose=VERBOSE),
    ):
        yield

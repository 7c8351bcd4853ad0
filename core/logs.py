"""What workers print, on the client's terminal: lines with a short prefix, or the plain text."""

from __future__ import annotations

import sys
import threading
from typing import Any

DROPPED = "outboard: {} lines of workers were dropped: this process did not read them in time\n"


class Printer:
    """Writes what workers print to this process's standard streams.

    Args:
        prefix: begin each line with function, machine and process; None does so for plain tasks and actors. Lines
            with a prefix are kept whole; text without one comes as it was written, as from the stock Pool's workers.
    """

    def __init__(self, prefix: bool | None) -> None:
        self._prefix = prefix
        # By stream: the prefix of the unfinished line that the cursor stands in, None at the beginning of a line.
        self._begun: dict[bool, str | None] = {False: None, True: None}
        self._lock = threading.RLock()  # lines come in whatever thread reads them

    def print(self, log: Any) -> None:
        """Write what one LOG message brings; a closed stream loses it."""
        with self._lock:
            for is_stderr in (False, True):
                text = "".join(self._format(line) for line in log.lines if line.stderr is is_stderr)
                if is_stderr and log.dropped:
                    text += self._end_line(True) + DROPPED.format(log.dropped)
                _write(text, is_stderr)

    def close(self) -> None:
        """End a line that will get no end any more; without a prefix it stays as it is."""
        with self._lock:
            for is_stderr in (False, True):
                if self._begun[is_stderr]:
                    _write(self._end_line(is_stderr), is_stderr)

    def _end_line(self, is_stderr: bool) -> str:
        begun, self._begun[is_stderr] = self._begun[is_stderr], None
        return "" if begun is None else "\n"

    def _format(self, line: Any) -> str:
        prefix = self._prefix_of(line)
        begun = self._begun[line.stderr]
        text: str = line.text
        if not text and (not prefix or begun != prefix):
            return ""  # the end of a line that another one has cut off
        if prefix:
            if begun != prefix:
                text = prefix + text.removeprefix("\r")
            # Progress bars go back to the beginning of their line.
            text = text.replace("\r\n", "\n").replace("\r", "\r" + prefix)
            if line.ended and not text.endswith("\n"):
                text += "\n"
        if begun is not None and begun != prefix:
            text = self._end_line(line.stderr) + text
        self._begun[line.stderr] = None if text.endswith("\n") else prefix
        return text

    def _prefix_of(self, line: Any) -> str:
        if not line.pid:
            return ""  # a node's own word
        if self._prefix or (self._prefix is None and not line.plain):
            return f"{line.function or 'worker'}@{line.host}:{line.pid} | "
        return ""


def _write(text: str, is_stderr: bool) -> None:
    stream = sys.stderr if is_stderr else sys.stdout
    if text and stream is not None:
        try:
            stream.write(text)
            stream.flush()
        except Exception:  # whatever the program has put there; its tasks are not to suffer
            pass

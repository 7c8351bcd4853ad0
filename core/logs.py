"""What workers print, on the client's terminal: whole lines, with a short prefix that can be turned off."""

from __future__ import annotations

import sys
from typing import Any

from .options import Settings


class Printer:
    """Writes lines of workers to this process's standard streams."""

    def __init__(self) -> None:
        self._prefix = Settings.load().log_prefix

    def print(self, log: Any) -> None:
        """Write the lines of one LOG message; a closed stream loses them."""
        for stream, is_stderr in ((sys.stdout, False), (sys.stderr, True)):
            text = "".join(self._format(line) for line in log.lines if line.stderr is is_stderr)
            if is_stderr and log.dropped:
                text += (
                    f"outboard: {log.dropped} lines of workers were dropped: this process did not read them in time\n"
                )
            if text and stream is not None:
                try:
                    stream.write(text)
                    stream.flush()
                except (OSError, ValueError):
                    pass

    def _format(self, line: Any) -> str:
        if self._prefix or (self._prefix is None and not line.binding):
            return f"{line.function or 'worker'}@{line.host}:{line.pid} | {line.text}\n"
        return f"{line.text}\n"

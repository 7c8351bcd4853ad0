"""Exit codes of the commands and of the processes they start."""

from __future__ import annotations

from .errors import AuthenticationError, OutboardError, TransportError, VersionMismatchError

FAILED = 1
BAD_USAGE = 2
UNREACHABLE = 3
REFUSED = 4
TIMED_OUT = 5


def exit_code_of(error: BaseException) -> int:
    """Say how a command ends that met this error."""
    if isinstance(error, AuthenticationError):
        return REFUSED
    if isinstance(error, VersionMismatchError):
        return FAILED
    if isinstance(error, TimeoutError):
        return TIMED_OUT
    return UNREACHABLE if isinstance(error, TransportError) else FAILED


def one_line(error: BaseException) -> str:
    """Return an error's text in one line, without the number of its class."""
    text = error._text() if isinstance(error, OutboardError) else str(error) or type(error).__name__
    return " ".join(text.split())

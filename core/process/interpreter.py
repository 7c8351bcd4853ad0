"""How this process starts others with its own interpreter, flags, import path and folder."""

from __future__ import annotations

import os
import sys


def current_folder() -> str:
    """The working folder, empty when it has been deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def import_path() -> list[str]:
    """`sys.path` for other processes: the empty entry stands for the folder that this one is in."""
    return [path for path in (entry or current_folder() for entry in sys.path) if path]


def command_line(code: str, *arguments: str) -> list[str]:
    """Command line of a new interpreter, with the flags and the import path of this one, that runs ``code``.

    The arguments come first in its ``sys.argv[1:]``, where lists of processes show them; the path is taken off the end.
    """
    import subprocess

    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # no public name
    code = f"import sys; sys.path[:] = sys.argv.pop().split('\\n'); {code}"
    return [sys.executable, *flags, "-c", code, *arguments, "\n".join(import_path())]

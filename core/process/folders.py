"""The folder a process is in, which may be gone."""

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

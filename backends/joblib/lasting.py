"""What stays with a worker's process until another call brings others: environment variables and log levels."""

from __future__ import annotations

import logging
import os

from .threads import VARIABLES

#: The environment that workers were started with, about: what the program sets later travels with its calls.
_environment_at_import = dict(os.environ)

# What this process had before calls changed it: a call that says nothing of it finds that again.
_own_environment: dict[str, str | None] = {}
_own_levels: dict[str, int] = {}


def changed_environment() -> dict[str, str | None]:
    """Return what the program has set or removed since it imported this module; workers have the rest already."""
    now, before = dict(os.environ), _environment_at_import
    if now == before:
        return {}
    kept = {name: value for name, value in now.items() if before.get(name) != value}
    gone: dict[str, str | None] = dict.fromkeys(before.keys() - now.keys())
    return {k: v for k, v in (gone | kept).items() if k not in VARIABLES and not k.startswith("OUTBOARD_")}


def log_levels() -> dict[str, int]:
    """Return the levels that were set, by name of the logger; the root's is ""."""
    loggers = list(logging.root.manager.loggerDict.items())
    levels = {name: logger.level for name, logger in loggers if isinstance(logger, logging.Logger) and logger.level}
    return {"": logging.root.level} | levels


def set_environment(changes: dict[str, str | None]) -> None:
    """Make these the changes of this process's environment, instead of those of the call before; None removes."""
    for name in changes:
        _own_environment.setdefault(name, os.environ.get(name))
    for name, value in (_own_environment | changes).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def set_log_levels(levels: dict[str, int]) -> None:
    """Make these the levels of loggers here, instead of those of the call before."""
    for name in levels:
        _own_levels.setdefault(name, logging.getLogger(name or None).level)
    for name, level in (_own_levels | levels).items():
        logger = logging.getLogger(name or None)
        if logger.level != level:
            logger.setLevel(level)

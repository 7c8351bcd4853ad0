"""The log of heads and nodes: lines for people on a terminal, JSON records in files."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime

#: Names of a record's further fields, in the order in which they are written.
FIELDS = ("event", "cluster", "node", "host", "worker", "pid", "task", "attempt", "function")


class Journal:
    """Writes what happens to stderr, each record with the fields of the process; set up once.

    Args:
        what: ``"head"`` or ``"node"``.
        as_json: one JSON object a line, else text.
    """

    def __init__(self, what: str, *, as_json: bool) -> None:
        self._log = logging.getLogger(f"outboard.{what}")
        self.fields: dict[str, object] = {}
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Json(self.fields) if as_json else _Text(what))
        root = logging.getLogger("outboard")
        root.handlers = [handler]
        root.setLevel(logging.INFO)
        root.propagate = False
        if not as_json:
            logging.getLogger("outboard.rpc").setLevel(logging.WARNING)  # people hear what it means, from us

    def __call__(self, event: str, msg: str, *, level: int = logging.INFO, **fields: object) -> None:
        """Write one record."""
        self._log.log(level, "%s", msg, extra={"outboard": {"event": event, **fields}})


class _Json(logging.Formatter):
    def __init__(self, fields: Mapping[str, object]) -> None:
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {**self._fields, "pid": record.process, **getattr(record, "outboard", {})}
        named = {name: told[name] for name in FIELDS if told.get(name) not in (None, "")}
        line = {"time": when.replace("+00:00", "Z"), "level": record.levelname.lower(), "logger": record.name,
                **named, "msg": record.getMessage()}  # fmt: skip
        if record.exc_info:
            line["exc"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _Text(logging.Formatter):
    def __init__(self, what: str) -> None:
        super().__init__(f"%(asctime)s outboard {what}: %(message)s", "%H:%M:%S")
        self.converter = time.localtime

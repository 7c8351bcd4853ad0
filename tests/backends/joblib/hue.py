"""A context variable in a module that tasks import when they run."""

from __future__ import annotations

import contextvars

HUE: contextvars.ContextVar[int] = contextvars.ContextVar("HUE", default=0)

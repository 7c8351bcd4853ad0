"""The grpc library, imported in the one way that keeps it quiet and discreet: the rest of this folder takes it here."""

from __future__ import annotations

import logging
import os

# Else it tells every connection that ends on stderr, which may be a user's terminal. It is read by the import itself.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import grpc
import grpc.aio

__all__ = ["grpc"]


def _is_discreet(record: logging.LogRecord) -> bool:
    """Say whether a record of the library may be logged: it quotes metadata that are not UTF-8, a token perhaps."""
    return "Invalid encoding" not in str(record.msg)


logging.getLogger("grpc._cython.cygrpc").addFilter(_is_discreet)

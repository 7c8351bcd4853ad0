"""Values that a call takes along where they load, and that stay behind quietly where they do not."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it has no types

#: A value's own pickle, which may fail to load without harm to what travels beside it; or the value itself.
Parcel = tuple[bytes | None, Any]


class StaysBehind(Exception):  # no error: all else travels
    """The value cannot travel, or cannot be loaded here."""


def pack(value: Any) -> Parcel:
    """Return what travels for a value. What no module holds, or `__main__`, travels as it is: by value, if at all.

    Raises:
        StaysBehind: it does not pickle.
    """
    try:
        stream = pickle.dumps(value, 5)
    except Exception:
        stream = None
    if stream is not None and b"__main__" not in stream:
        return stream, None
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        raise StaysBehind from error
    return None, value


def unpack(parcel: Parcel) -> Any:
    """Return the value.

    Raises:
        StaysBehind: it does not load in this process.
    """
    stream, value = parcel
    if stream is None:
        return value
    try:
        return pickle.loads(stream)
    except Exception as error:  # its module is not here, or the value's own code fails
        raise StaysBehind from error

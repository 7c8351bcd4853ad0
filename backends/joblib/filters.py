"""Warning filters of the calling thread, in its tasks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .parcels import Parcel, StaysBehind, pack, unpack


def pack_filters() -> list[Parcel]:
    """Return what travels for the filters of this thread; those whose category cannot stay here."""
    packed: list[Parcel] = []
    for entry in warnings.filters:
        if entry[2].__module__ == "builtins":  # nearly all
            packed.append((None, entry))
            continue
        with suppress(StaysBehind):
            packed.append(pack(entry))
    return packed


def unpack_filters(packed: list[Parcel]) -> list[Any]:
    """Return the filters whose category is found here."""
    filters = []
    for parcel in packed:
        with suppress(StaysBehind):
            filters.append(unpack(parcel))
    return filters


@contextmanager
def filtering(filters: list[Any]) -> Iterator[None]:
    """Have these filters, and in the end those of before."""
    with warnings.catch_warnings():
        warnings.filters[:] = filters  # type: ignore[index]  # typeshed has it as a sequence
        yield


def restore_filters(filters: list[Any]) -> None:
    """Have these filters after a task that left others."""
    with warnings.catch_warnings():  # which modules have warned already is forgotten with this
        pass
    warnings.filters[:] = filters  # type: ignore[index]  # as above

"""What the workers run. A module of its own, so that every subject pickles it by name."""

from __future__ import annotations

from typing import Any


def noop(value: object = None) -> None:
    """Do nothing."""


def increment(value: int) -> int:
    """Do next to nothing."""
    return value + 1


def total(array: Any) -> float:
    """Read a whole array."""
    return float(array.sum())


def make_array(nbytes: int) -> Any:
    """Make an array of doubles whose pages were all written."""
    import numpy as np

    return np.ones(nbytes // 8)

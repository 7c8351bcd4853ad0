"""What the files of planted bugs share: a plant changes a machine, and seeds of a world must fail then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outboard.testing.simulate import run_seeds

Plant = Callable[[pytest.MonkeyPatch], None]


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """Do nothing."""


def assert_is_found(plant: Plant, patch: pytest.MonkeyPatch, world: str, seeds: int) -> None:
    """Plant a bug and run seeds of a world until one fails; none is a failure."""
    plant(patch)
    assert run_seeds(0, seeds, world=world).failures, f"{seeds} seeds did not find it"

"""What is known of other libraries' tests.

There is a file in TOML for each library:

- `differs` are tests that fail on "dist", and why: a decision of ours, or their own business with another backend;
- `excluded` are those that would tell nothing, or that hold for the library alone, and why;
- `stand_in` are those whose code names the other backend, for which "dist" then stands;
- `selected` are those that run with every change.

A test is named by module and function, `test_parallel::test_abort`; where only some of its cases are meant, with their
id, `test_parallel::test_abort[dist]`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest


class Expectations:
    """What the file of one library says."""

    def __init__(self, path: Path) -> None:
        said = tomllib.loads(path.read_text())
        self._path = path
        self._differs: dict[str, str] = said["differs"]
        self._excluded: dict[str, str] = said["excluded"]
        self._stand_in = dict.fromkeys(said["stand_in"], "")
        self._selected = dict.fromkeys(said["selected"], "")

    def apply(self, items: list[pytest.Item], *, selected: bool) -> list[pytest.Item]:
        """Return what to run, marked with what is expected of it: one that passes against the list is a failure too.

        Raises:
            pytest.UsageError: all is to run, and the file names tests that there are not.
        """
        named = {*self._differs, *self._excluded, *self._stand_in, *self._selected}
        unknown = named - {name for item in items for name in _names(item)}
        if unknown and not selected:
            raise pytest.UsageError(f"{self._path.name} names tests that are not there: {', '.join(sorted(unknown))}")
        chosen = [item for item in items if _find(item, self._excluded) is None]
        if selected:
            chosen = [item for item in chosen if _find(item, self._selected) is not None]
        for item in chosen:
            if (reason := _find(item, self._differs)) is not None:
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        return chosen

    def has_stand_in(self, item: pytest.Item) -> bool:
        """Whether the code of a test names the other backend."""
        return _find(item, self._stand_in) is not None


def _names(item: pytest.Item) -> tuple[str, str]:
    function = getattr(item, "originalname", None) or item.name
    return f"{item.path.stem}::{item.name}", f"{item.path.stem}::{function}"


def _find(item: pytest.Item, table: dict[str, str]) -> str | None:
    return next((table[name] for name in _names(item) if name in table), None)

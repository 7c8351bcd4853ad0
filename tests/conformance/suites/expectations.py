"""What is known of other libraries' tests: which differ on "dist" and why, and which are run with every change.

A file in TOML for each library holds the tables `differs` (test: reason) and `excluded` (test: reason, where running
it would tell nothing), and the lists `selected` and `stand_in`: where the code of a test names the other backend. A test is named by its module and function, `test_parallel::test_abort`,
and where only some of its cases are meant by their id as well, `test_parallel::test_abort[dist]`.
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
        self._selected: list[str] = said["selected"]
        self._stand_in: list[str] = said["stand_in"]

    def apply(self, items: list[pytest.Item], *, selected: bool) -> list[pytest.Item]:
        """Return what to run, marked with what is expected of it: one that passes against the list is a failure too.

        Raises:
            pytest.UsageError: the file names tests that there are not.
        """
        known = {name for item in items for name in _names(item)}
        named = {*self._differs, *self._excluded, *self._selected, *self._stand_in}
        if unknown := sorted(named - known):
            raise pytest.UsageError(f"{self._path.name} names tests that are not there: {', '.join(unknown)}")
        chosen = [item for item in items if _find(item, self._excluded) is None]
        if selected:
            wanted = dict.fromkeys(self._selected, "")
            chosen = [item for item in chosen if _find(item, wanted) is not None]
        for item in chosen:
            if (reason := _find(item, self._differs)) is not None:
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        return chosen

    def has_stand_in(self, item: pytest.Item) -> bool:
        """Whether the code of a test names the other backend."""
        return not set(self._stand_in).isdisjoint(_names(item))


def _names(item: pytest.Item) -> tuple[str, str]:
    function = getattr(item, "originalname", None) or item.name
    return f"{item.path.stem}::{item.name}", f"{item.path.stem}::{function}"


def _find(item: pytest.Item, table: dict[str, str]) -> str | None:
    return next((table[name] for name in _names(item) if name in table), None)

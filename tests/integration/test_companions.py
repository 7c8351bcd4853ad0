"""What a program's backends have workers import before its tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import outboard
from outboard.engine import companions

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def companion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "companion_of_test.py").write_text("import sys\nsys.known_to_companion = 'dist'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    companions.append("companion_of_test")
    yield "companion_of_test"
    companions.remove("companion_of_test")
    outboard.shutdown()


def known() -> str:
    return str(getattr(sys, "known_to_companion", "nothing"))


def test_workers_import_it_before_the_first_task_also_of_functions_used_before(companion: str) -> None:
    companions.remove(companion)
    task = outboard.remote(known)
    before = outboard.get(task.remote())
    companions.append(companion)
    assert (before, outboard.get(task.remote())) == ("nothing", "dist")


def test_one_that_cannot_be_imported_fails_the_task(companion: str) -> None:
    companions.append("no_such_companion")
    try:
        with pytest.raises(Exception, match="no_such_companion"):
            outboard.get(outboard.remote(known).remote())
    finally:
        companions.remove("no_such_companion")

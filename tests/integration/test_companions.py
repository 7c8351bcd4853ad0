"""What a program's backends have workers import before its tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import outboard
from outboard.engine import companions
from outboard.errors import ActorDiedError, SerializationError
from outboard.multiprocessing import Pool

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
    before = outboard.get(task.remote(), timeout=20)
    companions.append(companion)
    assert (before, outboard.get(task.remote(), timeout=20)) == ("nothing", "dist")


known_at_start = ""


def note_what_is_known() -> None:
    global known_at_start
    known_at_start = known()


def noted() -> str:
    return known_at_start


class Noting:
    def __init__(self) -> None:
        self.known = known()

    def noted(self) -> str:
        return self.known


def test_initialisers_and_actors_find_it_imported_too(companion: str) -> None:
    with Pool(1, note_what_is_known) as pool:
        assert pool.apply_async(noted).get(20) == "dist"
    assert outboard.get(outboard.remote(Noting).remote().noted.remote(), timeout=20) == "dist"


def test_one_that_cannot_be_imported_fails_the_task(companion: str) -> None:
    companions.append("no_such_companion")
    try:
        with pytest.raises(SerializationError, match="no_such_companion") as caught:
            outboard.get(outboard.remote(known).remote(), timeout=20)
        assert caught.value.what == "function"
        with pytest.raises(ActorDiedError, match=r"ModuleNotFoundError: .*no_such_companion"):
            outboard.get(outboard.remote(Noting).remote().noted.remote(), timeout=20)
    finally:
        companions.remove("no_such_companion")
    assert outboard.get(outboard.remote(known).remote(), timeout=20) == "dist"

"""What is looked for once, and what travels once a call: it would take longer than many a task."""

from __future__ import annotations

import contextvars
import sys
import types
from typing import Any

import pytest
from sklearn.utils.parallel import delayed

from outboard.joblib import DistBackend
from outboard.joblib.context import Context, Task


class Looked(types.ModuleType):
    """Counts how often its names are looked through."""

    times = 0

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        Looked.times += 1
        return {}


def test_variable_that_no_module_holds_is_searched_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "looked", Looked("looked"))
    monkeypatch.setattr(Looked, "times", 0)

    def calls() -> None:
        contextvars.ContextVar[int]("nowhere").set(1)
        for _ in range(3):
            Context(DistBackend(), 2, None)

    contextvars.Context().run(calls)
    assert Looked.times == 1


def test_settings_that_scikit_learn_gives_each_task_travel_with_the_first() -> None:
    config: dict[str, Any] = {"working_memory": 3}
    filters: list[Any] = [("error", None, UserWarning, None, 0)]

    def wrapped(value: int, function: Any = abs, config: Any = config) -> Any:
        function, args, kwargs = delayed(function)(value)
        return function.with_config_and_warning_filters(config, filters), args, kwargs

    task = Task(Context(DistBackend(), 2, None), wrapped(-1)[0])
    assert task.calls([wrapped(-2)]) == [((-2,), {})]
    for other in (wrapped(-2, round), wrapped(-2, config={"working_memory": 3})):
        assert task.calls([other]) == [other]

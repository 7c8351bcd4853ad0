"""Context variables and warning filters: where they are found, what stays behind, and that a task's own end with it."""

from __future__ import annotations

import contextvars
import os
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from joblib import delayed

from outboard.joblib.parcels import StaysBehind, pack, unpack
from outboard.joblib.variables import pack_variables, unpack_variables

SHADE: contextvars.ContextVar[Any] = contextvars.ContextVar("SHADE", default="none")

MANY = 2_000  # tasks, so that workers get several at a time


class AtHome:
    """Loads in the process that pickled it alone."""

    def __reduce__(self) -> tuple[Any, ...]:
        return at_home, (os.getpid(),)


def at_home(pid: int) -> AtHome:
    if pid != os.getpid():
        raise ValueError("not here")
    return AtHome()


def paint() -> Any:
    before = SHADE.get()
    SHADE.set("green")
    return before


def strict() -> int:
    warnings.warn("a word", UserWarning, stacklevel=1)
    before = len(warnings.filters)
    warnings.simplefilter("error")
    return before


def strict_and_fail() -> None:
    warnings.simplefilter("error")
    raise KeyError("as wanted")


def actions() -> list[str]:
    return [entry[0] for entry in warnings.filters]


def hue() -> int:
    from tests.backends.joblib.hue import HUE

    return HUE.get()


def calls(parallel: Callable[..., Any], function: Callable[..., Any], count: int = 20) -> list[Any]:
    found: list[Any] = parallel()(delayed(function)() for _ in range(count))
    return found


@pytest.mark.parametrize("value", ["none", "blue"])
def test_what_a_task_sets_is_not_there_for_its_neighbours(parallel: Callable[..., Any], value: str) -> None:
    context = contextvars.copy_context()
    if value != "none":
        context.run(SHADE.set, value)
    assert context.run(calls, parallel, paint, MANY) == [value] * MANY


def test_filters_of_a_task_are_not_there_for_its_neighbours(parallel: Callable[..., Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert calls(parallel, strict, MANY) == [len(warnings.filters)] * MANY


def test_filters_of_a_task_that_fails_do_not_stay(parallel: Callable[..., Any]) -> None:
    before = calls(parallel, actions)
    with pytest.raises(KeyError, match="as wanted"):
        calls(parallel, strict_and_fail)
    assert calls(parallel, actions) == before


def test_variable_of_a_module_that_only_the_task_imports(parallel: Callable[..., Any]) -> None:
    from tests.backends.joblib.hue import HUE

    context = contextvars.copy_context()
    context.run(HUE.set, 7)
    assert context.run(calls, parallel, hue) == [7] * 20


def test_variable_whose_module_does_not_import_stays_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "leaves.py").write_text("raise SystemExit\n")
    (tmp_path / "breaks.py").write_text("1 / 0\n")
    packed = [(module, "X", pack(1)) for module in ("leaves", "breaks", "is_not_there", __name__)]
    assert unpack_variables([*packed, (__name__, "SHADE", pack(2))]) == [(SHADE, 2)]


def test_value_that_does_not_load_stays_behind(parallel: Callable[..., Any]) -> None:
    context = contextvars.copy_context()
    context.run(SHADE.set, AtHome())
    assert any(name == "SHADE" for _, name, _ in context.run(pack_variables))
    assert set(context.run(calls, parallel, paint)) == {"none"}


def test_category_that_does_not_load_stays_behind(
    parallel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("only_here")
    module.Own = type("Own", (UserWarning,), {"__module__": "only_here"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "only_here", module)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.simplefilter("error", module.Own)
        assert calls(parallel, actions) == [actions()[1:]] * 20


def test_what_does_not_pickle_is_not_packed() -> None:
    assert unpack(pack([1])) == [1]
    with pytest.raises(StaysBehind):
        pack(sys._getframe())
    stream, _ = pack(AtHome())
    assert stream is not None
    with pytest.raises(StaysBehind):
        unpack((stream[:-1], None))

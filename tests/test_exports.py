"""The public surface: what `outboard` offers, and nothing besides."""

from __future__ import annotations

import types

import outboard

#: Names that programs may rely on. A change here is a change for users: it belongs into CHANGELOG.md.
ESSENTIAL = {"ObjectRef", "cancel", "get", "init", "put", "remote", "shutdown", "wait"}


def test_essential_names_are_public() -> None:
    assert set(outboard.__all__) >= ESSENTIAL


def test_public_names_are_sorted_and_unique() -> None:
    assert list(outboard.__all__) == sorted(set(outboard.__all__))


def test_every_public_name_exists_and_is_listed() -> None:
    for name in outboard.__all__:
        assert getattr(outboard, name) is not None
        assert name in dir(outboard)


def test_nothing_else_looks_public() -> None:
    shown = {
        name
        for name, value in vars(outboard).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert shown <= set(outboard.__all__)


def test_public_functions_and_classes_have_docstrings() -> None:
    assert [
        name for name in outboard.__all__ if callable(getattr(outboard, name)) and not getattr(outboard, name).__doc__
    ] == []

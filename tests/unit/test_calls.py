"""Calls in words."""

from __future__ import annotations

from typing import Any

from outboard.calls import describe_call


class Bad:
    def __repr__(self) -> str:
        raise ValueError


class Worse:
    def __getattr__(self, name: str) -> Any:
        raise ValueError


def test_calls_read_as_they_are_written() -> None:
    assert describe_call(abs, (1, "a")) == "abs(1, 'a')"
    assert describe_call(abs, (), {"x": 2, "y": [3]}) == "abs(x=2, y=[3])"
    assert describe_call(Bad(), ()) == "Bad()"


def test_long_arguments_are_shortened() -> None:
    assert len(describe_call(abs, ("x" * 10_000,))) < 120
    assert len(describe_call(abs, (), {"x": list(range(10_000)), "y": 10**1000})) < 200


def test_what_cannot_be_described_is_named_all_the_same() -> None:
    assert describe_call(abs, (Bad(),)).startswith("abs(<Bad instance at")
    assert describe_call(Worse(), (1,)) == "Worse(…)"

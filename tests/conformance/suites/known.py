"""Failures of other libraries' tests that are known, with the reason for each."""

from __future__ import annotations

import pytest


def expect_failures(items: list[pytest.Item], known: dict[str, str]) -> None:
    """Mark what fails: one that passes is a failure too, so that the list stays true."""
    for item in items:
        reason = known.get(item.name) or known.get(item.name.partition("[")[0])
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))

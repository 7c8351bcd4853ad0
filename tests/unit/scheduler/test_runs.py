"""Sets of indices as runs, against sets."""

from __future__ import annotations

from random import Random

import pytest

from outboard.scheduler.runs import Runs

pytestmark = pytest.mark.timeout(30)


def as_set(runs: Runs) -> set[int]:
    found = [index for first, end in runs for index in range(first, end)]
    assert found == sorted(set(found))
    assert all(end < first for (_, end), (first, _) in zip(list(runs), list(runs)[1:], strict=False)), "not joined"
    return set(found)


@pytest.mark.parametrize("seed", range(40))
def test_runs_hold_what_a_set_would(seed: int) -> None:
    rng, runs, model = Random(seed), Runs(), set[int]()
    for _ in range(150):
        first = rng.randrange(30)
        end = first + rng.randrange(1, 6)
        block = set(range(first, end))
        assert runs.covers(first, end) == (block <= model)
        if block <= model:
            runs.remove(first, end)
            model -= block
        elif not block & model:
            runs.add(first, end)
            model |= block
        assert as_set(runs) == model and bool(runs) == bool(model)
    assert repr(runs).startswith("<Runs [")

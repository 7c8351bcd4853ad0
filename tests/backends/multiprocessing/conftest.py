"""The same programs on the standard Pool and on ours, over each engine."""

from __future__ import annotations

import multiprocessing.pool
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from outboard import engine
from outboard.inline import InlineEngine
from outboard.multiprocessing import Pool

PoolClass = Callable[..., Any]

#: Engines under test. The native one starts processes, anew for each test: the fixture that looks for what a test left
#: behind then sees all of them.
OURS = ["inline", "native"]


def _pool_class(which: str) -> Iterator[PoolClass]:
    if which == "stdlib":
        yield multiprocessing.pool.Pool
        return
    if which == "inline":
        engine.install(InlineEngine())
    made = engine.current()
    yield Pool
    engine.clear()
    made.shutdown()


@pytest.fixture(params=["stdlib", *OURS])
def pool_class(request: pytest.FixtureRequest) -> Iterator[PoolClass]:
    """Each Pool there is."""
    yield from _pool_class(request.param)


@pytest.fixture(params=["stdlib", *(o for o in OURS if o != "inline")])
def parallel_pool_class(request: pytest.FixtureRequest) -> Iterator[PoolClass]:
    """Each Pool whose calls run while the program goes on."""
    yield from _pool_class(request.param)


@pytest.fixture(params=OURS)
def our_pool_class(request: pytest.FixtureRequest) -> Iterator[PoolClass]:
    """Our Pool, for what it does otherwise than the standard one."""
    yield from _pool_class(request.param)


@pytest.fixture(params=[o for o in OURS if o != "inline"])
def native_pool_class(request: pytest.FixtureRequest) -> Iterator[PoolClass]:
    """Our Pool on worker processes."""
    yield from _pool_class(request.param)

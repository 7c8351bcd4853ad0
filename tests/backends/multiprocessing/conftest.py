"""The same programs on the standard Pool and on ours, over each engine."""

from __future__ import annotations

import multiprocessing.pool
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from outboard import engine
from outboard.inline import InlineEngine
from outboard.multiprocessing import Pool

PoolClass = Callable[..., Any]

#: Engines under test. The native one starts processes.
OURS = ["inline", "native"] if os.environ.get("OUTBOARD_TEST_NATIVE") else ["inline"]


@pytest.fixture(scope="module", autouse=True)
def native_engine_ends() -> Iterator[None]:
    """Keep a native engine from its first test to the end of the module."""
    yield
    kept = engine.clear()
    if kept is not None:
        kept.shutdown()


def _pool_class(which: str) -> Iterator[PoolClass]:
    if which == "stdlib":
        yield multiprocessing.pool.Pool
    elif which == "native":
        engine.current()
        yield Pool
    else:
        kept, mine = engine.clear(), InlineEngine()
        engine.install(mine)
        yield Pool
        engine.clear()
        mine.shutdown()
        if kept is not None:
            engine.install(kept)


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

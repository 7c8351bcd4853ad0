"""What the loop for gRPC does beyond the promises of every loop (tests/conformance/test_loops.py)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from outboard.aioloop import AioLoop


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[AioLoop]:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    else:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    made = AioLoop()
    assert (type(made.asyncio).__module__ == "uvloop") is (request.param == "uvloop")
    yield made
    made.close()


def test_what_asyncio_has_to_say_is_shown(loop: AioLoop, capsys: pytest.CaptureFixture[str]) -> None:
    loop.call_soon(lambda: loop.asyncio.call_exception_handler({"message": "no exception, but words"}))
    loop.call_later(0.01, loop.stop)
    loop.run_forever()
    assert "no exception, but words" in capsys.readouterr().err


def test_run_gives_result_or_exception(loop: AioLoop) -> None:
    async def answer(value: Any) -> Any:
        await asyncio.sleep(0)
        return 1 // value

    assert loop.run(answer(1)) == 1
    with pytest.raises(ZeroDivisionError):
        loop.run(answer(0))


def test_close_ends_what_was_spawned(loop: AioLoop) -> None:
    ends: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ends.append("ended")

    async def start() -> None:
        loop.spawn(wait())
        assert await loop.spawn(asyncio.sleep(0, "done")) == "done"

    loop.run(start())
    assert ends == []
    loop.close()
    assert ends == ["ended"]
    loop.close()

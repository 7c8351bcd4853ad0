"""The cluster ends in the middle of a call: the call ends with an error, and the next one has a new cluster."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from joblib import Parallel, delayed

import outboard
from outboard import engine
from outboard.errors import OutboardError
from tests.backends.joblib.conftest import Host


def stay(path: str) -> None:
    Path(path).touch()
    time.sleep(60)


def test_the_end_of_the_engine_ends_every_batch(own_cluster: None, tmp_path: Path, eventually: Any) -> None:
    host = Host()
    batches = [host.submit(delayed(stay)(str(tmp_path / "runs"))), host.submit(delayed(abs)(-1), delayed(abs)(-2))]
    eventually((tmp_path / "runs").exists)
    outboard.shutdown()
    host.wait(2)
    batches.append(host.submit(delayed(abs)(-3)))
    host.wait(3)
    for batch in (batches[0], batches[2]):
        with pytest.raises(OutboardError):
            host.backend.retrieve_result_callback(batch)
    host.end()
    assert sorted(map(id, host.heard)) == sorted(map(id, batches))


@pytest.mark.parametrize("return_as", ["list", "generator", "generator_unordered"])
def test_shutdown_by_another_thread_ends_the_call(
    own_cluster: None, tmp_path: Path, eventually: Any, return_as: str
) -> None:
    def shut_down() -> None:
        eventually((tmp_path / "runs").exists)
        outboard.shutdown()

    thread = threading.Thread(target=shut_down)
    thread.start()
    with pytest.raises(OutboardError):
        list(Parallel(2, "dist", return_as=return_as)(delayed(stay)(str(tmp_path / "runs")) for _ in range(20)))
    thread.join(20)
    assert Parallel(2, "dist")(delayed(abs)(-i) for i in range(3)) == [0, 1, 2]


def test_a_killed_node_ends_the_call_and_the_next_has_another(
    own_cluster: None, tmp_path: Path, eventually: Any
) -> None:
    node = engine.current().nodes()[0]["pid"]

    def kill() -> None:
        eventually((tmp_path / "runs").exists)
        os.kill(node, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(OutboardError):
        Parallel(2, "dist")(delayed(stay)(str(tmp_path / "runs")) for _ in range(20))
    thread.join(20)
    assert Parallel(2, "dist")(delayed(abs)(-i) for i in range(3)) == [0, 1, 2]

"""The programs of examples/, run as a reader would run them, with less to do."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import joblib
import pytest
from rich.console import Console

from examples.watching import watched

#: Most of the time goes into importing scikit-learn, in every process of its own.
pytestmark = [pytest.mark.timeout(150), pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "examples"

PNG = b"\x89PNG"


@contextmanager
def started(name: str, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Start an example; it ends with the block, whatever happens."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    env = os.environ | variables
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True) as program:
        expiry = threading.Timer(120, program.kill)
        expiry.start()
        try:
            yield program
        finally:
            program.kill()
            expiry.cancel()
            expiry.join()


def run(name: str, *arguments: str, **variables: str) -> str:
    """Run an example to its end; it must succeed and say nothing on stderr, but what a command says that waits."""
    with started(name, *arguments, **variables) as program:
        out, err = program.communicate()
    said = [line for line in err.splitlines() if not re.match(r"outboard: waiting for ", line)]
    assert (program.returncode, said) == (0, []), f"{out}\n{err}"
    return out


def test_search_on_dist_equals_lokys(tmp_path: Path) -> None:
    out = run("svc_search.py", "--settings", "2", "--processes", "2", "--out", str(tmp_path / "map.png"))
    assert "The ten best of 2 settings" in out
    assert "dist: 10/10" in out and "loky: 10/10" in out
    assert re.search(r"dist: \d+\.\d\d s, loky: \d+\.\d\d s", out)
    assert "all 10 scores are equal to the last bit" in out
    assert (tmp_path / "map.png").read_bytes().startswith(PNG)


def test_search_with_a_pool(tmp_path: Path) -> None:
    out = run("pool_search.py", "--step", "4", "--processes", "2", "--out", str(tmp_path / "map.png"))
    assert "20/20 fits" in out
    assert "times as fast" in out
    assert (tmp_path / "map.png").read_bytes().startswith(PNG)


def test_search_survives_the_loss_of_a_node() -> None:
    out = run("cluster_search.py", "--cpus", "1", "--step", "4")
    assert "killed the node" in out
    assert "the scores are the same" in out


@pytest.mark.parametrize(("moment", "signum"), [("head of cluster", signal.SIGTERM), ("fits on", signal.SIGHUP)])
def test_ended_cluster_search_takes_its_cluster_along(moment: str, signum: int) -> None:
    with started("cluster_search.py", "--cpus", "1") as program:
        assert program.stdout is not None
        assert any(moment in line for line in program.stdout)
        program.send_signal(signum)
        out, err = program.communicate()
    assert program.returncode == 128 + signum, f"{out}\n{err}"
    assert "stopped" in out  # the fixture sees to it that no process is left


def test_nested_forests_find_the_same_with_and_without_a_task_for_each_tree() -> None:
    first, second = run("nested_forests.py", "--trees", "4").splitlines()
    found = re.search("accuracy .*", first)
    assert found is not None and found[0] in second


def test_scores_of_two_nodes_equal_lokys() -> None:
    out = run("two_node_scores.py", "--trees", "5")
    assert "on the first node" in out and "on the second node" in out
    assert "equal to the last bit" in out


def test_pipeline_needs_no_more_memory_for_more_blocks() -> None:
    out = run("larger_than_memory.py", "--blocks", "300", "--cpus", "2")
    assert "1.2 GB of blocks through a store of 128 MiB" in out
    early, late = map(float, re.findall(r"(\d+) MB (?:after|at)", out))
    assert late < early + 64


def test_boosted_models_say_what_to_install(tmp_path: Path) -> None:
    for name in ("lightgbm", "xgboost"):
        (tmp_path / f"{name}.py").write_text("raise ImportError")
    with started("boosted_models.py", PYTHONPATH=str(tmp_path)) as program:
        _, err = program.communicate()
    assert program.returncode == 1
    assert "pip install lightgbm" in err


def test_boosted_models_find_quantiles() -> None:
    with started("boosted_models.py", "--rows", "5000", "--rounds", "40") as program:
        out, err = program.communicate()
    if err.startswith("this example needs"):
        pytest.skip(err)
    shares = re.findall(r"quantile (\S+): (\S+) of", out)
    assert len(shares) == 7
    assert all(abs(float(quantile) - float(share)) < 0.1 for quantile, share in shares)


def test_progress_is_plain_lines_where_the_output_is_no_terminal() -> None:
    out = io.StringIO()
    with watched("naps", 4, Console(file=out)):
        joblib.Parallel(2, "threading")(joblib.delayed(abs)(n) for n in range(4))
    assert re.fullmatch(r"naps: 4/4, \d+\.\d s\n", out.getvalue())


def test_progress_is_one_live_line_on_a_terminal() -> None:
    out = io.StringIO()
    with watched("naps", 4, Console(file=out, force_terminal=True, width=100, color_system=None)):
        joblib.Parallel(2, "threading")(joblib.delayed(abs)(n) for n in range(4))
    assert "4/4" in out.getvalue() and "\r" in out.getvalue()
    assert out.getvalue().count("\n") == 1


def test_progress_leaves_alone_what_others_say(capsys: pytest.CaptureFixture[str]) -> None:
    with watched("naps", 4, Console(file=io.StringIO())):
        print("careful", file=sys.stderr)
    assert capsys.readouterr().err == "careful\n"

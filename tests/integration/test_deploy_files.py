"""What lies in ``deploy/`` calls commands that exist, leaves nodes time to leave, and works as far as it can here."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outboard.cli.main import main
from outboard.launch import END_SECONDS, HAND_OVER_SECONDS
from tests.integration.clusters import COMMAND, Commands, commands

__all__ = ["commands"]

DEPLOY = Path(__file__).parents[2] / "deploy"

#: What the program of a Slurm job does.
PROGRAM = "import outboard; print(outboard.get([outboard.remote(abs).remote(-n) for n in range(4)]), flush=True)"


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Yield the command lines of ours in each file."""
    for path in sorted(DEPLOY.iterdir()):
        text = path.read_text().replace("\\\n", " ")
        for line in re.findall(r"(?:^ExecStart=|^\s*(?:srun .*? )?)(outboard [a-z].*?)(?: &| \|\| true)?$", text, re.M):
            yield path.name, shlex.split(line)
        for found in re.findall(r"command: \[(outboard, .*?)\]", text):
            yield path.name, [word.strip(' "') for word in found.split(", ")]


LINES = list(command_lines())


def test_all_files_call_commands() -> None:
    assert {name for name, _ in LINES} == {path.name for path in DEPLOY.iterdir()}
    assert len(LINES) >= 9


@pytest.mark.parametrize(("name", "line"), LINES, ids=lambda value: value if isinstance(value, str) else value[1])
def test_command_lines_are_understood(name: str, line: list[str]) -> None:
    known = [re.sub(r"^\$.*CPUS.*", "4", word) for word in line[1:]]
    command = main.get_command(main.make_context("outboard", ["version"]), known[0])
    assert command is not None
    command.make_context(known[0], known[1:])


@pytest.mark.parametrize("name", ["outboard-head.service", "outboard-node.service", "kubernetes.yaml"])
def test_nodes_have_time_to_leave(name: str) -> None:
    text = (DEPLOY / name).read_text()
    grace = max(int(number) for number in re.findall(r'--grace\b"?,? "?(\d+)', text))
    killed_after = max(int(n) for n in re.findall(r"(?:TimeoutStopSec=|terminationGracePeriodSeconds: )(\d+)", text))
    assert killed_after >= grace + HAND_OVER_SECONDS + 2 * END_SECONDS


@pytest.fixture
def job(commands: Commands, tmp_path: Path) -> Iterator[Commands]:
    """Variables as Slurm sets them, and its commands, for a job of two machines that are both this one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    ours = shlex.join(COMMAND)
    scripts = {
        "outboard": f'exec {ours} "$@"',
        "hostname": "echo 127.0.0.1",
        "srun": 'while [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"',
    }
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    commands.env |= {
        "PATH": f"{folder}:{commands.env['PATH']}", "SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "7",
        "SLURM_CPUS_ON_NODE": "1", "SLURM_JOB_NUM_NODES": "2",
    }  # fmt: skip
    commands.folder = tmp_path / "outboard-7"
    yield commands
    commands.env["OUTBOARD_FOLDER"] = str(commands.folder)
    if (commands.folder / "address").exists():
        commands.run("stop", "--grace", "0")


def start(job: Commands, *program: str) -> subprocess.Popen[str]:
    script = subprocess.Popen(
        ["bash", str(DEPLOY / "outboard.slurm"), *program],
        env=job.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    job.foreground.append(script)
    return script


@pytest.mark.multihost
def test_slurm_job_ends_with_its_program(job: Commands) -> None:
    script = start(job, sys.executable, "-c", PROGRAM)
    out, err = script.communicate(timeout=45)
    job.note(out)
    assert script.returncode == 0, err
    assert "[0, 1, 2, 3]" in out and "stopped: 2 nodes left" in out


@pytest.mark.multihost
def test_slurm_job_without_a_program_ends_when_it_is_told_to(job: Commands) -> None:
    script = start(job)
    assert script.stdout is not None
    shown = []
    while not any("clients: " in line for line in shown):  # the last thing it does
        shown.append(script.stdout.readline())
        assert shown[-1], script.communicate()
        job.note(shown[-1])
    script.send_signal(signal.SIGTERM)
    out, err = script.communicate(timeout=30)
    assert "left" in out, err
    assert not (job.folder / "address").exists()

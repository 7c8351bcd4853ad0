"""Run every scenario on every subject in turns, print one table, write one JSON file."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import processes
from .joblib_scenarios import JOBLIB_SCENARIOS
from .joblib_subjects import JOBLIB_SUBJECTS
from .machine import facts
from .scenarios import SCENARIOS, STORE
from .subjects import SUBJECTS
from .table import parts, print_table

ROOT = Path(__file__).resolve().parent.parent
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"

#: Seconds after which a child is ended and its figure counted as missing.
CHILD_SECONDS = 300.0

#: Label -> subject -> one value a round.
Values = dict[str, dict[str, list[float]]]


def interpreter(subject: str) -> Path:
    """Name the Python that has the subject."""
    return PEERS_PYTHON if subject.startswith(("ray", "joblib.ray", "joblib.dask")) else Path(sys.executable)


def is_present(subject: str) -> bool:
    """Say whether the subject can be measured here."""
    return interpreter(subject).exists()


def is_wanted(subject: str, scenario: str) -> bool:
    """Say whether the subject has what the scenario needs: Ray's core has no chunks for a million items."""
    if scenario != "cold_start" and (subject in JOBLIB_SUBJECTS) != (scenario in JOBLIB_SCENARIOS):
        return False
    if subject == "ray" and scenario == "bulk":
        return False
    return scenario not in STORE or subject in {"outboard", "ray"}


def run_child(subject: str, scenario: str, options: argparse.Namespace) -> list[tuple[str, float, str]]:
    """Measure one scenario of one subject; no figures when it fails, which is said."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), processes.MARK: f"{os.getpid()}-{subject}-{scenario}"}
    arguments = [subject, scenario, str(options.scale), str(options.idle_seconds)]
    command = [str(interpreter(subject)), "-m", "benchmarks.child", *arguments]
    try:
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=CHILD_SECONDS, check=True
        )
        return [tuple(figure) for figure in json.loads(done.stdout.splitlines()[-1])]
    except subprocess.TimeoutExpired:
        print(f"{subject}, {scenario}: no figure after {CHILD_SECONDS:g} s", file=sys.stderr)
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or "").strip().splitlines()[-1:] or ["no message"]
        print(f"{subject}, {scenario}: failed: {reason[0]}", file=sys.stderr)
    return []


def plan(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield (scenario, subject) in the order in which they run: the subjects take turns, round by round."""
    for turn in range(options.rounds):
        for scenario in options.scenarios:
            if scenario == "idle" and turn:
                continue  # a minute each, and steady
            yield from ((scenario, subject) for subject in options.subjects if is_wanted(subject, scenario))


def collect(options: argparse.Namespace) -> tuple[Values, dict[str, str]]:
    """Run the plan; return the values by label and subject, and the unit of each label."""
    values: Values = {}
    units: dict[str, str] = {}
    for scenario, subject in plan(options):
        print(f"{scenario}: {subject}", file=sys.stderr, flush=True)
        for label, value, unit in run_child(subject, scenario, options):
            values.setdefault(label, {}).setdefault(subject, []).append(value)
            units[label] = unit
    return values, units


def report(
    values: Values, units: dict[str, str], options: argparse.Namespace, machine: dict[str, object]
) -> dict[str, Any]:
    """Join the rounds: the median of each, with the lowest and the highest."""
    figures = [
        {
            "label": label,
            "unit": units[label],
            "subjects": {
                subject: {"median": statistics.median(seen), "low": min(seen), "high": max(seen)}
                for subject, seen in by_subject.items()
            },
        }
        for label, by_subject in values.items()
    ]
    settings = {"rounds": options.rounds, "scale": options.scale, "idle_seconds": options.idle_seconds}
    return {"machine": machine, "settings": settings, "subjects": options.subjects, "figures": figures}


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Outboard beside its peers.")
    present = [subject for subject in (*SUBJECTS, *JOBLIB_SUBJECTS) if is_present(subject)]
    known = ["cold_start", *SCENARIOS, *JOBLIB_SCENARIOS]
    parser.add_argument(
        "--subjects", nargs="+", default=present, choices=[*SUBJECTS, *JOBLIB_SUBJECTS], metavar="SUBJECT"
    )
    parser.add_argument("--scenarios", nargs="+", default=known, choices=known, metavar="SCENARIO")
    parser.add_argument("--rounds", type=int, default=3, help="medians are over so many (default: %(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the work; 1 for figures to publish")
    parser.add_argument("--idle-seconds", type=float, default=60.0, help="how long to watch an idle subject")
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"), help="JSON file to write")
    return parser.parse_args()


def main() -> None:
    """Measure, print, write."""
    options = parse()
    machine = facts()
    result = report(*collect(options), options, machine)
    for part in parts(result):
        print_table(part)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written: {options.out}")

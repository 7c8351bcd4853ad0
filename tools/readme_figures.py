"""Fill the table of figures in README.md from benchmarks/results.json.

usage: readme_figures.py [--check]      --check: write nothing, fail when the README is stale

To publish new figures: ``make bench PEERS=1``, look at them, copy build/bench.json to benchmarks/results.json, then
``make readme-figures``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from generated import update

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results.json"

sys.path.insert(0, str(ROOT))

from benchmarks.table import best, cell, parts  # noqa: E402 - the checkout is not installed, only the package is


def rows(result: dict[str, Any]) -> list[str]:
    """Return the lines of one Markdown table, the best of each row in bold."""
    subjects = result["subjects"]
    lines = ["| | " + " | ".join(subjects) + " |", "|---|" + "---:|" * len(subjects)]
    for figure in result["figures"]:
        winner = best(figure)
        cells = [f"**{cell(figure, subject)}**" if subject == winner else cell(figure, subject) for subject in subjects]
        lines.append(f"| {figure['label']} | " + " | ".join(cells) + " |")
    return lines


def footnote(result: dict[str, Any]) -> str:
    """Say on what, and how often."""
    machine, settings = result["machine"], result["settings"]
    return (
        f"{machine['processor']}, {machine['cpus']} CPUs, {machine['memory_nbytes'] / 2**30:.0f} GiB, "
        f"{machine['system']}, Python {machine['python']}; medians of {settings['rounds']} rounds, "
        f"subjects in turns, 2 workers each."
    )


def main() -> None:
    """Write or check the table."""
    if RESULTS.exists():
        result = json.loads(RESULTS.read_text(encoding="utf-8"))
        body = "\n".join([line for part in parts(result) for line in (*rows(part), "")] + [footnote(result)])
    else:
        body = "No figures have been published yet: `make bench PEERS=1` measures them on your machine."
    update(README, "figures", body, check="--check" in sys.argv[1:], remedy="make readme-figures")


if __name__ == "__main__":
    main()

"""Show figures as people read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table


def is_better_larger(unit: str) -> bool:
    """Say which way a unit counts."""
    return unit.endswith("/s")


def readable(value: float) -> str:
    """Write three digits that count, with commas between thousands; whole numbers as they are."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def best(figure: dict[str, Any]) -> str:
    """Name the subject with the best median."""
    medians = {subject: seen["median"] for subject, seen in figure["subjects"].items()}
    chosen: str = (max if is_better_larger(figure["unit"]) else min)(medians, key=medians.__getitem__)
    return chosen


def cell(figure: dict[str, Any], subject: str) -> str:
    """Write one figure, or a dash where there is none."""
    seen = figure["subjects"].get(subject)
    if seen is None:
        return "–"
    unit = figure["unit"]
    return readable(seen["median"]) + (f" {unit}" if unit else "")


def parts(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one result for each table: joblib's backends are compared with each other."""
    for is_joblib in (False, True):
        subjects = [subject for subject in result["subjects"] if subject.startswith("joblib.") == is_joblib]
        figures = [_among(figure, subjects) for figure in result["figures"]]
        if present := [figure for figure in figures if figure["subjects"]]:
            yield result | {"subjects": subjects, "figures": present}


def _among(figure: dict[str, Any], subjects: list[str]) -> dict[str, Any]:
    return figure | {"subjects": {name: seen for name, seen in figure["subjects"].items() if name in subjects}}


def print_table(result: dict[str, Any]) -> None:
    """Print every figure of one part beside the others, the best of each row in green."""
    table = Table(title="medians of {rounds} rounds, scale {scale:g}".format(**result["settings"]))
    table.add_column("")
    for subject in result["subjects"]:
        table.add_column(subject, justify="right")
    for figure in result["figures"]:
        winner = best(figure)
        cells = [
            f"[bold green]{cell(figure, subject)}[/]" if subject == winner else cell(figure, subject)
            for subject in result["subjects"]
        ]
        table.add_row(figure["label"], *cells)
    # Where the output is no terminal rich takes 80 columns, which would break every heading.
    console = Console()
    console.width = max(console.width, 44 + 22 * len(result["subjects"]))
    console.print(table)

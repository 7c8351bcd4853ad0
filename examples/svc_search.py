"""Search a good support vector machine for the digits: scikit-learn's own search, on Outboard and on loky.

``RandomizedSearchCV`` runs in ``joblib.parallel_backend("dist")``, then once more in ``"loky"``, joblib's usual one.
Prints the best settings and both times, draws what was found as a heat map, and fails unless all scores are equal to
the last bit. With ``OUTBOARD_ADDRESS`` set, the first search runs on that cluster.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import RandomizedSearchCV
from sklearn.svm import SVC

import outboard.joblib  # noqa: F401 - makes the name "dist" known to joblib
from heat_map import draw_scattered
from watching import watched

SPACE = {"C": np.logspace(-6, 6, 30), "gamma": np.logspace(-8, 8, 30), "tol": np.logspace(-4, -1, 30)}
FOLDS = 5

#: Settings to try: enough for a picture within half a minute, and with --full.
FEW, FULL = 20, 300


def search(backend: str, n_jobs: int, settings: int, console: Console) -> tuple[RandomizedSearchCV, float]:
    """Run the search in a backend; return it with the seconds that it took, start of the workers included."""
    images, labels = load_digits(return_X_y=True)
    found = RandomizedSearchCV(SVC(kernel="rbf"), SPACE, cv=FOLDS, n_iter=settings, random_state=0)
    started = time.perf_counter()
    with watched(backend, settings * FOLDS, console), joblib.parallel_backend(backend, n_jobs=n_jobs):
        found.fit(images, labels)
    return found, time.perf_counter() - started


def ranking_table(results: dict[str, Any]) -> Table:
    """Make the table of the ten best settings."""
    order = np.argsort(results["rank_test_score"], kind="stable")
    table = Table(title=f"The ten best of {len(order)} settings, {FOLDS} folds each")
    for heading in ("", "C", "gamma", "tol", "accuracy", "sd"):
        table.add_column(heading, justify="right")
    for place, index in enumerate(order[:10], start=1):
        values = (f"{results[f'param_{name}'][index]:.2e}" for name in SPACE)
        score, sd = results["mean_test_score"][index], results["std_test_score"][index]
        table.add_row(f"{place}", *values, f"{score:.4f}", f"± {sd:.4f}", style="bold green" if place == 1 else "")
    return table


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the accuracy over C and gamma."""
    path.parent.mkdir(parents=True, exist_ok=True)
    places = zip(results["param_C"], results["param_gamma"], strict=True)
    draw_scattered(dict(zip(places, results["mean_test_score"], strict=True)), path)


def are_equal(results: dict[str, Any], others: dict[str, Any]) -> bool:
    """Say whether two searches tried the same and every fold of every setting has the same score, bit by bit."""
    names = [f"split{fold}_test_score" for fold in range(FOLDS)]
    return results["params"] == others["params"] and all(np.array_equal(results[n], others[n]) for n in names)


def main() -> None:
    """Search twice, show what came out, and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=-1, help="tasks at a time, -1: as many as there are CPUs")
    parser.add_argument("--settings", type=int, default=FEW, help="how many to try (default: %(default)s)")
    parser.add_argument("--full", action="store_const", dest="settings", const=FULL, help=f"try {FULL}: takes minutes")
    parser.add_argument("--out", type=Path, default=Path("build/demo/digits_svc.png"), help="where the heat map goes")
    options = parser.parse_args()
    console = Console()
    console.print(f"{options.settings} settings, {FOLDS} folds each: {options.settings * FOLDS} fits")
    ours, seconds = search("dist", options.processes, options.settings, console)
    console.print(ranking_table(ours.cv_results_))
    draw(ours.cv_results_, options.out)
    console.print(f"heat map: {options.out}")
    theirs, their_seconds = search("loky", options.processes, options.settings, console)
    console.print(f"dist: {seconds:.2f} s, loky: {their_seconds:.2f} s, each with the start of its workers")
    if not are_equal(ours.cv_results_, theirs.cv_results_):
        sys.exit("the scores differ")
    console.print(f"all {options.settings * FOLDS} scores are equal to the last bit")


if __name__ == "__main__":
    main()

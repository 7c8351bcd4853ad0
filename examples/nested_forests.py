"""A grid search over forests, in which the fits of the search and the trees of each forest share the same workers.

With ``n_jobs=-1`` in the forest as well, each fit hands its trees to the cluster and gives its CPU back while it waits
for them: where there are fewer fits than CPUs, trees fill the rest, and never do more tasks run than there are CPUs.
With as many fits as CPUs the first search is the faster one: whole forests are fewer tasks than trees.
"""

from __future__ import annotations

import argparse
import time

import joblib
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV

import outboard.joblib  # noqa: F401 - makes the name "dist" known to joblib

SPACE = {"max_depth": [8, None], "max_features": ["sqrt", 0.5]}


def search(trees: int, n_jobs: int | None) -> GridSearchCV:
    """Search with forests whose trees are ``n_jobs`` at a time."""
    images, labels = load_digits(return_X_y=True)
    forest = RandomForestClassifier(trees, random_state=0, n_jobs=n_jobs)
    with joblib.parallel_backend("dist"):
        return GridSearchCV(forest, SPACE, cv=3).fit(images, labels)


def main() -> None:
    """Search with trees one by one and with all trees as tasks; the forests are the same."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trees", type=int, default=50, help="of each forest (default: %(default)s)")
    options = parser.parse_args()
    for n_jobs, what in ((None, "one task for a fit"), (-1, "a task for each tree too")):
        started = time.perf_counter()
        found = search(options.trees, n_jobs)
        seconds = time.perf_counter() - started
        print(f"{what}: {seconds:.2f} s, accuracy {found.best_score_:.4f} with {found.best_params_}")


if __name__ == "__main__":
    main()

"""``cross_val_score`` over two nodes, started here: the program is what it would be on one machine.

Each fold says where it was scored; then the same scores are made with loky, on this machine alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score

import outboard.joblib  # noqa: F401 - makes the name "dist" known to joblib
from two_nodes import two_nodes


def score(model: Any, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the accuracy; what a worker prints is seen where the program runs."""
    accuracy = float(model.score(images, labels))
    print(f"{accuracy:.4f} on the {os.environ.get('NODE', 'program’s')} node", flush=True)
    return accuracy


def main() -> None:
    """Score on the cluster, then here, and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trees", type=int, default=100, help="of each forest (default: %(default)s)")
    options = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    forest = RandomForestClassifier(options.trees, random_state=0)
    with two_nodes(cpus=1), joblib.parallel_backend("dist"):
        scores = cross_val_score(forest, images, labels, cv=10, scoring=score)
    print(f"mean accuracy {scores.mean():.4f}, sd {scores.std():.4f}")
    with joblib.parallel_backend("loky"):
        alone = cross_val_score(forest, images, labels, cv=10)
    if not np.array_equal(scores, alone):
        sys.exit("the scores differ")
    print("loky's scores are equal to the last bit")


if __name__ == "__main__":
    main()

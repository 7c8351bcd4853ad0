"""Boosted trees, one model a task: one for each quantile of what is to be foretold.

Needs LightGBM or XGBoost; takes what is there. Libraries like these start a thread for each CPU in each process. Here
every model is told to use one, since there are as many models at a time as CPUs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from typing import Any

import numpy as np
from joblib import Parallel, delayed

import outboard.joblib  # noqa: F401 - makes the name "dist" known to joblib

QUANTILES = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95]


def find_library() -> str:
    """Name the library that is installed here; ends the program when there is none."""
    for name in ("lightgbm", "xgboost"):
        try:
            importlib.import_module(name)
        except (ImportError, OSError):  # LightGBM without OpenMP on the system is an OSError
            continue
        return name
    sys.exit("this example needs LightGBM or XGBoost: pip install lightgbm")


def make_model(library: str, quantile: float, rounds: int) -> Any:
    """Make a model of one quantile that uses one thread."""
    if library == "lightgbm":
        from lightgbm import LGBMRegressor

        return LGBMRegressor(objective="quantile", alpha=quantile, n_estimators=rounds, n_jobs=1, verbose=-1)
    from xgboost import XGBRegressor

    return XGBRegressor(objective="reg:quantileerror", quantile_alpha=quantile, n_estimators=rounds, n_jobs=1)


def train(library: str, quantile: float, rounds: int, inputs: np.ndarray, targets: np.ndarray) -> Any:
    """Train the model of one quantile: what a task does."""
    return make_model(library, quantile, rounds).fit(inputs, targets)


def main() -> None:
    """Train all models, and show how much of new data lies below what each says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000, help="to train on (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=100, help="trees of a model (default: %(default)s)")
    options = parser.parse_args()
    library = find_library()
    random = np.random.default_rng(0)
    inputs = random.random((options.rows + 5_000, 10))
    targets = inputs[:, 0] + inputs[:, 1] * random.standard_normal(len(inputs))
    known, new = slice(options.rows), slice(options.rows, None)
    started = time.perf_counter()
    models = Parallel(backend="dist", n_jobs=-1)(
        delayed(train)(library, quantile, options.rounds, inputs[known], targets[known]) for quantile in QUANTILES
    )
    print(f"{len(models)} models of {library} in {time.perf_counter() - started:.2f} s")
    for quantile, model in zip(QUANTILES, models, strict=True):
        print(
            f"quantile {quantile:.2f}: {np.mean(targets[new] <= model.predict(inputs[new])):.3f} of new rows lie below"
        )


if __name__ == "__main__":
    main()

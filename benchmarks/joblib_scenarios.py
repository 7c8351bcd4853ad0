"""The scenarios of joblib's backends: many tiny tasks, one large argument, and two jobs of scikit-learn's.

Workers have run one task before and nothing else: as in a program's first `fit`, importing numpy and scikit-learn there
counts.
"""

from __future__ import annotations

from typing import Any

from . import functions
from .joblib_subjects import WORKERS, JoblibSubject
from .scenarios import MB, Figure, Knobs, seconds


def warm(subject: JoblibSubject) -> None:
    """Have every worker started."""
    subject.each(functions.noop, range(WORKERS))


def joblib_auto(subject: JoblibSubject, knobs: Knobs) -> list[Figure]:
    """Run 20,000 trivial tasks in batches of joblib's choice."""
    warm(subject)
    count = knobs.count(20_000)
    took = seconds(lambda: subject.bulk(functions.increment, range(count)))
    return [Figure("20,000 tasks, automatic batches", count / took, "tasks/s")]


def joblib_single(subject: JoblibSubject, knobs: Knobs) -> list[Figure]:
    """Run 2,000 trivial tasks one by one."""
    warm(subject)
    count = knobs.count(2_000)
    took = seconds(lambda: subject.each(functions.increment, range(count)))
    return [Figure("2,000 tasks, batch_size 1", count / took, "tasks/s")]


def joblib_same(subject: JoblibSubject, knobs: Knobs) -> list[Figure]:
    """Give one array of 64 MB to 32 tasks."""
    warm(subject)
    array = functions.make_array(64 * MB)
    took = seconds(lambda: subject.each(functions.total, [array] * knobs.count(32)))
    return [Figure("one array of 64 MB to 32 tasks", took * 1e3, "ms")]


def digits() -> tuple[Any, Any]:
    """Load the digits."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return images, labels


def joblib_search(subject: JoblibSubject, knobs: Knobs) -> list[Figure]:
    """Search over 20 settings of a support vector machine, with 5 folds each."""
    import numpy as np
    from sklearn.model_selection import RandomizedSearchCV
    from sklearn.svm import SVC

    warm(subject)
    images, labels = digits()
    space = {"C": np.logspace(-6, 6, 30), "gamma": np.logspace(-8, 8, 30), "tol": np.logspace(-4, -1, 30)}
    search = RandomizedSearchCV(SVC(kernel="rbf"), space, cv=5, n_iter=knobs.count(20), random_state=0)
    return [Figure("search over SVC, 20 settings × 5 folds", seconds(lambda: search.fit(images, labels)), "s")]


def joblib_scores(subject: JoblibSubject, knobs: Knobs) -> list[Figure]:
    """Score a forest of 50 trees over 10 folds."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import cross_val_score

    warm(subject)
    images, labels = digits()
    forest = RandomForestClassifier(knobs.count(50), random_state=0)
    took = seconds(lambda: cross_val_score(forest, images, labels, cv=10, n_jobs=WORKERS))
    return [Figure("cross_val_score, forest of 50, 10 folds", took, "s")]


JOBLIB_SCENARIOS = {
    "joblib_auto": joblib_auto,
    "joblib_single": joblib_single,
    "joblib_same": joblib_same,
    "joblib_search": joblib_search,
    "joblib_scores": joblib_scores,
}

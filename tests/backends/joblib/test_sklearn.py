"""scikit-learn: what it computes on the backend equals what it computes on loky, to the last bit."""

from __future__ import annotations

import fcntl
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn import datasets, ensemble, linear_model, multiclass, multioutput, svm, tree
from sklearn.calibration import CalibratedClassifierCV
from sklearn.feature_selection import RFECV
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_val_predict, cross_val_score, learning_curve
from sklearn.naive_bayes import GaussianNB

import outboard as ob
import outboard.joblib

pytestmark = pytest.mark.usefixtures("cluster")

X, Y = datasets.make_classification(160, 8, n_informative=5, n_classes=3, random_state=0)
TARGETS = np.stack([X @ np.arange(8), np.sin(X[:, 0])], axis=1)


def fitted(estimator: Any, target: Any = Y) -> list[Any]:
    estimator.fit(X, target)
    found = [estimator.predict(X)]
    if hasattr(estimator, "predict_proba"):
        found.append(estimator.predict_proba(X))
    return found


def searched(search: Any) -> list[Any]:
    search.fit(X, Y)
    names = [name for name in search.cv_results_ if "time" not in name and name != "params"]
    return [str(search.best_params_), *(np.asarray(search.cv_results_[name], dtype=str) for name in sorted(names))]


TREE = tree.DecisionTreeClassifier(max_depth=4, random_state=3)
LINEAR = linear_model.LogisticRegression(max_iter=300)

CASES: dict[str, Callable[[], list[Any]]] = {
    "forest": lambda: fitted(ensemble.RandomForestClassifier(12, random_state=0)),
    "extra trees": lambda: fitted(ensemble.ExtraTreesClassifier(12, random_state=1)),
    "bagging": lambda: fitted(ensemble.BaggingClassifier(TREE, 8, random_state=2)),
    "voting": lambda: fitted(ensemble.VotingClassifier([("a", TREE), ("b", LINEAR)], voting="soft")),
    "stacking": lambda: fitted(ensemble.StackingClassifier([("a", TREE), ("b", GaussianNB())], LINEAR, cv=3)),
    "one against rest": lambda: fitted(multiclass.OneVsRestClassifier(LINEAR)),
    "one against one": lambda: fitted(multiclass.OneVsOneClassifier(svm.SVC(random_state=0))),
    "calibrated": lambda: fitted(CalibratedClassifierCV(GaussianNB(), cv=3)),
    "several targets": lambda: fitted(multioutput.MultiOutputRegressor(linear_model.Ridge()), TARGETS),
    "lasso path": lambda: fitted(linear_model.LassoCV(cv=3, random_state=0), TARGETS[:, 0]),
    "elimination": lambda: fitted(RFECV(TREE, cv=3)),
    "grid": lambda: searched(GridSearchCV(svm.SVC(), {"C": [0.1, 1, 10], "gamma": ["scale", 0.1]}, cv=3)),
    "random search": lambda: searched(
        RandomizedSearchCV(TREE, {"max_depth": range(1, 9)}, n_iter=5, cv=3, random_state=5)
    ),
    "nested": lambda: searched(
        GridSearchCV(ensemble.RandomForestClassifier(5, n_jobs=2, random_state=0), {"max_depth": [2, 5]}, cv=2)
    ),
    "scores": lambda: [cross_val_score(LINEAR, X, Y, cv=5)],
    "predictions": lambda: [cross_val_predict(ensemble.GradientBoostingClassifier(random_state=0), X, Y, cv=3)],
    "learning curve": lambda: list(learning_curve(TREE, X, Y, cv=3)),
    "importances": lambda: [permutation_importance(TREE.fit(X, Y), X, Y, random_state=0, n_repeats=4).importances],
}


@pytest.fixture(scope="module")
def loky(folder_of_run: Path) -> dict[str, list[Any]]:
    """What a program of its own computes on loky, whose processes end with it; once for all that share the run."""
    path = folder_of_run / "loky"
    with path.open("a+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        if not path.stat().st_size:
            code = f"from {__name__} import write; write({str(path)!r})"
            subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
        found: dict[str, list[Any]] = pickle.loads(path.read_bytes())
    return found


def write(path: str) -> None:
    """Compute all cases on loky."""
    with joblib.parallel_backend("loky", n_jobs=2):
        Path(path).write_bytes(pickle.dumps({name: case() for name, case in CASES.items()}))


@pytest.mark.parametrize("name", CASES)
def test_results_equal_those_of_loky_to_the_last_bit(name: str, loky: dict[str, list[Any]]) -> None:
    with joblib.parallel_backend("dist", n_jobs=2):
        ours = CASES[name]()
    for our, their in zip(ours, loky[name], strict=True):
        np.testing.assert_array_equal(our, their)


def test_a_search_within_a_remote_task() -> None:
    def search() -> float:
        with joblib.parallel_backend("dist", n_jobs=2):
            return float(GridSearchCV(svm.SVC(), {"C": [0.1, 1, 10]}, cv=3).fit(X, Y).best_score_)

    with joblib.parallel_backend("threading", n_jobs=2):
        expected = float(GridSearchCV(svm.SVC(), {"C": [0.1, 1, 10]}, cv=3).fit(X, Y).best_score_)
    assert ob.get([ob.remote(search).remote() for _ in range(2)]) == [expected] * 2


def test_a_fit_that_fails_is_scored_as_with_any_backend() -> None:
    with joblib.parallel_backend("dist", n_jobs=2), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = GridSearchCV(svm.SVC(), {"C": [1, -1]}, cv=2).fit(X, Y)
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [False, True]

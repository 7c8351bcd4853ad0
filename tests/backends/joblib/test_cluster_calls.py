"""The same programs on two machines, unchanged; and what becomes of a call when one of them goes."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.faults.conftest import eventually, start_program
from tests.integration.clusters import Commands, apart, commands, finish, join, program

__all__ = ["apart", "commands", "eventually", "join", "program", "start_program"]

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(120)]

BEGIN = """
    import joblib
    from joblib import Parallel, delayed
    import outboard.joblib

    def where_after(seconds, *rest):
        time.sleep(seconds)
        return where()
"""


@pytest.mark.parametrize("slotless", [False, True])
def test_tasks_run_on_all_nodes_and_all_slots_count(
    commands: Commands, join: Any, program: Any, slotless: bool
) -> None:
    _, first = commands.head()
    second = join()
    text = """
    with joblib.parallel_backend("dist"):
        print(joblib.effective_n_jobs())
        print(*sorted(set(Parallel(batch_size=1)(delayed(where_after)(0.2) for _ in range(24)))))
    array = np.arange(1_000_000)
    found = Parallel(n_jobs=3, backend="dist")(delayed(np.add)(array, n) for n in range(12))
    print(all((f == array + n).all() for n, f in enumerate(found)))
    found = Parallel(n_jobs=3, backend="dist", return_as="generator")(delayed(np.add)(array, n) for n in range(12))
    print([int(f[0]) for f in found] == list(range(12)))
    """
    expected = ["3", " ".join(map(str, sorted((first, second)))), "True", "True"]
    assert finish(program(BEGIN + text, slotless=slotless)) == expected


def test_nested_calls_and_a_search_over_two_nodes(commands: Commands, join: Any, program: Any) -> None:
    commands.head()
    join()
    text = """
    from sklearn import datasets, ensemble, model_selection
    X, y = datasets.load_iris(return_X_y=True)
    scores = {}
    for backend in ("dist", "threading"):
        with joblib.parallel_backend(backend, n_jobs=3):
            forest = ensemble.RandomForestClassifier(10, random_state=0, n_jobs=2)
            search = model_selection.GridSearchCV(forest, {"max_depth": [1, 3]}, cv=3).fit(X, y)
            scores[backend] = search.cv_results_["mean_test_score"].tolist()
    print(scores["dist"] == scores["threading"])
    """
    assert finish(program(BEGIN + text)) == ["True"]


def test_a_node_that_goes_ends_the_call_with_its_name_and_the_next_runs_on_the_rest(
    commands: Commands, join: Any, program: Any
) -> None:
    _, first = commands.head()
    second = join()
    text = """
    def stay(path, second):
        node = where()
        open(f"{path}/{node}", "w").close()
        time.sleep(60 if node == second else 0.1)
        return node

    tasks = (delayed(stay)(sys.argv[1], int(sys.argv[2])) for _ in range(100))
    try:
        Parallel(n_jobs=3, backend="dist", batch_size=1)(tasks)
    except ob.errors.WorkerLostError as error:
        print("stay" in str(error))
    print(*set(Parallel(n_jobs=2, backend="dist")(delayed(where_after)(0.1) for _ in range(6))))
    """
    folder = commands.folder.parent
    running = program(BEGIN + text, str(folder), str(second))
    while not (folder / str(second)).exists():
        assert running.poll() is None, running.communicate()
    os.kill(second, signal.SIGKILL)
    assert finish(running) == ["True", str(first)]

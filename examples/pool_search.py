"""Search the best support vector machine for the digits, on every CPU, with a pool.

Every fold of every setting is one item of ``Pool.imap_unordered``: 64 settings of C and gamma, 5 folds each, scored by
plain functions. Prints the ten best settings, draws a heat map, and tells how long a part of the same work takes in one
process. Take ``Pool`` and ``cpu_count`` from ``multiprocessing`` instead and it still runs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from heat_map import draw_heat_map
from outboard.multiprocessing import Pool, cpu_count

if TYPE_CHECKING:
    import numpy as np

#: Powers of two, four times apart: 8 values of each.
C_VALUES = [2.0**power for power in range(-4, 12, 2)]
GAMMA_VALUES = [2.0**power for power in range(-18, -2, 2)]
FOLDS = 5

#: Seconds between two lines of progress where the output is no terminal.
LINE_PERIOD = 3.0


class Trial(NamedTuple):
    """One setting on one fold: what a worker gets."""

    c: float
    gamma: float
    fold: int


class Score(NamedTuple):
    """Share of the fold's digits that were told right: what a worker gives back."""

    trial: Trial
    accuracy: float


class Setting(NamedTuple):
    """One setting over all folds."""

    mean: float
    sd: float
    c: float
    gamma: float


@cache
def load_folds() -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Load the digits once a process, split into training and test parts."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import StratifiedKFold

    images, labels = load_digits(return_X_y=True)
    splits = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(images, labels)
    return [(images[train], labels[train], images[test], labels[test]) for train, test in splits]


def score_trial(trial: Trial) -> Score:
    """Fit one setting on the training part of a fold and score it on the rest."""
    from sklearn.svm import SVC

    train_images, train_labels, test_images, test_labels = load_folds()[trial.fold]
    model = SVC(kernel="rbf", C=trial.c, gamma=trial.gamma).fit(train_images, train_labels)
    return Score(trial, float(model.score(test_images, test_labels)))


def plan_trials(step: int = 1) -> list[Trial]:
    """List every setting, or those of every ``step``-th value, on every fold."""
    return [Trial(*place) for place in product(C_VALUES[::step], GAMMA_VALUES[::step], range(FOLDS))]


def with_lines(scores: Iterable[Score], total: int, console: Console) -> Iterator[Score]:
    """Pass scores on and print a plain line every few seconds."""
    started = said = time.perf_counter()
    best = 0.0
    for done, score in enumerate(scores, start=1):
        best = max(best, score.accuracy)
        now = time.perf_counter()
        if now - said >= LINE_PERIOD or done == total:
            said = now
            console.print(f"{done}/{total} fits, best fold {best:.4f}, {now - started:.1f} s")
        yield score


def with_bar(scores: Iterable[Score], total: int, console: Console) -> Iterator[Score]:
    """Pass scores on and keep a live progress line."""
    columns = (
        TextColumn("[bold]fits"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("best fold {task.fields[best]:.4f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("fits", total=total, best=0.0)
        best = 0.0
        for score in scores:
            best = max(best, score.accuracy)
            progress.update(task, advance=1, best=best)
            yield score


def search(processes: int, trials: list[Trial], console: Console) -> tuple[list[Score], float]:
    """Score every trial in the pool; return the scores and the seconds from opening the pool to the last one."""
    watch = with_bar if console.is_terminal else with_lines
    started = time.perf_counter()
    with Pool(processes) as pool:
        scores = list(watch(pool.imap_unordered(score_trial, trials), len(trials), console))
        seconds = time.perf_counter() - started
    return scores, seconds


def rank(scores: list[Score]) -> list[Setting]:
    """Join the folds of each setting; the best comes first, of equals the one with the lower C."""
    folds: dict[tuple[float, float], list[float]] = {}
    for (c, gamma, _), accuracy in scores:
        folds.setdefault((c, gamma), []).append(accuracy)
    settings = [Setting(statistics.mean(seen), statistics.stdev(seen), *key) for key, seen in folds.items()]
    return sorted(settings, key=lambda setting: (-setting.mean, setting.c))


def ranking_table(settings: list[Setting]) -> Table:
    """Make the table of the ten best."""
    table = Table(title=f"The ten best of {len(settings)} settings, {FOLDS} folds each")
    for heading in ("", "C", "gamma", "accuracy", "sd"):
        table.add_column(heading, justify="right")
    for place, setting in enumerate(settings[:10], start=1):
        row = (f"{place}", f"{setting.c:g}", f"{setting.gamma:.3g}", f"{setting.mean:.4f}", f"± {setting.sd:.4f}")
        table.add_row(*row, style="bold green" if place == 1 else "")
    return table


def time_serially(trials: list[Trial]) -> float:
    """Score trials one after the other in this process; return the seconds."""
    load_folds()
    started = time.perf_counter()
    for trial in trials:
        score_trial(trial)
    return time.perf_counter() - started


def serial_part(trials: list[Trial], share: float) -> list[Trial]:
    """Pick evenly spread trials of one fold, about ``share`` of all: cheap and dear settings alike."""
    fold = [trial for trial in trials if trial.fold == 0]
    wanted = min(len(fold), max(1, round(share * len(trials))))
    return [fold[place * len(fold) // wanted] for place in range(wanted)]


def show_times(console: Console, processes: int, trials: list[Trial], seconds: float, share: float) -> None:
    """Print how long the search took, beside a part of it in one process."""
    console.print(f"pool: {len(trials)} fits on {processes} processes in [bold]{seconds:.2f} s[/], start included")
    if share <= 0:
        return
    part = serial_part(trials, share)
    took = time_serially(part)
    whole = took * len(trials) / len(part)
    console.print(
        f"one process: {len(part)} of the fits in {took:.2f} s, so all of them in about {whole:.2f} s; "
        f"the pool is {whole / seconds:.2f} times as fast"
    )


def main() -> None:
    """Run the search and show what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=cpu_count(), help="workers of the pool (default: %(default)s)")
    parser.add_argument("--step", type=int, default=1, help="take every so-manyth value of C and gamma")
    parser.add_argument("--serial-share", type=float, default=0.1, help="part to repeat in one process, 0 to 1")
    parser.add_argument("--out", type=Path, default=Path("build/demo/digits_svc.png"), help="where the heat map goes")
    options = parser.parse_args()
    console = Console()
    trials = plan_trials(options.step)
    console.print(f"{len(trials)} fits on {options.processes} processes")
    scores, seconds = search(options.processes, trials, console)
    settings = rank(scores)
    console.print(ranking_table(settings))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw_heat_map({(best.c, best.gamma): best.mean for best in settings}, options.out)
    console.print(f"heat map: {options.out}")
    show_times(console, options.processes, trials, seconds, options.serial_share)


if __name__ == "__main__":
    main()

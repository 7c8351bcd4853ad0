"""Draw scores over two settings as a heat map."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

#: Colour of the frame around the best cell: far from anything in the colour map.
FRAME = "#ff5a36"

#: Points across the picture of scattered scores, each of the colour of the nearest one.
RESOLUTION = 300

#: Scores crowd near 1: the power spreads the upper end of the colours, which makes the ridge visible.
SPREAD = 4


def powers(values: list[float]) -> list[str]:
    """Write numbers as powers of two."""
    return [f"$2^{{{np.log2(value):.0f}}}$" for value in values]


def label_cells(axes: Axes, grid: np.ndarray) -> None:
    """Write each score into its cell, light on dark and dark on light."""
    for (row, column), value in np.ndenumerate(grid):
        shade = "black" if value**SPREAD > 0.55 else "white"
        axes.text(column, row, f"{value:.3f}", ha="center", va="center", fontsize=8.5, color=shade)


def name_best(axes: Axes, score: float, title: str) -> None:
    """Write the title, and the best score in the colour of its frame."""
    axes.set_title(title, loc="left", fontweight="bold", pad=12)
    axes.set_title(f"best: {score:.4f}", loc="right", color=FRAME, fontweight="bold", pad=12)


def mark_best(axes: Axes, grid: np.ndarray, title: str) -> None:
    """Frame the best cell and say above what it reaches."""
    row, column = np.unravel_index(grid.argmax(), grid.shape)
    frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=FRAME, linewidth=3.5, zorder=3)
    axes.add_patch(frame)
    name_best(axes, grid.max(), title)


def finish(figure: Figure, axes: Axes, image: ScalarMappable, path: Path) -> None:
    """Name the axes and the colours, and write the picture."""
    axes.set_xlabel("gamma: inverse width of the kernel")
    axes.set_ylabel("C: price of a misplaced digit")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    figure.colorbar(image, ax=axes, label="accuracy, mean of 5 folds", ticks=[0.1, 0.6, 0.7, 0.8, 0.9, 1.0])
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def draw_heat_map(scores: Mapping[tuple[float, float], float], path: Path) -> None:
    """Write the mean scores of (C, gamma) as a PNG to ``path``, whose folder must exist."""
    rows, columns = sorted({c for c, _ in scores}), sorted({gamma for _, gamma in scores})
    grid = np.array([[scores[c, gamma] for gamma in columns] for c in rows])
    figure, axes = pyplot.subplots(figsize=(8.6, 6.6), layout="constrained")
    image = axes.imshow(grid, origin="lower", cmap="viridis", norm=PowerNorm(SPREAD, 0, 1), aspect="auto")
    label_cells(axes, grid)
    mark_best(axes, grid, "Support vector machine on the digits")
    axes.set_xticks(range(len(columns)), powers(columns))
    axes.set_yticks(range(len(rows)), powers(rows))
    finish(figure, axes, image, path)


def draw_scattered(scores: Mapping[tuple[float, float], float], path: Path) -> None:
    """Write the mean scores of (C, gamma) that lie anywhere as a PNG, in which each colours what is nearest to it."""
    places, values = np.log10(list(scores)), np.array(list(scores.values()))
    (bottom, left), (top, right) = np.floor(places.min(axis=0)), np.ceil(places.max(axis=0))
    rows, columns = np.linspace(bottom, top, RESOLUTION), np.linspace(left, right, RESOLUTION)
    distances = (rows[:, None, None] - places[:, 0]) ** 2 + (columns[:, None] - places[:, 1]) ** 2
    figure, axes = pyplot.subplots(figsize=(8.6, 6.6), layout="constrained")
    norm = PowerNorm(SPREAD, 0, 1)
    filled = values[distances.argmin(axis=2)]
    image = axes.imshow(filled, origin="lower", norm=norm, aspect="auto", extent=(left, right, bottom, top))
    axes.scatter(places[:, 1], places[:, 0], c=values, norm=norm, s=36, edgecolors="white", linewidths=0.8)
    best_c, best_gamma = places[values.argmax()]
    axes.scatter(best_gamma, best_c, s=160, facecolors="none", edgecolors=FRAME, linewidths=3)
    name_best(axes, values.max(), "Support vector machine on the digits")
    for axis, first, last in ((axes.xaxis, left, right), (axes.yaxis, bottom, top)):
        exponents = range(int(first), int(last) + 1, 2)
        axis.set_ticks(exponents, [f"$10^{{{exponent}}}$" for exponent in exponents])
    finish(figure, axes, image, path)

"""The paper's figures of simulated limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpnn.judging.plots.figures import new_figure
from gpnn.theory import limits
from gpnn.theory.simulation.sweeps import METRICS, PARAMETERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SYMBOLS = {"lengthscale": r"\hat{l}", "kernel_variance": r"\hat{\sigma}_f^2", "noise_variance": r"\hat{\sigma}_\xi^2"}
_TITLES = {"mse": "MSE", "calibration": "calibration", "nll": "NLL"}

FIGURE_2 = (("nll", "noise_variance"), ("calibration", "noise_variance"), ("mse", "lengthscale"))
"""The panels of the paper's figure "sim limits", left to right, as (metric, assumed parameter)."""


def simulation_figure(rows: Sequence[dict], panels: Sequence[tuple[str, str]] | None = None) -> Figure:
    """The rows of `simulation.sweep`: each metric over each assumed parameter, one line per n, as in the paper.

    Black: the true value. Red: the limit as n → ∞ for the assumed parameters. Green: the limit for the true ones.
    `panels` gives (metric, parameter) pairs in one line; None draws all metrics and all parameters that were varied.
    """
    figure = new_figure()
    if panels is None:
        varied = [name for name in PARAMETERS if any(row["varied"] == name for row in rows)]
        grid = [[(metric, name) for name in varied] for metric in METRICS]
    else:
        grid = [list(panels)]
    figure.set_size_inches(4 * len(grid[0]) + 1, 3 * len(grid) + 0.6)
    axes = figure.subplots(len(grid), len(grid[0]), squeeze=False)
    for axes_row, panel_row in zip(axes, grid, strict=True):
        for ax, (metric, name) in zip(axes_row, panel_row, strict=True):
            _simulation_panel(ax, [row for row in rows if row["varied"] == name], metric, name)
    handles, labels = axes[-1][-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper")
    return figure


def _simulation_panel(ax: Axes, rows: Sequence[dict], metric: str, name: str) -> None:
    sizes = sorted({row["n"] for row in rows})
    for place, n in enumerate(sizes):
        of_n = sorted((row for row in rows if row["n"] == n), key=lambda row: row[f"assumed_{name}"])
        x = [row[f"assumed_{name}"] for row in of_n]
        middle = [row[metric] for row in of_n]
        low, high = ([row[metric] + sign * 2 * row[f"{metric}_se"] for row in of_n] for sign in (-1, 1))
        color = (0.95 - 0.85 * (place + 1) / len(sizes), 0.35, 0.25 + 0.6 * (place + 1) / len(sizes))
        ax.plot(x, middle, color=color, linewidth=1.4, label=f"n = {n:.0e}".replace("e+0", "e").replace("e+", "e"))
        ax.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    first = of_n[0]
    noise, m = first["noise_variance"], first["n_neighbors"]
    ax.plot(x, [row[f"limit_{metric}"] for row in of_n], "--", color="tab:red", label="limit")
    ax.axhline(getattr(limits(noise, noise, m), metric), ls=":", color="tab:green", label="limit, true θ")
    ax.axvline(first[name], ls="--", color="black", linewidth=1, label="true value")
    ax.set(xscale="log", xlabel=f"${_SYMBOLS[name]}$", ylabel=_TITLES[metric], title=f"l = {first['lengthscale']:g}")
    if metric != "nll":
        ax.set_yscale("log")

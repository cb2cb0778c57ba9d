"""The paper's figures from the evidence: filled marks are ours, hollow ones published. They need matplotlib."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import methods
from gpnn import datasets
from gpnn.plots import FIGURE_2, new_figure, simulation_figure
from renderers.evidence import Evidence, finest
from runners.simulation import rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = dict(zip(methods.METHODS, [f"C{number}" for number in range(10)] + ["black"], strict=True))
_TITLES = {"calibration": "calibration", "nll": "NLL", "rmse": "RMSE"}
_LEGEND = "filled: ours    hollow: published    *: many inputs"
_HIGH_DIMENSION = 50


def train_times(evidence: Evidence) -> Figure:
    """Figure "Training times": seconds by data set and method."""
    figure = new_figure()
    figure.set_size_inches(8, 4.5)
    ax = figure.subplots()
    names = evidence.datasets()
    for method in ("distributed", "gpnn", "svgp"):
        color = _COLORS["poe" if method == "distributed" else method]
        label = "best distributed" if method == "distributed" else methods.get(method).label
        _marks(ax, _printed(evidence, "train_times", names, method, "fit_seconds"), color, label, hollow=True)
        best = [evidence.best_distributed(name) if method == "distributed" else method for name in names]
        found = [evidence.real.get((name, one, "rbf")) for name, one in zip(names, best, strict=True)]
        seconds = {place: summary.metrics["fit_seconds"].value for place, summary in enumerate(found) if summary}
        _marks(ax, seconds, color)
        if method == "gpnn":
            without = {place: total - found[place].calibrate_seconds for place, total in seconds.items()}
            _marks(ax, without, color, "GPnn, without calibration", marker="d")
    ax.set(yscale="log", ylabel="training, s")
    _finish(figure, [ax], names)
    return figure


def results(evidence: Evidence) -> Figure:
    """Figure "Experiment results": calibration, NLL and RMSE by method."""
    figure = new_figure()
    figure.set_size_inches(14, 4.5)
    panels = figure.subplots(1, 3)
    names = evidence.datasets()
    shown = [
        name for name in methods.METHODS if any((table, method) == ("all_metrics", name)
        for table, _, method, _, _ in evidence.published) or any(method == name for _, method, _ in evidence.real)
    ]  # fmt: skip
    for ax, metric in zip(panels, ("calibration", "nll", "rmse"), strict=True):
        for number, method in enumerate(shown):
            beside = 0.7 * (number / (len(shown) - 1) - 0.5)
            found = [evidence.real.get((name, method, "rbf")) for name in names]
            measured = {place: summary.metrics.get(metric) for place, summary in enumerate(found) if summary}
            ours = {
                place: value.value for place, value in measured.items() if value
            }  # no Gaussian NLL of Student-t laws
            printed = _printed(evidence, "all_metrics", names, method, metric)
            label = methods.get(method).label if ax is panels[0] else None
            _marks(ax, printed, _COLORS[method], label, beside, hollow=True)
            _marks(ax, ours, _COLORS[method], None if printed else label, beside)
        ax.set_title(_TITLES[metric])
    panels[0].axhline(1, ls="--", color="black", linewidth=1)
    panels[0].set_ylim(0, 2)  # as in the paper, without CTSlice's values of 4 to 6
    panels[1].set_yscale("symlog")
    panels[2].set_yscale("log")
    _finish(figure, panels, names)
    return figure


def oakley(evidence: Evidence) -> Figure | None:
    """Figure "Oakley and O'Hagan": metrics over n for both kernels, and their limit."""
    if not evidence.oakley:
        return None
    figure = new_figure()
    figure.set_size_inches(13, 4)
    panels = figure.subplots(1, 3)
    largest = max(evidence.oakley, key=lambda record: record["job"]["n"])
    for ax, metric in zip(panels, ("rmse", "nll", "calibration"), strict=True):
        for number, kernel in enumerate(sorted({record["job"]["kernel"] for record in evidence.oakley})):
            of_kernel = [record for record in evidence.oakley if record["job"]["kernel"] == kernel]
            points = sorted((record["job"]["n"], record["result"]["metrics"][metric]) for record in of_kernel)
            ax.plot(*zip(*points, strict=True), "o-", color=f"C{number}", label=kernel)
        ax.axhline(largest["result"]["limits"][metric], ls="--", color="tab:green", label="limit, n → ∞")
        ax.set(xscale="log", xlabel="n", title=_TITLES[metric])
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def sim_limits(evidence: Evidence) -> Figure | None:
    """Figure "sim limits": NLL and calibration over the assumed noise (l = 0.5), MSE over the lengthscale (l = 1)."""
    wanted = {(0.5, "noise_variance"), (1.0, "lengthscale")}
    rows = [row for row in rows_of(finest(evidence.simulation)) if (row["lengthscale"], row["varied"]) in wanted]
    return simulation_figure(rows, FIGURE_2) if {row["lengthscale"] for row in rows} == {0.5, 1.0} else None


def sim_grid(evidence: Evidence) -> Figure | None:
    """Appendix figure: every metric over every assumed parameter, l = 0.5."""
    rows = [row for row in rows_of(finest(evidence.simulation)) if row["lengthscale"] == 0.5]
    return simulation_figure(rows) if rows else None


FIGURES: dict[str, Callable[[Evidence], Figure | None]] = {
    f"figure_{function.__name__}": function for function in (train_times, results, oakley, sim_limits, sim_grid)
}
"""A figure that has nothing to show is None."""


def _printed(evidence: Evidence, table: str, names: list[str], method: str, metric: str) -> dict[int, float]:
    found = {place: evidence.published.get((table, name, method, "rbf", metric)) for place, name in enumerate(names)}
    return {place: number.value for place, number in found.items() if number}


def _marks(ax: Axes, points: dict[int, float], color: str, label: str | None = None, beside: float = 0.0, *,
           hollow: bool = False, marker: str = "o") -> None:  # fmt: skip
    """Values by the place of their data set, a little `beside` it."""
    places = [place + beside for place in points]
    face = "none" if hollow else color
    ax.plot(places, list(points.values()), marker, color=color, markerfacecolor=face, label=label)


def _finish(figure: Figure, panels, names: list[str]) -> None:
    starred = [name + " *" * (datasets.info(name).d >= _HIGH_DIMENSION) for name in names]
    for ax in panels:
        ax.set_xticks(range(len(names)), starred, rotation=35, ha="right")
    figure.supxlabel(_LEGEND, fontsize="small")
    figure.legend(loc="outside right upper")

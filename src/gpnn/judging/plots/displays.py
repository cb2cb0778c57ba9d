"""The charts of a diagnosis as matplotlib objects, in scikit-learn's manner.

    CalibrationDisplay.from_estimator(model, X_test, y_test)

Each display keeps what it draws, and after `plot` its axes as `ax_` and its figure as `figure_`. To draw several of one
model, measure once: `found = diagnose(model, X, y)`, then `from_diagnostics(found)` of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from gpnn.common import metrics
from gpnn.common.errors import InvalidInputError
from gpnn.common.reliability import Reliability, sampling_error
from gpnn.common.types import Prediction
from gpnn.judging.diagnostics import Cloud, Column, Diagnostics, FitRecord, diagnose
from gpnn.judging.plots.figures import axes_or_new
from gpnn.stages.shapes import GAUSSIAN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#8a8f98"  # told apart with any colour vision
_MOST_COLUMNS = 20


class Display:
    """What all displays do; subclasses say what they take from a diagnosis, and draw it."""

    ax_: Axes
    figure_: Figure | SubFigure

    @classmethod
    def from_estimator(cls, estimator, X, y, *, ax: Axes | None = None) -> Self:
        """Measure a fitted estimator of this package on test rows X (n, d), y (n,), and draw."""
        return cls.from_diagnostics(diagnose(estimator, X, y), ax=ax)

    @classmethod
    def from_diagnostics(cls, diagnostics: Diagnostics, *, ax: Axes | None = None) -> Self:
        """Draw what was measured already."""
        return cls._of(diagnostics).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw into `ax`, or into a new figure."""
        self.ax_ = axes_or_new(ax)
        self.figure_ = self.ax_.figure
        self._draw(self.ax_)
        return self

    @classmethod
    def _of(cls, diagnostics: Diagnostics) -> Self:
        raise NotImplementedError

    def _draw(self, ax: Axes) -> None:
        raise NotImplementedError


@dataclass
class _ReliabilityDisplay(Display):
    reliability: Reliability

    @classmethod
    def from_predictions(cls, y, mean, std, *, ax: Axes | None = None) -> Self:
        """Draw from observed y, predicted means and standard deviations (n,), of any model, taken as Gaussian laws."""
        law = Prediction(np.asarray(mean, dtype=float), np.asarray(std, dtype=float) ** 2)
        return cls(Reliability.of(y, law, GAUSSIAN.quantile)).plot(ax)

    @classmethod
    def _of(cls, diagnostics: Diagnostics) -> Self:
        return cls(diagnostics.reliability)


@dataclass
class CalibrationDisplay(_ReliabilityDisplay):
    """The share of rows inside their intervals, at every level: on the diagonal when the laws are right."""

    def _draw(self, ax: Axes) -> None:
        found = self.reliability
        levels = np.array([0.0, *found.levels, 1.0])
        chance = np.array([sampling_error(level, found.n_rows) for level in levels])
        ax.fill_between(levels, levels - chance, levels + chance, color=_GREY, alpha=0.25, lw=0, label="chance, 95 %")
        ax.plot([0, 1], [0, 1], color=_GREY, lw=1)
        ax.plot(levels, [0.0, *found.coverage, 1.0], "o-", color=_BLUE, ms=3.5, label="measured")
        ax.set(xlabel="level of the intervals", ylabel="share of rows inside", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        ax.legend(loc="upper left", frameon=False)


@dataclass
class PitDisplay(_ReliabilityDisplay):
    """Where the observed values fall in their predicted laws: flat when these are right, ∪ when they are too narrow."""

    def _draw(self, ax: Axes) -> None:
        bins = len(self.reliability.pit)
        even = 1 / bins
        chance = sampling_error(even, self.reliability.n_rows)
        ax.bar((np.arange(bins) + 0.5) / bins, self.reliability.pit, width=0.92 / bins, color=_BLUE)
        ax.axhspan(even - chance, even + chance, color=_GREY, alpha=0.4, lw=0, label="chance, 95 %")
        ax.axhline(even, color=_GREY, lw=1)
        highest = 1.2 * max(*self.reliability.pit, even + chance)  # room for the legend
        ax.set(xlabel="place of y in its predicted law", ylabel="share of rows", xlim=(0, 1), ylim=(0, highest))
        ax.legend(loc="upper right", frameon=False)


@dataclass
class SpreadDisplay(_ReliabilityDisplay):
    """Size of the errors against predicted standard deviation, by tenth of the rows: equal when it is right."""

    def _draw(self, ax: Axes) -> None:
        from matplotlib.ticker import LogLocator

        sd, error = np.array([(tenth.sd, tenth.error) for tenth in self.reliability.tenths]).T
        drawn = (sd > 0) & (error > 0)
        ends = [min(sd[drawn].min(), error[drawn].min()), max(sd[drawn].max(), error[drawn].max())]
        ax.plot(ends, ends, color=_GREY, lw=1, label="right")
        ax.plot(sd[drawn], error[drawn], "o-", color=_BLUE, label="a tenth of the rows each")
        ax.set(xlabel="predicted sd", ylabel="RMS error", xscale="log", yscale="log")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_minor_formatter("")
            if ends[1] < 30 * ends[0]:  # too few powers of ten to read a size from
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.set_major_formatter("{x:g}")
        ax.legend(loc="upper left", frameon=False)


@dataclass
class PredictionErrorDisplay(Display):
    """Predicted against observed: rows as points, or of many rows their number in each cell."""

    cloud: Cloud
    target: str = "y"

    @classmethod
    def from_predictions(cls, y, mean, *, target: str = "y", ax: Axes | None = None) -> Self:
        """Draw from observed y and predicted means (n,), of any model."""
        mean = np.asarray(mean, dtype=float)
        return cls(Cloud.of(metrics.observed(y, Prediction(mean, np.ones_like(mean))), mean), target).plot(ax)

    @classmethod
    def _of(cls, diagnostics: Diagnostics) -> Self:
        return cls(diagnostics.cloud, diagnostics.target)

    def _draw(self, ax: Axes) -> None:
        cloud = self.cloud
        if cloud.cell is None:
            ax.plot(cloud.predicted, cloud.observed, ".", color=_BLUE, alpha=0.5, ms=4)
        else:
            drawn = ax.scatter(
                cloud.predicted, cloud.observed, c=cloud.counts, s=12, marker="s", cmap="Blues", norm="log", vmin=0.2
            )  # vmin below 1, so that a single row can be seen
            ax.figure.colorbar(drawn, ax=ax, label="rows")
        ends = [min(*cloud.predicted, *cloud.observed), max(*cloud.predicted, *cloud.observed)]
        ax.plot(ends, ends, color=_ORANGE, lw=1)
        ax.set(xlabel=f"predicted {self.target}", ylabel=f"observed {self.target}", aspect="equal")


@dataclass
class MetricDisplay(Display):
    """The learned metric: how much each column matters for which rows are near."""

    columns: tuple[Column, ...]

    @classmethod
    def _of(cls, diagnostics: Diagnostics) -> Self:
        return cls(_fit_of(diagnostics, cls).columns)

    def _draw(self, ax: Axes) -> None:
        shown = self.columns[:_MOST_COLUMNS][::-1]
        ax.barh([column.name for column in shown], [column.importance for column in shown], color=_BLUE)
        ax.set(xlabel="lengthscales per standard deviation of the column")


@dataclass
class NeighborCurveDisplay(Display):
    """How RMSE and NLL of held-out rows depend on m; the fewest neighbours within the tolerance are used."""

    losses: tuple[tuple[int, float, float], ...]
    n_neighbors: int

    @classmethod
    def _of(cls, diagnostics: Diagnostics) -> Self:
        fit = _fit_of(diagnostics, cls)
        if not fit.m_curve:
            raise InvalidInputError(
                f"n_neighbors = {fit.n_neighbors} was given, so that there is no curve. Fit with n_neighbors='auto'."
            )
        return cls(fit.m_losses, fit.n_neighbors)

    def _draw(self, ax: Axes) -> None:
        sizes, rmse, nll = zip(*self.losses, strict=True)
        ax.plot(sizes, rmse, "o-", color=_BLUE, label="RMSE, %")
        ax.plot(sizes, nll, "s--", color=_ORANGE, label="NLL, 0.01 nats")
        ax.axvline(self.n_neighbors, color=_GREY, lw=1, label=f"used: m = {self.n_neighbors}")
        ax.set(xlabel="neighbours m", ylabel="above the best", xscale="log")
        apart = [size for size in sizes if size in (16, 32, 64, 100, 200, 400) or size == self.n_neighbors]
        ax.set_xticks(apart, [str(size) for size in apart])
        ax.set_xticks([], minor=True)
        ax.legend(frameon=False)


def _fit_of(diagnostics: Diagnostics, display: type[Display]) -> FitRecord:
    if diagnostics.fit is None:
        raise InvalidInputError(
            f"{display.__name__} draws what GPnnRegressor.fit records; {diagnostics.model} has no such record."
        )
    return diagnostics.fit

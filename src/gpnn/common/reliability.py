"""Are predicted laws right? What rows whose outcome is known say: at every level, for sure and unsure rows alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpnn.common import metrics
from gpnn.common.types import Array, Prediction

LEVELS = (*(float(level) for level in np.round(np.arange(0.05, 1.0, 0.05), 2)), 0.99)
_BINS = 20


@dataclass(frozen=True)
class Tenth:
    """A tenth of the rows, by predicted standard deviation."""

    n_rows: int
    sd: float
    """Root mean square of the predicted standard deviations, in the units of y."""
    error: float
    """Root mean square of y* − μ*: as large as `sd` when the standard deviations are right."""
    coverage: float
    """Share of the rows inside their 90 % intervals."""


@dataclass(frozen=True)
class Reliability:
    """Shares of rows inside their intervals and along their laws."""

    n_rows: int
    levels: tuple[float, ...]
    coverage: tuple[float, ...]
    """At each level, the share of rows inside their central intervals."""
    coverage_90: float
    pit: tuple[float, ...]
    """Share of rows in each twentieth of their predictive law: 0.05 each when the law is right."""
    tenths: tuple[Tenth, ...]
    """From the rows that the model is surest of to those it is least sure of; ten, or as many as there are rows."""

    @classmethod
    def of(
        cls, y: Array, law: Prediction, quantile: Callable[[Array], Array], levels: Sequence[float] = LEVELS
    ) -> Reliability:
        """`quantile`: of (y* − μ*)/σ*, the law that intervals are made from; of all rows (k,), or of each (n, k)."""
        y = metrics.observed(y, law)
        residuals = (y - law.mean) / law.std
        in_90 = inside(residuals, quantile, 0.9)
        parts = [rows for rows in np.array_split(np.argsort(law.std, kind="stable"), 10) if len(rows)]
        places = np.sum(residuals[:, None] > quantile(np.arange(1, _BINS) / _BINS), axis=1)
        return cls(
            n_rows=len(y),
            levels=tuple(levels),
            coverage=tuple(float(np.mean(inside(residuals, quantile, level))) for level in levels),
            coverage_90=float(np.mean(in_90)),
            pit=tuple((np.bincount(places, minlength=_BINS) / len(y)).tolist()),
            tenths=tuple(
                Tenth(
                    n_rows=len(rows),
                    sd=float(np.sqrt(np.mean(law.variance[rows]))),
                    error=float(np.sqrt(np.mean((y[rows] - law.mean[rows]) ** 2))),
                    coverage=float(np.mean(in_90[rows])),
                )
                for rows in parts
            ),
        )


def inside(residuals: Array, quantile: Callable[[Array], Array], level: float) -> Array:
    """Whether each (y* − μ*)/σ* lies in the central interval of probability `level`."""
    lower, upper = quantile(np.array([0.5 - level / 2, 0.5 + level / 2])).T
    return (lower <= residuals) & (residuals <= upper)


def sampling_error(share: float, n_rows: int, deviations: float = 1.96) -> float:
    """Half the width of the interval in which a share of n rows lies by chance with probability 95 %."""
    return deviations * float(np.sqrt(share * (1 - share) / max(n_rows, 1)))

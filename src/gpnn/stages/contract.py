"""What every estimator of this package does once it is fitted: predict, predict_distribution, evaluate."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from gpnn.common import metrics
from gpnn.common.errors import GPnnWarning, InvalidInputError
from gpnn.common.reliability import LEVELS, Reliability, inside
from gpnn.common.types import Array, Prediction
from gpnn.stages.shapes import Shape
from gpnn.stages.whitening import Whitener


class DistributionRegressor(RegressorMixin, BaseEstimator):
    """A scikit-learn regressor whose prediction is a law. Subclasses write `fit` and `predict_distribution`."""

    whitener_: Whitener

    def predict_distribution(self, X) -> Prediction:
        """The predictive law of y* at each row of X, in the units of y."""
        raise NotImplementedError

    def predict(self, X, return_std: bool = False):
        """Means of y* (q,), and with return_std=True also its standard deviations, noise included."""
        prediction = self.predict_distribution(X)
        return (prediction.mean, prediction.std) if return_std else prediction.mean

    def predict_interval(self, X, coverage: float = 0.9) -> tuple[Array, Array]:
        """Lower and upper ends (q,) of the central interval that holds y* with probability `coverage`."""
        return self._interval(self.predict_distribution(X), coverage)

    def _interval(self, law: Prediction, coverage: float) -> tuple[Array, Array]:
        if not 0 < coverage < 1:
            raise InvalidInputError(f"coverage = {coverage} must lie strictly between 0 and 1, such as 0.9.")
        lower, upper = self._quantiles(law, [0.5 - coverage / 2, 0.5 + coverage / 2]).T
        return lower, upper

    def predict_quantiles(self, X, q) -> Array:
        """Quantiles of y* of the orders q (k,): one column each (n, k), never crossing."""
        return self._quantiles(self.predict_distribution(X), q)

    def _quantiles(self, law: Prediction, q) -> Array:
        levels = np.atleast_1d(np.asarray(q, dtype=float))
        if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
            raise InvalidInputError(
                f"q = {q} must be probabilities strictly between 0 and 1, such as [0.05, 0.5, 0.95]."
            )
        return law.at(np.atleast_2d(self._standard_quantile(levels, law)))

    def _standard_quantile(self, levels: Array, law: Prediction) -> Array:
        """Quantiles of (y* − μ*)/σ*: (k,), or (n, k) where they differ between rows."""
        return Shape(degrees_of_freedom=law.degrees_of_freedom).quantile(levels)

    def evaluate(self, X, y, units: str = "whitened") -> dict[str, float]:
        """The paper's metrics and a few more on test rows.

        As in the paper, "rmse", "nll" and "crps" are for y scaled to mean 0 and variance 1 by the training rows;
        units="y" gives them in the units of y. Where the law is Student-t, "log_score" stands in place of "nll".
        "coverage_90" is that of `predict_interval`; `diagnose` looks closer.
        """
        self._check_units(units)
        return self._scores(y, self.predict_distribution(X), units)

    def _check_units(self, units: str) -> None:
        if units not in ("whitened", "y"):
            raise InvalidInputError(f"units = {units!r} is unknown. Choose 'whitened' (the paper's) or 'y'.")

    def diagnose(self, X, y) -> dict[str, list[float]]:
        """Strong calibration on test rows: are intervals of every level right, and for sure and unsure rows alike?

        "levels" and "coverage_by_level": share of rows inside the intervals of these levels; "coverage_by_sd": of the
        90 % intervals in each tenth of the rows by predicted standard deviation; "pit": share of rows in each
        twentieth of their predictive law, 0.05 each when the law is right.
        """
        found = self._reliability(y, self.predict_distribution(X), levels=(0.5, 0.8, 0.9, 0.95, 0.99))
        return {
            "levels": list(found.levels),
            "coverage_by_level": list(found.coverage),
            "coverage_by_sd": [tenth.coverage for tenth in found.tenths],
            "pit": list(found.pit),
        }

    def _scores(self, y, law: Prediction, units: str) -> dict[str, float]:
        """What `evaluate` gives, for a law that was predicted already."""
        y = np.asarray(y, dtype=float)
        if units == "whitened":
            y_mean, y_std = self._target_scale()
            y, law = (y - y_mean) / y_std, law.affine(-y_mean / y_std, 1 / y_std)
        density_score = "nll" if law.degrees_of_freedom is None else "log_score"
        return {
            "rmse": metrics.rmse(y, law),
            density_score: metrics.log_score(y, law),
            "calibration": metrics.calibration(y, law),
            "coverage_90": float(np.mean(inside((y - law.mean) / law.std, self._quantile_of(law), 0.9))),
            "crps": metrics.crps(y, law),
        }

    def _reliability(self, y, law: Prediction, levels: Sequence[float] = LEVELS) -> Reliability:
        """What `diagnose` is made from, for a law that was predicted already."""
        return Reliability.of(y, law, self._quantile_of(law), levels)

    def _quantile_of(self, law: Prediction) -> Callable[[Array], Array]:
        return lambda q: self._standard_quantile(q, law)

    def _warn_of_jitter(self, jitter: float) -> None:
        if jitter > 0:
            warnings.warn(
                f"Some local systems were singular; up to {jitter:.0e}·σ_f² was added to their diagonals. "
                "This happens when rows repeat and the noise variance is close to zero.",
                GPnnWarning,
                stacklevel=3,
            )

    def _target_scale(self) -> tuple[float, float]:
        """Mean and standard deviation of y in the training rows."""
        return self.whitener_.y_mean, self.whitener_.y_std

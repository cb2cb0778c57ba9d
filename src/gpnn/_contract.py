"""What every estimator of this package does once it is fitted: predict, predict_distribution, evaluate."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from gpnn import metrics
from gpnn._types import Prediction
from gpnn.errors import GPnnWarning, InvalidInputError
from gpnn.whitening import Whitener


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

    def evaluate(self, X, y, units: str = "whitened") -> dict[str, float]:
        """The paper's metrics and a few more on test rows.

        As in the paper, "rmse", "nll" and "crps" are for y scaled to mean 0 and variance 1 by the training rows;
        units="y" gives them in the units of y. Where the law is Student-t, "log_score" stands in place of "nll".
        """
        if units not in ("whitened", "y"):
            raise InvalidInputError(f"units = {units!r} is unknown. Choose 'whitened' (the paper's) or 'y'.")
        prediction = self.predict_distribution(X)
        y = np.asarray(y, dtype=float)
        if units == "whitened":
            y_mean, y_std = self._target_scale()
            y, prediction = (y - y_mean) / y_std, prediction.affine(-y_mean / y_std, 1 / y_std)
        density_score = "nll" if prediction.degrees_of_freedom is None else "log_score"
        return {
            "rmse": metrics.rmse(y, prediction),
            density_score: metrics.log_score(y, prediction),
            "calibration": metrics.calibration(y, prediction),
            "coverage_90": metrics.coverage(y, prediction, 0.9),
            "crps": metrics.crps(y, prediction),
        }

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

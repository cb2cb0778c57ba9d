"""Predictions for rows whose noise is known, in part: every way to ask takes `noise_variance`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpnn.common.types import Array, Prediction


class KnownNoise:
    """noise_variance (q,), or one number, in units of y²: what is known of the noise of y*, beside what was learned; 0
    for a reading without it. Only of models that were fitted with some; by default as much as training rows have."""

    def predict(self: Any, X, return_std: bool = False, return_cov: bool = False, noise_variance=None):
        """Means of y* (q,), and with return_std=True also its standard deviations, noise included; with return_cov=True
        also its covariance matrix (q, q), for up to a few thousand rows."""
        if return_cov:
            joint = self._joint_law(X, noise_variance)
            return joint.mean, joint.covariance()
        law = self.predict_distribution(X, noise_variance)
        return (law.mean, law.std) if return_std else law.mean

    def predict_interval(self: Any, X, coverage: float = 0.9, noise_variance=None) -> tuple[Array, Array]:
        """Lower and upper ends (q,) of the central interval that holds y* with probability `coverage`."""
        return self._ends(self.predict_distribution(X, noise_variance), coverage)

    def _ends(self: Any, law: Prediction, coverage: float) -> tuple[Array, Array]:
        if law.mean.ndim == 1:
            return self._interval(law, coverage)
        ends = [model._interval(self._of_target(law, j), coverage) for j, model in enumerate(self.targets_)]
        lower, upper = (np.stack(of, axis=1) for of in zip(*ends, strict=True))
        return lower, upper

    def predict_quantiles(self: Any, X, q, noise_variance=None) -> Array:
        """Quantiles of y* of the orders q (l,): one column each (n, l), never crossing; (n, k, l) of k targets."""
        law = self.predict_distribution(X, noise_variance)
        if law.mean.ndim == 1:
            return self._quantiles(law, q)
        return np.stack([model._quantiles(self._of_target(law, j), q) for j, model in enumerate(self.targets_)], axis=1)

    def evaluate(self: Any, X, y, units: str = "whitened", noise_variance=None) -> dict[str, Any]:
        """The paper's metrics and a few more on test rows.

        As in the paper, "rmse", "nll" and "crps" are for y scaled to mean 0 and variance 1 by the training rows;
        units="y" gives them in the units of y. "coverage_90" is that of `predict_interval`; `diagnose` looks closer.
        Of several targets, each is a list.
        """
        self._check_units(units)
        law = self.predict_distribution(X, noise_variance)
        if law.mean.ndim == 1:
            return self._scores(y, law, units)
        y = np.asarray(y, dtype=float)
        each = []
        for j, model in enumerate(self.targets_):
            known = ~np.isnan(y[:, j])
            each.append(model._scores(y[known, j], self._of_target(law, j)[known], units))
        return {name: [scores[name] for scores in each] for name in each[0]}

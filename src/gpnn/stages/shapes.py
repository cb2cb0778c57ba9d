"""The shape of (y* − μ*)/σ*, from rows whose outcome is known: it turns a mean and a standard deviation into quantiles.

Gaussian, Student-t, or the empirical quantiles themselves (split-conformal intervals in units of σ*), whichever has the
lowest CRPS on rows that it was not fitted to.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from gpnn.common import metrics
from gpnn.common.types import Array, Prediction

_LEVELS = np.arange(1, 40) / 40  # at which quantiles are scored
_FEWEST = 100  # residuals; below, a shape would be noise
_FOLDS = 5


@dataclass(frozen=True)
class Shape:
    """A law of mean about 0 and variance about 1."""

    name: str = "gaussian"
    degrees_of_freedom: float | None = None
    residuals: Array = field(default_factory=lambda: np.zeros(0), repr=False)
    """Sorted, for the empirical shape."""

    def quantile(self, q: Array | float) -> Array:
        q = np.asarray(q, dtype=float)
        nu = self.degrees_of_freedom
        if nu is not None:
            return stdtrit(nu, q) * np.sqrt((nu - 2) / nu)
        if self.name == "gaussian":
            return ndtri(q)
        r = self.residuals
        # The k-th smallest of c residuals is a quantile of order k/(c + 1); beyond the outermost, Gaussian tails.
        inside = np.interp(q, np.arange(1, len(r) + 1) / (len(r) + 1), r)
        edge = abs(ndtri(1 / (len(r) + 1)))
        factor = np.maximum(np.abs(ndtri(q)) / edge, 1.0)
        return inside * factor

    def cdf(self, z: Array | float) -> Array:
        """The inverse of `quantile`."""
        z = np.asarray(z, dtype=float)
        nu = self.degrees_of_freedom
        if nu is not None:
            return stdtr(nu, z * np.sqrt(nu / (nu - 2)))
        if self.name == "gaussian":
            return ndtr(z)
        q = np.append(ndtr(np.linspace(-8, 0, 4001)), 1 - ndtr(np.linspace(-8, 0, 4001)[-2::-1]))
        return np.interp(z, np.maximum.accumulate(self.quantile(q)), q)


GAUSSIAN = Shape()


def fit_shape(residuals: Array, rng: np.random.Generator) -> tuple[Shape, dict[str, float]]:
    """The best shape for (y* − μ*)/σ*, and the scores of all: mean CRPS in units of σ*, out of fold."""
    if len(residuals) < _FEWEST:
        return GAUSSIAN, {}
    fold = rng.permutation(len(residuals)) % _FOLDS
    scores = dict.fromkeys(_FITS, 0.0)
    for name, fit in _FITS.items():
        losses = [_crps(fit(residuals[fold != k]), residuals[fold == k]) for k in range(_FOLDS)]
        scores[name] = float(np.mean(losses))
    best = min(scores, key=scores.__getitem__)
    return _FITS[best](residuals), scores


def _student_t(residuals: Array) -> Shape:
    observed = Prediction(np.zeros_like(residuals), np.full_like(residuals, max(np.mean(residuals**2), 1e-12)))

    def loss(log_nu: float) -> float:
        return metrics.log_score(residuals, Prediction(observed.mean, observed.variance, 2 + np.exp(log_nu)))

    found = minimize_scalar(loss, bounds=(np.log(0.2), np.log(100.0)), method="bounded")
    return Shape("student_t", float(2 + np.exp(found.x)))


_FITS = {
    "gaussian": lambda residuals: GAUSSIAN,
    "student_t": _student_t,
    "empirical": lambda residuals: Shape("empirical", residuals=np.sort(residuals)),
}


def _crps(shape: Shape, residuals: Array) -> float:
    """Twice the mean pinball loss over the levels, which is CRPS as they become dense."""
    excess = residuals[:, None] - shape.quantile(_LEVELS)
    return float(2 * np.mean(np.maximum(_LEVELS * excess, (_LEVELS - 1) * excess)))
